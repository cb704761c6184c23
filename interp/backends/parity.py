"""Do implementations of one model agree? Activations at every point they share, and logits patched at several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.baseline import baseline
from interp.prompts import Pair
from interp.sites import SITES, Intervention, Patch, sites_of
from interp.sweep import grid
from lab.errors import LabError

CELLS = 32  # patched a site and layer, spread evenly where there are more
SPLIT = ("hook_q_input", "hook_k_input", "hook_v_input")


@dataclass(frozen=True)
class Row:
    """One quantity over all layers: the largest difference, and that over the largest value of the first model.

    `layer` is where it is largest, None for what has no layers.
    """

    point: str
    kind: str
    max_abs: float
    relative: float
    layer: int | None


@torch.no_grad()
def activations(one: Any, other: Any, tokens: Tensor) -> list[Row]:
    """Every hook point both have, and the logits; points in the order of execution."""
    shared = [name for name in one.hook_names() if name in set(other.hook_names())]
    if not shared:
        raise LabError("The two models share no hook point, so there is nothing to compare.")
    whole = [name for name in shared if not name.endswith(SPLIT)]  # inputs a head each change what the norm before them sees
    logits, first = one.run_with_cache(tokens, lambda n: n in set(whole))
    others, second = other.run_with_cache(tokens, lambda n: n in set(whole))
    if len(whole) < len(shared):
        first |= one.run_with_cache(tokens, lambda n: n in shared and n.endswith(SPLIT))[1]
        second |= other.run_with_cache(tokens, lambda n: n in shared and n.endswith(SPLIT))[1]
    groups: dict[str, list[tuple[int | None, str]]] = {}
    for name in shared:
        layer, point = split(name)
        groups.setdefault(point, []).append((layer, name))
    rows = [
        _worst(point, "activation", [(layer, first[name], second[name]) for layer, name in found])
        for point, found in groups.items()
    ]
    return [*rows, _worst("logits", "activation", [(None, logits, others)])]


@torch.no_grad()
def patched(one: Any, other: Any, pair: Pair, layers: Sequence[int] | None = None) -> list[Row]:
    """Last-position logits after the same patches, each model from its own clean run, one row a site.

    Streams are patched at every position apart, heads and neurons each, CELLS of them at most, in the layers given
    (first, middle and last).
    """
    depth = one.cfg.n_layers
    layers = sorted({0, depth // 2, depth - 1}) if layers is None else layers
    rows = []
    for site in sites(one, other):
        if site == "pattern" and not pair.equal_length:
            continue
        found: list[tuple[int | None, Tensor, Tensor]] = []
        for layer in layers:
            cells = [cell.patch for cell in grid(one.cfg, pair, site) if cell.layer == layer]
            cells = cells[:: -(-len(cells) // CELLS)]
            found.append((layer, _patched_logits(one, pair, cells), _patched_logits(other, pair, cells)))
        rows.append(_worst(SITES[site].point.partition("}.")[2], "patched logits", found))
    return rows


def sites(*models: Any) -> list[str]:
    """The sites that all these models have."""
    have = [sites_of(model) for model in models]
    return [key for key in SITES if all(key in found for found in have)]


def split(name: str) -> tuple[int | None, str]:
    """A hook name's layer and the rest: "blocks.3.attn.hook_z" is (3, "attn.hook_z")."""
    head, _, rest = name.partition(".")
    if head != "blocks":
        return None, name
    layer, _, point = rest.partition(".")
    return int(layer), point


def _patched_logits(model: Any, pair: Pair, cells: Sequence[Patch]) -> Tensor:
    base = baseline(model, pair, (cells[0].site,))
    act = Intervention(cells, base.clean, pair.alignment, range(len(cells)))
    tokens = torch.tensor([pair.corrupted_ids] * len(cells), device=model.device)
    logits = model(tokens, hooks=act.hooks, last=True)
    act.receipts()
    return logits


def _worst(point: str, kind: str, found: Sequence[tuple[int | None, Tensor, Tensor]]) -> Row:
    gaps, largest = [], 0.0
    for layer, x, y in found:
        if x.shape != y.shape:
            raise LabError(f"{point} is {list(x.shape)} in one model and {list(y.shape)} in the other; they are not the same model.")
        x, y = x.double().cpu(), y.double().cpu()
        seen = x > -1e30  # a masked score is minus infinity, or as good as that
        gaps.append((float((x - y)[seen].abs().nan_to_num(nan=float("inf")).max()), layer))
        largest = max(largest, float(x[seen].abs().max()))
    gap, layer = max(gaps, key=lambda g: g[0])
    return Row(point, kind, gap, gap / largest if largest else 0.0, layer)
