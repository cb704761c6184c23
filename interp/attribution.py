"""Attribution patching: every cell of every site estimated from one forward and one backward.

To first order, copying a clean activation changes the metric by (clean - corrupted) · d metric / d activation, taken
at the corrupted run (Nanda 2023, "Attribution patching"; Syed et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.baseline import baseline
from interp.prompts import Pair
from interp.sites import SITES, chain, keep
from lab.errors import LabError


def attribute(
    model, pair: Pair, metric: str = "logit_diff", sites: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """Estimated share restored, by site: streams [layer, position], heads [layer, head], float64.

    Positions of the corrupted prompt without a partner are NaN. `sites=None` takes all of them; the pattern is left
    out when the prompts differ in length.
    """
    for site in sites or ():
        if site not in SITES:
            raise LabError(f"There is no site called {site!r}; choose one of {', '.join(SITES)}.")
    wanted = [s for s in (sites or SITES) if s != "pattern" or pair.equal_length]
    base = baseline(model, pair, wanted)
    scale = base.scale(pair, metric)
    kept: dict[str, Tensor] = {}
    names = [SITES[s].name(i) for s in wanted for i in range(model.cfg.n_layers)]
    weight = next(model.parameters())

    def leaf(activation: Tensor, name: str) -> Tensor:
        # the graph starts at the embedding: the weights need no gradient and other threads share them
        return activation.detach().requires_grad_()

    with torch.enable_grad():
        tokens = torch.tensor([pair.corrupted_ids], device=weight.device)
        logits = model(tokens, hooks=chain({"hook_embed": leaf}, keep(names, kept)))
        value = scale.value(logits[0, -1])
        grads = dict(zip(names, torch.autograd.grad(value, [kept[n] for n in names])))
    span = scale.clean - scale.corrupted
    pairs = [(p, s) for p, s in enumerate(pair.alignment) if s is not None]
    to = torch.tensor([p for p, _ in pairs], device=weight.device)
    start = torch.tensor([s for _, s in pairs], device=weight.device)
    out = {}
    for site in wanted:
        rows = []
        for layer in range(model.cfg.n_layers):
            name = SITES[site].name(layer)
            clean, corrupted, grad = base.clean[name], kept[name][0].detach(), grads[name][0]
            if site == "pattern":
                rows.append(((clean - corrupted) * grad).double().sum((1, 2)) / span)
                continue
            effect = ((clean[start] - corrupted[to]) * grad[to]).double().sum(-1) / span
            if SITES[site].heads:
                rows.append(effect.sum(0))
            else:
                row = torch.full((len(pair.alignment),), float("nan"), dtype=torch.float64, device=weight.device)
                row[to] = effect
                rows.append(row)
        out[site] = torch.stack(rows).cpu()
    return out


def agreement(estimate: Tensor, exact: Tensor) -> float:
    """Pearson correlation over the cells both have; NaN when fewer than three or either is constant."""
    both = ~(estimate.isnan() | exact.isnan())
    x, y = estimate[both].double(), exact[both].double()
    if len(x) < 3 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(torch.corrcoef(torch.stack([x, y]))[0, 1])
