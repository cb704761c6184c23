"""The shape of a decoder, its Hugging Face spelling, and what it costs to run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from lab.errors import LabError

LARGEST = 2**20  # of a dimension: the bytes of a weight, a product of three, still fit a 64-bit integer
LONGEST = 2**24  # tokens
CHOICES = {
    "norm": ("rms", "layer", "none"),
    "positions": ("rope", "learned", "none"),
    "act": ("swiglu", "gelu", "relu", "none"),
}
OWN = "looplab"  # the model_type of shapes that no common layout describes


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a pre-norm decoder; the defaults are Llama's (RMSNorm, RoPE, grouped-query attention, SwiGLU).

    `n_kv_heads == n_heads` is multi-head, `1` is multi-query, anything between is grouped-query attention.
    `qk_norm` puts an RMSNorm on every query and key head (Qwen3). GPT-2 is `norm="layer", positions="learned",
    act="gelu", bias=True`. `act="none"` leaves the feed-forwards out (then `d_mlp=0`); `causal=False` lets every
    position see all others; `window` is how many tokens, itself included, a query sees; `out_vocab` is the width of
    the logits where it is not `vocab_size`.
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    context: int = 1024
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied: bool = True
    qk_norm: bool = False
    norm: str = "rms"
    positions: str = "rope"
    act: str = "swiglu"
    bias: bool = False
    causal: bool = True
    window: int | None = None
    out_vocab: int | None = None

    def __post_init__(self) -> None:
        for key, allowed in CHOICES.items():
            if getattr(self, key) not in allowed:
                raise LabError(f"{key} is {getattr(self, key)!r}; it must be one of {', '.join(allowed)}.")
        for key in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_mlp", "context", "window", "out_vocab"):
            value, least = getattr(self, key), 0 if key == "d_mlp" and self.act == "none" else 1
            if value is None and key in ("window", "out_vocab"):
                continue
            if type(value) is not int or value < least:
                raise LabError(f"{key} is {value!r}; it must be a whole number of at least {least}.")
            if value > (LONGEST if key == "context" else LARGEST):
                raise LabError(f"{key} is {value:.2g}; no model is that large, so config.json is not right.")
        for key, lowest in (("rope_theta", 1.0), ("norm_eps", 0.0)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value < math.inf:
                raise LabError(f"{key} is {value!r}; it must be a number of at least {lowest:g}.")
        if self.n_heads % self.n_kv_heads:
            raise LabError(
                f"{self.n_heads} query heads cannot share {self.n_kv_heads} key-value heads evenly; choose a divisor."
            )
        if self.tied and self.width_out != self.vocab_size:
            raise LabError("A tied model reads and writes the same tokens; leave out_vocab out or untie it.")
        if self.window is not None and not self.causal:
            raise LabError("A sliding window looks back from each token, so it needs causal attention.")
        if self.positions == "rope" and self.d_head % 2:
            raise LabError(f"A head of {self.d_head} dimensions cannot be rotated; choose an even number.")

    @property
    def width_out(self) -> int:
        """How many logits there are."""
        return self.out_vocab or self.vocab_size

    # ---- Hugging Face layout

    @classmethod
    def from_hf(cls, hf: dict[str, Any]) -> ModelConfig:
        """From the contents of a `config.json` of type llama, mistral, qwen3 or gpt2, or of a shape of our own."""
        kind = hf.get("model_type")
        if kind == "gpt2":
            return cls._from_gpt2(hf)
        if kind == OWN:
            known = {field.name for field in fields(cls)}
            try:
                return cls(**{key: value for key, value in hf.items() if key in known})
            except TypeError as error:
                raise LabError(f"config.json does not describe a model ({error}).") from None
        if kind not in ("llama", "mistral", "qwen3"):
            raise LabError(
                f"Models of type {kind!r} are not read here; llama, mistral, qwen3 and gpt2 are. "
                "Other types open in the Backends notebook, through TransformerLens or nnsight."
            )
        rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise LabError(f"The rotary settings in config.json are {rope!r}; they must be an object.")
        if (scaling := rope.get("rope_type", rope.get("type", "default"))) not in (None, "default"):
            raise LabError(f"Rotary scaling of type {scaling!r} is not supported; only plain RoPE is.")
        if hf.get("attention_bias") or hf.get("mlp_bias"):
            raise LabError("Checkpoints with bias terms in attention or MLP are not supported.")
        if hf.get("hidden_act", "silu") != "silu":
            raise LabError(f"The activation {hf['hidden_act']!r} is not supported; SwiGLU needs silu.")
        if hf.get("use_sliding_window"):
            raise LabError("Sliding-window checkpoints are not supported.")
        try:
            heads, width = hf["num_attention_heads"], hf["hidden_size"]
            return cls(
                vocab_size=hf["vocab_size"],
                d_model=width,
                n_layers=hf["num_hidden_layers"],
                n_heads=heads,
                n_kv_heads=hf.get("num_key_value_heads") or heads,
                d_head=hf.get("head_dim") or width // heads,
                d_mlp=hf["intermediate_size"],
                context=hf.get("max_position_embeddings", 2048),
                rope_theta=float(rope.get("rope_theta") or hf.get("rope_theta") or 10_000.0),
                norm_eps=hf.get("rms_norm_eps", 1e-6),
                tied=hf.get("tie_word_embeddings", False),
                qk_norm=kind == "qwen3",
                window=hf.get("sliding_window") if kind == "mistral" else None,
            )
        except KeyError as missing:
            raise LabError(f"config.json lacks {missing}; it does not describe a llama or qwen3 model.") from None
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise LabError(f"config.json does not describe a llama or qwen3 model ({error}).") from None

    @classmethod
    def _from_gpt2(cls, hf: dict[str, Any]) -> ModelConfig:
        if hf.get("activation_function", "gelu_new") != "gelu_new":
            raise LabError(f"The activation {hf['activation_function']!r} is not supported; GPT-2 has gelu_new.")
        if hf.get("scale_attn_by_inverse_layer_idx") or not hf.get("scale_attn_weights", True):
            raise LabError("GPT-2 checkpoints with another scaling of the attention scores are not supported.")
        try:
            heads, width = hf["n_head"], hf["n_embd"]
            return cls(
                vocab_size=hf["vocab_size"], d_model=width, n_layers=hf["n_layer"], n_heads=heads, n_kv_heads=heads,
                d_head=width // heads, d_mlp=hf.get("n_inner") or 4 * width, context=hf.get("n_positions", 1024),
                norm_eps=hf.get("layer_norm_epsilon", 1e-5), tied=hf.get("tie_word_embeddings", True),
                norm="layer", positions="learned", act="gelu", bias=True,
            )  # fmt: skip
        except KeyError as missing:
            raise LabError(f"config.json lacks {missing}; it does not describe a gpt2 model.") from None
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise LabError(f"config.json does not describe a gpt2 model ({error}).") from None

    def to_hf(self, dtype: torch.dtype, **extra: Any) -> dict[str, Any]:
        """A `config.json` that transformers reads back as the same model, where it knows such models."""
        plain = (self.norm, self.positions, self.act, self.bias, self.causal, self.out_vocab) == ("rms", "rope", "swiglu", False, True, None)
        if not plain or (self.window and self.qk_norm):
            return {"model_type": OWN, **self.to_dict(), "dtype": str(dtype).removeprefix("torch."), **extra}
        kind, arch = ("qwen3", "Qwen3ForCausalLM") if self.qk_norm else ("llama", "LlamaForCausalLM")
        if self.window:
            kind, arch, extra = "mistral", "MistralForCausalLM", {"sliding_window": self.window, **extra}
        return {
            "architectures": [arch],
            "model_type": kind,
            "vocab_size": self.vocab_size,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_kv_heads,
            "head_dim": self.d_head,
            "intermediate_size": self.d_mlp,
            "max_position_embeddings": self.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rope_theta": self.rope_theta,  # where transformers 4 and vLLM look for it
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tied,
            "hidden_act": "silu",
            "attention_bias": False,
            "dtype": str(dtype).removeprefix("torch."),
            "torch_dtype": str(dtype).removeprefix("torch."),
            **extra,
        }

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    # ---- what it costs

    def layer_params(self) -> int:
        """Matrix parameters of one block: q, k, v, o and the two of an MLP or the three of SwiGLU."""
        attention = self.d_model * self.d_head * (2 * self.n_heads + 2 * self.n_kv_heads)
        return attention + (3 if self.act == "swiglu" else 2) * self.d_model * self.d_mlp

    def matmul_params(self) -> int:
        """Parameters every token is multiplied by: the unembedding counts, the embedding lookup does not."""
        return self.n_layers * self.layer_params() + self.width_out * self.d_model

    def n_params(self) -> int:
        """All parameters; a tied embedding counts once."""
        per_norm = {"rms": 1, "layer": 1 + self.bias, "none": 0}[self.norm] * self.d_model
        norms = self.n_layers * ((1 if self.act == "none" else 2) * per_norm + (2 * self.d_head if self.qk_norm else 0)) + per_norm
        biases = self.d_head * (self.n_heads + 2 * self.n_kv_heads) + self.d_model
        biases += {"swiglu": 2 * self.d_mlp + self.d_model, "none": 0}.get(self.act, self.d_mlp + self.d_model)
        embeddings = (0 if self.tied else self.vocab_size) + (self.context if self.positions == "learned" else 0)
        return self.matmul_params() + norms + (self.n_layers * biases if self.bias else 0) + embeddings * self.d_model

    def forward_flops(self, tokens: int, context: int = 0) -> int:
        """FLOPs of a forward pass over `tokens` new tokens of one sequence that already holds `context`.

        Two per multiply-add: 2 * matmul_params a token, plus 4 * heads * d_head a layer for each (query, key)
        pair under the mask (scores and weighted sum; a window is not subtracted). The backward pass costs twice as much.
        """
        pairs = tokens * context + (tokens * (tokens + 1) // 2 if self.causal else tokens * tokens)
        return 2 * self.matmul_params() * tokens + 4 * self.n_layers * self.n_heads * self.d_head * pairs

    def weight_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the weights one forward pass reads (the lookup reads only its rows of the embedding)."""
        return self.matmul_params() * dtype.itemsize

    def kv_bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of keys and values that one token leaves in the cache, all layers."""
        return 2 * self.n_layers * self.n_kv_heads * self.d_head * dtype.itemsize
