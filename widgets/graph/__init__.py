"""A layered graph: nodes in rows from below to above, signed edges between them, a slider for how many are drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets as t

from widgets.assets import css, esm
from widgets.numbers import plain


class Graph(anywidget.AnyWidget):
    """`nodes` are `{"id", "layer", "column", "label"?, "kind"?, "note"?}`, `edges` `{"from", "to", "weight", "port"?}`.

    Rows are the distinct `layer` numbers, the lowest at the bottom; nodes of one layer and column stand side by side.
    `port` names which of a node's inputs an edge enters (q, k, v): edges of different ports are drawn apart and keep
    their own weights. Edges are drawn strongest first, `shown` of them; green solid lines raise, red dashed lines
    lower (`signs` words it otherwise), and width is `|weight|` against the largest. Edges of weight zero or not a
    number are left out.

    `selected` is empty, `[node]`, `[from, to]` or `[from, to, port]`. `row_labels` names rows by their layer,
    `col_labels` names the columns 0, 1, ... under the picture. `quiet` leaves out rows that no drawn edge touches.
    """

    _esm = esm("graph")
    _css = css("graph")

    nodes = t.List(t.Dict()).tag(sync=True)
    edges = t.List(t.Dict()).tag(sync=True)
    shown = t.Int().tag(sync=True)
    selected = t.List(t.Unicode()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    unit = t.Unicode().tag(sync=True)
    row_title = t.Unicode().tag(sync=True)
    row_labels = t.Dict().tag(sync=True)
    col_title = t.Unicode().tag(sync=True)
    col_labels = t.List(t.Unicode()).tag(sync=True)
    quiet = t.Bool().tag(sync=True)
    signs = t.List(t.Unicode(), ["raises", "lowers"]).tag(sync=True)

    def __init__(
        self,
        nodes: Sequence[Mapping[str, Any]],
        edges: Sequence[Mapping[str, Any]],
        shown: int = 60,
        selected: Sequence[str] = (),
        title: str = "",
        unit: str = "",
        row_title: str = "",
        row_labels: Mapping[float, str] | None = None,
        col_title: str = "",
        col_labels: Sequence[str] = (),
        quiet: bool = False,
        signs: tuple[str, str] = ("raises", "lowers"),
    ) -> None:
        _check(nodes, edges)
        super().__init__(
            nodes=plain(nodes), edges=plain(edges), shown=max(1, shown), selected=list(selected), title=title, unit=unit,
            row_title=row_title, row_labels={f"{layer:g}": label for layer, label in (row_labels or {}).items()},
            col_title=col_title, col_labels=list(col_labels), quiet=quiet, signs=list(signs),
        )  # fmt: skip

    def update(self, edges: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Shows other edges (and nodes) under the same selection."""
        _check(self.nodes if nodes is None else nodes, edges)
        with self.hold_sync():
            if nodes is not None:
                self.nodes = plain(nodes)
            self.edges = plain(edges)


def _check(nodes: Sequence[Mapping[str, Any]], edges: Sequence[Mapping[str, Any]]) -> None:
    layers = {node["id"]: node["layer"] for node in nodes}
    if len(layers) != len(nodes):
        raise ValueError("two nodes have the same id")
    for edge in edges:
        for end in ("from", "to"):
            if edge[end] not in layers:
                raise ValueError(f"an edge names the node {edge[end]!r}, which is not among the nodes")
        if layers[edge["from"]] > layers[edge["to"]]:
            raise ValueError(f"the edge from {edge['from']!r} to {edge['to']!r} runs downwards")
