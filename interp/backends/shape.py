"""The shape of somebody else's model, as the analyses ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

UNKNOWN_CONTEXT = 2**20  # no limit is known, so none is enforced


@dataclass(frozen=True)
class Shape:
    """What an analysis reads of `model.cfg`. Zero where the architecture has no such thing or does not tell."""

    kind: str
    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int
    context: int

    @classmethod
    def of(cls, module: nn.Module, n_layers: int = 0) -> Shape:
        """From a module's Hugging Face config, whatever it calls things; `n_layers` where there is no config."""
        config: Any = getattr(module, "config", None)
        get = config.get_text_config() if hasattr(config, "get_text_config") else config

        def read(*names: str) -> int:
            values = (getattr(get, name, None) for name in names)
            return next((v for v in values if isinstance(v, int) and not isinstance(v, bool)), 0)

        width, heads = read("hidden_size", "n_embd", "d_model"), read("num_attention_heads", "n_head")
        return cls(
            kind=str(getattr(get, "model_type", type(module).__name__)),
            vocab_size=read("vocab_size"),
            d_model=width,
            n_layers=read("num_hidden_layers", "n_layer", "num_layers") or n_layers,
            n_heads=heads,
            n_kv_heads=read("num_key_value_heads") or heads,
            d_head=read("head_dim") or (width // heads if heads else 0),
            # GPT-2 writes its MLP's width down only where it is not the usual four times the stream's
            d_mlp=(read("n_inner") or 4 * width) if hasattr(get, "n_inner") else read("intermediate_size"),
            context=read("max_position_embeddings", "n_positions") or UNKNOWN_CONTEXT,
        )
