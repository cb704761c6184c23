"""Estimates with their intervals: a mark for the value, a line from end to end, rows and series side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Intervals(anywidget.AnyWidget):
    """`rows` are `{"label", "series", "value", "low", "high", "note"?}`; rows of one label stand together, one line a
    series. `low` and `high` of the axis are `span`; a line is drawn at `at`, where there is one (zero for a
    difference). Values are told in percent when `percent`."""

    _esm = esm("intervals")
    _css = css("intervals")

    rows = t.List(t.Dict()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    span = t.List(t.Float()).tag(sync=True)
    at = t.Float(None, allow_none=True).tag(sync=True)
    percent = t.Bool(True).tag(sync=True)

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]] = (),
        title: str = "",
        span: tuple[float, float] = (0.0, 1.0),
        at: float | None = None,
        percent: bool = True,
    ) -> None:
        if not span[0] < span[1]:
            raise ValueError(f"an axis from {span[0]} to {span[1]} has no length")
        super().__init__(rows=plain(rows), title=title, span=list(span), at=at, percent=percent)

    def update(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Shows other estimates on the same axis."""
        self.rows = plain(rows)
