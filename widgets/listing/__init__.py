"""Source beside what the compiler made of it, line linked to line, with the mix of instructions."""

from collections.abc import Mapping, Sequence

import anywidget
import traitlets as t

from widgets.assets import css, esm


class Listing(anywidget.AnyWidget):
    """`stages` maps a stage's name ("SASS", "PTX", ...) to its lines `(text, source line or 0, kind or "")`.

    Line numbers count from 1. `kinds` orders the kinds and says what each is; `focus` (first, last) is the part of
    the source to show. `stage` is the one on view and `selected` the chosen source line, or 0.
    """

    _esm = esm("listing")
    _css = css("listing")

    source = t.Unicode().tag(sync=True)
    stages: t.List = t.List(help="[name, lines]; lists, since a saved page sorts the keys of a mapping").tag(sync=True)
    kinds: t.List = t.List(help="[name, what it is]").tag(sync=True)
    focus = t.List(t.Int()).tag(sync=True)
    stage = t.Unicode().tag(sync=True)
    selected = t.Int().tag(sync=True)

    def __init__(
        self,
        source: str,
        stages: Mapping[str, Sequence[tuple[str, int, str]]],
        kinds: Mapping[str, str],
        focus: tuple[int, int] | None = None,
        selected: int = 0,
    ) -> None:
        if not stages:
            raise ValueError("a listing needs at least one stage")
        super().__init__(
            source=source,
            stages=[[name, [list(line) for line in lines]] for name, lines in stages.items()],
            kinds=[list(kind) for kind in kinds.items()],
            focus=list(focus or (1, source.count("\n") + 1)),
            stage=next(iter(stages)),
            selected=selected,
        )
