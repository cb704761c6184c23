"""Integrated gradients: attributions that add up to the difference they explain.

Along the straight line from a baseline activation to the actual one, the gradient of the metric is integrated and
multiplied by the difference; the products sum to metric(actual) - metric(baseline) (Sundararajan, Taly and Yan 2017,
"Axiomatic attribution for deep networks", completeness). Gradient times input is its cheap relative, one gradient at the
actual input (Shrikumar et al. 2016).
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.metrics import at_least_fp32
from interp.prompts import Pair
from interp.quadrature import nodes
from interp.sites import SITES, keep
from lab.errors import LabError

BASELINES = {"zero": "zero", "mean": "the mean embedding", "corrupted": "the corrupted prompt"}
ROWS = 16  # points of the path that go through the model together


@dataclass(frozen=True)
class Attribution:
    """`values` shaped as the activation without batch dimension; `total` should be `difference`, up to the steps taken."""

    values: Tensor
    difference: float
    steps: int

    @property
    def total(self) -> float:
        return float(self.values.double().sum())

    @property
    def error(self) -> float:
        """Completeness error in the metric's unit."""
        return abs(self.total - self.difference)

    @property
    def tokens(self) -> Tensor:
        """Summed over everything but positions."""
        return self.values.double().flatten(1).sum(1)


def integrate(model, tokens: Sequence[int], name: str, start: Tensor, end: Tensor, metric, steps: int = 32,
              rule: str = "gauss") -> Attribution:  # fmt: skip
    """Attributions of `metric(logits [row, vocab]) -> [row]` to the activation at hook `name`, replaced by every point
    of the line from `start` to `end` (no batch dimension)."""
    ids = torch.tensor([list(tokens)], device=model.device)
    where = nodes(steps, rule)
    total = torch.zeros_like(end, dtype=torch.float64)
    for at in range(0, steps, ROWS):
        part = where[at : at + ROWS]
        share = torch.tensor([a for a, _ in part], dtype=start.dtype, device=start.device)
        line = start + share.view(-1, *[1] * start.dim()) * (end - start)
        grad = _gradient(model, ids, name, line, metric)
        weight = torch.tensor([w for _, w in part], dtype=torch.float64, device=start.device)
        total += torch.tensordot(weight, grad.double(), 1)
    ends = [float(_value(model, ids, name, point, metric)) for point in (start, end)]
    return Attribution(total * (end - start).double(), ends[1] - ends[0], steps)


def _gradient(model, ids: Tensor, name: str, line: Tensor, metric) -> Tensor:
    leaf = line.detach().requires_grad_()
    with torch.enable_grad():
        logits = model(ids.expand(len(line), -1), hooks={name: lambda x, _: leaf}, last=True)
        return torch.autograd.grad(metric(logits[:, -1]).sum(), leaf)[0]


@torch.no_grad()
def _value(model, ids: Tensor, name: str, point: Tensor, metric) -> Tensor:
    return metric(model(ids, hooks={name: lambda x, _: point[None]}, last=True)[:, -1])[0]


# ---- inputs


def of_tokens(
    model, ids: Sequence[int], metric, method: str = "integrated", baseline: str = "zero", steps: int = 32,
    corrupted: Sequence[int] | None = None, rule: str = "gauss",
) -> Attribution:  # fmt: skip
    """Attributions to the embeddings [pos, d_model] of one prompt: "integrated", or "gradient" (gradient x input).

    `baseline` of BASELINES is where the path begins; "corrupted" needs a prompt of equally many tokens.
    """
    end = _at(model, ids, "hook_embed")
    if method == "gradient":
        tokens = torch.tensor([list(ids)], device=model.device)
        values = (_gradient(model, tokens, "hook_embed", end[None], metric)[0] * end).double()
        zero = torch.zeros_like(end)
        ends = [float(_value(model, tokens, "hook_embed", x, metric)) for x in (zero, end)]
        return Attribution(values, ends[1] - ends[0], 1)
    if method != "integrated":
        raise LabError(f"There is no method called {method!r}; choose integrated or gradient.")
    if baseline not in BASELINES:
        raise LabError(f"There is no baseline called {baseline!r}; choose one of {', '.join(BASELINES)}.")
    start = torch.zeros_like(end)
    if baseline == "mean":
        start = model.W_E.detach().double().mean(0).to(end).expand_as(end)
    elif baseline == "corrupted":
        if corrupted is None or len(corrupted) != len(ids):
            raise LabError("Only a prompt of equally many tokens can be the baseline; choose zero or the mean embedding.")
        start = _at(model, corrupted, "hook_embed")
    return integrate(model, ids, "hook_embed", start, end, metric, steps, rule)


@torch.no_grad()
def _at(model, ids: Sequence[int], name: str) -> Tensor:
    """The activation at one hook point, without batch dimension."""
    kept: dict[str, Tensor] = {}
    model(torch.tensor([list(ids)], device=model.device), hooks=keep([name], kept), last=True)
    return kept[name][0]


# ---- activations


def of_site(model, pair: Pair, site: str, layer: int, metric, steps: int = 32, rule: str = "gauss") -> Attribution:
    """Attributions to one site of one layer on the line from the corrupted to the clean run: they sum to what patching
    the whole of it gives. Positions without a partner stay corrupted and get zero."""
    if site not in SITES:
        raise LabError(f"There is no site called {site!r}; choose one of {', '.join(SITES)}.")
    if site == "pattern" and not pair.equal_length:
        raise LabError("Attention patterns can only be compared between prompts with equally many tokens; choose another site.")
    name = SITES[site].name(layer)
    clean, start = _at(model, pair.clean_ids, name), _at(model, pair.corrupted_ids, name)
    end = start.clone()
    pairs = [(p, s) for p, s in enumerate(pair.alignment) if s is not None]
    SITES[site].view(end)[[p for p, _ in pairs]] = SITES[site].view(clean)[[s for _, s in pairs]]
    found = integrate(model, pair.corrupted_ids, name, start, end, metric, steps, rule)
    return Attribution(SITES[site].view(found.values), found.difference, steps)


def difference(answer: int, wrong: int):
    """The logit difference of two tokens as a metric of logits [row, vocab]."""
    return lambda logits: at_least_fp32(logits)[:, answer] - at_least_fp32(logits)[:, wrong]


def log_probability(answer: int):
    """The log-probability of a token as a metric of logits [row, vocab]."""
    return lambda logits: at_least_fp32(logits).log_softmax(-1)[:, answer]


# ---- precision

_wide: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def widened(model, dtype: torch.dtype):
    """The model in another precision, copied once and shared: bf16 gradients are wrong by a percent each, which sums."""
    if model.dtype == dtype:
        return model
    with _lock:
        copies = _wide.setdefault(model, {})
        if dtype not in copies:
            copies[dtype] = copy.deepcopy(model).to(dtype).requires_grad_(False)
        return copies[dtype]
