"""Steering: a direction added to the residual stream while the model writes.

- Activation addition (Turner et al. 2023): the difference between two prompts' streams at one layer, position by
  position, is added to the first positions of another prompt.
- Contrastive activation addition (Panickssery et al. 2023): the mean difference at the last token over many pairs of
  texts is added at every position.

A coefficient of 1 adds the difference as it was measured. Every effect is set beside a random direction of the same
length, and beside what the same vector does to the perplexity of plain text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.edit.contrasts import Contrast
from interp.edit.rows import Rows, greedy, in_batches
from interp.metrics import at_least_fp32
from interp.sites import Hook, keep
from lab.errors import LabError

SITE = "blocks.{layer}.hook_resid_post"


@dataclass(frozen=True)
class Vector:
    """What is added after `layer`: [d_model] at every position, or [pos, d_model] at the first positions of a prompt."""

    layer: int
    values: Tensor

    def scaled(self, coefficient: float) -> Tensor:
        return coefficient * self.values

    def random(self, seed: int) -> Vector:
        """A random direction of the same length (position by position)."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(self.values.shape, generator=generator).to(self.values)
        return Vector(self.layer, drawn / drawn.norm(dim=-1, keepdim=True) * self.values.norm(dim=-1, keepdim=True))


class Steering:
    """Hooks that add a vector; `start` is how many tokens earlier passes have put into the cache."""

    def __init__(self, vector: Vector, coefficient: float) -> None:
        self.start = 0
        self._add = vector.scaled(coefficient)
        self.hooks: dict[str, Hook] = {SITE.format(layer=vector.layer): self._hook}

    def _hook(self, stream: Tensor, name: str) -> Tensor:
        add = self._add.to(stream.dtype)
        if add.dim() == 1:
            return stream + add
        part = add[self.start : self.start + stream.shape[1]]
        out = stream.clone()
        out[:, : len(part)] += part
        return out


@torch.no_grad()
def activation_addition(lm, plus: str, minus: str, layer: int) -> Vector:
    """The difference of two prompts' streams after a layer, [pos, d_model]; the shorter one is filled with spaces."""
    ids = [lm.tokenizer.encode(text) for text in (plus, minus)]
    if not all(ids):
        raise LabError("A prompt of the difference is empty; write one word at least in each.")
    if ids[0] == ids[1]:
        raise LabError("The two prompts are the same, so their difference is zero; change one of them.")
    width = max(map(len, ids))
    filler = lm.tokenizer.encode(" ") or ids[0]  # a vocabulary of words alone has no space to fill with
    rows = torch.tensor([row + filler[-1:] * (width - len(row)) for row in ids], device=lm.model.device)
    lm.model.check(rows)
    kept: dict[str, Tensor] = {}
    lm.model(rows, hooks=keep([SITE.format(layer=layer)], kept), last=True)
    one, other = kept[SITE.format(layer=layer)].float()
    return Vector(layer, one - other)


def mean_differences(lm, pairs: Sequence[tuple[str, str]]) -> list[Vector]:
    """One vector a layer: the mean over pairs of the last tokens' difference, first minus second."""
    layers = range(lm.config.n_layers)
    total = torch.zeros(len(layers), lm.config.d_model, device=lm.model.device)
    for sign, texts in ((1, [a for a, _ in pairs]), (-1, [b for _, b in pairs])):
        for _, rows in in_batches(lm, texts):
            kept: dict[str, Tensor] = {}
            rows.logits(keep([SITE.format(layer=i) for i in layers], kept))
            total += sign * torch.stack([rows.last(kept[SITE.format(layer=i)]).float().sum(0) for i in layers])
    return [Vector(i, v / len(pairs)) for i, v in zip(layers, total)]


# ---- what steering does


def leaning(lm, contrast: Contrast, prompts: Sequence[str], hooks=None) -> Tensor:
    """How far each next token leans: log of the probability of the first side's words over the second side's, [prompt], nats."""
    first, second = (torch.tensor(ids) for ids in words(lm, contrast))
    out = torch.zeros(len(prompts))
    for part, rows in in_batches(lm, prompts):
        logprobs = rows.logits(hooks).log_softmax(-1).cpu()
        out[part] = (logprobs[:, first].logsumexp(-1) - logprobs[:, second].logsumexp(-1)).float()
    return out


