"""The two discontinuities of a JumpReLU dictionary with their straight-through gradients (Rajamanoharan et al. 2024)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def kernel(z: Tensor, threshold: Tensor, width: float) -> Tensor:
    """The rectangle K((z - threshold) / width): 1 where a pre-activation is within half a width, else 0."""
    return ((z - threshold).abs() < width / 2).to(z.dtype)


class JumpReLU(torch.autograd.Function):
    """z where z > threshold, else 0; `z [.., n]`, `threshold [n]`.

    d/dz is exact; d/dthreshold is the pseudo-derivative -(threshold / width) K((z - threshold) / width), equation 11.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, threshold: Tensor, width: float) -> Tensor:
        ctx.save_for_backward(z, threshold)
        ctx.width = width
        return z * (z > threshold)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        z, threshold = ctx.saved_tensors
        near = kernel(z, threshold, ctx.width) * grads[0]
        return grads[0] * (z > threshold), -(threshold / ctx.width) * near.flatten(0, -2).sum(0), None


class Step(torch.autograd.Function):
    """1 where z > threshold, else 0: summed over features it is L0.

    d/dz is 0; d/dthreshold is the pseudo-derivative -(1 / width) K((z - threshold) / width), equation 12.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, threshold: Tensor, width: float) -> Tensor:
        ctx.save_for_backward(z, threshold)
        ctx.width = width
        return (z > threshold).to(z.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        z, threshold = ctx.saved_tensors
        near = kernel(z, threshold, ctx.width) * grads[0]
        return torch.zeros_like(z), -near.flatten(0, -2).sum(0) / ctx.width, None
