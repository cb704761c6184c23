"""Top tokens with bars; with `compare`, what each was before."""

from collections.abc import Iterable
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Bars(anywidget.AnyWidget):
    """`rows` is `[[label, value], ...]`, best first. `compare` is the same before the change: labels found in only
    one of the two are shown with a dash for the other. Bars are full at `vmax`, None: at the largest value."""

    _esm = esm("bars")
    _css = css("bars")

    rows = t.List(t.Any()).tag(sync=True)
    compare = t.List(t.Any()).tag(sync=True)
    unit = t.Unicode().tag(sync=True)
    title = t.Unicode().tag(sync=True)
    names = t.List(t.Unicode()).tag(sync=True)
    vmax = t.Float(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        rows: Iterable[Any],
        unit: str = "probability",
        compare: Iterable[Any] = (),
        title: str = "",
        names: tuple[str, str] = ("before", "after"),
        vmax: float | None = None,
    ) -> None:
        super().__init__(
            rows=_pairs(rows),
            unit=unit,
            compare=_pairs(compare),
            title=title,
            names=list(names),
            vmax=vmax,
        )

    def update(self, rows: Iterable[Any], compare: Iterable[Any] = ()) -> None:
        """Shows other values."""
        with self.hold_sync():
            self.rows = _pairs(rows)
            self.compare = _pairs(compare)


def _pairs(rows: Iterable[Any]) -> list[Any]:
    return [[str(label), plain(float(value))] for label, value in rows]
