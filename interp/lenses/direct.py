"""Direct logit attribution: what every part of the model adds to a logit difference by itself.

The stream before the final norm is a sum of what the embedding, the heads and the MLPs wrote, and with the norm's
scale held at the value it had, logits are linear in that sum (Elhage et al. 2021; Wang et al. 2022):

    logit difference = direction · (embed + heads + MLPs + biases) / scale + direction of the norm's bias

The direction is carried back through W_O and W_out first. A head then costs d_head products and a neuron one; neither
[batch, pos, head, d_model] nor [batch, pos, neuron, d_model] is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from interp.metrics import at_least_fp32
from interp.sites import Hook
from lab.errors import LabError


@dataclass(frozen=True)
class Direct:
    """Contributions in logits, float64 (neurons and sources, which are many, as the model computes, float32 at least);
    n prompts, each read at q positions.

    `embed`, `positions`, `constant` [n, q]; `heads` [n, q, layer, head]; `attention_bias`, `mlps`, `mlp_bias`
    [n, q, layer], where `mlps` holds its bias already; `neurons` [n, q, layer, d_mlp] or None;
    `sources` [n, q, layer, head, key], the heads split over the tokens they read, or None. `total` [n, q] is what the
    model itself says: everything else adds up to it, see `error`.
    """

    embed: Tensor
    positions: Tensor
    heads: Tensor
    attention_bias: Tensor
    mlps: Tensor
    mlp_bias: Tensor
    constant: Tensor
    total: Tensor
    neurons: Tensor | None = None
    sources: Tensor | None = None

    @property
    def attention(self) -> Tensor:
        """Whole attention layers, [n, q, layer]."""
        return self.heads.sum(-1) + self.attention_bias

    @property
    def error(self) -> float:
        """The largest gap between a total and the sum of its parts, in logits."""
        parts = self.embed + self.positions + self.attention.sum(-1) + self.mlps.sum(-1) + self.constant
        return float((self.total - parts).abs().max())

    def steps(self) -> list[tuple[str, Tensor]]:
        """The parts in the order in which the model adds them, by name: values [n, q]."""
        out = [("embed", self.embed)]
        if self.positions.any():
            out.append(("positions", self.positions))
        for layer in range(self.mlps.shape[-1]):
            out.append((f"attn {layer}", self.attention[..., layer]))
            if self.mlps.any():
                out.append((f"mlp {layer}", self.mlps[..., layer]))
        return [*out, ("norm bias", self.constant)] if self.constant.any() else out

    def components(self) -> dict[str, Tensor]:
        """Every single part by the name it has in a circuit: `embed`, `a3.h1`, `m3`; values [n, q]."""
        _, _, layers, heads = self.heads.shape
        named = {"embed": self.embed}
        for layer in range(layers):
            named |= {f"a{layer}.h{head}": self.heads[:, :, layer, head] for head in range(heads)}
            named[f"m{layer}"] = self.mlps[..., layer]
        return named


@torch.no_grad()
def direct(
    model,
    tokens: Tensor,
    answers: Tensor,
    wrongs: Tensor | None = None,
    positions: Sequence[int] = (-1,),
    neurons: bool = True,
    sources: bool = False,
) -> Direct:
    """Contributions to logit(answer) - logit(wrong) at `positions` of equally long prompts `tokens` [n, pos].

    `answers`, `wrongs`: token ids [n, q], one a position. Without `wrongs`: the logit of the answer above the mean
    logit of the vocabulary (softmax does not see a shift). LabError for a model without weights of its own.
    """
    for needed in ("head_weights", "mlp_weights", "W_U"):
        if not hasattr(model, needed):
            raise LabError("Direct attribution reads the model's matrices, which this backend does not give; use `own`.")
    cfg, length = model.cfg, tokens.shape[1]
    at = [p % length for p in positions]
    if any(not -length <= p < length for p in positions):
        raise LabError(f"A position lies outside the prompt, which has {length} tokens.")
    reader = _Reader(model, unembedding(model, answers, wrongs), at, neurons, sources)
    model(tokens, hooks=reader.hooks(), last=True)
    # one position at a time: [n, q, vocab] would be the largest tensor of all
    said = [reader.ending(i) for i in range(len(at))]
    total = torch.stack([_asked(x, answers[:, i], None if wrongs is None else wrongs[:, i]) for i, x in enumerate(said)], 1)
    return reader.result(total, cfg)


def _asked(logits: Tensor, answers: Tensor, wrongs: Tensor | None) -> Tensor:
    """The measure itself, from logits [n, vocab]."""
    other = logits.mean(-1) if wrongs is None else logits.gather(-1, wrongs[:, None])[:, 0]
    return logits.gather(-1, answers[:, None])[:, 0] - other


def unembedding(model, answers: Tensor, wrongs: Tensor | None) -> Tensor:
    """Directions [n, q, d_model] of the logit difference behind the final norm."""
    W_U = model.W_U
    one = at_least_fp32(W_U[:, answers.flatten()])
    other = at_least_fp32(W_U.mean(1, keepdim=True) if wrongs is None else W_U[:, wrongs.flatten()])
    return (one - other).T.reshape(*answers.shape, -1)


class _Reader:
    """Hooks that reduce each activation to its contribution at once, before the scale is known."""

    def __init__(self, model, direction: Tensor, at: list[int], neurons: bool, sources: bool) -> None:
        self.model, self.at, self.neurons, self.sources = model, at, neurons, sources
        self.vector = direction * model.norm_gain("ln_final")  # [n, q, d_model]
        bias = model.norm_bias("ln_final")
        self.constant = (direction * bias).sum(-1) if bias is not None else torch.zeros_like(direction[..., 0])
        if model.cfg.norm == "layer":  # (x - mean(x)) · v = x · (v - mean(v))
            self.vector = self.vector - self.vector.mean(-1, keepdim=True)
        self.parts: dict[str, Tensor] = {}
        self.scales: list[Tensor] = []
        self.pattern: Tensor | None = None
        self.end: Tensor | None = None

    def hooks(self) -> dict[str, Hook]:
        cfg, known = self.model.cfg, set(self.model.hook_names())
        hooks: dict[str, Hook] = {"hook_embed": self.stream}
        if "hook_pos_embed" in known:
            hooks["hook_pos_embed"] = self.stream
        for layer in range(cfg.n_layers):
            at = f"blocks.{layer}"
            hooks[f"{at}.attn.hook_z"] = self._heads(layer)
            if self.sources:
                hooks[f"{at}.attn.hook_pattern"] = self._keep_pattern
                hooks[f"{at}.attn.hook_v"] = self._values(layer)
            if f"{at}.hook_mlp_out" in known:
                hooks[f"{at}.hook_mlp_out"] = self.stream
                if self.neurons:
                    hooks[f"{at}.mlp.hook_post"] = self._neurons(layer)
        hooks[f"blocks.{cfg.n_layers - 1}.hook_resid_post"] = self._keep_end
        return hooks

    def _keep_end(self, stream: Tensor, name: str) -> None:
        self.end = stream[:, self.at]

    def ending(self, i: int) -> Tensor:
        """The model's logits [n, vocab] at the i-th position read; the final norm's scale is noted."""
        assert self.end is not None

        def note(scale: Tensor, name: str) -> None:
            self.scales.append(at_least_fp32(scale)[:, 0, 0])

        normed = self.model.cfg.norm != "none"
        return at_least_fp32(self.model.unembed(self.end[:, i : i + 1], {"ln_final.hook_scale": note} if normed else None))[:, 0]

    def stream(self, x: Tensor, name: str) -> None:
        self.parts[name] = (at_least_fp32(x[:, self.at]) * self.vector).sum(-1)

    def _folded(self, layer: int) -> Tensor:
        """The direction as every head sees it, [n, q, head, d_head]."""
        return torch.einsum("hed,nqd->nqhe", self.model.head_weights(layer).W_O.to(self.vector.dtype), self.vector)

    def _heads(self, layer: int) -> Hook:
        def read(z: Tensor, name: str) -> None:
            self.parts[name] = (at_least_fp32(z[:, self.at]) * self._folded(layer)).sum(-1)
            if self.sources:
                assert self.pattern is not None
                values = self.parts.pop(f"values {layer}")
                self.parts[f"sources {layer}"] = at_least_fp32(self.pattern) * values
                self.pattern = None

        return read

    def _keep_pattern(self, pattern: Tensor, name: str) -> None:
        self.pattern = pattern[:, :, self.at].transpose(1, 2)  # [n, q, head, key]

    def _values(self, layer: int) -> Hook:
        def read(v: Tensor, name: str) -> None:
            folded = self._folded(layer)
            n, q, heads, width = folded.shape
            grouped = folded.view(n, q, v.shape[2], heads // v.shape[2], width)
            values = torch.einsum("nkge,nqgie->nqgik", at_least_fp32(v), grouped)
            self.parts[f"values {layer}"] = values.reshape(n, q, heads, -1)

        return read

    def _neurons(self, layer: int) -> Hook:
        def read(post: Tensor, name: str) -> None:
            W_out = self.model.mlp_weights(layer).W_out.to(self.vector.dtype)
            self.parts[name] = at_least_fp32(post[:, self.at]) * (self.vector @ W_out.T)

        return read

    def result(self, total: Tensor, cfg) -> Direct:
        scale = torch.stack(self.scales, 1).double() if self.scales else torch.ones_like(total).double()
        zero = torch.zeros_like(total)

        def part(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
            x = self.parts.pop(name, zero).to(dtype)
            return x / scale.view(*scale.shape, *[1] * (x.dim() - 2)).to(dtype)

        def layers(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.stack([part(name.format(layer=i), dtype) for i in range(cfg.n_layers)], 2).cpu()

        def bias(which: str, field: str) -> Tensor:
            rows = []
            for layer in range(cfg.n_layers):
                b = None
                if which == "attn" or cfg.act != "none":
                    weights = self.model.head_weights(layer) if which == "attn" else self.model.mlp_weights(layer)
                    b = getattr(weights, field)
                rows.append(zero.double() if b is None else (self.vector @ b.to(self.vector.dtype)).double() / scale)
            return torch.stack(rows, 2).cpu()

        return Direct(
            part("hook_embed").cpu(), part("hook_pos_embed").cpu(), layers("blocks.{layer}.attn.hook_z"),
            bias("attn", "b_O"), layers("blocks.{layer}.hook_mlp_out"), bias("mlp", "b_out"),
            self.constant.double().cpu(), total.double().cpu(),
            layers("blocks.{layer}.mlp.hook_post", self.vector.dtype) if self.neurons and cfg.act != "none" else None,
            layers("sources {layer}", self.vector.dtype) if self.sources else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A prompt as token ids, and the two answers it is judged by (`wrong` may be None)."""

    ids: Sequence[int]
    answer: int
    wrong: int | None = None


