"""Every edge's worth at once, estimated from gradients.

EAP (Syed, Rager and Conmy 2023): to first order, taking an edge from the other run changes the metric by
(other - clean) of its sender times the metric's gradient at its receiver. EAP-IG (Hanna, Pezzelle and Belinkov 2024)
averages that gradient over inputs on the straight line between the two embeddings, which helps where the metric
saturates; here the points are midpoints of equal steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from interp.circuits.batch import Batch
from interp.circuits.edges import Study, at_ends
from interp.circuits.graph import Graph, Point
from interp.sites import Hook, chain

MEMORY = 1e9  # bytes an estimate may hold at once


def bytes_a_row(cfg, length: int, size: int = 4) -> float:
    """Bytes held for one pair of prompts: what senders write in both runs, their difference, and the graph of a
    backward pass, in which every head's input is its own (about six tensors as large as those inputs)."""
    graph = Graph(cfg)
    token = cfg.d_model * (3 * len(graph.senders) + 6 * len(graph.receivers)) + 6 * cfg.n_layers * cfg.d_mlp
    return size * length * token


def rows_at_once(cfg, length: int, size: int = 4) -> int:
    """How many pairs fit in MEMORY; at least one."""
    return max(1, int(MEMORY // bytes_a_row(cfg, length, size)))


def attribute_edges(
    model,
    batch: Batch,
    metric: str = "logit_diff",
    kind: str = "counterfactual",
    steps: int = 1,
    positions: str = "all",
    progress: Callable[[int, int], bool] | None = None,
) -> Tensor:
    """Estimated worth of each edge, float64 [n_edges]: metric of the clean run minus that with the edge replaced.

    `steps=1` is EAP, more is EAP-IG. The batch goes through in parts that fit in memory; `progress(rows done, rows)`
    stops it by returning False, and the estimate is then that of the rows done.
    """
    rows = rows_at_once(model.cfg, batch.length, model.dtype.itemsize)
    means = _means(model, batch, rows) if kind == "mean" else None
    total = torch.zeros(Graph(model.cfg).n_edges, dtype=torch.float64)
    done = 0
    for part in batch.parts(rows):
        study = Study(model, part, metric, means=means)
        total += attribute_study(study, kind, steps, positions) * len(part)
        done += len(part)
        if progress is not None and not progress(done, len(batch)):
            break
    return total / done


def attribute_study(study: Study, kind: str = "counterfactual", steps: int = 1, positions: str = "all") -> Tensor:
    """The same for a study that fits in memory."""
    graph, batch = study.graph, study.batch
    other = study.other(kind)
    difference = (other - study.clean) * study.where(positions)[None, ..., None]
    total = torch.zeros(graph.n_edges, dtype=torch.float64)
    for step in range(steps):
        share = (step + 0.5) / steps if steps > 1 else 0.0
        start = study.clean[0] + share * (other[0] - study.clean[0])
        total += _gradients(study, start, difference) / steps
    return total / len(batch)


def _gradients(study: Study, start: Tensor, difference: Tensor) -> Tensor:
    """(clean - other) · gradient of the summed metric at every edge, the gradients taken from embeddings `start`."""
    graph, batch = study.graph, study.batch
    out = torch.zeros(graph.n_edges, dtype=torch.float64)
    flat = difference.flatten(1)

    # the graph starts at the embedding: the weights need no gradient and other threads share them
    leaf = start.detach().clone().requires_grad_()

    def watch(point: Point) -> Hook:
        def hook(x: Tensor, name: str) -> Tensor:
            def collect(grad: Tensor) -> None:  # as the backward pass reaches it, so no gradient is kept
                rows = grad.permute(2, 0, 1, 3).flatten(1) if point.per_head else grad.flatten()[None]
                out[point.start : point.start + point.size] = -(rows @ flat[: point.senders].T).double().flatten().cpu()

            own = x.view_as(x)  # what this receiver alone reads; the stream itself goes on past it
            own.register_hook(collect)
            return own

        return hook

    end = graph.points[-1].hook
    hooks = chain({"blocks.0.hook_resid_pre": lambda x, name: leaf}, {p.hook: watch(p) for p in graph.points}, {end: at_ends(study.ends)})
    with torch.enable_grad():
        value = study.measure(study.model(batch.clean, hooks=hooks)).sum()
        torch.autograd.grad(value, leaf)
    return out


def _means(model, batch: Batch, rows: int) -> Tensor:
    """Mean output of every sender over the tokens of a batch too large to hold."""
    total, tokens = None, 0
    for part in batch.parts(rows):
        n = int(part.ends.sum()) + len(part)
        mean = Study(model, part).means * n
        total, tokens = mean if total is None else total + mean, tokens + n
    assert total is not None
    return total / tokens
