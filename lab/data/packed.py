"""Packed token streams: documents one after another, each begun by the end-of-text token."""

import itertools
import lzma
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
        """Write as xz of 16-bit (32-bit for large vocabularies) little-endian integers."""
        wide = int(self.tokens.max(initial=0)) > 0xFFFF
        data = self.tokens.astype("<u4" if wide else "<u2").tobytes()
        aside = path.with_suffix(".part")
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(aside, "wb", preset=2) as out:
            out.write((b"4" if wide else b"2") + data)
        aside.rename(path)

    @classmethod
    def load(cls, path: Path, mark: int) -> "Stream":
        """Read what `save` wrote; LabError when it is cut short."""
        try:
            with lzma.open(path) as file:
                data = file.read()
        except (EOFError, lzma.LZMAError):
            raise LabError(f"The token stream {path} is damaged: delete it and build it again.") from None
        return cls(np.frombuffer(data[1:], "<u4" if data[:1] == b"4" else "<u2").astype(np.int32), mark)


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
