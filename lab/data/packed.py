"""Packed token streams: documents one after another, each begun by the end-of-text token."""

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import tokenizers

from lab.errors import LabError

BATCH = 2_000  # documents tokenised at a time


@dataclass(frozen=True)
class Stream:
    """Tokens `[n]` of one domain; `mark` is the token that begins each document."""

    tokens: np.ndarray
    mark: int

    @cached_property
    def starts(self) -> np.ndarray:
        """Where documents begin."""
        return np.flatnonzero(self.tokens == self.mark)

    def __len__(self) -> int:
        return len(self.tokens)

    def save(self, path: Path) -> None:
        """Write as a numpy file of 16-bit integers (32-bit for large vocabularies), renamed into place."""
        small = int(self.tokens.max(initial=0)) <= 0xFFFF
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}.npy")  # two runs may make the same stream
        np.save(aside, self.tokens.astype(np.uint16 if small else np.uint32))
        aside.rename(path)

    @classmethod
    def load(cls, path: Path, mark: int) -> "Stream":
        """Read what `save` wrote; LabError when it is cut short."""
        try:
            tokens = np.load(path, allow_pickle=False)
        except (ValueError, EOFError):
            raise LabError(f"The token stream {path} is damaged: delete it and start again.") from None
        return cls(tokens.astype(np.int32), mark)


def tokenise(tokenizer: tokenizers.Tokenizer, texts: Iterable[str], mark: int, limit: int | None = None) -> Stream:
    """Encode documents until there are `limit` tokens (all of them without a limit)."""
    parts: list[np.ndarray] = []
    size = 0
    pending: Iterator[str] = iter(texts)
    batch = BATCH if limit is None else max(1, min(BATCH, limit // 20))
    while (limit is None or size < limit) and (texts_now := list(itertools.islice(pending, batch))):
        encoded = tokenizer.encode_batch_fast(texts_now, add_special_tokens=False)
        flat = np.fromiter(itertools.chain.from_iterable([mark, *e.ids] for e in encoded), dtype=np.int32)
        parts.append(flat)
        size += len(flat)
    tokens = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return Stream(tokens[:limit], mark)
