"""The code and style of a widget as the single strings anywidget wants: the shared part, then the widget's own."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent


def esm(folder: str) -> str:
    """`base.js` followed by `<folder>/widget.js`."""
    return "\n".join((HERE / part).read_text("utf-8") for part in ("base.js", f"{folder}/widget.js"))


def css(folder: str) -> str:
    """`base.css` followed by `<folder>/widget.css`."""
    return "\n".join((HERE / part).read_text("utf-8") for part in ("base.css", f"{folder}/widget.css"))


def tokens(theme: str) -> str:
    """The declarations of the "light" or "dark" tokens of `base.css`, for pages that are not inside a widget."""
    light, dark = re.findall(r"\.lw(?:\[data-theme=.dark.\])? \{([^}]*--paper[^}]*)\}", (HERE / "base.css").read_text("utf-8"))
    names = re.findall(r"--[\w-]+:[^;]+;", {"light": light, "dark": dark}[theme])
    return " ".join([*names, f"color-scheme: {theme};"])