def words(lm, contrast: Contrast) -> tuple[list[int], list[int]]:
    """First tokens of both sides' words; LabError when they begin alike."""
    sides = [sorted({lm.tokenizer.encode(f" {w}")[0] for w in side}) for side in (contrast.first, contrast.second)]
    shared = set(sides[0]) & set(sides[1])
    sides = [[t for t in side if t not in shared] for side in sides]
    if not all(sides):
        raise LabError(f"{lm.name} writes the words of both sides with the same first tokens; choose other words.")
    return sides[0], sides[1]


@torch.no_grad()
def nats(lm, texts: Sequence[str], hooks=None, longest: int = 96) -> Tensor:
    """Mean loss a token of each text, [text]."""
    out = torch.zeros(len(texts))
    cut = [lm.tokenizer.decode(lm.tokenizer.encode(t)[:longest]) for t in texts]
    for part, rows in in_batches(lm, cut):
        logprobs = at_least_fp32(lm.model(rows.tokens, hooks=hooks)).log_softmax(-1)
        taken = -logprobs[:, :-1].gather(-1, rows.tokens[:, 1:, None])[..., 0].cpu()
        for row, i in enumerate(part):
            out[i] = taken[row, : rows.lengths[row] - 1].mean()
    return out


@dataclass
class Sweep:
    """[layer row, coefficient]: mean shift of the leaning on held-out prompts (nats), the same for random directions,
    and how many times the perplexity of plain text; NaN where not yet measured."""

    layers: list[int]
    coefficients: list[float]
    shift: Tensor
    random: Tensor
    perplexity: Tensor
    base: float
    done: int = 0

    @property
    def fraction(self) -> float:
        return self.done / self.shift.numel()

    def best(self, limit: float = 1.5) -> tuple[int, int]:
        """Row and column of the largest shift that multiplies the perplexity by no more than `limit`."""
        allowed = torch.where(self.perplexity <= limit, self.shift, -torch.inf).nan_to_num(-torch.inf)
        if not allowed.isfinite().any():
            allowed = -self.perplexity.nan_to_num(torch.inf)
        row, column = divmod(int(allowed.argmax()), allowed.shape[1])
        return row, column


def sweep(lm, contrast: Contrast, vectors: Sequence[Vector], coefficients: Sequence[float], texts: Sequence[str],
          seeds: int = 1) -> Iterator[Sweep]:  # fmt: skip
    """Every vector with every coefficient, on the prompts the contrast holds out; yields after each."""
    blank = torch.full((len(vectors), len(coefficients)), float("nan"))
    plain, loss = leaning(lm, contrast, contrast.prompts), nats(lm, texts)
    result = Sweep(
        [v.layer for v in vectors], list(coefficients), blank, blank.clone(), blank.clone(), float(plain.mean())
    )  # fmt: skip
    for row, vector in enumerate(vectors):
        for column, c in enumerate(coefficients):
            hooks = Steering(vector, c).hooks
            result.shift[row, column] = (leaning(lm, contrast, contrast.prompts, hooks) - plain).mean()
            others = [leaning(lm, contrast, contrast.prompts, Steering(vector.random(s), c).hooks) for s in range(seeds)]
            result.random[row, column] = (torch.stack(others) - plain).mean()
            result.perplexity[row, column] = (nats(lm, texts, hooks) - loss).mean().exp()
            result.done += 1
            yield result


def written(lm, prompt: str, vector: Vector | None, coefficient: float, new_tokens: int = 24) -> str:
    """The greedy continuation under a vector, added while it is written too (unsteered for None)."""
    rows = Rows(lm, [prompt])
    if vector is None:
        return lm.tokenizer.decode(greedy(lm, rows.tokens, None, new_tokens))
    steering = Steering(vector, coefficient)

    def after(length: int) -> None:
        steering.start = length

    return lm.tokenizer.decode(greedy(lm, rows.tokens, steering.hooks, new_tokens, after))
