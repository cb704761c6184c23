"""The parts of a block. Parameters carry Hugging Face's names, hook points TransformerLens's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cache import KVCache
from .config import ModelConfig

Hook = Callable[[Tensor, str], Tensor | None]
Hooks = Mapping[str, Hook]


def tap(hooks: Hooks | None, name: str, x: Tensor) -> Tensor:
    """Show `x` to the hook of that name, if there is one; what it returns takes the place of `x`."""
    if hooks is None or (hook := hooks.get(name)) is None:
        return x
    out = hook(x, name)
    return x if out is None else out


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, the mean in float32 or wider (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, hooks: Hooks | None = None, at: str = "") -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        scale = (wide.square().mean(-1, keepdim=True) + self.eps).sqrt()
        if at:
            scale = tap(hooks, f"{at}.hook_scale", scale)
        normal = (wide / scale).to(x.dtype)
        if at:
            normal = tap(hooks, f"{at}.hook_normalized", normal)
        return self.weight * normal


@torch.inference_mode(False)  # kept on a model that other tabs take gradients through
def rotary_tables(cfg: ModelConfig, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin, `[context, d_head]`, in the half-split order of Hugging Face (Su et al. 2021)."""
    inverse = 1.0 / cfg.rope_theta ** (torch.arange(0, cfg.d_head, 2, dtype=torch.float32, device=device) / cfg.d_head)
    angle = torch.outer(torch.arange(cfg.context, dtype=torch.float32, device=device), inverse)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `[batch, pos, head, d_head]` by `[pos, 1, d_head]` or `[batch, pos, 1, d_head]` tables."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


