"""Attribution patching: every cell of every site estimated from one forward and one backward.

To first order, copying a clean activation changes the metric by (clean - corrupted) · d metric / d activation, taken
at the corrupted run (Nanda 2023, "Attribution patching"; Syed et al. 2023). With more steps the gradient is the mean
along the straight line from the corrupted to the clean embeddings, which holds where one gradient saturates (Hanna,
Pezzelle and Belinkov 2024, "Have faith in faithfulness").
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.baseline import Baseline, baseline
from interp.metrics import Scale
from interp.prompts import Pair
from interp.quadrature import nodes
from interp.sites import SITES, chain, keep, sites_of
from lab.errors import LabError


def attribute(
    model,
    pair: Pair,
    metric: str = "logit_diff",
    sites: Sequence[str] | None = None,
    base: Baseline | None = None,
    by_position: Sequence[str] = (),
    steps: int = 1,
) -> dict[str, Tensor]:
    """Estimated share restored, by site: streams [layer, position], heads and neurons [layer, head], float64.

    `by_position` names sites of heads whose positions are kept apart, [layer, head, position] (of a pattern: the
    query's). Positions of the corrupted prompt without a partner are NaN. `sites=None` takes all that the model has; the pattern is left out
    when the prompts differ in length. `base` may hold another intervention's values (`interp.ablation`).
    """
    for key in sites or ():
        if key not in SITES:
            raise LabError(f"There is no site called {key!r}; choose one of {', '.join(SITES)}.")
    wanted = [s for s in (sites or sites_of(model)) if s != "pattern" or pair.equal_length]
    base = base or baseline(model, pair, wanted)
    scale = base.scale(pair, metric)
    names = [SITES[s].name(i) for s in wanted for i in range(model.cfg.n_layers)]
    grads = gradients(model, pair, scale, names, steps)
    span = scale.clean - scale.corrupted
    pairs = [(p, s) for p, s in enumerate(pair.alignment) if s is not None]
    to = torch.tensor([p for p, _ in pairs], device=model.device)
    start = torch.tensor([s for _, s in pairs], device=model.device)
    out = {}
    for key in wanted:
        site = SITES[key]
        rows = []
        for layer in range(model.cfg.n_layers):
            name = site.name(layer)
            clean, corrupted, grad = (site.view(x[name]) for x in (base.clean, base.corrupted, grads))
            effect = ((clean[start] - corrupted[to]) * grad[to]).double().sum(-1) / span
            if site.heads and key not in by_position:
                rows.append(effect.sum(0))
                continue
            row = effect.new_full((len(pair.alignment), *effect.shape[1:]), float("nan"))
            row[to] = effect
            rows.append(row.T if site.heads else row)
        out[key] = torch.stack(rows).cpu()
    return out


def gradients(model, pair: Pair, scale: Scale, names: Sequence[str], steps: int = 1) -> dict[str, Tensor]:
    """d metric / d activation by hook name, without batch dimension: at the corrupted run, or its mean over `steps`
    points (midpoints) of the line from there to the clean embeddings."""
    if steps > 1 and (not pair.equal_length or pair.clean_ids == pair.corrupted_ids):
        raise LabError(
            "Gradients along a path need two different prompts with equally many tokens; use one gradient instead."
        )
    tokens = torch.tensor([pair.corrupted_ids], device=model.device)
    ends: dict[str, Tensor] = {}
    if steps > 1:
        both = torch.tensor([pair.corrupted_ids, pair.clean_ids], device=model.device)
        with torch.no_grad():
            model(both, hooks=keep(["hook_embed"], ends), last=True)
    total: dict[str, Tensor] = {}
    for at, weight in nodes(steps, "midpoint") if steps > 1 else ((0.0, 1.0),):

        def leaf(activation: Tensor, name: str, at: float = at) -> Tensor:
            # the graph starts at the embedding: the weights need no gradient and other threads share them
            if ends:
                activation = torch.lerp(ends[name][:1], ends[name][1:], at)
            return activation.detach().requires_grad_()

        kept: dict[str, Tensor] = {}
        with torch.enable_grad():
            logits = model(tokens, hooks=chain({"hook_embed": leaf}, keep(names, kept)), last=True)
            grads = torch.autograd.grad(scale.value(logits[0, -1]), [kept[n] for n in names])
        for name, grad in zip(names, grads):
            total[name] = weight * grad[0] if name not in total else total[name] + weight * grad[0]
    return total


def agreement(estimate: Tensor, exact: Tensor) -> float:
    """Pearson correlation over the cells both have; NaN when fewer than three or either is constant."""
    both = ~(estimate.isnan() | exact.isnan())
    x, y = estimate[both].double(), exact[both].double()
    if len(x) < 3 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(torch.corrcoef(torch.stack([x, y]))[0, 1])
