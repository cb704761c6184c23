"""Second minus first over the same prompts, with intervals; and a model in fewer bits."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.bootstrap import mean_interval
from lab import models
from lab.errors import LabError

#: how a model's weights are held
PRECISIONS = {"as stored": None, "float32": torch.float32, "bfloat16": torch.bfloat16, "8 bits": 8, "4 bits": 4, "3 bits": 3}


@dataclass(frozen=True)
class Difference:
    """Means [layer, column] of both, the mean difference and the ends of its 95 % interval."""

    first: Tensor
    second: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor

    @property
    def clear(self) -> Tensor:
        """Cells whose interval leaves zero out."""
        return (self.low > 0) | (self.high < 0)


def difference(first: Tensor, second: Tensor, draws: int = 1000, seed: int = 0) -> Difference:
    """Percentile bootstrap over pairs of prompts, both models on the same draw (Efron 1979).

    `first`, `second` [pair, layer, column]; intervals are for one cell each, not for all of them together.
    """
    if first.shape != second.shape:
        raise LabError(f"Grids of {list(first.shape)} and {list(second.shape)} cannot be subtracted.")
    mean, low, high = mean_interval(second - first, draws, seed)
    return Difference(first.mean(0), second.mean(0), mean, low, high)


@torch.no_grad()
def rounded(model, bits: int):
    """A copy whose matrices are rounded to `bits`: symmetric, one scale a row, nearest (embeddings included)."""
    most = 2 ** (bits - 1) - 1
    out = copy.deepcopy(model)
    for p in {id(p): p for p in out.parameters()}.values():  # a tied matrix once
        if p.dim() == 2:
            scale = p.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / most
            p.copy_((p.float() / scale).round().clamp(-most, most) * scale)
    return out


def opened(name: str, precision: str = "as stored", progress=None):
    """`lab.models.load` in one of `PRECISIONS`; the name says which."""
    how = PRECISIONS[precision]
    if how is None:
        return models.load(name, progress=progress)
    if isinstance(how, torch.dtype):
        return replace(models.load(name, dtype=how, progress=progress), name=f"{name} in {precision}")
    lm = models.load(name, dtype=torch.float32, progress=progress)
    return replace(lm, model=rounded(lm.model, how), name=f"{name} in {precision}")
