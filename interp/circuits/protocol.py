"""One circuit, every way of asking how faithful it is.

Faithfulness depends on choices that papers make differently (Miller, Chughtai and Saunders 2024): what replaces the
rest of the model, where, whether edges or whole nodes are cut, and which metric is read. Here all of them are run on the same circuit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.circuits.batch import measure
from interp.circuits.edges import KINDS, POSITIONS, Study
from interp.circuits.faithfulness import bootstrap
from interp.metrics import METRICS
from lab.evals.stats import Interval

LEVELS = {"edges": "edges", "nodes": "whole nodes"}


@dataclass(frozen=True)
class Claim:
    """Faithfulness of one circuit under one protocol, with its interval over prompts."""

    kind: str
    positions: str
    level: str
    metric: str
    faithfulness: Interval
    edges: int

    @property
    def key(self) -> str:
        return f"{self.kind}, {POSITIONS[self.positions]}, {LEVELS[self.level]}"


def claims(
    study: Study,
    circuit: Tensor,
    kinds: Sequence[str] = tuple(KINDS),
    positions: Sequence[str] = tuple(POSITIONS),
    levels: Sequence[str] = tuple(LEVELS),
    metrics: Sequence[str] = tuple(METRICS),
) -> Iterator[Claim]:
    """One claim a combination; three runs give those of all metrics."""
    graph = study.graph
    kept = {"edges": circuit, "nodes": graph.from_nodes(set(graph.touched(circuit)))}
    read = {key: measure(study.batch, key, study.clean_logits) for key in metrics}
    for kind in kinds:
        for where in positions:
            sets = torch.stack([graph.all(), *(~kept[level] for level in levels)])
            logits = study.logits(sets, kind, where)
            for i, level in enumerate(levels):
                for key, value in read.items():
                    values = value(torch.cat([study.clean_logits[None], logits])).double().cpu()
                    told = bootstrap(values[2 + i], values[0], values[1])
                    yield Claim(kind, where, level, key, told, int(kept[level].sum()))
