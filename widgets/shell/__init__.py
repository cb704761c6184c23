"""The lab's front page as one widget: map, sidebar, search, and an iframe for every opened notebook."""

import json
from pathlib import Path

import anywidget
import traitlets

from widgets import assets

HERE = Path(__file__).parent
#: Its script, in order; together they define `looplab(data)`, which builds the shell once a window.
PARTS = ("dom", "map", "home", "frames", "shell")


def code() -> str:
    """The script that defines `looplab`."""
    return "\n".join((HERE / f"{part}.js").read_text("utf-8") for part in PARTS)


def style() -> str:
    """Its style sheet, tokens first."""
    tokens = f".ll-root {{{assets.tokens('light')}}} .ll-root[data-theme=dark] {{{assets.tokens('dark')}}}"
    return f"{tokens}\n{(HERE / 'shell.css').read_text('utf-8')}"


# The shell stands beside the body, outside the shadow root anywidget styles: its style goes into the document.
_STYLE = """
if (!document.getElementById("looplab-style")) {
  const sheet = document.createElement("style");
  sheet.id = "looplab-style";
  sheet.textContent = %s;
  document.head.append(sheet);
}
"""


class Shell(anywidget.AnyWidget):
    """Traits are what the page shows; None means "not known yet". `lab` is `{port, token}` of the notebooks'
    server (`port` 0: the same origin), `trouble` a sentence shown across the top."""

    _esm = "\n".join([code(), _STYLE % json.dumps(style()), (HERE / "widget.js").read_text("utf-8")])

    stations = traitlets.List(traitlets.Dict()).tag(sync=True)
    notebooks = traitlets.List(traitlets.Dict()).tag(sync=True)
    exhibits = traitlets.List(traitlets.Dict()).tag(sync=True)
    hardware = traitlets.Dict().tag(sync=True)
    runs = traitlets.Any(None).tag(sync=True)
    models = traitlets.Any(None).tag(sync=True)
    lab = traitlets.Any(None).tag(sync=True)
    trouble = traitlets.Unicode("").tag(sync=True)
