"""Small pieces every notebook is made of: start, header, notes, costs, guard."""

import html
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import marimo

from lab.catalog import TITLES
from lab.errors import LabError
from lab.page.style import STATIONS, style_element, use_template

P = ParamSpec("P")
R = TypeVar("R")
_TONES = {"info": "var(--inference)", "good": "var(--pos)", "warn": "var(--train)", "bad": "var(--neg)"}


def start(mo: Any) -> Any:
    """First line of a notebook: the plot template, and the style sheet as the element it returns.

    `header` carries the style sheet as well, so a notebook that shows its header needs no more."""
    use_template()
    return mo.Html(style_element())


def header(
    title: str, question: str, station: str, exhibits: Sequence[str] = (), aside: Sequence[Any] = ()
) -> Any:
    """Title and one-line question under the station's hue; `aside` holds elements for the right (a share button)."""
    if station not in STATIONS:
        raise ValueError(f"{station!r} is not a station; they are {', '.join(STATIONS)}")
    rows = "".join(f"<i>{html.escape(e)}</i>" for e in exhibits)
    right = f'<div class="lab-aside">{"".join(marimo.as_html(a).text for a in aside)}</div>' if aside else ""
    return marimo.Html(
        f"{style_element()}"
        f'<header class="lab-head" style="--c:var(--{station})"><div>'
        f'<div class="lab-eyebrow"><b></b>{TITLES[station]}{rows}</div>'
        f"<h1>{html.escape(title)}</h1>"
        f'<p class="lab-lead">{html.escape(question)}</p></div>{right}</header>'
    )


def note(text: str, kind: str = "info", title: str | None = None) -> Any:
    """A callout: `info`, `good`, `warn` or `bad`; `text` is Markdown."""
    head = f"<b>{html.escape(title)}</b>" if title else ""
    return marimo.Html(
        f'<div class="lab-note" role="{"alert" if kind == "bad" else "note"}" data-kind="{kind}" '
        f'style="--c:{_TONES[kind]}">{head}{marimo.md(text).text}</div>'
    )


def problem(error: LabError | str) -> Any:
    """The callout for a `LabError`; its sentence is shown as it is, never as Markdown."""
    return marimo.Html(
        f'<div class="lab-note" role="alert" data-kind="bad" style="--c:{_TONES["bad"]}">{html.escape(str(error))}</div>'
    )


def guard(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`fn(*args, **kwargs)`; a `LabError` stops the cell and shows its sentence instead of a traceback.

    Cells that need the result stay quiet, as after `mo.stop`. Anything else is a bug and stays loud."""
    try:
        return fn(*args, **kwargs)
    except LabError as error:
        marimo.stop(True, problem(error))
        raise  # not reached: stop raises


def duration(seconds: float) -> str:
    """`0.00042` -> `0.4 ms`; `0.3` -> `0.30 s`; `95` -> `1 min 35 s`."""
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 10:
        return f"{seconds:.{2 if seconds < 1 else 1}f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def cost(seconds: float | None = None, *, forwards: int | None = None, bytes: float | None = None) -> str:
    """What pressing a button will take, for its label: `300 forwards, about 3.0 s`."""
    words = []
    if forwards is not None:
        words.append(f"{forwards:,} forward{'s' if forwards != 1 else ''}")
    if bytes is not None:
        words.append(size(bytes))
    if seconds is not None:
        words.append(f"about {duration(seconds)}")
    return ", ".join(words)


def size(n: float) -> str:
    """Bytes for people, decimal units: `98.1 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def count(n: float) -> str:
    """Parameters for people: `134.5M`."""
    for unit in ("", "k", "M", "B"):
        if n < 1000:
            return f"{n:.0f}" if not unit else f"{n:.4g}{unit}"
        n /= 1000
    return f"{n:.4g}T"


def live(mo: Any) -> bool:
    """Whether somebody can press the controls: false in an export, a script and a test.

    marimo reports `edit` while it exports, so the virtual files of the runtime context decide. That context is
    private to marimo; this is the one place that looks at it."""
    if mo.app_meta().mode not in ("run", "edit"):
        return False
    from marimo._runtime.context import ContextNotInitializedError, get_context

    try:
        return bool(get_context().virtual_files_supported)
    except ContextNotInitializedError:
        return False
