"""Patch exactly the chosen cells and see what the model then says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.baseline import Baseline, baseline
from interp.metrics import at_least_fp32
from interp.prompts import Pair
from interp.sites import SITES, Hook, Intervention, Patch, Receipt, chain, keep
from lab.errors import LabError
from lab.models import KVCache

TOP = 5


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
    logits, (said,) = generate(lm, [pair.corrupted_ids], new_tokens, act.hooks)
    value = scale.value(logits[0]).double()
    top = at_least_fp32(logits[0]).softmax(-1).topk(TOP)
    answer = Answer(top.indices.tolist(), top.values.tolist(), said)
    return PatchedRun(answer, float(value), float(scale.share(value)), act.receipts())


def continuations(
    lm, pair: Pair, patches: Sequence[Patch], new_tokens: int = 10, base: Baseline | None = None, rows: int = 64
) -> Iterator[list[int]]:
    """What the model says after each of these patches alone, many rows at a time."""
    base = base or baseline(lm.model, pair, sorted({p.site for p in patches}))
    for at in range(0, len(patches), rows):
        part = patches[at : at + rows]
        act = Intervention(part, base.clean, pair.alignment, range(len(part)))
        yield from generate(lm, [pair.corrupted_ids] * len(part), new_tokens, act.hooks)[1]
        act.receipts()  # raises when a patch did not fire


@torch.no_grad()
def generate(
    lm, prompts: Sequence[Sequence[int]], new_tokens: int, hooks: Mapping[str, Hook] | None = None
) -> tuple[Tensor, list[list[int]]]:
    """Logits [row, vocab] after equally long prompts, and their greedy continuations with the patch held.

    Hooks act on the prompts' pass. Later tokens attend to it through the KV cache, where the patched positions stay
    patched: the same as running prompt and continuation again with the patch in place, which is what a model without
    a cache (`interp.backends`) does; its hooks then fire once a token.
    """
    model, length = lm.model, len(prompts[0])
    new_tokens = max(0, min(new_tokens, lm.config.context - length))
    cached = hasattr(model, "run_block")
    more = {"cache": KVCache(lm.config, len(prompts), length + new_tokens, model.dtype, model.device)} if cached else {}
    tokens = torch.tensor([list(ids) for ids in prompts], device=model.device)
    first = logits = model(tokens, hooks=hooks, last=True, **more)[:, -1]
    held = None if cached or not hooks else {name: _within(hook, length) for name, hook in hooks.items()}
    said: list[list[int]] = [[] for _ in prompts]
    going = [True] * len(prompts)
    for step in range(new_tokens):
        chosen = logits.argmax(-1)
        for row, token in enumerate(chosen.tolist()):
            going[row] = going[row] and token != lm.tokenizer.eos
            if going[row]:
                said[row].append(token)
        if step == new_tokens - 1 or not any(going):
            break
        tokens = chosen[:, None] if cached else torch.cat([tokens, chosen[:, None]], dim=1)
        logits = model(tokens, hooks=held, last=True, **more)[:, -1]
    return first, said


def _within(hook: Hook, length: int) -> Hook:
    """The hook, shown the first `length` positions of a longer text."""

    def run(activation: Tensor, name: str) -> Tensor | None:
        at: tuple[slice, ...] = (slice(None), slice(length))
        if name.endswith(("hook_pattern", "hook_attn_scores")):
            at = (slice(None), slice(None), slice(length), slice(length))
        part = hook(activation[at], name)
        if part is None:
            return None
        new = activation.clone()
        new[at] = part
        return new

    return run


@torch.no_grad()
def attention_patterns(
    lm, tokens: Sequence[int], layer: int, hooks: Mapping[str, Hook] | None = None
) -> Tensor:
    """Attention [head, query, key] of one layer."""
    kept: dict[str, Tensor] = {}
    name = SITES["pattern"].name(layer)
    tensor = torch.tensor([list(tokens)], device=lm.model.device)
    lm.model(tensor, hooks=chain(hooks, keep([name], kept)))
    return kept[name][0]
