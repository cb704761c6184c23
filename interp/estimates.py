"""Cheap estimates of what patching a cell would give, by three methods, on the grid the exact sweep fills."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.attribution import attribute
from interp.baseline import Baseline
from interp.integrated import of_site
from interp.prompts import Pair
from interp.sites import SITES
from lab.errors import LabError

METHODS = {
    "gradient": "one gradient (attribution patching)",
    "path": "mean of 8 gradients along the embeddings",
    "integrated": "integrated gradients at the site, 8 steps",
}
STEPS = 8


def estimate(model, pair: Pair, site: str, method: str, metric: str, base: Baseline) -> Tensor:
    """Estimated share of each cell of a site's grid [layer, position or head], float64; NaN without a partner.

    "gradient" costs one backward pass for all sites, "path" STEPS of them, "integrated" STEPS for every layer.
    """
    if method not in METHODS:
        raise LabError(f"There is no method called {method!r}; choose one of {', '.join(METHODS)}.")
    if method != "integrated":
        return attribute(model, pair, metric, [site], base, steps=1 if method == "gradient" else STEPS)[site]
    scale = base.scale(pair, metric)
    span = scale.clean - scale.corrupted
    there = torch.tensor([s is not None for s in pair.alignment], device=model.device)
    rows = []
    for layer in range(model.cfg.n_layers):
        values = of_site(model, pair, site, layer, scale.value, STEPS).values.sum(-1) / span  # [pos, (head)]
        rows.append(values.sum(0) if SITES[site].heads else values.masked_fill(~there, float("nan")))
    return torch.stack(rows).cpu()
