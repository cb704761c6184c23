"""A heat map to choose cells on: click, shift-click, drag, or arrow keys and space."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import css, esm


class Heatmap(anywidget.AnyWidget):
    """`values` [rows][cols] on a diverging scale centred on zero; NaN is "not computed yet" and drawn hatched.

    Row 0 is at the bottom. `selected` lists the chosen cells as `[row, col]`. `details` maps "row,col" to
    `{"title", "text", "bars": [[token, probability], ...]}`, shown beside the map when exactly that cell is
    selected, in exported pages too. `col_labels2` stands under `col_labels` wherever it differs (the corrupted
    prompt under the clean one). `channel` names the map to other widgets of the page: a choice made on it is told to
    them at once by the DOM event `lab:cells`, in exported pages too. `frames` [step][rows][cols], set by `film`, are
    shown in place of `data`: the newest, until a scrubber of the same channel chooses one of `steps`. `vmax` is where the scale is full; None takes the largest absolute value.
    """

    _esm = esm("heatmap")
    _css = css("heatmap")

    data = t.Bytes(help="float32, row-major").tag(sync=True)
    frames = t.Bytes(help="float32, row-major").tag(sync=True)
    steps = t.List(t.Int()).tag(sync=True)
    shape = t.List(t.Int()).tag(sync=True)
    row_labels = t.List(t.Unicode()).tag(sync=True)
    col_labels = t.List(t.Unicode()).tag(sync=True)
    col_labels2 = t.List(t.Unicode()).tag(sync=True)
    row_title = t.Unicode().tag(sync=True)
    col_title = t.Unicode().tag(sync=True)
    value_title = t.Unicode().tag(sync=True)
    unit = t.Unicode().tag(sync=True)
    vmax = t.Float(None, allow_none=True).tag(sync=True)
    details = t.Dict().tag(sync=True)
    selected = t.List(t.List(t.Int())).tag(sync=True)
    channel = t.Unicode().tag(sync=True)

    def __init__(
        self,
        values: Any,
        row_labels: Sequence[Any] | None = None,
        col_labels: Sequence[Any] | None = None,
        col_labels2: Sequence[Any] | None = None,
        row_title: str = "",
        col_title: str = "",
        value_title: str = "",
        unit: str = "",
        vmax: float | None = None,
        details: Mapping[str, Mapping[str, Any]] | None = None,
        selected: Sequence[Sequence[int]] = (),
        channel: str = "",
    ) -> None:
        array = _matrix(values)
        rows, cols = array.shape
        super().__init__(
            data=array.tobytes(),
            shape=[rows, cols],
            row_labels=_labels("row_labels", row_labels, rows),
            col_labels=_labels("col_labels", col_labels, cols),
            col_labels2=_labels("col_labels2", col_labels2, cols) if col_labels2 is not None else [],
            row_title=row_title,
            col_title=col_title,
            value_title=value_title,
            unit=unit,
            vmax=vmax,
            details=dict(details or {}),
            selected=[list(cell) for cell in selected],
            channel=channel,
        )

    @property
    def values(self) -> np.ndarray:
        """The matrix, float32 [rows, cols]."""
        return np.frombuffer(self.data, "<f4").reshape(self.shape)

    def update(self, values: Any) -> None:
        """Shows new values of the same shape and keeps the selection."""
        array = _matrix(values)
        if list(array.shape) != self.shape:
            raise ValueError(f"the heat map is {self.shape[0]} x {self.shape[1]}, the new values are {array.shape[0]} x {array.shape[1]}")
        self.data = array.tobytes()

    def film(self, steps: Sequence[int], frames: Any) -> None:
        """Shows one matrix a step, `frames` [step][rows][cols]; the scale is that of all of them together."""
        array = np.ascontiguousarray(frames, dtype="<f4")
        if array.shape != (len(steps), *self.shape):
            raise ValueError(f"{len(steps)} steps of a {self.shape[0]} x {self.shape[1]} map are not {array.shape}")
        with self.hold_sync():
            self.frames, self.steps = array.tobytes(), [int(step) for step in steps]


def _matrix(values: Any) -> np.ndarray:
    array = np.ascontiguousarray(values, dtype="<f4")
    if array.ndim != 2:
        raise ValueError(f"a heat map takes a matrix, got {array.ndim} dimensions")
    return array


def _labels(name: str, labels: Sequence[Any] | None, n: int) -> list[str]:
    if labels is None:
        return [str(i) for i in range(n)]
    if len(labels) != n:
        raise ValueError(f"{name} has {len(labels)} entries for {n} cells")
    return [str(label) for label in labels]
