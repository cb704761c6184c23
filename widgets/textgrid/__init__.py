"""A grid of words: what a model would say in each cell, shaded by how sure it is, with everything else on hover."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import css, esm

NONE = 0xFFFFFFFF  # a cell without a text


@dataclass(frozen=True)
class View:
    """One filling of the grid. `words` and `probs` are [row][column][k], likeliest first; `shades` maps the key of a
    shading to [row][column] values, NaN for none; `texts` [row][column] stands in the tooltip (a continuation)."""

    name: str
    words: Sequence[Sequence[Sequence[str]]]
    probs: Any
    shades: Mapping[str, Any]
    texts: Sequence[Sequence[str]] | None = None


class TextGrid(anywidget.AnyWidget):
    """Views of one shape to switch between. Row 0 is at the bottom.

    `shades` are `{"key", "title", "unit"?, "vmax"?}`, full at `vmax` (None: the largest value); `view` and `shade` are
    the chosen ones by place, `selected` the chosen cell `[row, column]` or empty.
    """

    _esm = esm("textgrid")
    _css = css("textgrid")

    table = t.List(t.Unicode(), help="every different string").tag(sync=True)
    words = t.Bytes(help="uint32 into the table, [view, row, column, k]").tag(sync=True)
    probs = t.Bytes(help="float32, [view, row, column, k]").tag(sync=True)
    values = t.Bytes(help="float32, [view, shade, row, column]").tag(sync=True)
    texts = t.Bytes(help="uint32 into the table, [view, row, column]").tag(sync=True)
    shape = t.List(t.Int(), help="rows, columns, k").tag(sync=True)
    views = t.List(t.Unicode()).tag(sync=True)
    shades = t.List(t.Dict()).tag(sync=True)
    row_labels = t.List(t.Unicode()).tag(sync=True)
    col_labels = t.List(t.Unicode()).tag(sync=True)
    row_title = t.Unicode().tag(sync=True)
    col_title = t.Unicode().tag(sync=True)
    title = t.Unicode().tag(sync=True)
    view = t.Int().tag(sync=True)
    shade = t.Int().tag(sync=True)
    selected = t.List(t.Int()).tag(sync=True)

    def __init__(
        self,
        views: Sequence[View],
        shades: Sequence[Mapping[str, Any]],
        row_labels: Sequence[Any],
        col_labels: Sequence[Any],
        row_title: str = "layer",
        col_title: str = "token position",
        title: str = "",
        view: int = 0,
        selected: Sequence[int] = (),
    ) -> None:
        super().__init__(
            **_packed(views, shades, len(row_labels), len(col_labels)),
            shades=[dict(shade) for shade in shades],
            row_labels=[str(label) for label in row_labels],
            col_labels=[str(label) for label in col_labels],
            row_title=row_title,
            col_title=col_title,
            title=title,
            view=view,
            selected=list(selected),
        )


def _packed(views: Sequence[View], shades: Sequence[Mapping[str, Any]], rows: int, cols: int) -> dict[str, Any]:
    table: dict[str, int] = {}

    def number(text: str) -> int:
        return table.setdefault(text, len(table))

    words, probs, values, texts = [], [], [], []
    for view in views:
        chances = np.asarray(view.probs, "<f4")
        found = np.array([[[number(word) for word in cell] for cell in row] for row in view.words], "<u4")
        if found.shape != chances.shape or found.shape[:2] != (rows, cols):
            raise ValueError(f"{view.name!r} is {list(found.shape)} words and {list(chances.shape)} chances for {rows} x {cols} cells")
        words.append(found)
        probs.append(chances)
        for shade in shades:
            value = np.asarray(view.shades[shade["key"]], "<f4")
            if value.shape != (rows, cols):
                raise ValueError(f"the shading {shade['key']!r} of {view.name!r} is {list(value.shape)} for {rows} x {cols} cells")
            values.append(value)
        told = [[NONE] * cols] * rows if view.texts is None else [[number(text) for text in row] for row in view.texts]
        texts.append(np.array(told, "<u4"))
    return {
        "table": list(table), "words": np.stack(words).tobytes(), "probs": np.stack(probs).tobytes(),
        "values": np.stack(values).tobytes(), "texts": np.stack(texts).tobytes(),
        "shape": [rows, cols, words[0].shape[2]], "views": [view.name for view in views],
    }  # fmt: skip
