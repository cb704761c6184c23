"""Attention patterns: every head small, one large, and where each token looks."""

from collections.abc import Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import css, esm


class Attention(anywidget.AnyWidget):
    """`pattern` [head, query, key], weights in 0..1, carried as float16. `tokens` are the positions' texts,
    `labels` the heads' names. `selected` is the enlarged head, `query` the position a person pinned or None."""

    _esm = esm("attention")
    _css = css("attention")

    data = t.Bytes(help="float16, [head, query, key]").tag(sync=True)
    shape = t.List(t.Int()).tag(sync=True)
    tokens = t.List(t.Unicode()).tag(sync=True)
    labels = t.List(t.Unicode()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    selected = t.Int().tag(sync=True)
    query = t.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        pattern: Any,
        tokens: Sequence[str],
        selected: int = 0,
        labels: Sequence[Any] | None = None,
        title: str = "",
        query: int | None = None,
    ) -> None:
        array = _pattern(pattern, tokens)
        super().__init__(
            data=array.tobytes(),
            shape=list(array.shape),
            tokens=[str(token) for token in tokens],
            labels=[str(i) for i in (range(len(array)) if labels is None else labels)],
            title=title,
            selected=selected,
            query=query,
        )

    def update(self, pattern: Any, tokens: Sequence[str] | None = None) -> None:
        """Shows another pattern (another layer, another prompt) and keeps the enlarged head where it exists."""
        tokens = self.tokens if tokens is None else tokens
        array = _pattern(pattern, tokens)
        with self.hold_sync():
            self.data, self.shape, self.tokens = array.tobytes(), list(array.shape), [str(token) for token in tokens]
            if len(self.labels) != len(array):
                self.labels = [str(i) for i in range(len(array))]
            self.selected = min(self.selected, len(array) - 1)
            if self.query is not None and self.query >= len(tokens):
                self.query = None


def _pattern(pattern: Any, tokens: Sequence[str]) -> np.ndarray:
    array = np.ascontiguousarray(pattern, dtype="<f2")
    if array.ndim != 3 or array.shape[1:] != (len(tokens), len(tokens)):
        raise ValueError(f"a pattern is [head, query, key] over {len(tokens)} tokens, got {list(array.shape)}")
    return array
