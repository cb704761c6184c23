"""Choose a model: a list by group, or a directory, hub id or run written by hand."""

from typing import Any

import anywidget
import traitlets

from widgets import assets


class ModelPicker(anywidget.AnyWidget):
    """`options` are `{name, title, detail, group, ready}`; `value` is the chosen name.

    The page may ask for a fresh list with a custom message `{"ask": "options"}`, answered by `refresh`."""

    _esm = assets.esm("model_picker")
    _css = assets.css("model_picker")
    options = traitlets.List(traitlets.Dict()).tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)

    def __init__(self, options: list[dict[str, Any]], value: str, refresh: Any = None) -> None:
        super().__init__(options=options, value=value)
        if refresh is not None:
            self.on_msg(lambda _widget, message, _buffers: self._answer(message, refresh))

    def _answer(self, message: Any, refresh: Any) -> None:
        if isinstance(message, dict) and message.get("ask") == "options":
            self.options = refresh()
