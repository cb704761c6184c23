"""A weighted mixture of token streams, drawn so that step n always sees the same rows.

Nothing is remembered between steps: the rows of step n come from a generator seeded by (seed, n), so a resumed
run continues exactly where it stopped, on any machine."""

from collections.abc import Mapping

import numpy as np
import torch

from lab.data.packed import Stream
from lab.errors import LabError

# pages of these are short and complete: a window starts where a page starts, half the time without its mark, so
# that a bare prompt looks as usual to the model as one after the end-of-text token
ALIGNED = frozenset({"facts", "first", "ioi", "sums", "repeats"})


class Mixture:
    """Streams by domain with their weights; batches are `[rows, context + 1]` int64 tokens."""

    def __init__(self, streams: Mapping[str, Stream], weights: Mapping[str, float], context: int, seed: int,
                 device: torch.device | str = "cpu") -> None:  # fmt: skip
        names = [n for n, w in weights.items() if w > 0]
        if not names:
            raise LabError("The mixture is empty: give at least one domain a positive weight.")
        for name in names:
            if len(streams[name]) < 2 * (context + 1):
                raise LabError(
                    f"{name} has {len(streams[name]):,} tokens, too few for windows of {context}: "
                    "use more text or a shorter context."
                )
        self.names, self.context, self.seed = names, context, seed
        total = sum(weights[n] for n in names)
        self.shares = np.array([weights[n] / total for n in names])
        self.streams = [streams[n] for n in names]
        sizes = [len(s) for s in self.streams]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.tokens = torch.from_numpy(np.concatenate([s.tokens for s in self.streams])).to(device)
        self.window = torch.arange(context + 1, device=device)

    def rows(self, step: int, rows: int) -> np.ndarray:
        """First token of each row of a step, in the joined stream."""
        rng = np.random.default_rng([self.seed, step])
        counts = np.floor(self.shares * rows + rng.random()).astype(int) if len(self.names) == 1 else None
        counts = counts if counts is not None else rng.multinomial(rows, self.shares)
        starts = []
        for name, stream, offset, count in zip(self.names, self.streams, self.offsets, counts):
            last = len(stream) - self.context - 1
            if name in ALIGNED:
                usable = int(np.searchsorted(stream.starts, last))
                at = stream.starts[rng.integers(0, max(usable, 1), count)] + rng.integers(0, 2, count)
            else:
                at = rng.integers(0, last + 1, count)
            starts.append(at + offset)
        return rng.permutation(np.concatenate(starts))[:rows]

    def batch(self, step: int, rows: int) -> torch.Tensor:
        """The tokens of one step: inputs are `[:, :-1]`, targets `[:, 1:]`."""
        starts = torch.from_numpy(self.rows(step, rows)).to(self.tokens.device, non_blocking=True)
        return self.tokens[starts[:, None] + self.window].long()
