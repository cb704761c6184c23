"""Heads of the indirect-object circuit: who reads the name that must come, and writes it (Wang et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.lenses.direct import Asked, over_prompts
from interp.metrics import at_least_fp32
from interp.sites import Hook
from lab.data import ioi
from lab.errors import LabError


@dataclass(frozen=True)
class Sentence:
    """One prompt as tokens: `io` is where the name that must come stands, `s1` and `s2` where the giver's does."""

    ids: list[int]
    answer: int
    wrong: int
    io: int
    s1: int
    s2: int


def sentences(lm, count: int = 24, seed: int = 0) -> list[Sentence]:
    """Held-out sentences of which both names are single tokens; LabError when this tokenizer has none."""
    found = []
    begin = [] if lm.tokenizer.bos is None else [lm.tokenizer.bos]
    for item in ioi.prompts(8 * count, seed):
        ids = lm.tokenizer.encode(item.text)
        if ids[: len(begin)] != begin:
            ids = begin + ids
        try:
            answer, wrong = (lm.tokenizer.single(f" {name}") for name in (item.receiver, item.subject))
        except LabError:
            continue
        if ids.count(answer) == 1 and ids.count(wrong) == 2 and len(ids) <= lm.config.context:
            s1 = ids.index(wrong)
            found.append(Sentence(ids, answer, wrong, ids.index(answer), s1, ids.index(wrong, s1 + 1)))
        if len(found) == count:
            return found
    if not found:
        raise LabError(f"{lm.name} splits the names of the indirect-object sentences, so name movers cannot be told.")
    return found


@dataclass(frozen=True)
class NameHeads:
    """[layer, head]: mean attention from the last token to the three names; `copying`, the share of prompts in which
    what the head reads at the right name promotes that name above all others, minus the share in which it lowers it
    most; `mover`, the mean of attention times copying; `direct`, the head's own logits for the right name."""

    io: Tensor
    s1: Tensor
    s2: Tensor
    copying: Tensor
    mover: Tensor
    direct: Tensor


@torch.no_grad()
def name_heads(lm, prompts: Sequence[Sentence]) -> NameHeads:
    """All heads at once; LabError for a backend without weights."""
    model, cfg = lm.model, lm.config
    whole = over_prompts(model, [Asked(p.ids, p.answer, p.wrong) for p in prompts])
    names = torch.tensor(sorted({x for p in prompts for x in (p.answer, p.wrong)} | set(_known(lm))), device=model.device)
    read = at_least_fp32(model.norm_gain("ln_final"))[:, None] * at_least_fp32(model.W_U[:, names])
    if cfg.norm == "layer":
        read = read - read.mean(0)
    sums = torch.zeros(5, cfg.n_layers, cfg.n_heads, dtype=torch.float64, device=model.device)

    def hooks(prompt: Sentence) -> dict[str, Hook]:
        kept: dict[int, Tensor] = {}
        right = int((names == prompt.answer).nonzero())

        def values(v: Tensor, name: str) -> None:
            layer = int(name.split(".")[1])
            W_O = model.head_weights(layer).W_O
            v = v[0, prompt.io].repeat_interleave(cfg.n_heads // v.shape[2], 0)  # [head, d_head]
            written = torch.einsum("he,hed->hd", at_least_fp32(v), W_O.to(read.dtype)) @ read  # [head, name]
            best, worst = written.argmax(-1) == right, written.argmin(-1) == right
            kept[layer] = best.double() - worst.double()

        def pattern(p: Tensor, name: str) -> None:
            layer = int(name.split(".")[1])
            seen = p[0, :, -1].double()
            copies = kept.pop(layer)
            for row, value in enumerate((seen[:, prompt.io], seen[:, prompt.s1], seen[:, prompt.s2], copies,
                                         seen[:, prompt.io] * copies)):  # fmt: skip
                sums[row, layer] += value

        out: dict[str, Hook] = {f"blocks.{i}.attn.hook_v": values for i in range(cfg.n_layers)}
        return out | {f"blocks.{i}.attn.hook_pattern": pattern for i in range(cfg.n_layers)}

    for prompt in prompts:
        model(torch.tensor([prompt.ids], device=model.device), hooks=hooks(prompt), last=True)
    io, s1, s2, copied, mover = (sums / len(prompts)).cpu()
    return NameHeads(io, s1, s2, copied, mover, whole.heads[:, 0].mean(0))


def _known(lm) -> list[int]:
    """The names that are one token for this tokenizer."""
    found = []
    for name in ioi.NAMES:
        try:
            found.append(lm.tokenizer.single(f" {name}"))
        except LabError:
            continue
    return found
