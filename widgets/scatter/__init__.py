"""Points of two measures of the same things, with their diagonal: hover, brush to choose, watch them move."""

from collections.abc import Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import css, esm


class Scatter(anywidget.AnyWidget):
    """`x` and `y` hold one number a point; a NaN in `x` is "not measured yet": the point waits hollow on the diagonal
    and moves to its place when `update` gives it. `colour` shades points (a layer), named by `colour_title`.

    `labels` name the points on hover. `selected` lists the indices a person brushed or clicked. Both axes share one
    range, and Pearson's r over the measured points stands beside the title.
    """

    _esm = esm("scatter")
    _css = css("scatter")

    x = t.Bytes(help="float32").tag(sync=True)
    y = t.Bytes(help="float32").tag(sync=True)
    colour = t.Bytes(help="float32").tag(sync=True)
    labels = t.List(t.Unicode()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    x_title = t.Unicode().tag(sync=True)
    y_title = t.Unicode().tag(sync=True)
    colour_title = t.Unicode().tag(sync=True)
    selected = t.List(t.Int()).tag(sync=True)

    def __init__(
        self,
        x: Any,
        y: Any,
        colour: Any = None,
        labels: Sequence[str] | None = None,
        title: str = "",
        x_title: str = "x",
        y_title: str = "y",
        colour_title: str = "",
        selected: Sequence[int] = (),
    ) -> None:
        ys = _column("y", y, None)
        n = len(ys)
        super().__init__(
            x=_column("x", x, n).tobytes(),
            y=ys.tobytes(),
            colour=_column("colour", np.zeros(n) if colour is None else colour, n).tobytes(),
            labels=[str(i) for i in range(n)] if labels is None else [str(label) for label in labels],
            title=title,
            x_title=x_title,
            y_title=y_title,
            colour_title=colour_title,
            selected=list(selected),
        )
        if len(self.labels) != n:
            raise ValueError(f"labels has {len(self.labels)} entries for {n} points")

    @property
    def points(self) -> np.ndarray:
        """float32 [points, 2]: x and y."""
        return np.stack([np.frombuffer(column, "<f4") for column in (self.x, self.y)], axis=1)

    def update(self, x: Any) -> None:
        """Moves the points to new x; NaN leaves a point on the diagonal."""
        self.x = _column("x", x, len(self.labels)).tobytes()


def _column(name: str, values: Any, n: int | None) -> np.ndarray:
    array = np.ascontiguousarray(values, dtype="<f4")
    if array.ndim != 1 or (n is not None and len(array) != n):
        raise ValueError(f"{name} must be one number for each of {n if n is not None else 'the'} points, got {list(array.shape)}")
    return array
