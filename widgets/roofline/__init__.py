"""The roofline: achieved FLOP/s against arithmetic intensity, under what the hardware allows."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Roofline(anywidget.AnyWidget):
    """`ceilings` are `{"name", "flops_per_s", "bytes_per_s"}`; `points` `{"label", "intensity" (FLOP/byte),
    "flops_per_s", "group"?, "note"?}`. A point under a ceiling is told as a share of
    min(flops_per_s, intensity x bytes_per_s). `selected` is the index of the chosen point, or None."""

    _esm = esm("roofline")
    _css = css("roofline")

    ceilings = t.List(t.Dict()).tag(sync=True)
    points = t.List(t.Dict()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    selected = t.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        ceilings: Sequence[Mapping[str, Any]],
        points: Sequence[Mapping[str, Any]] = (),
        title: str = "",
        selected: int | None = None,
    ) -> None:
        for ceiling in ceilings:
            if not (ceiling["flops_per_s"] > 0 and ceiling["bytes_per_s"] > 0):
                raise ValueError(f"ceiling {ceiling['name']!r} needs positive FLOP/s and bytes/s")
        _check(points)
        super().__init__(ceilings=plain(ceilings), points=plain(points), title=title, selected=selected)

    def update(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Shows other points under the same ceilings."""
        _check(points)
        self.points = plain(points)


def _check(points: Sequence[Mapping[str, Any]]) -> None:
    for point in points:
        if not (point["intensity"] > 0 and point["flops_per_s"] > 0):
            raise ValueError(f"point {point['label']!r} has no place on logarithmic axes: intensity and FLOP/s must be positive")
