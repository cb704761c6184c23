"""What a patched run gave: its answer beside the unpatched one, its continuation, receipts, and the logit lens."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Patched(anywidget.AnyWidget):
    """Listens to the heat maps named in `channels` and shows what patching the chosen cells does.

    `before` is the unpatched run: `{"title", "bars": [[token, probability], ...], "prompt", "said", "wrong"}`. `cells` maps
    "channel:row,col" to what is known of one cell alone, `{"title", "text", "bars", "said"?}`: it is shown the moment the
    cell is chosen, in exported pages too. `shown` is the full result of the newest choice:
    the same with `"key"` (its cells, "channel:row,col" sorted and joined by a space), `"receipts"` [[site, fired, changed]]
    and `"lens"` `{"rows", "tokens", "before": [[p, ...], ...], "after": ..., "tops": [[token, p], ...] before and after}`: a
    probability a row for each of `tokens`, and the likeliest token of every row. `live` says whether a choice that is not
    in `cells` will be answered. `opened` names the choice that Python makes, as when another map takes the place of the one
    that was clicked: it replaces what is on screen, where a `shown` that answers an older click does not.
    """

    _esm = esm("patched")
    _css = css("patched")

    channels = t.List(t.Unicode()).tag(sync=True)
    before = t.Dict().tag(sync=True)
    cells = t.Dict().tag(sync=True)
    shown = t.Dict().tag(sync=True)
    opened = t.Unicode().tag(sync=True)
    live = t.Bool().tag(sync=True)

    def __init__(self, channels: Sequence[str], before: Mapping[str, Any], live: bool = False) -> None:
        super().__init__(channels=list(channels), before=plain(before), live=live)

    def know(self, cells: Mapping[str, Any]) -> None:
        """Adds what single cells give."""
        self.cells = {**self.cells, **plain(cells)}

    def show(self, result: Mapping[str, Any]) -> None:
        """Shows the full result of a choice."""
        self.shown = plain(result)


def key(channel: str, cells: Sequence[Sequence[int]]) -> str:
    """How a choice is named in `shown`."""
    return " ".join(sorted(f"{channel}:{row},{col}" for row, col in cells))
