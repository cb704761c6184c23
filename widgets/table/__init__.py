"""A table of any length: sorted by any column, filtered, chosen from, saved as CSV; the whole data travels with it."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain

KINDS = ("text", "num", "bar", "mono")


class Table(anywidget.AnyWidget):
    """`rows` are mappings, `columns` `{"key", "title"?, "unit"?, "kind"?, "digits"?}` with kind "text", "num", "bar"
    (a number with a bar as long as its share of the largest) or "mono" (a token: white space visible).

    A row's id is its "id" entry, else its place in `rows`. `selected` lists the ids a person chose, `sort` is
    `[key, "up" | "down"]` or empty, `filter` the text looked for in every column. `page` is how many rows show at
    once before the table scrolls.
    """

    _esm = esm("table")
    _css = css("table")

    rows = t.List(t.Dict()).tag(sync=True)
    columns = t.List(t.Dict()).tag(sync=True)
    page = t.Int().tag(sync=True)
    selected = t.List(t.Any()).tag(sync=True)
    sort = t.List(t.Unicode()).tag(sync=True)
    filter = t.Unicode().tag(sync=True)
    name = t.Unicode().tag(sync=True)

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[Mapping[str, Any]] | None = None,
        page: int = 15,
        selected: Sequence[Any] = (),
        sort: Sequence[str] = (),
        name: str = "table",
    ) -> None:
        if columns is None:
            columns = [{"key": key, "kind": _kind(rows, key)} for key in (rows[0] if rows else ())]
        for column in columns:
            if column.get("kind", "text") not in KINDS:
                raise ValueError(f"column {column['key']!r} has kind {column['kind']!r}; known are {', '.join(KINDS)}")
        super().__init__(
            rows=plain(rows),
            columns=plain(columns),
            page=page,
            selected=list(selected),
            sort=list(sort),
            name=name,
        )

    def update(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Shows other rows under the same columns, order and filter."""
        self.rows = plain(rows)


def _kind(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    numbers = all(isinstance(row.get(key), int | float) and not isinstance(row.get(key), bool) for row in rows)
    return "num" if numbers else "text"
