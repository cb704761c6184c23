"""Live line charts of one or several runs: panels that share the x axis, a linked cursor, smoothing, zoom."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import css, esm

TAIL = 512  # rows sent again with every append
MIDDLE = 8192  # rows sent again each time the tail is full


class Curves(anywidget.AnyWidget):
    """`panels` are the charts, `{"key", "title", "unit"?, "log"?, "zero"?}`; `series` the runs, `{"id", "label"}`.

    A row is a mapping with the x key, the panels' keys (any may be missing) and optionally `run`, the series it
    belongs to; a series not seen before is added. Rows live in three byte traits, a short tail and two longer
    parts it is merged into, so that an append costs the tail alone while every trait together always holds the
    whole history: a page that opens late, and an exported one, show all of it. `append` may be called from any
    thread. `cursor` is the x a person pinned (a click, or the arrow keys), `hidden` the series switched off.
    """

    _esm = esm("curves")
    _css = css("curves")

    series = t.List(t.Dict()).tag(sync=True)
    panels = t.List(t.Dict()).tag(sync=True)
    x_title = t.Unicode().tag(sync=True)
    tail = t.Bytes(help="float64 rows: series number, x, one value a panel").tag(sync=True)
    middle = t.Bytes().tag(sync=True)
    base = t.Bytes().tag(sync=True)
    hidden = t.List(t.Unicode()).tag(sync=True)
    log = t.List(t.Unicode(), help="keys of panels on a logarithmic axis").tag(sync=True)
    smoothing = t.Float(0.0).tag(sync=True)
    cursor = t.Float(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        series: Sequence[Mapping[str, str]] = (),
        panels: Sequence[Mapping[str, Any]] = ({"key": "loss", "title": "Loss", "unit": "nats/token"},),
        cursor: float | None = None,
        x: str = "step",
        x_title: str | None = None,
        rows: Sequence[Mapping[str, Any]] = (),
        smoothing: float = 0.0,
    ) -> None:
        self.x = x
        self._lock = threading.Lock()
        super().__init__(
            series=[dict(one) for one in series],
            panels=[dict(one) for one in panels],
            x_title=x if x_title is None else x_title,
            log=[one["key"] for one in panels if one.get("log")],
            smoothing=smoothing,
            cursor=cursor,
        )
        self.append(rows)

    def append(self, rows: Sequence[Mapping[str, Any]], series: str | None = None) -> None:
        """Adds rows, of the named series or of each row's `run` (else the first series)."""
        if not rows:
            return
        with self._lock, self.hold_sync():
            known = {one["id"]: i for i, one in enumerate(self.series)}
            for row in rows:
                name = self._owner(row, series)
                if name not in known:
                    known[name] = len(known)
                    self.series = [*self.series, {"id": name, "label": name}]
            keys = [self.x, *(panel["key"] for panel in self.panels)]
            block = np.full((len(rows), 1 + len(keys)), np.nan, "<f8")
            for i, row in enumerate(rows):
                block[i, 0] = known[self._owner(row, series)]
                for j, key in enumerate(keys, 1):
                    if isinstance(value := row.get(key), int | float | np.number):
                        block[i, j] = value
            width = block.shape[1] * 8
            tail = self.tail + block.tobytes()
            if len(tail) > TAIL * width:
                middle, tail = self.middle + tail, b""
                if len(middle) > MIDDLE * width:
                    self.base, middle = self.base + middle, b""
                self.middle = middle
            self.tail = tail

    def clear(self) -> None:
        """Forgets every row and keeps the series."""
        with self._lock, self.hold_sync():
            self.base = self.middle = self.tail = b""

    @property
    def data(self) -> np.ndarray:
        """Every row so far, float64 [rows, 2 + panels]: series number, x, the panels' values."""
        return np.frombuffer(self.base + self.middle + self.tail, "<f8").reshape(-1, 2 + len(self.panels))

    def _owner(self, row: Mapping[str, Any], series: str | None) -> str:
        if series is not None:
            return series
        if "run" in row:
            return str(row["run"])
        return self.series[0]["id"] if self.series else "run"
