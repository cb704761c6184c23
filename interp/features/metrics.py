"""How good a dictionary is inside the model: what the loss becomes when its output takes the activation's place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from interp.sites import Hook
from lab.errors import LabError

Coder = Callable[[Tensor], Tensor]


def splice(site_in: str, site_out: str, coder: Coder) -> dict[str, Hook]:
    """Hooks that put `coder(activation at site_in)` in the place of the activation at `site_out`."""
    if site_in == site_out:
        return {site_out: lambda x, name: coder(x).to(x.dtype)}
    seen: list[Tensor] = []

    def read(x: Tensor, name: str) -> None:
        seen[:] = [x]

    def write(x: Tensor, name: str) -> Tensor:
        if not seen:
            raise LabError(f"{site_in} was not seen before {site_out}, so there is nothing to put there.")
        return coder(seen.pop()).to(x.dtype)

    return {site_in: read, site_out: write}


def constant(value: Tensor) -> Hook:
    """A hook that writes `value [d]` at every position."""
    return lambda x, name: value.to(x.dtype).expand_as(x)


@dataclass(frozen=True)
class Quality:
    """Losses in nats a token; `l0` features active a position; `dead` the share of features that never fired on
    `positions` positions; `explained` 1 - squared error / squared distance from the mean, without the first position of
    each window, whose few very long vectors would make any dictionary look good."""

    clean: float
    spliced: float
    zero: float
    mean: float
    l0: float
    dead: float
    explained: float
    positions: int

    @property
    def recovered(self) -> float:
        """Share of the loss between zero ablation and the clean run that the dictionary keeps: 1 is perfect, 0 is zeros."""
        return (self.zero - self.spliced) / (self.zero - self.clean)

    @property
    def recovered_from_mean(self) -> float:
        """The same against the mean activation in place of zeros, which is harder."""
        return (self.mean - self.spliced) / (self.mean - self.clean)


def losses(model, rows: Tensor, hooks: dict[str, Hook] | None = None) -> Tensor:
    """Cross-entropy of each next token, `rows [batch, pos + 1] -> [batch, pos]`, in nats."""
    logits = model(rows[:, :-1], hooks=hooks).float()
    return F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")


class Meter:
    """Adds up a dictionary's quality over batches of text; `fired` counts activations of every feature."""

    def __init__(self, model, dictionary, mean: Tensor) -> None:
        """`mean [d_out]` is the activation that mean ablation writes."""
        self.model, self.dictionary, self.mean = model, dictionary, mean
        self.fired = torch.zeros(dictionary.d_dict, device=mean.device)
        self._sums = dict.fromkeys(("clean", "spliced", "zero", "mean"), 0.0)
        self._error = self._square = 0.0
        self._sum = torch.zeros_like(mean, dtype=torch.float64)
        self.positions = self._counted = 0

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """`rows [batch, pos + 1]` token ids."""
        d, n = self.dictionary, rows[:, 1:].numel()
        truth: list[Tensor] = []

        def coder(x: Tensor) -> Tensor:
            acts = d.encode(x)
            self.fired += (acts > 0).flatten(0, -2).sum(0)
            out = d.decode(acts)
            self._error += float((out - truth[0].float())[:, 1:].square().sum())
            return out

        def remember(x: Tensor, name: str) -> None:
            truth[:] = [x]
            self._sum += x[:, 1:].double().sum((0, 1))
            self._square += float(x[:, 1:].double().square().sum())
            self._counted += x[:, 1:].shape[:2].numel()

        # the truth at the site is the clean run's: nothing before the site differs between the two
        self._sums["clean"] += float(losses(self.model, rows, {d.site_out: remember}).sum())
        self._sums["spliced"] += float(losses(self.model, rows, splice(d.site_in, d.site_out, coder)).sum())
        for key, value in (("zero", torch.zeros_like(self.mean)), ("mean", self.mean)):
            self._sums[key] += float(losses(self.model, rows, {d.site_out: constant(value)}).sum())
        self.positions += n

    def quality(self) -> Quality:
        if not self.positions:
            raise LabError("There is no text to measure the dictionary on: give at least one window.")
        n = self.positions
        spread = self._square - float(self._sum.square().sum()) / max(1, self._counted)
        return Quality(
            **{key: total / n for key, total in self._sums.items()},
            l0=float(self.fired.sum()) / n,
            dead=float((self.fired == 0).float().mean()),
            explained=1 - self._error / spread if spread > 0 else float("nan"),
            positions=n,
        )


def quality(model, dictionary, batches: Iterable[Tensor], mean: Tensor) -> Quality:
    """Quality over batches of rows `[batch, pos + 1]`."""
    meter = Meter(model, dictionary, mean)
    for rows in batches:
        meter.add(rows.to(mean.device))
    return meter.quality()
