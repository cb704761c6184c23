"""How sure a mean over prompts (or facts) is."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_interval(values: Tensor, draws: int = 2000, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over the first dimension [n, ...] and the ends of its 95% interval, float64 [...].

    Percentile bootstrap (Efron 1979): whole rows are drawn, so all cells of a row stay together. Intervals are for one
    cell each, not for all of them at once.
    """
    n, shape = len(values), values.shape[1:]
    flat = values.reshape(n, -1).double()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(n, (draws, n), generator=generator)
    times = torch.zeros(draws, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(draws, n, dtype=torch.float64))
    ends = torch.quantile(times @ flat / n, torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
    return flat.mean(0).view(shape), ends[0].view(shape), ends[1].view(shape)