class Attention(nn.Module):
    """Causal softmax attention with grouped queries.

    Runs fused unless a hook asks for the scores or the pattern; then both are made, `[batch, head, query, key]`.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.q_proj = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=False)
        self.k_proj = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=False)
        self.v_proj = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=False)
        self.o_proj = nn.Linear(cfg.n_heads * cfg.d_head, cfg.d_model, bias=False)
        if cfg.qk_norm:
            self.q_norm = RMSNorm(cfg.d_head, cfg.norm_eps)
            self.k_norm = RMSNorm(cfg.d_head, cfg.norm_eps)

    @staticmethod
    def hook_names() -> list[str]:
        return ["hook_q", "hook_k", "hook_v", "hook_rot_q", "hook_rot_k", "hook_attn_scores", "hook_pattern", "hook_z"]

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], layer: int, hooks: Hooks | None, cache: KVCache | None
    ) -> Tensor:
        at = f"blocks.{layer}.attn"
        batch, new = x.shape[:2]
        q = tap(hooks, f"{at}.hook_q", self.q_proj(x).view(batch, new, -1, self.cfg.d_head))
        k = tap(hooks, f"{at}.hook_k", self.k_proj(x).view(batch, new, -1, self.cfg.d_head))
        v = tap(hooks, f"{at}.hook_v", self.v_proj(x).view(batch, new, -1, self.cfg.d_head))
        if self.cfg.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q = tap(hooks, f"{at}.hook_rot_q", rotate(q, *rope)).transpose(1, 2)
        k = tap(hooks, f"{at}.hook_rot_k", rotate(k, *rope)).transpose(1, 2)
        v = v.transpose(1, 2)
        pad = None
        if cache is not None:
            k, v = cache.append(layer, k, v)
            pad = cache.pad
        if hooks and (f"{at}.hook_pattern" in hooks or f"{at}.hook_attn_scores" in hooks):
            z = self._explicit(q, k, v, pad, hooks, at)
        else:
            z = self._fused(q, k, v, pad)
        z = tap(hooks, f"{at}.hook_z", z.transpose(1, 2))
        return self.o_proj(z.reshape(batch, new, -1))

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, pad: Tensor | None) -> Tensor:
        new, total = q.shape[2], k.shape[2]
        grouped = self.cfg.n_kv_heads != self.cfg.n_heads
        if pad is None and new in (1, total):
            return F.scaled_dot_product_attention(q, k, v, is_causal=new > 1, enable_gqa=grouped)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible(new, total, pad, q.device), enable_gqa=grouped)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, pad: Tensor | None, hooks: Hooks, at: str) -> Tensor:
        group = self.cfg.n_heads // self.cfg.n_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) * self.cfg.d_head**-0.5
        scores = scores if scores.dtype == torch.float64 else scores.float()
        scores = scores.masked_fill(~visible(q.shape[2], k.shape[2], pad, q.device), float("-inf"))
        scores = tap(hooks, f"{at}.hook_attn_scores", scores)
        pattern = tap(hooks, f"{at}.hook_pattern", scores.softmax(-1).to(q.dtype))
        return pattern @ v


def visible(new: int, total: int, pad: Tensor | None, device: torch.device) -> Tensor:
    """Which keys each query sees: itself and what came before, never padding; `[1 or batch, 1, new, total]`.

    A padding query sees its own position alone, so that its softmax has something to sum to one over.
    """
    query = torch.arange(total - new, total, device=device)[:, None]
    key = torch.arange(total, device=device)[None, :]
    mask = (key <= query)[None, None]
    if pad is None:
        return mask
    return mask & ((key >= pad[:, None, None]) | (key == query))[:, None]


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(cfg.d_model, cfg.d_mlp, bias=False)
        self.up_proj = nn.Linear(cfg.d_model, cfg.d_mlp, bias=False)
        self.down_proj = nn.Linear(cfg.d_mlp, cfg.d_model, bias=False)

    @staticmethod
    def hook_names() -> list[str]:
        return ["hook_pre", "hook_pre_linear", "hook_post"]

    def forward(self, x: Tensor, layer: int, hooks: Hooks | None) -> Tensor:
        at = f"blocks.{layer}.mlp"
        gate = tap(hooks, f"{at}.hook_pre", self.gate_proj(x))
        up = tap(hooks, f"{at}.hook_pre_linear", self.up_proj(x))
        return self.down_proj(tap(hooks, f"{at}.hook_post", F.silu(gate) * up))


class Block(nn.Module):
    """Pre-norm residual block: a mixer moves information between positions, a feed-forward works within one.

    Both are swappable: a mixer is called as `mixer(x, rope, layer, hooks, cache)`, a feed-forward as
    `feed_forward(x, layer, hooks)`, and each names its own hook points.
    """

    def __init__(self, cfg: ModelConfig, mixer: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.self_attn = mixer
        self.post_attention_layernorm = RMSNorm(cfg.d_model, cfg.norm_eps)
        self.mlp = feed_forward

    def hook_names(self, layer: int) -> list[str]:
        at = f"blocks.{layer}"
        return [
            f"{at}.hook_resid_pre",
            f"{at}.ln1.hook_scale",
            f"{at}.ln1.hook_normalized",
            *(f"{at}.attn.{name}" for name in self.self_attn.hook_names()),  # type: ignore[operator]
            f"{at}.hook_attn_out",
            f"{at}.hook_resid_mid",
            f"{at}.ln2.hook_scale",
            f"{at}.ln2.hook_normalized",
            *(f"{at}.mlp.{name}" for name in self.mlp.hook_names()),  # type: ignore[operator]
            f"{at}.hook_mlp_out",
            f"{at}.hook_resid_post",
        ]

    def forward(
        self, resid: Tensor, rope: tuple[Tensor, Tensor], layer: int, hooks: Hooks | None, cache: KVCache | None
    ) -> Tensor:
        at = f"blocks.{layer}"
        resid = tap(hooks, f"{at}.hook_resid_pre", resid)
        mixed = self.self_attn(self.input_layernorm(resid, hooks, f"{at}.ln1"), rope, layer, hooks, cache)
        resid = tap(hooks, f"{at}.hook_resid_mid", resid + tap(hooks, f"{at}.hook_attn_out", mixed))
        fed = self.mlp(self.post_attention_layernorm(resid, hooks, f"{at}.ln2"), layer, hooks)
        return tap(hooks, f"{at}.hook_resid_post", resid + tap(hooks, f"{at}.hook_mlp_out", fed))
