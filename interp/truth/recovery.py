"""Do circuit methods find a circuit that is known? Every method ranks the edges; the truth marks the ranking.

Inputs of each length stand in a batch of their own, since attention goes both ways and padding would count. What
replaces an edge decides what can be found: `zero` cuts it, `mean` puts the mean over all inputs and positions,
`counterfactual` the value on another input of equal length, which never differs where the program's constants run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.circuits.attribution import attribute_study
from interp.circuits.batch import Batch
from interp.circuits.discovery import acdc
from interp.circuits.edges import Study, exact
from interp.circuits.graph import Graph
from interp.truth.compile import Compiled
from interp.truth.rasp import CATEGORICAL

ORDER = ("zero", "mean", "counterfactual")  # of what replaces an edge, from what shows most to what shows least
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
STEPS = 10


def distance(compiled: Compiled, clean: Tensor) -> Callable[[Tensor], Tensor]:
    """Squared distance from the clean logits, mean over the positions after BOS: anything that changes counts."""
    return lambda logits: (logits - clean)[..., 1:, :].square().sum(-1).mean(-1)


def answer(compiled: Compiled, clean: Tensor) -> Callable[[Tensor], Tensor]:
    """Logit of the right value less the mean of the others, or the number itself: mean over the positions after BOS."""
    if compiled.program.output.encoding != CATEGORICAL:
        return lambda logits: logits[..., 1:, 0].mean(-1)
    right, others = clean.argmax(-1), max(1, clean.shape[-1] - 1)

    def value(logits: Tensor) -> Tensor:
        at = logits.gather(-1, right.expand(logits.shape[:-1])[..., None])[..., 0]
        return (at - (logits.sum(-1) - at) / others)[..., 1:].mean(-1)

    return value


def studies(compiled: Compiled, metric: Callable = distance, rows: int = 16, seed: int = 0) -> list[Study]:
    """One study a length, of `rows` random inputs with a random counterfactual each; all share the means."""
    draw = random.Random(seed)
    program = compiled.program
    batches = []
    for n in range(1, program.length + 1):
        clean, other = (torch.cat([compiled.encode(draw.choices(program.vocab, k=n)) for _ in range(rows)]) for _ in range(2))
        batches.append(Batch(clean, other, torch.full((rows,), n), clean[:, -1], other[:, -1]))

    def study(batch: Batch, means: Tensor | None = None) -> Study:
        measured = metric(compiled, compiled.model(batch.clean))
        return Study(compiled.model, batch, measured=measured, everywhere=True, means=means)

    lengths = torch.tensor([float(batch.length) for batch in batches])
    each = torch.stack([study(batch).means for batch in batches])
    means = (each * (lengths / lengths.sum())[:, None, None].to(each)).sum(0)
    return [study(batch, means) for batch in batches]


# ---- methods


@dataclass(frozen=True)
class Method:
    """`unit` says what its scores are; a gradient method reads `answer`, since at the clean run `distance` is flat."""

    title: str
    unit: str
    of: Callable[[Compiled, str, int, Callable[[], bool]], Tensor]


class Stopped(Exception):
    """Somebody cancelled."""


def _exact(compiled: Compiled, kind: str, rows: int, proceed: Callable[[], bool]) -> Tensor:
    return torch.stack([exact(study, kind).abs() for study in studies(compiled, distance, rows)]).mean(0)


def _acdc(compiled: Compiled, kind: str, rows: int, proceed: Callable[[], bool]) -> Tensor:
    """The largest threshold at which an edge is still kept, mean over the lengths."""
    parts = studies(compiled, distance, rows)
    total = torch.zeros(parts[0].graph.n_edges, dtype=torch.float64)
    for study in parts:
        kept_at = torch.zeros_like(total)
        for threshold in THRESHOLDS:
            kept = study.graph.all()
            for state in acdc(study, threshold, kind):
                if not proceed():
                    raise Stopped
                kept = state.kept
            kept_at[kept] = threshold
        total += kept_at / len(parts)
    return total


def _gradient(steps: int) -> Callable[[Compiled, str, int, Callable[[], bool]], Tensor]:
    def score(compiled: Compiled, kind: str, rows: int, proceed: Callable[[], bool]) -> Tensor:
        return torch.stack([attribute_study(study, kind, steps).abs() for study in studies(compiled, answer, rows)]).mean(0)

    return score


METHODS: dict[str, Method] = {
    "exact": Method("exact edge patching", "squared change of the output", _exact),
    "acdc": Method("ACDC", "largest threshold that keeps it", _acdc),
    "eap": Method("EAP", "estimated change of the answer", _gradient(1)),
    "eap_ig": Method(f"EAP-IG, {STEPS} steps", "estimated change of the answer", _gradient(STEPS)),
}


def edge_scores(compiled: Compiled, method: str, kind: str, rows: int = 16, proceed: Callable[[], bool] = lambda: True) -> Tensor:
    """What the method thinks of every edge, never negative, float64 [n_edges]. `proceed() == False` raises Stopped."""
    return METHODS[method].of(compiled, kind, rows, proceed)


# ---- curves


@dataclass(frozen=True)
class Roc:
    """Keeping every edge that scores at least `threshold[i]` keeps `kept[i]` edges, `found[i]` of the circuit's and
    `wrong[i]` others, as shares. Starts at nothing, ends at everything; edges of equal score come together."""

    threshold: list[float]
    kept: list[int]
    found: list[float]
    wrong: list[float]


def roc(scores: Tensor, truth: Tensor) -> Roc:
    """`scores` [n_edges], `truth` bool [n_edges]."""
    levels = scores.unique().flip(0)
    chosen = scores[None] >= levels[:, None]
    inside, outside = truth.sum().clamp(min=1), (~truth).sum().clamp(min=1)
    found, wrong = (chosen & truth).sum(1) / inside, (chosen & ~truth).sum(1) / outside
    return Roc(
        [float("inf"), *levels.tolist()], [0, *chosen.sum(1).tolist()], [0.0, *found.tolist()], [0.0, *wrong.tolist()]
    )  # fmt: skip


def missed(graph: Graph, scores: Tensor, truth: Tensor) -> Sequence[tuple[str, str]]:
    """Edges of the circuit that some edge outside it outscores or equals."""
    bar = scores[~truth].max() if bool((~truth).any()) else torch.tensor(-1.0)
    return graph.named(truth & (scores <= bar))
