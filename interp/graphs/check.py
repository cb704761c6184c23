"""Do the features do what the graph says? Turn them off in the model itself and look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from interp.features import Dictionary
from interp.graphs.attribute import AttributionGraph


@torch.no_grad()
def turned_off(lm, graph: AttributionGraph, dictionaries: Sequence[Dictionary], which: Sequence[int], rows: int = 64) -> Iterator[Tensor]:
    """For batches of the features `which`: change of every target logit [feature, logit] when what the feature writes
    is taken away from its MLP's output, the rest of the model reacting as it will (patterns, norms and MLPs included)."""
    logits = graph.find("logit")
    ids = torch.tensor([graph.nodes[i].index for i in logits])

    def run(hooks) -> Tensor:
        count = len(next(iter(hooks.values())).rows) if hooks else 1
        tokens = torch.tensor([graph.tokens], device=lm.model.device).expand(count, -1)
        out = lm.model(tokens, hooks=hooks, last=True)[:, -1].double()
        return (out - out.mean(-1, keepdim=True))[:, ids]

    plain = run({})
    for at in range(0, len(which), rows):
        part = which[at : at + rows]
        hooks = {}
        for layer in {graph.nodes[i].layer for i in part}:
            hooks[f"blocks.{layer}.hook_mlp_out"] = _Without(graph, dictionaries[layer], layer, part)
        yield run(hooks) - plain


class _Without:
    """Row r of the batch loses what feature `rows[r]` writes, where that feature is of this layer."""

    def __init__(self, graph: AttributionGraph, dictionary: Dictionary, layer: int, rows: Sequence[int]) -> None:
        self.rows = rows
        self.taken = [
            (r, graph.nodes[i].position, float(graph.value[i]) * dictionary.W_dec[graph.nodes[i].index])
            for r, i in enumerate(rows)
            if graph.nodes[i].layer == layer
        ]

    def __call__(self, x: Tensor, name: str) -> Tensor:
        x = x.clone()
        for row, position, write in self.taken:
            x[row, position] -= write.to(x.dtype)
        return x


def predicted(graph: AttributionGraph, which: Sequence[int]) -> Tensor:
    """[feature, logit]: what turning each feature off would do along every path of the graph, MLPs that react to it
    included as far as they were traced; patterns, norms and which features are active held."""
    logits = graph.find("logit")
    # of a TopK or JumpReLU feature that is active, d activation / d pre-activation is 1: a change of its
    # pre-activation passes on what the feature writes in proportion
    gain = 1.0 / graph.value.clamp_min(1e-9)
    gain[logits] = 1.0
    effect = torch.zeros(len(graph.nodes), len(logits), dtype=torch.float64)  # of adding a node's whole value once more
    effect[logits] = torch.eye(len(logits), dtype=torch.float64)
    for i in graph.traced.nonzero()[:, 0].flip(0).tolist():  # later nodes first
        effect += graph.edges[i][:, None] * (gain[i] * effect[i])[None, :]
    return -effect[list(which)]
