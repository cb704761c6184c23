"""A slider over checkpoints, with ticks, keys and a play button."""

from collections.abc import Sequence

import anywidget
import traitlets as t

from widgets.assets import css, esm


class Scrubber(anywidget.AnyWidget):
    """`steps` in rising order, `value` the one chosen, `labels` a text for each (a loss, say).

    `steps` may grow. While the handle stands at the end it follows, so that what depends on `value` keeps up with
    a run that is still going. `channel` names it to heat maps of the page that hold a frame for each step: they follow
    the handle by the DOM event `lab:step`.
    """

    _esm = esm("scrubber")
    _css = css("scrubber")

    steps = t.List(t.Int()).tag(sync=True)
    labels = t.List(t.Unicode()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    value = t.Int(None, allow_none=True).tag(sync=True)
    channel = t.Unicode().tag(sync=True)

    def __init__(
        self,
        steps: Sequence[int] = (),
        value: int | None = None,
        labels: Sequence[str] | None = None,
        title: str = "step",
        channel: str = "",
    ) -> None:
        steps = [int(step) for step in steps]
        if labels is not None and len(labels) != len(steps):
            raise ValueError(f"labels has {len(labels)} entries for {len(steps)} steps")
        if value is not None and value not in steps:
            raise ValueError(f"step {value} is not one of the {len(steps)} steps")
        super().__init__(
            steps=steps,
            labels=[] if labels is None else [str(label) for label in labels],
            title=title,
            channel=channel,
            value=value if value is not None else (steps[-1] if steps else None),
        )
