"""The state of one run, live: progress, latest numbers, latest samples, and buttons to cancel and resume."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm


class RunMonitor(anywidget.AnyWidget):
    """Traits may be set from any thread; no cell runs again for it.

    `figures` says which numbers are shown, `{"key", "label", "unit"?}`, and `values` holds them. `samples` are
    `{"step", "prompt", "text"}`, newest last. `act` is called with "cancel" or "resume" when a button is pressed;
    what it returns, a sentence, is shown. `ended` counts the endings the page has seen: cells that depend on it
    run again when the run ends, and only then.
    """

    _esm = esm("run_monitor")
    _css = css("run_monitor")

    run = t.Unicode(help="id of the run").tag(sync=True)
    label = t.Unicode().tag(sync=True)
    state = t.Unicode().tag(sync=True)
    message = t.Unicode(help="one sentence: an error, or what a button did").tag(sync=True)
    step = t.Int(0).tag(sync=True)
    steps = t.Int(0).tag(sync=True)
    seconds = t.Float(0.0, help="working time so far").tag(sync=True)
    left = t.Float(None, allow_none=True, help="seconds to go").tag(sync=True)
    figures = t.List(t.Dict()).tag(sync=True)
    values = t.Dict().tag(sync=True)
    samples = t.List(t.Dict()).tag(sync=True)
    live = t.Bool(True, help="False in a page nobody serves: no buttons").tag(sync=True)
    ended = t.Int(0).tag(sync=True)

    def __init__(
        self,
        figures: Sequence[Mapping[str, str]],
        act: Callable[[str], str | None] | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(figures=[dict(one) for one in figures], live=act is not None, **traits)
        if act is not None:
            self.on_msg(lambda _widget, message, _buffers: self._asked(message, act))

    def _asked(self, message: Any, act: Callable[[str], str | None]) -> None:
        if isinstance(message, dict) and message.get("do") in ("cancel", "resume"):
            self.message = act(message["do"]) or ""
