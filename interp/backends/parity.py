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

CELLS = 6  # patched a site and layer, spread evenly where there are more
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


@dataclass(frozen=True)
class Seen:
    """One model's activations by hook name, its logits among them, and its patched logits by site and layer."""

    acts: dict[str, Tensor]
    patched: dict[tuple[str, int], Tensor]


@torch.no_grad()
def observe(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """Every activation on these tokens in the order of execution, and the logits."""
    names = model.hook_names()
    split = {name for name in names if name.endswith(SPLIT)}  # inputs a head each change what the norm before them sees
    logits, acts = model.run_with_cache(tokens, lambda n: n not in split)
    if split:
        acts |= model.run_with_cache(tokens, lambda n: n in split)[1]
    return {name: acts[name] for name in names} | {"logits": logits}


@torch.no_grad()
def patch(model: Any, pair: Pair, layers: Sequence[int] | None = None) -> dict[tuple[str, int], Tensor]:
    """Last-position logits [cell, vocab] after patches of every site from the model's own clean run.

    Streams are patched at every position apart, heads and neurons each, CELLS of them at most, in the layers given
    (first, middle and last).
    """
    depth = model.cfg.n_layers
    layers = sorted({0, depth // 2, depth - 1}) if layers is None else layers
    found: dict[tuple[str, int], Tensor] = {}
    wanted = [site for site in sites_of(model) if site != "pattern" or pair.equal_length]
    base = baseline(model, pair, wanted)
    for site in wanted:
        cells: list[Patch] = []
        for layer in layers:
            row = [cell.patch for cell in grid(model.cfg, pair, site) if cell.layer == layer]
            cells += row[:: -(-len(row) // CELLS)]
        act = Intervention(cells, base.clean, pair.alignment, range(len(cells)))
        tokens = torch.tensor([pair.corrupted_ids] * len(cells), device=model.device)
        logits = model(tokens, hooks=act.hooks, last=True)[:, 0]
        act.receipts()
        found |= {(site, layer): logits[[i for i, cell in enumerate(cells) if cell.layer == layer]] for layer in layers}
    return found


def see(model: Any, tokens: Tensor, pair: Pair) -> Seen:
    return Seen(observe(model, tokens), patch(model, pair))


def compare(one: Seen, other: Seen) -> list[Row]:
    """What both have, worst over layers: activations in the order of execution, then patched logits."""
    return [*activations(one.acts, other.acts), *patched(one.patched, other.patched)]


def activations(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[Row]:
    shared = [name for name in one if name in other]
    if shared == ["logits"]:
        raise LabError("The two models share no hook point, so only their logits can be compared.")
    groups: dict[str, list[tuple[int | None, Tensor, Tensor]]] = {}
    for name in shared:
        layer, point = split(name)
        groups.setdefault(point, []).append((layer, one[name], other[name]))
    return [_worst(point, "activation", found) for point, found in groups.items()]


def patched(one: dict[tuple[str, int], Tensor], other: dict[tuple[str, int], Tensor]) -> list[Row]:
    groups: dict[str, list[tuple[int | None, Tensor, Tensor]]] = {}
    for (site, layer), logits in one.items():
        if (site, layer) in other:
            groups.setdefault(split(SITES[site].name(layer))[1], []).append((layer, logits, other[site, layer]))
    return [_worst(point, "patched logits", found) for point, found in groups.items()]


def split(name: str) -> tuple[int | None, str]:
    """A hook name's layer and the rest: "blocks.3.attn.hook_z" is (3, "attn.hook_z")."""
    head, _, rest = name.partition(".")
    if head != "blocks":
        return None, name
    layer, _, point = rest.partition(".")
    return int(layer), point


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
