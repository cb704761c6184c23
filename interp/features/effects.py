"""What a feature does: which tokens it promotes, what is lost without it, what more of it makes the model say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.features.dictionary import Dictionary
from interp.features.metrics import losses
from interp.heads.weights import folded
from interp.sites import Hook
from lab.errors import LabError
from lab.infer.sampling import sample
from lab.models import LM, KVCache


def logit_effects(lm: LM, dictionary: Dictionary, features: Sequence[int] | None = None) -> Tensor:
    """What one unit of a feature adds to each logit on the direct path, `[features, vocab]`, less its mean over tokens.

    The final norm's gain and centring are applied, its scale is not: it depends on everything else in the stream.
    """
    model = lm.model
    if not hasattr(model, "W_U"):
        raise LabError(f"The unembedding of {lm.name} is not at hand in this backend: choose the lab's own.")
    rows = dictionary.W_dec if features is None else dictionary.W_dec[list(features)]
    if rows.shape[1] != lm.config.d_model:
        raise LabError("These features do not write into the residual stream: there is no direct path to the logits.")
    effect = rows @ folded(model, "ln_final", model.W_U.float())
    return effect - effect.mean(1, keepdim=True)


def nearest(dictionary: Dictionary, feature: int, k: int = 8) -> list[tuple[int, float]]:
    """Features whose decoder directions are most alike, with the cosine."""
    w = dictionary.W_dec / dictionary.W_dec.norm(dim=1, keepdim=True)
    cosine = w @ w[feature]
    cosine[feature] = -2
    top = cosine.topk(min(k, len(cosine) - 1))
    return list(zip(top.indices.tolist(), top.values.tolist()))


def removal(dictionary: Dictionary, feature: int) -> dict[str, Hook]:
    """Hooks that take one feature's write away and leave all else, the dictionary's error included, as it is."""
    seen: list[Tensor] = []

    def read(x: Tensor, name: str) -> None:
        seen[:] = [x]

    def write(x: Tensor, name: str) -> Tensor:
        act = dictionary.encode(seen[0] if seen else x)[..., feature, None]
        return x - (act * dictionary.W_dec[feature]).to(x.dtype)

    if dictionary.transcodes:
        return {dictionary.site_in: read, dictionary.site_out: write}
    return {dictionary.site_out: write}


def addition(dictionary: Dictionary, feature: int, amount: float) -> dict[str, Hook]:
    """Hooks that add `amount` of a feature's direction at every position (its activation in the model's units)."""
    return {dictionary.site_out: lambda x, name: x + (amount * dictionary.W_dec[feature]).to(x.dtype)}


@dataclass(frozen=True)
class Ablation:
    """Without a feature: the rise of the loss of each next token `[rows, pos]` in nats, and of the next-token
    probabilities at one position of each row, before and after `[rows, vocab]`."""

    rise: Tensor
    before: Tensor
    after: Tensor


@torch.no_grad()
def ablate(lm: LM, dictionary: Dictionary, feature: int, rows: Tensor, at: Sequence[int]) -> Ablation:
    """`rows [n, pos + 1]`; `at` is the position of each row whose next-token probabilities are compared."""
    rows = rows.to(lm.model.device)
    hooks = removal(dictionary, feature)
    rise = losses(lm.model, rows, hooks) - losses(lm.model, rows)
    index = torch.arange(len(rows)), torch.tensor(list(at))
    probs = [lm.model(rows[:, :-1], hooks=h)[index].float().softmax(-1).cpu() for h in (None, hooks)]
    return Ablation(rise.cpu(), *probs)


@torch.no_grad()
def generate(lm: LM, prompt: str, new_tokens: int, hooks: dict[str, Hook] | None = None, temperature: float = 0.0,
             seed: int = 0) -> tuple[list[int], Tensor]:  # fmt: skip
    """The continuation (token ids) with the hooks held through every token, and the first next-token probabilities."""
    ids = lm.tokens(prompt)
    room = min(new_tokens, lm.config.context - ids.shape[1])
    if room < 1:
        raise LabError(f"The prompt fills the {lm.config.context} tokens that {lm.name} reads: shorten it.")
    cache = KVCache(lm.config, 1, ids.shape[1] + room, lm.model.dtype, lm.model.device)
    generator = torch.Generator(lm.model.device).manual_seed(seed)
    said: list[int] = []
    logits = first = lm.model(ids, hooks=hooks, cache=cache, last=True)[:, -1]
    while len(said) < room:
        token = sample(logits.float(), temperature, None, None, None, generator)
        if int(token) == lm.tokenizer.eos:
            break
        said.append(int(token))
        if len(said) < room:
            logits = lm.model(token[:, None], hooks=hooks, cache=cache)[:, -1]
    return said, first[0].float().softmax(-1).cpu()
