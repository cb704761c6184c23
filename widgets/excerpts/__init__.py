"""Excerpts of text in which something fires: one line each, every token shaded by how strongly."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Excerpts(anywidget.AnyWidget):
    """`entries` are the things that fire (features, neurons), `{"title", "vmax"?, "groups"}`; with more than one a
    person leafs through them. A group is `{"title", "rows"}`, shown as tabs; a row `{"pieces", "values", "peak"?,
    "tag"?}`: the tokens' texts, one number a token, the index of the token to point out, and a word about the text.

    Shading is full at the entry's `vmax` (None: its largest value). `entry` and `group` are what is on view, and
    `selected` the row a person chose within the group, or None.
    """

    _esm = esm("excerpts")
    _css = css("excerpts")

    entries = t.List(t.Dict()).tag(sync=True)
    entry = t.Int(0).tag(sync=True)
    group = t.Int(0).tag(sync=True)
    selected = t.Int(None, allow_none=True).tag(sync=True)
    value_title = t.Unicode().tag(sync=True)

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        value_title: str = "activation",
        entry: int = 0,
        selected: int | None = None,
    ) -> None:
        for one in entries:
            for group in one["groups"]:
                for row in group["rows"]:
                    if len(row["pieces"]) != len(row["values"]):
                        raise ValueError(f"a row has {len(row['pieces'])} tokens and {len(row['values'])} values")
        super().__init__(entries=plain(entries), value_title=value_title, entry=entry, selected=selected)

    def update(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Shows other things from their first group on."""
        with self.hold_sync():
            self.entry, self.group, self.selected = 0, 0, None
            self.entries = plain(entries)
