"""What dictionaries are trained to lower. Inputs and targets have mean zero and a median length of one, so the
reconstruction error is about the share of the variance that is missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.features.dictionary import Dictionary
from interp.features.straight_through import Step


@dataclass(frozen=True)
class Terms:
    """`total` is minimised; `error` is the mean squared distance of `out` from the target; `acts [batch, d_dict]`."""

    total: Tensor
    error: Tensor
    acts: Tensor


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Mean over the batch of the squared distance."""
    return (a - b).square().sum(-1).mean()


def topk(d: Dictionary, x: Tensor, y: Tensor, sparsity: float, aux: float, dead: Tensor | None) -> Terms:
    """Error + aux · (error of what the best dead features make of the residual) (Gao et al. 2024, section A.2)."""
    pre = d.pre(x)
    acts = d.activate(pre)
    out = d.decode(acts)
    error = total = squared(out, y)
    if dead is not None and aux:
        chosen = pre.masked_fill(~dead, float("-inf")).topk(min(max(1, d.shape.d_in // 2), int(dead.sum())), -1)
        revived = torch.zeros_like(pre).scatter(-1, chosen.indices, chosen.values.relu()) @ d.W_dec
        total = total + aux * squared(revived, (y - out).detach())
    return Terms(total, error, acts)


def jumprelu(d: Dictionary, x: Tensor, y: Tensor, sparsity: float, aux: float, dead: Tensor | None) -> Terms:
    """Error + sparsity · L0, both with straight-through gradients for the thresholds (Rajamanoharan et al. 2024)."""
    pre = d.pre(x)
    acts = d.activate(pre)
    error = squared(d.decode(acts), y)
    l0 = Step.apply(pre.relu(), d.threshold, d.shape.width).sum(-1).mean()
    return Terms(error + sparsity * l0, error, acts)


def gated(d: Dictionary, x: Tensor, y: Tensor, sparsity: float, aux: float, dead: Tensor | None) -> Terms:
    """Error + sparsity · L1 of the gate + error of the gate alone through a frozen decoder (Rajamanoharan et al. 2024a)."""
    pre = d.pre(x)
    acts = d.activate(pre)
    gate = pre.relu()
    error = squared(d.decode(acts), y)
    frozen = squared(gate @ d.W_dec.detach() + d.b_dec.detach(), y)
    return Terms(error + sparsity * gate.sum(-1).mean() + frozen, error, acts)


Loss = Callable[[Dictionary, Tensor, Tensor, float, float, Tensor | None], Terms]
LOSSES: dict[str, Loss] = {"topk": topk, "jumprelu": jumprelu, "gated": gated}
