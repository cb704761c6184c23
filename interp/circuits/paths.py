"""Path patching: what reaches chosen receivers straight from chosen senders, and nothing else.

Wang et al. 2022 (IOI, appendix B) and Goldowsky-Dill et al. 2023. Two passes on the clean prompt: in the first every
head and MLP is frozen at its clean output but the senders, which write what they write in the other run, and the
receivers' inputs are kept; in the second only those inputs are put in place and everything after them runs. Wang et
al. count what MLPs make of the senders' output as the direct path: `through_mlps` lets them run in the first pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.circuits.edges import Study, at_ends, sender_points
from interp.circuits.graph import Point
from interp.sites import Hook, chain, keep
from lab.errors import LabError


@torch.no_grad()
def path_patch(
    study: Study, senders: Tensor, receivers: Sequence[str], kind: str = "counterfactual", through_mlps: bool = False
) -> Tensor:
    """The metric [set, row], float64, for every set of senders, bool [set, sender], into the same receivers."""
    if not receivers:
        raise LabError("No receiver is chosen; pick at least one.")
    read: dict[Point, list[int]] = {}
    for name in receivers:
        point, place = study.graph.receiver(name)
        read.setdefault(point, []).append(place)
    if not through_mlps and len({point.senders for point in read}) == 1:
        # receivers side by side: what comes before them is clean anyway, so these are edges like any others
        edges = torch.zeros(len(senders), study.graph.n_edges, dtype=torch.bool)
        for point, places in read.items():
            point.of(edges)[:, places] = senders[:, None, : point.senders]
        return study.values(edges, kind)
    return torch.cat([_patch(study, part, read, kind, through_mlps) for part in senders.split(study.sets_at_once)])


def direct_effects(
    study: Study, receivers: Sequence[str] = ("logits",), kind: str = "counterfactual", through_mlps: bool = False
) -> Tensor:
    """What each sender by itself is worth to these receivers: the clean metric minus the patched, float64 [sender].

    Into `logits` this is direct patching. Senders after every receiver are NaN.
    """
    count = len(study.graph.senders)
    patched = path_patch(study, torch.eye(count, dtype=torch.bool), receivers, kind, through_mlps).mean(-1)
    out = study.value(study.graph.none()) - patched
    out[max(study.graph.receiver(name)[0].senders for name in receivers) :] = float("nan")
    return out


def named(study: Study, senders: Sequence[str]) -> Tensor:
    """One set of senders, bool [1, sender]; LabError for a name that is none."""
    out = torch.zeros(1, len(study.graph.senders), dtype=torch.bool)
    out[0, [study.graph.sender(name) for name in senders]] = True
    return out


def _patch(study: Study, senders: Tensor, read: dict[Point, list[int]], kind: str, through_mlps: bool) -> Tensor:
    sets = len(senders)
    tokens = study.batch.clean.repeat(sets, 1)
    chosen = senders.T.to(study.clean)[..., None, None, None]  # [sender, set, 1, 1, 1]
    other = study.other(kind)

    def freeze(at: int, count: int, runs: bool) -> Hook:
        def write(x: Tensor, name: str) -> Tensor | None:
            picked = chosen[at : at + count]
            here = study.clean[at : at + count, None]
            if runs:  # an MLP that is no sender goes on with what reaches it
                here = x.view(1, sets, *study.batch.clean.shape, -1)
            frozen = (here + picked * (other[at : at + count, None] - here)).flatten(1, 2)
            return frozen.permute(1, 2, 0, 3) if x.dim() == 4 else frozen[0]

        return write

    kept: dict[str, Tensor] = {}
    freezing = {
        name: freeze(at, count, through_mlps and name.endswith("hook_mlp_out"))
        for name, at, count in sender_points(study.graph)
    }
    study.model(tokens, hooks=chain(freezing, keep([p.hook for p in read], kept)), last=True)

    def put(point: Point, places: list[int]) -> Hook:
        def write(x: Tensor, name: str) -> Tensor:
            if not point.per_head:
                return kept[name]
            new = x.clone()
            new[:, :, places] = kept[name][:, :, places]
            return new

        return write

    writing = {point.hook: put(point, places) for point, places in read.items()}
    logits = study.model(tokens, hooks=chain(writing, {study.graph.points[-1].hook: at_ends(study.ends)}))
    return study.measure(logits.view(sets, len(study.batch), *logits.shape[1:])).double().cpu()
