"""Activations of a model on text: computed as they are needed, shuffled, the same for the same step on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.sites import Hook, keep
from lab.data.mixture import Mixture
from lab.models import Decoder


@torch.no_grad()
def at_sites(model, tokens: Tensor, names: Sequence[str], hooks: dict[str, Hook] | None = None) -> dict[str, Tensor]:
    """Activations `[batch, pos, d]` by hook name for `tokens [batch, pos]`; our own decoder stops after the last."""
    kept: dict[str, Tensor] = {}
    wanted = {**(hooks or {}), **keep(names, kept)}
    if isinstance(model, Decoder):
        model.check(tokens, wanted)
        resid = model.embed_tokens(tokens, wanted)
        for layer in range(1 + max(int(name.split(".")[1]) for name in names)):
            resid = model.run_block(layer, resid, wanted)
    else:
        model(tokens, hooks=wanted, last=True)
    return kept


@dataclass(frozen=True)
class Scale:
    """Activations are trained on as (x - mean) / size: of mean zero, and of length one in the median.

    The median, since a model may write vectors ten times as long as all others at the first position, where heads
    look that have nothing to say (Sun et al. 2024, "Massive activations").
    """

    mean: Tensor  # [d]
    size: float

    @classmethod
    def of(cls, x: Tensor) -> Scale:
        """From a sample `[n, d]`."""
        mean = x.mean(0)
        return cls(mean, float((x - mean).norm(dim=1).median().clamp_min(1e-8)))

    def apply(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.size


class Pool:
    """Shuffled activations on a mixture of text, `batch` positions a step, in float32.

    The windows of `rows` texts are run through the model and their positions shuffled together; that lasts for
    `steps_each` steps. Nothing is remembered but the pool at hand: step n always gets the same positions, so a
    resumed run goes on exactly where it stopped.
    """

    def __init__(self, model, mixture: Mixture, names: Sequence[str], rows: int, batch: int) -> None:
        self.model, self.mixture, self.names = model, mixture, list(dict.fromkeys(names))
        self.rows, self.size = rows, batch
        self.steps_each = rows * mixture.context // batch
        self._at = -1
        self._pool: dict[str, Tensor] = {}
        self._order = torch.empty(0, dtype=torch.long)

    def batch(self, step: int) -> dict[str, Tensor]:
        """By hook name, `[batch, d]`."""
        index, within = divmod(step, self.steps_each)
        if index != self._at:
            self._fill(index)
        chosen = self._order[within * self.size : (within + 1) * self.size]
        return {name: x[chosen].float() for name, x in self._pool.items()}

    def _fill(self, index: int) -> None:
        tokens = self.mixture.batch(index, self.rows)[:, :-1]
        parts = [at_sites(self.model, part, self.names) for part in tokens.split(32)]
        self._pool = {name: torch.cat([p[name].flatten(0, 1) for p in parts]) for name in self.names}
        generator = torch.Generator().manual_seed(self.mixture.seed * 1_000_003 + index)
        self._order = torch.randperm(tokens.numel(), generator=generator).to(tokens.device)
        self._at = index

    def scales(self) -> dict[str, Scale]:
        """Mean and size of the activations by hook name, from the first pool."""
        if self._at != 0:
            self._fill(0)
        return {name: Scale.of(x.float()) for name, x in self._pool.items()}

