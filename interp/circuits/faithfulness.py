"""How much of the behaviour a circuit carries, and how sure that number is.

Faithfulness: the metric with everything but the circuit replaced, as a share of what lies between the clean run and
replacing everything (Wang et al. 2022; Marks et al. 2024). Completeness looks from the other side: with the circuit
alone replaced, little should be left. Areas are MIB's (Mueller et al. 2025): CPR under the faithfulness curve, CMD
between it and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from interp.circuits.edges import Study
from interp.circuits.graph import Graph
from lab.evals.stats import Interval

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
DRAWS = 2000
LEAST = 1e-6  # difference of the two ends from which a share means something, in the metric's unit


def share(values: Tensor, clean: Tensor, other: Tensor) -> float:
    """Of the batch as a whole: means first, then the ratio; each [row]. NaN where both ends are the same: nothing to
    share."""
    if (clean.mean() - other.mean()).abs() < LEAST:
        return float("nan")
    return float((values.mean() - other.mean()) / (clean.mean() - other.mean()))


def bootstrap(values: Tensor, clean: Tensor, other: Tensor, confidence: float = 0.95, seed: int = 0) -> Interval:
    """The share with a percentile interval over prompts, all three measured on the same drawn rows."""
    rows = np.random.default_rng(seed).integers(0, len(values), (DRAWS, len(values)))
    v, c, o = (x.numpy()[rows].mean(-1) for x in (values, clean, other))
    edge = (1 - confidence) / 2
    if np.isnan(whole := share(values, clean, other)):
        return Interval(whole, whole, whole, confidence)
    span = np.where(np.abs(c - o) < LEAST, np.nan, c - o)  # a drawn set of prompts may have no difference to share
    low, high = np.nanquantile((v - o) / span, [edge, 1 - edge])
    return Interval(whole, float(low), float(high), confidence)


@dataclass(frozen=True)
class Curve:
    """Circuits of growing size: `sizes` (edges), the metric [circuit, row] with only the circuit (`kept`) and without
    it (`without`), and of the whole model `clean` [row] and nothing of it `other` [row]."""

    total: int
    sizes: list[int]
    kept: Tensor
    without: Tensor
    clean: Tensor
    other: Tensor

    @property
    def faithfulness(self) -> list[float]:
        return [share(row, self.clean, self.other) for row in self.kept]

    @property
    def left_without(self) -> list[float]:
        """Share of the metric that is left when the circuit alone is replaced; a complete circuit leaves little."""
        return [share(row, self.clean, self.other) for row in self.without]

    def intervals(self) -> list[Interval]:
        return [bootstrap(row, self.clean, self.other) for row in self.kept]

    @property
    def cpr(self) -> float:
        """Area under faithfulness over the share of edges kept, from nothing to everything."""
        return self._area(lambda f: f)

    @property
    def cmd(self) -> float:
        """Area between faithfulness and 1; 0 is the whole model at every size."""
        return self._area(lambda f: np.abs(1 - f))

    def _area(self, of: Callable[[np.ndarray], np.ndarray]) -> float:
        order = np.argsort(self.sizes, kind="stable")
        x = np.concatenate([[0.0], np.array(self.sizes)[order] / self.total, [1.0]])
        f = np.concatenate([[0.0], np.array(self.faithfulness)[order], [1.0]])
        return float(np.trapezoid(of(f), x))


def curve(study: Study, circuits: Sequence[Tensor], kind: str = "counterfactual", positions: str = "all") -> Curve:
    """Measure these circuits, bool [n_edges] each, both ways."""
    graph = study.graph
    masks = torch.stack(list(circuits))
    values = study.values(torch.cat([~masks, masks, graph.none()[None], graph.all()[None]]), kind, positions)
    n = len(masks)
    return Curve(graph.n_edges, masks.sum(-1).tolist(), values[:n], values[n : 2 * n], values[-2], values[-1])


def sizes(graph: Graph, shares: Sequence[float] = SHARES) -> list[int]:
    """Numbers of edges for a curve, without repeats."""
    return sorted({max(1, round(s * graph.n_edges)) for s in shares})


def incompleteness(study: Study, circuit: Tensor, kind: str = "counterfactual", subsets: int = 10, seed: int = 0) -> float:
    """Wang et al.'s test: knock the same random half of the circuit's nodes out of the circuit and out of the model;
    the mean absolute difference of the metric's share. 0 for a circuit that holds all that matters."""
    graph = study.graph
    rng = np.random.default_rng(seed)
    nodes = [name for name in graph.touched(circuit) if name in graph.senders[1:]]
    halves = [rng.random(len(nodes)) < 0.5 for _ in range(subsets)]
    knocked = torch.stack([graph.from_nodes({n for n, out in zip(nodes, half) if out}) for half in halves])
    ends = study.values(torch.stack([graph.none(), graph.all()]), kind)
    values = study.values(torch.cat([knocked | ~circuit, knocked]), kind)
    shares = torch.tensor([share(row, ends[0], ends[1]) for row in values])
    return float((shares[:subsets] - shares[subsets:]).abs().mean())
