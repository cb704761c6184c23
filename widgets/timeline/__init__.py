"""A profile as a zoomable timeline and a table of operators; each narrows the other, in the page alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import numpy as np
import traitlets as t

from widgets.assets import HERE, css
from widgets.numbers import plain

# events by column: name in the JS and type there; widest first, so that every column is aligned
COLUMNS = (
    ("start", "<f8"), ("duration", "<f4"), ("self_time", "<f4"), ("flops", "<f4"), ("bytes", "<f4"),
    ("device", "<f4"), ("name", "<u4"), ("lane", "<u2"), ("depth", "<u2"),
)  # fmt: skip


def _code() -> str:
    """The shared code, the table widget as a function, then the timeline, which draws one under itself."""
    base, table, events, own = (
        (HERE / part).read_text("utf-8")
        for part in ("base.js", "table/widget.js", "timeline/events.js", "timeline/widget.js")
    )
    table = table.replace("export default { render };", "return render;")
    return f"{base}\nconst drawTable = (() => {{\n{table}\n}})();\n{events}\n{own}"


class Timeline(anywidget.AnyWidget):
    """Events as columns (times in microseconds), sorted by start: `start`, `duration`, `self_time`, `name` (index
    into `names`), `lane` (index into `lanes`), `depth` in the lane, `flops`, `bytes`, `device` (GPU time it launched).

    `names` are `{"name", "kind", "group", "shapes"}`; `memory` is (times, bytes), drawn under the lanes.
    `selected` lists names chosen in either part, `filter` is the text looked for, `window` the microseconds in
    view. The table counts what is in view.
    """

    _esm = _code()
    _css = css("table") + "\n" + (HERE / "timeline" / "widget.css").read_text("utf-8")

    data = t.Bytes(help="the columns one after another").tag(sync=True)
    count = t.Int().tag(sync=True)
    names = t.List(t.Dict()).tag(sync=True)
    lanes = t.List(t.Unicode()).tag(sync=True)
    memory_data = t.Bytes(help="float64 times, then float64 bytes").tag(sync=True)
    selected = t.List(t.Unicode()).tag(sync=True)
    filter = t.Unicode().tag(sync=True)
    window = t.List(t.Float()).tag(sync=True)

    def __init__(
        self,
        *,
        names: Sequence[Mapping[str, Any]],
        lanes: Sequence[str],
        memory: tuple[Any, Any] = ((), ()),
        selected: Sequence[str] = (),
        filter: str = "",
        **columns: Any,
    ) -> None:
        arrays = {key: np.ascontiguousarray(columns.pop(key), dtype=kind) for key, kind in COLUMNS}
        if columns:
            raise TypeError(f"a timeline has no column {next(iter(columns))!r}")
        count = len(arrays["start"])
        if any(array.shape != (count,) for array in arrays.values()):
            raise ValueError("the columns of a timeline must be of one length")
        if count and (np.diff(arrays["start"]) < 0).any():
            raise ValueError("the events of a timeline must be sorted by start")
        super().__init__(
            data=b"".join(array.tobytes() for array in arrays.values()),
            count=count,
            names=plain(names),
            lanes=list(lanes),
            memory_data=b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in memory),
            selected=list(selected),
            filter=filter,
        )
