"""Metrics of an answer, and the share of it that a patch restores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import LabError


@dataclass(frozen=True)
class Metric:
    """`of(logits [.., vocab], answer, wrong, clean log-probabilities [vocab]) -> [..]`."""

    key: str
    title: str
    unit: str
    of: Callable[[Tensor, int, int, Tensor], Tensor]


def _logit_difference(logits: Tensor, answer: int, wrong: int, clean: Tensor) -> Tensor:
    return logits[..., answer] - logits[..., wrong]


def _probability(logits: Tensor, answer: int, wrong: int, clean: Tensor) -> Tensor:
    return logits.softmax(-1)[..., answer]


def _kl(logits: Tensor, answer: int, wrong: int, clean: Tensor) -> Tensor:
    return (clean.exp() * (clean - logits.log_softmax(-1))).sum(-1)


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("logit_diff", "logit difference", "logits", _logit_difference),
        Metric("probability", "probability of the answer", "probability", _probability),
        Metric("kl", "KL divergence from the clean run", "nats", _kl),
    )
}


@dataclass(frozen=True)
class Scale:
    """A metric with its two ends: 0 is the corrupted run, 1 the clean run.

    share(m) = (m - corrupted) / (clean - corrupted), for every metric, KL included.
    """

    metric: Metric
    answer: int
    wrong: int
    clean_logprobs: Tensor
    clean: float
    corrupted: float

    @classmethod
    def between(cls, key: str, answer: int, wrong: int, clean: Tensor, corrupted: Tensor) -> Scale:
        """From the last-position logits [vocab] of both runs; LabError when the two do not differ."""
        if key not in METRICS:
            raise LabError(f"There is no metric called {key!r}; choose one of {', '.join(METRICS)}.")
        metric, clean, corrupted = METRICS[key], at_least_fp32(clean), at_least_fp32(corrupted)
        logprobs = clean.log_softmax(-1)
        ends = [metric.of(x, answer, wrong, logprobs).item() for x in (clean, corrupted)]
        if abs(ends[0] - ends[1]) < 1e-6:
            raise LabError(
                f"Both prompts give the same {metric.title}, so nothing can be restored; "
                "make the prompts or the answers differ."
            )
        return cls(metric, answer, wrong, logprobs, ends[0], ends[1])

    def value(self, logits: Tensor) -> Tensor:
        """The metric itself, differentiable; logits [.., vocab] -> [..]."""
        return self.metric.of(at_least_fp32(logits), self.answer, self.wrong, self.clean_logprobs)

    def share(self, value: Tensor) -> Tensor:
        return (value - self.corrupted) / (self.clean - self.corrupted)


def at_least_fp32(x: Tensor) -> Tensor:
    """bf16 holds a logit of 20 to 1/8 only: sums and softmaxes are taken in fp32 or better."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
