"""What a step of inference must move and compute, from the model's shape alone.

The counts are of an ideal machine: each weight read once a step, each cached key and value once a row, each tensor
between two operations written once and read once. Nothing is counted for what a cache might save or a bad kernel
waste, so measured time against these bytes gives the achieved share of a machine's bandwidth.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lab.models import ModelConfig


@dataclass(frozen=True)
class Cost:
    """Bytes and floating-point operations of one step."""

    weights: int
    """bytes of parameters read"""
    kv_read: int
    """bytes of keys and values of earlier tokens read from the cache"""
    kv_write: int
    """bytes of keys and values of the new tokens appended to it"""
    activations: int
    """bytes of everything between the operations, written and read"""
    linear_flops: int
    """matrix multiplications with weights, two a multiply-add"""
    attention_flops: int
    """queries with keys, and pattern with values"""

    @property
    def bytes(self) -> int:
        return self.weights + self.kv_read + self.kv_write + self.activations

    @property
    def flops(self) -> int:
        return self.linear_flops + self.attention_flops

    @property
    def intensity(self) -> float:
        """Operations for each byte moved: the horizontal place on a roofline."""
        return self.flops / self.bytes

    def roof_seconds(self, flops_per_s: float, bytes_per_s: float) -> float:
        """The least time this step can take on a machine: the slower of computing and moving."""
        return max(self.flops / flops_per_s, self.bytes / bytes_per_s)


def step_cost(
    cfg: "ModelConfig",
    new: int,
    past: int = 0,
    batch: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    kv_dtype: torch.dtype | None = None,
) -> Cost:
    """One forward pass of `new` tokens a row after `past` cached ones, with logits for the last token of each row.

    Prefill of n tokens is `new=n`; decoding a token at context n is `new=1, past=n`.
    """
    d, vocab, layers = cfg.d_model, cfg.vocab_size, cfg.n_layers
    q, kv, mlp = cfg.n_heads * cfg.d_head, cfg.n_kv_heads * cfg.d_head, cfg.d_mlp
    norms = layers * (2 * d + (2 * cfg.d_head if cfg.qk_norm else 0)) + d
    rows = batch * new
    # norm, qkv, rotation, attention, output, add, norm, gate and up, product, down, add: inputs and outputs of each
    moved = rows * (layers * (14 * d + 6 * q + 4 * kv + 6 * mlp) + d) + batch * (3 * d + 2 * vocab)
    token_kv = cfg.kv_bytes_per_token(kv_dtype or dtype)
    pairs = new * past + new * (new + 1) // 2
    return Cost(
        # the embedding is a look-up of one row a token; tied or not, the output matrix is read whole
        weights=(cfg.matmul_params() + norms + rows * d) * dtype.itemsize,
        kv_read=batch * past * token_kv,
        kv_write=rows * token_kv,
        activations=moved * dtype.itemsize,
        linear_flops=2 * (rows * layers * cfg.layer_params() + batch * vocab * d),
        attention_flops=4 * layers * q * batch * pairs,
    )
