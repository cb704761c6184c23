"""The part of an attribution graph that matters (Ameisen et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from interp.graphs.attribute import AttributionGraph


@dataclass(frozen=True)
class Pruned:
    """Kept nodes, in order, and edges (source, target, weight, share of the influence)."""

    nodes: list[int]
    edges: list[tuple[int, int, float, float]]


@dataclass(frozen=True)
class Scores:
    """`replacement`: of the influence that reaches where the graph begins, the share that begins at tokens, not errors.
    `completeness`: of the inputs of all nodes, weighted by their influence, the share that is not error. `traced`: the
    share of influence through features that flows through those traced back."""

    replacement: float
    completeness: float
    traced: float


def prune(graph: AttributionGraph, nodes: float = 0.8, edges: float = 0.9) -> Pruned:
    """The fewest nodes that carry the share `nodes` of all influence, then the fewest edges among them that carry the
    share `edges` of what flows between them. Tokens and logits stay where an edge touches them."""
    flow = graph.influence()
    inner = torch.tensor([node.kind in ("feature", "error") for node in graph.nodes])
    keep = _fewest(torch.where(inner, flow, torch.zeros(())), nodes)
    keep |= ~inner
    passing = graph.shares() * flow[:, None] * keep[:, None] * keep[None, :]
    chosen = _fewest(passing.flatten(), edges).view_as(passing)
    total = float(passing.sum()) or 1.0
    listed = [
        (source, target, float(graph.edges[target, source]), float(passing[target, source]) / total)
        for target, source in chosen.nonzero().tolist()
    ]
    listed = _reaching(graph, listed)
    touched = {i for edge in listed for i in edge[:2]}
    return Pruned(sorted(touched), sorted(listed, key=lambda edge: -edge[3]))


def _fewest(amount: Tensor, share: float) -> Tensor:
    """Mask of the largest entries that make up `share` of the sum."""
    order = amount.argsort(descending=True)
    reached = amount[order].cumsum(0)
    needed = int((reached < share * amount.sum()).sum()) + 1
    mask = torch.zeros_like(amount, dtype=torch.bool)
    mask[order[:needed]] = True
    return mask & (amount > 0)


def _reaching(graph: AttributionGraph, edges: list[tuple[int, int, float, float]]) -> list[tuple[int, int, float, float]]:
    """Only edges on a path to a logit: what leads nowhere explains nothing."""
    alive = set(graph.find("logit"))
    for edge in sorted(edges, key=lambda e: -e[1]):  # targets from the last to the first
        if edge[1] in alive:
            alive.add(edge[0])
    return [edge for edge in edges if edge[1] in alive]


def scores(graph: AttributionGraph) -> Scores:
    flow, shares = graph.influence(), graph.shares()
    kinds = {kind: torch.tensor([node.kind == kind for node in graph.nodes]) for kind in ("token", "error", "feature")}
    begins = {kind: float(flow[mask].sum()) for kind, mask in kinds.items()}
    error = shares[:, kinds["error"]].sum(1)
    traced = flow * graph.traced
    through = float(flow[kinds["feature"]].sum())
    return Scores(
        begins["token"] / max(begins["token"] + begins["error"], 1e-300),
        float((traced * (1 - error)).sum() / traced.sum().clamp_min(1e-300)),
        float(traced[kinds["feature"]].sum()) / max(through, 1e-300),
    )
