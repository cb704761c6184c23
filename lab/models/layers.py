"""The parts of a block. Parameters carry Hugging Face's names, hook points TransformerLens's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


class Norm(nn.Module):
    """A norm over the last dimension, its scale and the normalised stream (before the gain) as hook points.

    rms: x / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019); layer: the same of x - mean(x) (Ba et al. 2016), with a
    bias if asked for. The mean is taken in float32 or wider.
    """

    def __init__(self, width: int, eps: float, centred: bool = False, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.eps, self.centred = eps, centred

    @staticmethod
    def hook_names() -> list[str]:
        return ["hook_scale", "hook_normalized"]

    def forward(self, x: Tensor, hooks: Hooks | None = None, at: str = "") -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        if self.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        scale = (wide.square().mean(-1, keepdim=True) + self.eps).sqrt()
        if at:
            scale = tap(hooks, f"{at}.hook_scale", scale)
        normal = (wide / scale).to(x.dtype)
        if at:
            normal = tap(hooks, f"{at}.hook_normalized", normal)
        return self.weight * normal if self.bias is None else self.weight * normal + self.bias


class NoNorm(nn.Module):
    """The stream as it is: models written by hand or made to be read have no norm."""

    @staticmethod
    def hook_names() -> list[str]:
        return []

    def forward(self, x: Tensor, hooks: Hooks | None = None, at: str = "") -> Tensor:
        return x


def make_norm(cfg: ModelConfig) -> Norm | NoNorm:
    if cfg.norm == "none":
        return NoNorm()
    layer = cfg.norm == "layer"
    return Norm(cfg.d_model, cfg.norm_eps, centred=layer, bias=layer and cfg.bias)


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
    """Softmax attention with grouped queries.

    Runs fused unless a hook asks for the scores or the pattern; then both are made, `[batch, head, query, key]`.
    What each head writes, `[batch, pos, head, d_model]`, is made only for a hook that asks for it.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.q_proj = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.bias)
        self.k_proj = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=cfg.bias)
        self.v_proj = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=cfg.bias)
        self.o_proj = nn.Linear(cfg.n_heads * cfg.d_head, cfg.d_model, bias=cfg.bias)
        if cfg.qk_norm:
            self.q_norm = Norm(cfg.d_head, cfg.norm_eps)
            self.k_norm = Norm(cfg.d_head, cfg.norm_eps)

    def hook_names(self) -> list[str]:
        rotated = ["hook_rot_q", "hook_rot_k"] if self.cfg.positions == "rope" else []
        return ["hook_q", "hook_k", "hook_v", *rotated, "hook_attn_scores", "hook_pattern", "hook_z", "hook_result"]

    def forward(
        self, x: Sequence[Tensor], rope: tuple[Tensor, Tensor] | None, layer: int, hooks: Hooks | None,
        cache: KVCache | None,
    ) -> Tensor:  # fmt: skip
        """`x`: what queries, keys and values are made of, `[batch, pos, d_model]` or, a head each,
        `[batch, pos, head, d_model]`."""
        at = f"blocks.{layer}.attn"
        batch, new = x[0].shape[:2]
        q, k, v = (
            tap(hooks, f"{at}.hook_{name}", project(linear, given, self.cfg.d_head))
            for name, linear, given in zip("qkv", (self.q_proj, self.k_proj, self.v_proj), x)
        )
        if self.cfg.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q = tap(hooks, f"{at}.hook_rot_q", rotate(q, *rope))
            k = tap(hooks, f"{at}.hook_rot_k", rotate(k, *rope))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        pad = None
        if cache is not None:
            k, v = cache.append(layer, k, v)
            pad = cache.pad
        if hooks and (f"{at}.hook_pattern" in hooks or f"{at}.hook_attn_scores" in hooks):
            z = self._explicit(q, k, v, pad, hooks, at)
        else:
            z = self._fused(q, k, v, pad)
        z = tap(hooks, f"{at}.hook_z", z.transpose(1, 2))
        if hooks and f"{at}.hook_result" in hooks:
            weight = self.o_proj.weight.view(-1, self.cfg.n_heads, self.cfg.d_head)
            result = tap(hooks, f"{at}.hook_result", torch.einsum("bphe,dhe->bphd", z, weight)).sum(2)
            return result if self.o_proj.bias is None else result + self.o_proj.bias
        return self.o_proj(z.reshape(batch, new, -1))

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, pad: Tensor | None) -> Tensor:
        new, total = q.shape[2], k.shape[2]
        grouped = self.cfg.n_kv_heads != self.cfg.n_heads
        narrow = self.cfg.window is not None and total > self.cfg.window
        if pad is None and new in (1, total) and not narrow:
            return F.scaled_dot_product_attention(q, k, v, is_causal=self.cfg.causal and new > 1, enable_gqa=grouped)
        mask = visible(new, total, pad, q.device, self.cfg.causal, self.cfg.window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, pad: Tensor | None, hooks: Hooks, at: str) -> Tensor:
        group = self.cfg.n_heads // self.cfg.n_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) * self.cfg.d_head**-0.5
        scores = scores if scores.dtype == torch.float64 else scores.float()
        mask = visible(q.shape[2], k.shape[2], pad, q.device, self.cfg.causal, self.cfg.window)
        scores = scores.masked_fill(~mask, float("-inf"))
        scores = tap(hooks, f"{at}.hook_attn_scores", scores)
        pattern = tap(hooks, f"{at}.hook_pattern", scores.softmax(-1).to(q.dtype))
        return pattern @ v


