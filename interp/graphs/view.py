"""The picture of an attribution graph, what a node is, and how well the graph foretells what turning features off does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from interp.describe.clauses import Questions, propose
from interp.describe.reading import Features, Text, activations
from interp.features import Dictionary
from interp.graphs.attribute import AttributionGraph
from interp.graphs.check import predicted, turned_off
from interp.graphs.prune import Pruned
from widgets.graph import Graph
from widgets.scatter import Scatter
from widgets.table import Table

INPUTS = (
    {"key": "way", "title": "way"},
    {"key": "node", "title": "node"},
    {"key": "weight", "title": "effect", "kind": "num", "digits": 3},
    {"key": "share", "title": "share of all inputs", "kind": "bar", "digits": 3},
)
LISTED = 12


def name(lm, graph: AttributionGraph, i: int) -> str:
    """A node in a few words."""
    node = graph.nodes[i]
    at = lm.tokenizer.pieces([graph.tokens[node.position]])[0].strip() or "·"
    if node.kind in ("token", "logit"):
        piece = lm.tokenizer.pieces([node.index])[0].strip()
        return f"“{piece}”" if node.kind == "token" else f"“{piece}” {float(graph.weight[i]):.0%}"
    if node.kind == "error":
        return f"error {node.layer} at “{at}”"
    return f"feature {node.layer}.{node.index} at “{at}”"


def labels(lm, graph: AttributionGraph, which: Sequence[int], dictionaries: Sequence[Dictionary], text: Text) -> dict[int, str]:
    """What features fire on, by the local describer of `interp.describe`, for the feature nodes among `which`."""
    questions = Questions(text.tokens, text.piece)
    out: dict[int, str] = {}
    for layer, dictionary in enumerate(dictionaries):
        nodes = [i for i in which if graph.nodes[i].kind == "feature" and graph.nodes[i].layer == layer]
        if not nodes:
            continue
        units = sorted({graph.nodes[i].index for i in nodes})
        acts = activations(Features(dictionary, str(layer)), lm, text, torch.tensor(units))
        said = dict(zip(units, (d.words(text.piece) for d in propose(acts, questions))))
        out |= {i: said[graph.nodes[i].index] for i in nodes}
    return out


def picture(lm, graph: AttributionGraph, pruned: Pruned, words: dict[int, str] | None = None) -> Graph:
    """The pruned graph: tokens below, one row a layer, logits above, a column a position."""
    words = words or {}

    def short(i: int) -> str:
        node = graph.nodes[i]
        if node.kind == "feature":  # the first token that its description names, if there is one
            first = re.search("“[^”]{1,9}”", words.get(i, ""))
            return first.group() + "…" if first else f"{node.layer}.{node.index}"
        return "error" if node.kind == "error" else name(lm, graph, i)[:14]

    nodes = [
        {
            "id": str(i), "layer": graph.nodes[i].layer, "column": graph.nodes[i].position, "label": short(i),
            "kind": graph.nodes[i].kind, "note": f"{name(lm, graph, i)}{': ' + words[i] if i in words else ''}",
        }
        for i in pruned.nodes
    ]  # fmt: skip
    edges = [{"from": str(s), "to": str(t), "weight": weight} for s, t, weight, _ in pruned.edges]
    last = len(lm.model.model.layers)
    rows: dict[float, str] = {-1: "tokens", last: "logits", **{layer: str(layer) for layer in range(last)}}
    return Graph(
        nodes, edges, shown=120, title="What leads to the answer", row_title="layer", row_labels=rows,
        col_title="token position", col_labels=lm.tokenizer.pieces(graph.tokens), unit="effect on the target",
    )  # fmt: skip


def around(lm, graph: AttributionGraph, i: int, words: dict[int, str]) -> list[dict[str, Any]]:
    """The strongest inputs and outputs of a node, as rows of a table."""
    shares = graph.shares()

    def told(j: int) -> str:
        return f"{name(lm, graph, j)}{': ' + words[j] if j in words else ''}"

    rows = []
    for way, weights, share in (("in", graph.edges[i], shares[i]), ("out", graph.edges[:, i], shares[:, i])):
        for j in weights.abs().argsort(descending=True)[:LISTED].tolist():
            if weights[j]:
                rows.append({"way": way, "node": told(j), "weight": float(weights[j]), "share": float(share[j])})
    return rows


def around_table(lm, graph: AttributionGraph, i: int, words: dict[int, str]) -> Table:
    return Table(around(lm, graph, i, words), INPUTS, page=LISTED, name="node")


def checked(lm, graph: AttributionGraph, dictionaries: Sequence[Dictionary], logit: int = 0) -> tuple[Scatter, float]:
    """Turn every traced feature off in the model: the change of the `logit`-th answer against what the graph foretells,
    and their correlation."""
    which = [i for i in graph.find("feature") if graph.traced[i]]
    seen = torch.cat(list(turned_off(lm, graph, dictionaries, which)))[:, logit]
    said = predicted(graph, which)[:, logit]
    answer = lm.tokenizer.pieces([graph.nodes[graph.find("logit")[logit]].index])[0].strip()
    points = Scatter(
        seen.numpy(), said.numpy(), colour=[graph.nodes[i].layer for i in which], labels=[name(lm, graph, i) for i in which],
        title=f"Turning one feature off: change of the logit of “{answer}”", x_title="in the model (logits)",
        y_title="foretold by the graph (logits)", colour_title="layer",
    )  # fmt: skip
    return points, float(torch.corrcoef(torch.stack([seen, said]))[0, 1])
