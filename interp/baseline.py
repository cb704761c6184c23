"""The two unpatched runs every intervention starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.metrics import Scale
from interp.prompts import Pair
from interp.sites import SITES, keep


def cached_key(config) -> str:
    """The hook point, `{layer}` in it, of the keys as a key-value cache holds them."""
    return f"blocks.{{layer}}.attn.hook_{'rot_k' if config.positions == 'rope' else 'k'}"


@dataclass(frozen=True)
class Baseline:
    """Activations without batch dimension, by hook name, and the logits of the last position [vocab]."""

    clean: dict[str, Tensor]
    corrupted: dict[str, Tensor]
    clean_logits: Tensor
    corrupted_logits: Tensor

    def scale(self, pair: Pair, metric: str) -> Scale:
        return Scale.between(metric, pair.answer_id, pair.wrong_id, self.clean_logits, self.corrupted_logits)


@torch.no_grad()
def baseline(model, pair: Pair, sites: Sequence[str] = ()) -> Baseline:
    """Run both prompts, keeping the given sites and, of a model that runs block by block, what a sweep starts from:
    streams, keys and values.

    Prompts of equal length share one batch of two, so tokens before the first difference come out bit for bit the
    same.
    """
    layers = range(model.cfg.n_layers)
    names = [SITES[s].name(i) for s in sites for i in layers]
    if hasattr(model, "run_block"):
        points = (SITES["resid_pre"].point, SITES["v"].point, cached_key(model.cfg))
        names += [point.format(layer=i) for point in points for i in layers]
    device = model.device
    prompts = [pair.clean_ids, pair.corrupted_ids]
    batches = [prompts] if pair.equal_length else [[ids] for ids in prompts]
    acts: list[dict[str, Tensor]] = []
    last: list[Tensor] = []
    for batch in batches:
        kept: dict[str, Tensor] = {}
        logits = model(torch.tensor(batch, device=device), hooks=keep(names, kept))
        acts += [{name: x[row] for name, x in kept.items()} for row in range(len(batch))]
        last += list(logits[:, -1])
    return Baseline(acts[0], acts[1], last[0], last[1])
