"""The two circuits of a head for a few tokens: QK, which token looks at which, and OV, what looking at it then writes.

Elhage et al. 2021. Tokens are taken alone: as their embedding, or as the stream after the first layers on the token by
itself, which is what later heads rather see. Only the rows of the chosen tokens are made, never vocab x vocab.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.heads.weights import folded, require_weights
from interp.metrics import at_least_fp32
from interp.sites import keep
from lab.errors import LabError
from lab.models.layers import rotary_tables, rotate


@torch.no_grad()
def alone(model, ids: Sequence[int], layers: int = 0) -> Tensor:
    """The stream [token, d_model] of each token by itself after `layers` blocks; 0 is its embedding, no position."""
    tokens = torch.tensor([[i] for i in ids], device=model.device)
    name = "hook_embed" if layers == 0 else f"blocks.{layers - 1}.hook_resid_post"
    kept: dict[str, Tensor] = {}
    model(tokens, hooks=keep([name], kept), last=True)
    return kept[name][:, 0]


def _head(model, layer: int, head: int) -> int:
    """The key-value head it reads; LabError when there is no such head."""
    require_weights(model)
    cfg = model.cfg
    if not (0 <= layer < cfg.n_layers and 0 <= head < cfg.n_heads):
        raise LabError(f"There is no head {layer}.{head}: this model has {cfg.n_layers} layers of {cfg.n_heads} heads.")
    return head * cfg.n_kv_heads // cfg.n_heads


@torch.no_grad()
def qk(model, layer: int, head: int, stream: Tensor, distance: int = 1) -> Tensor:
    """Attention scores [query, key] between tokens given as streams [token, d_model], the key `distance` before.

    Before the softmax, in nats: a difference of 1 is a factor e of attention. Learned positions are not in it.
    """
    group = _head(model, layer, head)
    cfg = model.cfg
    if not 0 <= distance < cfg.context:
        raise LabError(f"Two tokens of this model are 0 to {cfg.context - 1} apart; got {distance}.")
    w, block = model.head_weights(layer), model.model.layers[layer]
    x = block.input_layernorm(stream)
    q, k = x @ w.W_Q[head], x @ w.W_K[group]
    if w.b_Q is not None:
        q, k = q + w.b_Q[head], k + w.b_K[group]
    if cfg.qk_norm:
        q, k = block.self_attn.q_norm(q), block.self_attn.k_norm(k)
    if cfg.positions == "rope":
        cos, sin = rotary_tables(cfg, q.device, q.dtype)
        q, k = rotate(q, cos[distance], sin[distance]), rotate(k, cos[0], sin[0])
    return at_least_fp32(q) @ at_least_fp32(k).T * cfg.d_head**-0.5


@torch.no_grad()
def ov(model, layer: int, head: int, stream: Tensor, scale: float = 1.0) -> Tensor:
    """What the head adds to the logits [token, vocab] of a query that looks at this token alone, about their mean.

    `scale` is the final norm's (`ln_final.hook_scale`) where the logits are read.
    """
    group = _head(model, layer, head)
    w = model.head_weights(layer)
    v = model.model.layers[layer].input_layernorm(stream) @ w.W_V[group]
    if w.b_V is not None:
        v = v + w.b_V[group]
    written = at_least_fp32(v @ w.W_O[head])
    logits = written @ folded(model, "ln_final", at_least_fp32(model.W_U)) / scale
    return logits - logits.mean(-1, keepdim=True)
