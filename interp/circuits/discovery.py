"""Finding a circuit: the strongest edges of a ranking, or ACDC's greedy removal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.circuits.edges import Study
from interp.circuits.graph import EMBED, LOGITS, Graph, Point


def strongest(graph: Graph, scores: Tensor, count: int) -> Tensor:
    """The `count` edges of largest absolute score, without those that lead nowhere, bool [n_edges]."""
    chosen = graph.none()
    chosen[scores.nan_to_num(0).abs().topk(max(0, min(count, graph.n_edges))).indices] = True
    return graph.prune(chosen)


def node_scores(graph: Graph, scores: Tensor) -> Tensor:
    """Worth of every sender: the sum over the edges it sends, [sender]; to first order what replacing it whole costs."""
    out = torch.zeros(len(graph.senders), dtype=scores.dtype)
    return out.index_add_(0, graph.of_senders(), scores.nan_to_num(0))


def strongest_nodes(graph: Graph, scores: Tensor, count: int) -> Tensor:
    """Every edge that the `count` senders of largest absolute score send, the embedding among them."""
    ranked = node_scores(graph, scores).abs()
    ranked[graph.sender(EMBED)] = torch.inf
    best = ranked.topk(max(1, min(count, len(ranked)))).indices.tolist()
    return graph.from_nodes({graph.senders[i] for i in best})


@dataclass(frozen=True)
class Progress:
    """Where a search stands: edges decided of `total`, what is kept so far, and the share of the metric it has lost."""

    done: int
    total: int
    kept: Tensor
    lost: float
    forwards: int


def acdc(
    study: Study, threshold: float = 0.01, kind: str = "counterfactual", start: Tensor | None = None
) -> Iterator[Progress]:
    """Automatic circuit discovery (Conmy et al. 2023): from the logits down, an edge goes for good when the metric
    loses less than `threshold` by it, as a share of what lies between the clean run and replacing everything.

    `start` [n_edges] keeps the search to these edges, all others being cut from the outset: large models have too many.
    Stop iterating to cancel; edges not yet decided are kept. Most removals succeed, so a batch holds "the next edge
    gone", "the next two gone", and so on: the first that fails ends the batch, and every decision is the one that a
    removal at a time would have made. Receivers of a node that no kept edge leaves are dropped untried.
    """
    graph = study.graph
    ends = study.values(torch.stack([graph.none(), graph.all()]), kind).mean(-1)
    clean, span = float(ends[0]), float(ends[0] - ends[1])
    gone = graph.none() if start is None else ~start
    lost = 0.0 if start is None else (clean - study.value(gone, kind)) / span
    done, total, forwards = 0, int((~gone).sum()), 2
    most = study.sets_at_once
    ahead = min(8, most)
    for point in reversed(graph.points):
        open_here = int((~point.of(gone)).sum())
        queue = _candidates(graph, point, gone)
        done += open_here - len(queue)
        while queue:
            batch = queue[:ahead]
            sets = gone.repeat(len(batch), 1)
            for i, edge in enumerate(batch):
                sets[i:, edge] = True
            losses = ((clean - study.values(sets, kind).mean(-1)) / span).tolist()
            forwards += len(batch)
            taken = 0
            while taken < len(batch) and losses[taken] - lost < threshold:
                lost = losses[taken]
                gone[batch[taken]] = True
                taken += 1
            failed = taken < len(batch)
            decided = taken + failed
            queue = queue[decided:]
            done += decided
            ahead = max(2, taken) if failed else min(most, 2 * ahead)
            yield Progress(done, total, ~gone, lost, forwards)
    yield Progress(done, total, graph.prune(~gone), lost, forwards)


def _candidates(graph: Graph, point: Point, gone: Tensor) -> list[int]:
    """Edges into a hook point that are worth trying, latest sender first; those into dead nodes go at once."""
    kept, senders = ~gone, graph.of_senders()
    out = []
    for i in reversed(range(len(point.receivers))):
        start = point.start + i * point.senders
        owners = graph.owners(point.receivers[i])
        alive = owners == (LOGITS,) or any(bool(kept[senders == graph.sender(o)].any()) for o in owners)
        if alive:
            out += [e for e in range(start + point.senders - 1, start - 1, -1) if kept[e]]
        else:
            gone[start : start + point.senders] = True
    return out
