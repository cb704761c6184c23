"""How well descriptions predict activations, beside what chance and a full look-up table reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.describe.clauses import Description, Questions, propose, simulate
from interp.describe.endpoint import Endpoint
from interp.describe.reading import Features, Neurons, Text, activations

LEGIBLE = 0.5  # correlation from which a description counts as one


@dataclass(frozen=True)
class Scored:
    """Descriptions of all neurons of a source and how they do on held-out text, [neuron] each.

    `score`: correlation of simulated and true activation. `control`: of another neuron's simulation and this one's
    activation (NaN for one neuron alone). `table`: of the mean by current token, all of them: what any description of the token alone could
    reach. `silent`: never active on the held-out text, so there is nothing to predict (its scores are NaN).
    """

    descriptions: list[Description]
    score: Tensor
    control: Tensor
    table: Tensor
    silent: Tensor

    @property
    def legible(self) -> float:
        """Share of neurons, silent ones included, whose description scores LEGIBLE."""
        return float((self.score.nan_to_num(0) >= LEGIBLE).double().mean())


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's r of the columns [n, column], NaN where either is constant."""
    a, b = a.double() - a.double().mean(0), b.double() - b.double().mean(0)
    return (a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0)).where((a.norm(dim=0) > 1e-9) & (b.norm(dim=0) > 1e-9), torch.nan)


def describe(source: Neurons | Features, lm, seen: Text, held: Text, which: Tensor | None = None) -> Scored:
    """Propose from `seen`, score on `held`, for the neurons `which` (all of the source)."""
    fit = activations(source, lm, seen, which)
    questions = Questions(seen.tokens, seen.piece)
    descriptions = propose(fit, questions)
    table = _by_token(fit, seen.tokens.flatten(), held.tokens.flatten())
    del fit
    true = activations(source, lm, held, which)
    said = simulated(descriptions, held)
    score = correlation(said, true).nan_to_num(0)  # a description that says nothing predicts nothing
    shifted = correlation(said.roll(1, 1), true).nan_to_num(0)
    if len(descriptions) == 1:  # there is no other neuron's
        shifted = torch.full_like(shifted, torch.nan)
    silent = true.double().std(0) < 1e-9
    return Scored(
        descriptions, score.where(~silent, torch.nan), shifted.where(~silent, torch.nan),
        correlation(table, true).nan_to_num(0).where(~silent, torch.nan), silent,
    )  # fmt: skip


def simulated(descriptions: Sequence[Description], text: Text) -> Tensor:
    """[window * pos, description]."""
    questions = Questions(text.tokens, text.piece)
    return torch.stack([simulate(d, questions) for d in descriptions], 1)


def _by_token(acts: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
    """Mean activation of each token of `wanted`, where it was seen; the overall mean elsewhere."""
    seen, row, n = ids.unique(return_inverse=True, return_counts=True)
    mean = torch.zeros(len(seen), acts.shape[1]).index_add_(0, row, acts) / n[:, None]
    at = torch.searchsorted(seen, wanted).clamp_max(len(seen) - 1)
    return torch.where((seen[at] == wanted)[:, None], mean[at], acts.mean(0))


def judged(endpoint: Endpoint, source: Neurons | Features, lm, unit: Tensor, seen: Text, held: Text) -> tuple[str, float]:
    """A server's description of one unit and its score on `held`; one request to propose, one a window to simulate."""
    length = seen.tokens.shape[1]
    text = endpoint.propose(activations(source, lm, seen, unit).view(-1, length), seen)
    said = endpoint.simulate(text, held).flatten()[:, None]
    return text, float(correlation(said, activations(source, lm, held, unit)).nan_to_num(0))
