"""The circuit of a compiled program as it was written and as methods find it, with the marks they get."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from interp.circuits.edges import exact
from interp.circuits.graph import Graph
from interp.circuits.score import auroc
from interp.truth.compile import Compiled
from interp.truth.recovery import METHODS, ORDER, THRESHOLDS, Stopped, distance, edge_scores, roc, studies
from interp.truth.view import known
from interp.truth.wiring import Edge
from widgets.graph import Graph as GraphPicture
from widgets.table import Table

ROWS = 8  # inputs of each length
SIGNS = ("in the circuit", "not in it")


def picture(compiled: Compiled, weights: dict[Edge, float], title: str, shown: int, signs: tuple[str, str] = SIGNS, unit: str = "") -> GraphPicture:
    """The parts from the embedding up to the logits, joined by these edges; the sign of a weight picks its colour."""
    makes: dict[str, list[str]] = {}
    for name, places in compiled.places.items():
        for place in places:
            makes.setdefault(place, []).append(name)
    widest = compiled.model.cfg.n_heads
    nodes = [{"id": "embed", "layer": 0, "column": widest / 2, "kind": "embed", "note": "tokens, indices and one"}]
    rows: dict[float, str] = {0: "embed"}

    def add(node: str, layer: int, column: float, kind: str, row: str) -> None:
        names = makes.get(node, [])
        nodes.append({"id": node, "layer": layer, "column": column, "kind": kind, "label": " ".join([node, *names][:3]),
                      "note": f"makes {', '.join(names)}" if names else "empty: the program does not use it"})  # fmt: skip
        rows[layer] = row

    for i in range(compiled.model.cfg.n_layers):
        for h in range(widest):
            add(f"a{i}.h{h}", 2 * i + 1, h, "head", f"attention {i}")
        add(f"m{i}", 2 * i + 2, widest, "MLP", f"MLP {i}")
    last = 2 * compiled.model.cfg.n_layers + 1
    nodes.append({"id": "logits", "layer": last, "column": widest / 2, "kind": "logits", "note": compiled.program.output.name})
    rows[last] = "logits"
    edges = []
    for (sender, receiver), weight in weights.items():
        node, _, port = receiver.rpartition(".") if receiver.endswith((".q", ".k", ".v")) else (receiver, "", "")
        edges.append({"from": sender, "to": node, "weight": weight, **({"port": port} if port else {})})
    return GraphPicture(nodes, edges, shown=shown, title=title, unit=unit, row_labels=rows, quiet=True, signs=signs)


def truth_picture(compiled: Compiled, true: frozenset[Edge], spare: frozenset[Edge]) -> GraphPicture:
    """The circuit as it was written; edges that are wired and idle are dashed."""
    weights = dict.fromkeys(sorted(true), 1.0) | dict.fromkeys(sorted(spare), -0.3)
    return picture(compiled, weights, "The circuit that was written", len(weights), ("needed", "wired, never needed"))


def found_picture(compiled: Compiled, scores: Tensor, true: frozenset[Edge], title: str, unit: str) -> GraphPicture:
    """As many of the best-scored edges as the circuit has; those outside it are dashed."""
    edges = zip(Graph(compiled.model.cfg).edges(), scores.tolist())
    weights = {edge: (1.0 if edge in true else -1.0) * score for edge, score in edges if score > 0}
    return picture(compiled, weights, title, len(true), unit=unit)


# ---- marks


@lru_cache(maxsize=200)
def scored(key: str, method: str, kind: str) -> Tensor:
    """Scores of a program's edges, made once for every tab."""
    return edge_scores(known(key)[0], method, kind, ROWS)


@lru_cache(maxsize=50)
def alone(key: str, kind: str) -> tuple[float, float]:
    """How far the output moves, at most over the lengths, with every edge outside the circuit replaced, and with all."""
    compiled, true, _ = known(key)
    outside = ~Graph(compiled.model.cfg).mask(true)
    parts = studies(compiled, distance, ROWS)
    return max(s.value(outside, kind) for s in parts), max(s.value(s.graph.all(), kind) for s in parts)


def mark(key: str, scores: Tensor) -> float:
    compiled, true, _ = known(key)
    return auroc(scores, Graph(compiled.model.cfg).mask(true))


def board(key: str) -> Table:
    """AUROC by method and ablation; ACDC waits to be run."""
    columns: list[dict[str, Any]] = [{"key": "method"}, *({"key": kind, "title": kind, "kind": "num", "digits": 3} for kind in ORDER)]
    rows: list[dict[str, Any]] = [
        {"id": name, "method": method.title} | {kind: mark(key, scored(key, name, kind)) if name != "acdc" else None for kind in ORDER}
        for name, method in METHODS.items()
    ]
    return Table(rows, columns, name=f"auroc_{key}")


def run_acdc(key: str, table: Table, proceed: Callable[[], bool]) -> None:
    """Fill ACDC's row, an ablation at a time, until `proceed` says no."""
    for kind in ORDER:
        try:
            value = mark(key, edge_scores(known(key)[0], "acdc", kind, ROWS, proceed))
        except Stopped:
            return
        table.update([row | {kind: value} if row["id"] == "acdc" else row for row in table.rows])


def acdc_seconds(key: str) -> float:
    """About what ACDC takes in all ablations: half again what exact patching takes, for every threshold."""
    compiled, *_ = known(key)
    longest = studies(compiled, distance, ROWS)[-1]
    started = time.perf_counter()
    exact(longest, "zero")
    return 1.5 * (time.perf_counter() - started) * compiled.program.length * len(THRESHOLDS) * len(ORDER)


def roc_plot(key: str, method: str, kind: str) -> go.Figure:
    """The curve of a method in every ablation, the chosen one heavier."""
    compiled, true, _ = known(key)
    truth = Graph(compiled.model.cfg).mask(true)
    figure = go.Figure()
    for name in ORDER:
        scores = scored(key, method, name)
        curve = roc(scores, truth)
        told = [f"{k} edges kept, score at least {t:.2g}" for k, t in zip(curve.kept, curve.threshold)]
        figure.add_scatter(
            x=curve.wrong, y=curve.found, mode="lines+markers", name=f"{name} {mark(key, scores):.3f}", text=told,
            line={"width": 3 if name == kind else 1.5, "dash": {"zero": "solid", "mean": "dash", "counterfactual": "dot"}[name]},
            hovertemplate="%{text}<br>circuit found %{y:.2f}, others kept %{x:.2f}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        height=320, margin={"t": 40},
        xaxis={"title": {"text": f"share of the other edges kept, {METHODS[method].title}"}, "range": [-0.02, 1.02]},
        yaxis={"title": {"text": "share of the circuit found"}, "range": [-0.02, 1.04]},
    )  # fmt: skip
    return figure