def project(linear: nn.Linear, x: Tensor, d_head: int) -> Tensor:
    """`[batch, pos, d_model]`, or a head each `[batch, pos, head, d_model]`, to `[batch, pos, head, d_head]`."""
    if x.dim() == 3:
        return linear(x).view(*x.shape[:2], -1, d_head)
    out = torch.einsum("bphd,hed->bphe", x, linear.weight.view(-1, d_head, x.shape[-1]))
    return out if linear.bias is None else out + linear.bias.view(-1, d_head)


def visible(
    new: int, total: int, pad: Tensor | None, device: torch.device, causal: bool = True, window: int | None = None
) -> Tensor:
    """Which keys each query sees, `[1 or batch, 1, new, total]`: itself and, if causal, what came before (of that the
    nearest `window`, itself included), never padding.

    A padding query sees its own position alone, so that its softmax has something to sum to one over.
    """
    query = torch.arange(total - new, total, device=device)[:, None]
    key = torch.arange(total, device=device)[None, :]
    mask = ((key <= query) if causal else (key >= 0).expand(new, total))[None, None]
    if window is not None:
        mask = mask & (key > query - window)
    if pad is None:
        return mask
    return mask & ((key >= pad[:, None, None]) | (key == query))[:, None]


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020)."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(cfg.d_model, cfg.d_mlp, bias=cfg.bias)
        self.up_proj = nn.Linear(cfg.d_model, cfg.d_mlp, bias=cfg.bias)
        self.down_proj = nn.Linear(cfg.d_mlp, cfg.d_model, bias=cfg.bias)

    @staticmethod
    def hook_names() -> list[str]:
        return ["hook_pre", "hook_pre_linear", "hook_post"]

    def forward(self, x: Tensor, layer: int, hooks: Hooks | None) -> Tensor:
        at = f"blocks.{layer}.mlp"
        gate = tap(hooks, f"{at}.hook_pre", self.gate_proj(x))
        up = tap(hooks, f"{at}.hook_pre_linear", self.up_proj(x))
        return self.down_proj(tap(hooks, f"{at}.hook_post", F.silu(gate) * up))


