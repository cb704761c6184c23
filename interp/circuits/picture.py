"""A circuit as a picture: where nodes stand and which edges are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from interp.circuits.graph import EMBED, LOGITS, Graph
from widgets.graph import Graph as Picture

SHOWN = 60  # edges drawn to begin with
CARRIED = 3000  # strongest edges that travel with a picture


def nodes(graph: Graph) -> list[dict[str, Any]]:
    """Where every node stands: a row of heads a layer, the MLP above it to the right."""
    middle = (graph.n_heads - (0 if graph.has_mlp else 1)) / 2
    out: list[dict[str, Any]] = [{"id": EMBED, "layer": 0, "column": middle, "kind": "embedding"}]
    for i in range(graph.n_layers):
        for h in range(graph.n_heads):
            out.append({"id": f"a{i}.h{h}", "layer": 2 * i + 1, "column": h, "kind": "head", "note": f"layer {i}, head {h}"})
        if graph.has_mlp:
            out.append({"id": f"m{i}", "layer": 2 * i + 2, "column": graph.n_heads, "kind": "MLP", "note": f"MLP of layer {i}"})
    return [*out, {"id": LOGITS, "layer": 2 * graph.n_layers + 1, "column": middle, "kind": "logits"}]


def drawn(graph: Graph, scores: Tensor, kept: Tensor | None = None) -> list[dict[str, Any]]:
    """Edges for a picture, strongest first; one into shared keys or values is drawn into every head of the group."""
    known = scores.nan_to_num(0) if kept is None else scores.nan_to_num(0) * kept
    out = []
    for i in known.abs().topk(min(CARRIED, graph.n_edges)).indices.tolist():
        if known[i] == 0:
            break
        sender, receiver = graph.edge(i)
        port = {"port": receiver[-1]} if receiver[-2:] in (".q", ".k", ".v") else {}
        out += [{"from": sender, "to": owner, "weight": float(known[i]), **port} for owner in graph.owners(receiver)]
    return out


def picture(graph: Graph, title: str, unit: str, edges: Sequence[dict[str, Any]] = ()) -> Picture:
    rows = {0: "embedding", 2 * graph.n_layers + 1: "logits"}
    rows |= {2 * i + 1: f"attention {i}" for i in range(graph.n_layers)}
    rows |= {2 * i + 2: f"MLP {i}" for i in range(graph.n_layers) if graph.has_mlp}
    return Picture(
        nodes(graph), edges, shown=SHOWN, title=title, unit=unit, row_labels=rows, quiet=graph.n_layers > 12,
    )  # fmt: skip
