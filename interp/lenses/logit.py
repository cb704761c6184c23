"""The logit lens: what the stream would answer if the model stopped after each layer (nostalgebraist 2020).

With a `TunedLens` each layer is first taken into the last one's terms (Belrose et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.lenses.tuned import TunedLens
from interp.metrics import at_least_fp32
from interp.sites import Hook, chain, keep


@dataclass(frozen=True)
class LensResult:
    """Rows are the embedding and then every layer: `rows` names them.

    `ids`, `probs` [row, position, k]: the likeliest tokens; `tracked` {token id: probability [row, position]};
    `entropy` [row, position] and `kl`, how far from the model's own answer (KL(last row || row)), in nats.
    """

    rows: list[str]
    ids: Tensor
    probs: Tensor
    tracked: dict[int, Tensor]
    entropy: Tensor
    kl: Tensor


@torch.no_grad()
def logit_lens(
    lm,
    tokens: Sequence[int],
    hooks: Mapping[str, Hook] | None = None,
    track: Sequence[int] = (),
    k: int = 5,
    last: bool = False,
    lens: TunedLens | None = None,
) -> LensResult:
    """Read every layer's stream through the final norm and the unembedding, under `hooks` if given.

    `last` reads the last position only; `lens` translates each row before. LabError for tokens the model cannot take.
    """
    model = lm.model
    names = ["blocks.0.hook_resid_pre"] + [f"blocks.{i}.hook_resid_post" for i in range(model.cfg.n_layers)]
    kept: dict[str, Tensor] = {}
    device = model.device
    model(torch.tensor([list(tokens)], device=device), hooks=chain(hooks, keep(names, kept)), last=True)
    streams = [kept[name][0, -1:] if last else kept[name][0] for name in names]
    # one position of all layers is one product; whole prompts go a layer at a time, or they fill the memory
    if lens is not None:
        streams = [lens(stream, row) for row, stream in enumerate(streams)]
    parts = [torch.stack(streams)] if last else [stream[None] for stream in streams]
    final = at_least_fp32(model.unembed(streams[-1][None])).log_softmax(-1)
    ids, probs, entropy, kl = [], [], [], []
    tracked: dict[int, list[Tensor]] = {token: [] for token in track}
    for part in parts:
        logprobs = at_least_fp32(model.unembed(part)).log_softmax(-1)
        p = logprobs.exp()
        top = p.topk(k)
        ids.append(top.indices)
        probs.append(top.values)
        entropy.append(-(p * logprobs).sum(-1))
        kl.append((final.exp() * (final - logprobs)).sum(-1))
        for token, rows in tracked.items():
            rows.append(p[..., token])
    labels = ["embed"] + [str(i) for i in range(model.cfg.n_layers)]
    return LensResult(
        labels, torch.cat(ids).cpu(), torch.cat(probs).cpu(),
        {token: torch.cat(rows).cpu() for token, rows in tracked.items()}, torch.cat(entropy).cpu(),
        torch.cat(kl).cpu(),
    )  # fmt: skip
