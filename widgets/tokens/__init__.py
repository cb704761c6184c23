"""Token strips: what the model reads, one box a token, white space visible."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Tokens(anywidget.AnyWidget):
    """`rows` are strips: `{"label", "pieces", "marks"?, "note"?, "values"?, "ids"?, "tone"?}`.

    `pieces` are the tokens' texts; `marks` the indices to outline (tokens that differ), in the row's `tone`,
    "pos" for the first row and "neg" for the others unless named; `values` one number a token that shades it, full at `vmax`
    (NaN or None: unshaded); `ids` are told on hover; `note` stands after the strip. `selected` is the position
    a person chose, over all rows at once, or None.
    """

    _esm = esm("tokens")
    _css = css("tokens")

    rows = t.List(t.Dict()).tag(sync=True)
    value_title = t.Unicode().tag(sync=True)
    vmax = t.Float(1.0).tag(sync=True)
    selected = t.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        value_title: str = "probability",
        vmax: float = 1.0,
        selected: int | None = None,
    ) -> None:
        super().__init__(rows=plain(rows), value_title=value_title, vmax=vmax, selected=selected)

    def update(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Shows other strips and keeps the selected position."""
        self.rows = plain(rows)
