"""Patch exactly the chosen cells and see what the model then says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.baseline import Baseline, baseline
from interp.metrics import at_least_fp32
from interp.prompts import Pair
from interp.sites import SITES, Hook, Intervention, Patch, Receipt, chain, keep
from lab.errors import LabError
from lab.models import KVCache


@dataclass(frozen=True)
class Answer:
    """Next-token probabilities after a prompt, best first, and its greedy continuation (token ids)."""

    ids: list[int]
    probs: list[float]
    continuation: list[int]


@dataclass(frozen=True)
class PatchedRun:
    """One patched run of the corrupted prompt beside its receipts; `value` in the metric's unit, `share` 0 to 1."""

    answer: Answer
    value: float
    share: float
    receipts: list[Receipt]


def run_patched(
    lm,
    pair: Pair,
    patches: Sequence[Patch],
    metric: str = "logit_diff",
    new_tokens: int = 10,
    base: Baseline | None = None,
) -> PatchedRun:
    """Patch these cells of the corrupted run, all together; LabError for a cell that is not there."""
    if not patches:
        raise LabError("No cell is chosen; pick at least one cell of the heat map.")
    for patch in patches:
        patch.check(lm.config, pair.alignment)
    base = base or baseline(lm.model, pair, sorted({p.site for p in patches}))
    scale = base.scale(pair, metric)
    act = Intervention(patches, base.clean, pair.alignment)
    answer, logits = generate(lm, pair.corrupted_ids, new_tokens, act.hooks)
    value = scale.value(logits).double()
    return PatchedRun(answer, float(value), float(scale.share(value)), act.receipts())


@torch.no_grad()
def generate(
    lm, tokens: Sequence[int], new_tokens: int, hooks: Mapping[str, Hook] | None = None, k: int = 5
) -> tuple[Answer, Tensor]:
    """Greedy continuation with the patch held, and the logits [vocab] after the prompt.

    Hooks act on the prompt's pass. Later tokens attend to it through the KV cache, where the patched positions stay
    patched: the same as running prompt and continuation again with the patch in place.
    """
    model, weight = lm.model, next(lm.model.parameters())
    new_tokens = max(0, min(new_tokens, lm.config.context - len(tokens)))
    cache = KVCache(lm.config, 1, len(tokens) + new_tokens, weight.dtype, weight.device)
    logits = model(torch.tensor([list(tokens)], device=weight.device), hooks=hooks, cache=cache)[0, -1]
    first, said = logits, []
    for step in range(new_tokens):
        token = int(logits.argmax())
        if token == lm.tokenizer.eos:
            break
        said.append(token)
        if step < new_tokens - 1:
            logits = model(torch.tensor([[token]], device=weight.device), cache=cache)[0, -1]
    top = at_least_fp32(first).softmax(-1).topk(k)
    return Answer(top.indices.tolist(), top.values.tolist(), said), first


@torch.no_grad()
def attention_patterns(
    lm, tokens: Sequence[int], layer: int, hooks: Mapping[str, Hook] | None = None
) -> Tensor:
    """Attention [head, query, key] of one layer."""
    kept: dict[str, Tensor] = {}
    name = SITES["pattern"].name(layer)
    tensor = torch.tensor([list(tokens)], device=next(lm.model.parameters()).device)
    lm.model(tensor, hooks=chain(hooks, keep([name], kept)))
    return kept[name][0]
