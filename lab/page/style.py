"""The page's style sheet, its head, and the plot template, all from one set of tokens."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import marimo
import plotly.graph_objects as go
import plotly.io

from widgets import assets

HERE = Path(__file__).parent
STATIONS = ("data", "train", "kernels", "inference", "evals", "posttrain", "interp", "research", "deploy")
# Order for series in one plot: neighbours differ in hue and in lightness.
SERIES = ("interp", "train", "inference", "kernels", "evals", "data", "posttrain", "research", "deploy")


@cache
def stylesheet() -> str:
    """Tokens, then the rules of the page."""
    tokens = f":root {{{assets.tokens('light')}}} :root.dark, .dark {{{assets.tokens('dark')}}}"
    return tokens + "\n" + (HERE / "page.css").read_text("utf-8")


def style_element() -> str:
    """The style sheet as an element. marimo copies a style with `data-vite-dev-id` into the shadow root of
    each of its controls, so the rules reach plots and widgets too."""
    return f'<style data-vite-dev-id="looplab">{stylesheet()}</style>'


def head() -> str:
    """What the server puts into the head of every notebook: style before the first paint, theme from the shell."""
    return f"{style_element()}<script>{(HERE / 'head.js').read_text()}</script>"


@cache
def tokens() -> dict[str, str]:
    """Name of each light-theme token and its value."""
    return dict(re.findall(r"--([\w-]+):\s*([^;]+)", assets.tokens("light")))


@cache
def template() -> go.layout.Template:
    """Transparent paper, hairlines, tabular figures. Text and lines get their final colour from page.css."""
    colour = tokens()
    axis: dict[str, Any] = {
        "gridcolor": "rgba(128,128,128,.22)", "zerolinecolor": "rgba(128,128,128,.5)", "linecolor": "rgba(128,128,128,.5)",
        "ticks": "", "automargin": True, "title": {"standoff": 8}, "zerolinewidth": 1,
    }  # fmt: skip
    layout = go.Layout(
        font={"family": "PT Sans, system-ui, sans-serif", "size": 13, "color": "#7b818c"},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        colorway=[colour[name] for name in SERIES],
        xaxis=axis, yaxis=axis,
        margin={"l": 48, "r": 16, "t": 36, "b": 44},
        legend={"bgcolor": "rgba(0,0,0,0)", "orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        colorscale={
            "sequential": [[0, "rgba(19,138,128,0)"], [1, colour["pos"]]],
            "diverging": [[0, colour["neg"]], [0.5, "rgba(128,128,128,.08)"], [1, colour["pos"]]],
        },
        hoverlabel={"font": {"family": "PT Sans, system-ui, sans-serif"}},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,.5)", "activecolor": "#8b909a"},
    )  # fmt: skip
    return go.layout.Template(layout=layout)


def use_template() -> None:
    """Make the lab's template the default of plotly in this process (the same for every tab).

    marimo draws a bare figure with its own copy of plotly only where plotly was imported by a notebook; the server
    imports it before, and a figure would then fetch plotly from the internet. The protocol of marimo says it always."""
    plotly.io.templates["lab"] = template()
    plotly.io.templates.default = "lab"
    go.Figure._display_ = lambda figure: marimo.ui.plotly(figure)
