"""Scoring a ranking of edges against a circuit that is known."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from interp.circuits.graph import Edge, Graph
from lab.errors import LabError


def auroc(scores: Tensor, truth: Tensor) -> float:
    """Chance that an edge of the circuit ranks above one outside it by absolute score, ties counting half.

    `scores` [n_edges], `truth` bool [n_edges]; edges whose score is NaN are left out. This is the Mann-Whitney
    statistic over the number of pairs. LabError when all or none of the edges belong to the circuit.
    """
    measured = ~scores.isnan()
    magnitude, truth = scores[measured].abs().double(), truth[measured]
    inside = int(truth.sum())
    outside = len(truth) - inside
    if not inside or not outside:
        raise LabError("The known circuit holds all edges or none, so no ranking can tell them apart; choose another circuit.")
    _, rank_of, count = magnitude.unique(sorted=True, return_inverse=True, return_counts=True)
    middle = count.cumsum(0) - (count - 1) / 2  # mean rank, from 1, of equal values
    ranks = middle[rank_of]
    return float((ranks[truth].sum() - inside * (inside + 1) / 2) / (inside * outside))


def auroc_of(graph: Graph, scores: Tensor, circuit: Iterable[Edge]) -> float:
    """The same with the circuit given by the names of its edges."""
    return auroc(scores, graph.mask(circuit))


def found(circuit: Tensor, truth: Tensor) -> tuple[float, float]:
    """Precision and recall of a set of edges."""
    both = float(torch.logical_and(circuit, truth).sum())
    return both / max(1.0, float(circuit.sum())), both / max(1.0, float(truth.sum()))
