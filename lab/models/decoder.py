"""The decoder: one class for every model of the lab."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn

from lab.errors import LabError

from .cache import KVCache
from .config import ModelConfig
from .layers import MLP, Attention, Block, Hooks, Norm, SwiGLU, make_norm, rotary_tables, tap
from .weights import HeadWeights, MLPWeights, head_weights, mlp_weights


class Decoder(nn.Module):
    """A causal language model: embedding, blocks, final norm, unembedding.

    Hooks are an argument of the forward pass and leave nothing on the module, which many threads share: a
    mapping from hook point (TransformerLens's names, `hook_names()`) to `fn(activation, name)`, whose result,
    unless None, takes the activation's place. The state dict is the one of transformers' Llama or Qwen3.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.model = nn.Module()
        embedding = torch.empty(cfg.vocab_size, cfg.d_model)
        if not embedding.is_meta:  # drawing random numbers on "meta" imports the compiler, more than a second
            nn.init.normal_(embedding)
        self.model.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.d_model, _weight=embedding)
        if cfg.positions == "learned":
            self.model.embed_positions = nn.Embedding(cfg.context, cfg.d_model)
        feed_forward = {"swiglu": SwiGLU, "none": lambda _: None}.get(cfg.act, MLP)
        self.model.layers = nn.ModuleList(Block(cfg, Attention(cfg), feed_forward(cfg)) for _ in range(cfg.n_layers))
        self.model.norm = make_norm(cfg)
        self.lm_head = nn.Linear(cfg.d_model, cfg.width_out, bias=False)
        if cfg.tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        self._rope: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def init_weights(self, seed: int) -> Decoder:
        """Normal of 0.02; projections into the residual stream smaller by sqrt(2 * layers) (GPT-2)."""
        generator = torch.Generator(device=self.device).manual_seed(seed)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 1:
                nn.init.ones_(p)
            else:
                residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / math.sqrt(2 * self.cfg.n_layers) if residual else 0.02
                nn.init.normal_(p, std=std, generator=generator)
        return self

    @property
    def device(self) -> torch.device:
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype

    # ---- forward

    def forward(
        self, tokens: Tensor, hooks: Hooks | None = None, cache: KVCache | None = None, last: bool = False
    ) -> Tensor:
        """`[batch, pos]` token ids to `[batch, pos, vocab]` logits (`last`: of the last position alone).

        With a cache, the tokens continue what the cache holds. Raises LabError for a prompt that is empty or
        too long for the context or the cache, and for a hook point that does not exist.
        """
        self.check(tokens, hooks, cache)
        resid = self.embed_tokens(tokens, hooks, cache)
        for layer in range(self.cfg.n_layers):
            resid = self.run_block(layer, resid, hooks, cache)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return self.unembed(resid[:, -1:] if last else resid, hooks)

    def check(self, tokens: Tensor, hooks: Hooks | None = None, cache: KVCache | None = None) -> None:
        """Raise the LabError that says what is wrong with these inputs, if anything is."""
        if tokens.dim() != 2 or tokens.numel() == 0:
            raise LabError("The prompt is empty; give at least one token.")
        total = tokens.shape[1] + (cache.length if cache else 0)
        if total > self.cfg.context:
            raise LabError(f"The text is {total} tokens long and this model reads {self.cfg.context}; shorten it.")
        if hooks and (unknown := sorted(set(hooks) - self._hook_set)):
            raise LabError(f"This model has no hook point {unknown[0]!r}; hook_names() lists those it has.")
        if cache is not None and not self.cfg.causal:
            raise LabError("This model sees every position at once, so earlier keys and values cannot be kept.")

    def embed_tokens(self, tokens: Tensor, hooks: Hooks | None = None, cache: KVCache | None = None) -> Tensor:
        """`[batch, pos]` to the residual stream `[batch, pos, d_model]`, learned positions included."""
        resid = tap(hooks, "hook_embed", self.model.embed_tokens(tokens))  # type: ignore[operator]
        if self.cfg.positions != "learned":
            return resid
        start, pad = (cache.length, cache.pad) if cache is not None else (0, None)
        at = torch.arange(start, start + tokens.shape[1], device=tokens.device)[None]
        if pad is not None:
            at = (at - pad[:, None]).clamp_min(0)
        return resid + tap(hooks, "hook_pos_embed", self.model.embed_positions(at).expand_as(resid))  # type: ignore[operator]

    def run_block(self, layer: int, resid: Tensor, hooks: Hooks | None = None, cache: KVCache | None = None) -> Tensor:
        """Run one block on the residual stream `[batch, pos, d_model]`; sweeps use it to start in the middle."""
        start = cache.length if cache is not None else 0
        rope = self._rotation(start, resid.shape[1], cache.pad if cache is not None else None, resid)
        return self.model.layers[layer](resid, rope, layer, hooks, cache)  # type: ignore[index,operator]

    def unembed(self, resid: Tensor, hooks: Hooks | None = None) -> Tensor:
        """Residual stream to logits, through the final norm."""
        return self.lm_head(self.model.norm(resid, hooks, "ln_final"))  # type: ignore[operator]

    def _rotation(self, start: int, new: int, pad: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.cfg.positions != "rope":
            return None
        key = (like.device, like.dtype)
        if key not in self._rope:
            self._rope[key] = rotary_tables(self.cfg, *key)
        cos, sin = self._rope[key]
        if pad is None:
            return cos[start : start + new, None], sin[start : start + new, None]
        at = (torch.arange(start, start + new, device=like.device)[None] - pad[:, None]).clamp_min(0)
        return cos[at][:, :, None], sin[at][:, :, None]

    # ---- hook points

    def hook_names(self) -> list[str]:
        """Every hook point, in the order of execution."""
        names = ["hook_embed", "hook_pos_embed"] if self.cfg.positions == "learned" else ["hook_embed"]
        for layer, block in enumerate(self.model.layers):  # type: ignore[arg-type]
            names += block.hook_names(layer)
        return names + [f"ln_final.{name}" for name in self.model.norm.hook_names()]  # type: ignore[union-attr,operator]

    @cached_property
    def _hook_set(self) -> set[str]:
        return set(self.hook_names())

    def run_with_cache(
        self, tokens: Tensor, names: Callable[[str], bool] | None = None, hooks: Hooks | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the activations at every hook point that `names` accepts.

        None takes all but those that are a head times a stream large (`hook_q_input`, `hook_k_input`, `hook_v_input`,
        `hook_result`). Given `hooks` act first; what is recorded is what the model went on with.
        """
        kept: dict[str, Tensor] = {}
        given = hooks or {}

        def keep(x: Tensor, name: str) -> Tensor | None:
            out = given[name](x, name) if name in given else None
            kept[name] = x if out is None else out
            return out

        accepts = names or (lambda name: not name.endswith((*Block.SPLIT, "hook_result")))
        wanted = {name: keep for name in self.hook_names() if accepts(name)}
        return self(tokens, hooks={**given, **wanted}), kept

    # ---- weights by what they do

    def head_weights(self, layer: int) -> HeadWeights:
        """Query, key, value and output matrices of every head of a layer."""
        return head_weights(self.model.layers[layer].self_attn)  # type: ignore[index,union-attr]

    def mlp_weights(self, layer: int) -> MLPWeights:
        """What a layer's neurons read and write; LabError for a model of attention alone."""
        return mlp_weights(self.model.layers[layer].mlp, layer)  # type: ignore[index,union-attr]

    @property
    def W_E(self) -> Tensor:
        """`[vocab, d_model]`."""
        return self.model.embed_tokens.weight  # type: ignore[union-attr,return-value]

    @property
    def W_U(self) -> Tensor:
        """`[d_model, vocab]`."""
        return self.lm_head.weight.T

    def norm_gain(self, at: str) -> Tensor:
        """The gain `[d_model]` of "ln_final", "blocks.3.ln1" or "blocks.3.ln2"; ones where there is no norm."""
        norm = self._norm(at)
        return norm.weight if isinstance(norm, Norm) else torch.ones(self.cfg.d_model, dtype=self.dtype, device=self.device)

    def norm_bias(self, at: str) -> Tensor | None:
        """The bias `[d_model]` of the same norms, or None."""
        norm = self._norm(at)
        return norm.bias if isinstance(norm, Norm) else None

    def _norm(self, at: str) -> nn.Module:
        if at == "ln_final":
            return self.model.get_submodule("norm")
        _, layer, which = at.split(".")
        return self.model.get_submodule(
            f"layers.{layer}." + {"ln1": "input_layernorm", "ln2": "post_attention_layernorm"}[which]
        )