def over_prompts(model, prompts: Sequence[Asked], neurons: bool = False, rows: int = 16) -> Direct:
    """Contributions at the end of many prompts of any lengths, in the order given, `rows` prompts at a time.

    LabError when some of the prompts have a wrong answer and others have none.
    """
    if not prompts:
        raise LabError("There is no prompt to attribute; give at least one.")
    without = {p.wrong is None for p in prompts}
    if len(without) == 2:
        raise LabError("Some prompts name a second answer and some do not; give it to all or to none.")
    found: list[tuple[list[int], Direct]] = []
    for chosen in _equally_long(prompts, rows):
        part = [prompts[i] for i in chosen]
        ids, answers = (torch.tensor(x, device=model.device) for x in ([p.ids for p in part], [[p.answer] for p in part]))
        wrongs = None if without == {True} else torch.tensor([[p.wrong] for p in part], device=model.device)
        found.append((chosen, direct(model, ids, answers, wrongs, neurons=neurons)))
    order = torch.tensor([i for chosen, _ in found for i in chosen]).argsort()
    joined: dict[str, Any] = {}
    for field in fields(Direct):
        values = [getattr(one, field.name) for _, one in found]
        joined[field.name] = None if values[0] is None else torch.cat(values)[order]
    return Direct(**joined)


def _equally_long(prompts: Sequence[Asked], rows: int) -> Iterator[list[int]]:
    lengths: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        lengths.setdefault(len(prompt.ids), []).append(i)
    for same in lengths.values():
        yield from (same[i : i + rows] for i in range(0, len(same), rows))