class MLP(nn.Module):
    """down(act(up(x))), act the tanh form of GELU (Hendrycks and Gimpel 2016, GPT-2's) or ReLU."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(cfg.d_model, cfg.d_mlp, bias=cfg.bias)
        self.down_proj = nn.Linear(cfg.d_mlp, cfg.d_model, bias=cfg.bias)
        self.act = cfg.act

    @staticmethod
    def hook_names() -> list[str]:
        return ["hook_pre", "hook_post"]

    def forward(self, x: Tensor, layer: int, hooks: Hooks | None) -> Tensor:
        at = f"blocks.{layer}.mlp"
        pre = tap(hooks, f"{at}.hook_pre", self.up_proj(x))
        post = F.relu(pre) if self.act == "relu" else F.gelu(pre, approximate="tanh")
        return self.down_proj(tap(hooks, f"{at}.hook_post", post))


class Block(nn.Module):
    """Pre-norm residual block: a mixer moves information between positions, a feed-forward works within one.

    Both are swappable: a mixer is called as `mixer((x, x, x), rope, layer, hooks, cache)`, a feed-forward (None where
    a model has attention alone) as `feed_forward(x, layer, hooks)`, and each names its own hook points.

    `hook_q_input`, `hook_k_input` and `hook_v_input` give every head its own copy of the stream,
    `[batch, pos, head, d_model]`, when one of them is asked for; the hooks of ln1 then see each of the three.
    """

    SPLIT = ("hook_q_input", "hook_k_input", "hook_v_input")

    def __init__(self, cfg: ModelConfig, mixer: nn.Module, feed_forward: nn.Module | None) -> None:
        super().__init__()
        self.heads = (cfg.n_heads, cfg.n_kv_heads, cfg.n_kv_heads)
        self.input_layernorm = make_norm(cfg)
        self.self_attn = mixer
        if feed_forward is not None:
            self.post_attention_layernorm = make_norm(cfg)
        self.mlp = feed_forward

    def hook_names(self, layer: int) -> list[str]:
        names = ["hook_resid_pre", *self.SPLIT]
        names += [f"ln1.{name}" for name in self.input_layernorm.hook_names()]
        names += [f"attn.{name}" for name in self.self_attn.hook_names()]  # type: ignore[operator]
        names += ["hook_attn_out", "hook_resid_mid"]
        if self.mlp is not None:
            names += ["hook_mlp_in", *(f"ln2.{name}" for name in self.post_attention_layernorm.hook_names())]
            names += [f"mlp.{name}" for name in self.mlp.hook_names()] + ["hook_mlp_out"]  # type: ignore[operator]
        return [f"blocks.{layer}.{name}" for name in [*names, "hook_resid_post"]]

    def forward(
        self, resid: Tensor, rope: tuple[Tensor, Tensor] | None, layer: int, hooks: Hooks | None, cache: KVCache | None
    ) -> Tensor:
        at = f"blocks.{layer}"
        resid = tap(hooks, f"{at}.hook_resid_pre", resid)
        if hooks and any(f"{at}.{name}" in hooks for name in self.SPLIT):
            each = [
                tap(hooks, f"{at}.{name}", resid[:, :, None].expand(-1, -1, heads, -1))
                for name, heads in zip(self.SPLIT, self.heads)
            ]
            normal = [self.input_layernorm(x, hooks, f"{at}.ln1") for x in each]
        else:
            normal = [self.input_layernorm(resid, hooks, f"{at}.ln1")] * 3
        mixed = self.self_attn(normal, rope, layer, hooks, cache)
        resid = tap(hooks, f"{at}.hook_resid_mid", resid + tap(hooks, f"{at}.hook_attn_out", mixed))
        if self.mlp is not None:
            given = tap(hooks, f"{at}.hook_mlp_in", resid)
            fed = self.mlp(self.post_attention_layernorm(given, hooks, f"{at}.ln2"), layer, hooks)
            resid = resid + tap(hooks, f"{at}.hook_mlp_out", fed)
        return tap(hooks, f"{at}.hook_resid_post", resid)
