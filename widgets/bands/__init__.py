"""Lines with confidence bands in panels side by side, which may still be filling."""

from collections.abc import Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import css, esm


class Bands(anywidget.AnyWidget):
    """`mean` and `half` are [panel, series, x]: a line and how far its band reaches to either side (NaN: none).

    `panels` and `series` are names; a series keeps its hue and its marker in every panel. All panels share the range
    of their y axis. `hidden` lists the series switched off, `title` stands above, `note` below.
    """

    _esm = esm("bands")
    _css = css("bands")

    data = t.Bytes(help="float32 [2, panel, series, x]: mean, half width").tag(sync=True)
    panels = t.List(t.Unicode()).tag(sync=True)
    series = t.List(t.Unicode()).tag(sync=True)
    xs = t.List(t.Float()).tag(sync=True)
    x_title = t.Unicode().tag(sync=True)
    y_title = t.Unicode().tag(sync=True)
    title = t.Unicode().tag(sync=True)
    note = t.Unicode().tag(sync=True)
    hidden = t.List(t.Unicode()).tag(sync=True)

    def __init__(
        self,
        panels: Sequence[str],
        series: Sequence[str],
        xs: Sequence[float],
        mean: Any = None,
        half: Any = None,
        x_title: str = "",
        y_title: str = "",
        title: str = "",
        note: str = "",
    ) -> None:
        super().__init__(
            panels=list(panels), series=list(series), xs=[float(x) for x in xs], x_title=x_title, y_title=y_title,
            title=title, note=note,
        )  # fmt: skip
        blank = np.full((len(panels), len(series), len(xs)), np.nan)
        self.update(blank if mean is None else mean, blank if half is None else half)

    def update(self, mean: Any, half: Any, note: str | None = None) -> None:
        """Other lines of the same shape."""
        both = np.ascontiguousarray(np.stack([np.asarray(mean), np.asarray(half)]), dtype="<f4")
        if both.shape[1:] != (shape := (len(self.panels), len(self.series), len(self.xs))):
            raise ValueError(f"mean and half must be {shape}, got {both.shape[1:]}")
        with self.hold_sync():
            self.data = both.tobytes()
            if note is not None:
                self.note = note

    @property
    def values(self) -> np.ndarray:
        """float32 [2, panel, series, x]."""
        return np.frombuffer(self.data, "<f4").reshape(2, len(self.panels), len(self.series), len(self.xs))
