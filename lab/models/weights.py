"""A layer's matrices in the shapes that circuits are written in (Elhage et al. 2021), as views of the parameters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from lab.errors import LabError

from .layers import MLP, Attention, SwiGLU


@dataclass(frozen=True)
class HeadWeights:
    """`W_Q` [head, d_model, d_head]; `W_K`, `W_V` [kv_head, d_model, d_head]; `W_O` [head, d_head, d_model].

    Biases `b_Q` [head, d_head], `b_K`, `b_V` [kv_head, d_head] and `b_O` [d_model], or None. The norm's gain is not
    folded in. Query head h reads key-value head `h * n_kv_heads // n_heads`.
    """

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None
    b_K: Tensor | None
    b_V: Tensor | None
    b_O: Tensor | None


@dataclass(frozen=True)
class MLPWeights:
    """`W_in` and `W_gate` (None but for SwiGLU) [d_model, d_mlp], `W_out` [d_mlp, d_model]; biases or None."""

    W_in: Tensor
    W_gate: Tensor | None
    W_out: Tensor
    b_in: Tensor | None
    b_gate: Tensor | None
    b_out: Tensor | None


def head_weights(attention: Attention) -> HeadWeights:
    size = attention.cfg.d_head

    def into(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
        bias = None if linear.bias is None else linear.bias.view(-1, size)
        return linear.weight.view(-1, size, linear.in_features).transpose(1, 2), bias

    (q, bq), (k, bk), (v, bv) = into(attention.q_proj), into(attention.k_proj), into(attention.v_proj)
    out = attention.o_proj
    return HeadWeights(q, k, v, out.weight.T.view(-1, size, out.out_features), bq, bk, bv, out.bias)


def mlp_weights(mlp: SwiGLU | MLP | None, layer: int) -> MLPWeights:
    if mlp is None:
        raise LabError(f"Layer {layer} of this model has no MLP: it is made of attention alone.")
    gate = mlp.gate_proj if isinstance(mlp, SwiGLU) else None
    return MLPWeights(
        mlp.up_proj.weight.T, gate.weight.T if gate is not None else None, mlp.down_proj.weight.T,
        mlp.up_proj.bias, gate.bias if gate is not None else None, mlp.down_proj.bias,
    )  # fmt: skip
