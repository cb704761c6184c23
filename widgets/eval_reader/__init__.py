"""Every sample of an eval, to be read: what each model said, how likely each token was, and why the grader said so."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class EvalReader(anywidget.AnyWidget):
    """A list to filter and a reader beside it; everything travels with the widget.

    `samples` are `{"id", "group", "prompt", "answers", "results"}`, where `results` gives for each of `models` None or
    `{"completion", "right", "why", "failure"?, "prompt_steps", "steps", "choice"?}`; a step is
    `[text, probability or None, [[text, probability], ...]]`. `kinds` explains the failures. `show` is "all",
    "differ", "both wrong" or "wrong <model>", `failure` one of the kinds or empty, `filter` a text looked for.
    `selected` is the id of the sample being read.
    """

    _esm = esm("eval_reader")
    _css = css("eval_reader")

    models = t.List(t.Unicode()).tag(sync=True)
    samples = t.List(t.Dict()).tag(sync=True)
    kinds = t.Dict().tag(sync=True)
    show = t.Unicode("all").tag(sync=True)
    failure = t.Unicode("").tag(sync=True)
    filter = t.Unicode("").tag(sync=True)
    selected = t.Unicode(None, allow_none=True).tag(sync=True)
    listed = t.Bool(True, help="False: the reader alone, for a single sample").tag(sync=True)

    def __init__(
        self,
        models: Sequence[str],
        samples: Sequence[Mapping[str, Any]] = (),
        kinds: Mapping[str, str] | None = None,
        selected: str | None = None,
        listed: bool = True,
    ) -> None:
        shown = plain(samples)
        if selected is None and shown:
            selected = shown[0]["id"]
        super().__init__(
            models=list(models), samples=shown, kinds=dict(kinds or {}), selected=selected, listed=listed
        )

    def update(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Shows other results and keeps what is being read, where it is still there."""
        shown = plain(samples)
        with self.hold_sync():
            self.samples = shown
            if shown and self.selected not in {sample["id"] for sample in shown}:
                self.selected = shown[0]["id"]
