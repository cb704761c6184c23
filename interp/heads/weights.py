"""What heads are by their weights alone: whether they copy, and which heads they read (Elhage et al. 2021).

Norms are folded: their gain scales rows of the matrices that read, and a LayerNorm's centring is applied to them.
Rotary positions are left out (distance zero), biases too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lab.errors import LabError

COMPOSITIONS = ("q", "k", "v")


def require_weights(model) -> None:
    """LabError when the model does not give its matrices."""
    if not hasattr(model, "head_weights"):
        raise LabError("This reads the model's matrices, which this backend does not give; choose the backend `own`.")


def folded(model, at: str, weight: Tensor) -> Tensor:
    """`weight` [.., d_model, n], read behind the norm `at`, as read from the stream itself but for its scale."""
    weight = model.norm_gain(at)[:, None].to(weight.dtype) * weight
    return weight - weight.mean(-2, keepdim=True) if model.cfg.norm == "layer" else weight


def _by_query_head(weight: Tensor, heads: int) -> Tensor:
    return weight.repeat_interleave(heads // len(weight), 0)


@torch.no_grad()
def copying(model) -> Tensor:
    """Copying scores [layer, head] in -1..1: the sum of the eigenvalues of W_E W_V W_O W_U over the sum of their sizes.

    1: every direction of tokens is written back as itself. Each embedding is normalised as the norm does it. The
    vocab x vocab matrix has the same eigenvalues as a d_head x d_head one, which is what is taken apart.
    """
    require_weights(model)
    if model.W_U.shape[1] != model.W_E.shape[0]:
        raise LabError("This model answers in another vocabulary than it reads, so copying has no meaning for it.")
    cfg = model.cfg
    tokens = model.W_E.float()
    if cfg.norm == "layer":
        tokens = tokens - tokens.mean(-1, keepdim=True)
    if cfg.norm != "none":
        tokens = tokens / (tokens.square().mean(-1, keepdim=True) + cfg.norm_eps).sqrt()
    through = (folded(model, "ln_final", model.W_U.float()) @ tokens).double()  # [d_model, d_model]
    rows = []
    for layer in range(cfg.n_layers):
        weights = model.head_weights(layer)
        gain = model.norm_gain(f"blocks.{layer}.ln1").double()[:, None]
        W_V = _by_query_head(gain * weights.W_V.double(), cfg.n_heads)
        values = torch.linalg.eigvals(weights.W_O.double() @ through @ W_V)
        rows.append(values.real.sum(-1) / values.abs().sum(-1).clamp_min(1e-300))
    return torch.stack(rows).cpu()


@torch.no_grad()
def composition(model, kind: str) -> Tensor:
    """How much each head's queries, keys or values read from each head of an earlier layer.

    [receiver layer, receiver head, sender layer, sender head], NaN where the sender does not come earlier:
    ||W_OV W_read|| / (||W_OV|| ||W_read||), W_read being W_QK from the side in question or W_OV. Two matrices that
    have nothing to do with each other give 1 / sqrt(d_model), see `chance`.
    """
    require_weights(model)
    if kind not in COMPOSITIONS:
        raise LabError(f"There is no {kind!r} composition; choose one of {', '.join(COMPOSITIONS)}.")
    cfg = model.cfg
    read, after, senders = [], [], []  # of each layer: what reads the stream, R of what follows; W_O and R of W_V
    for layer in range(cfg.n_layers):
        w = model.head_weights(layer)
        at = f"blocks.{layer}.ln1"
        Q, K, V = (_by_query_head(folded(model, at, x.double()), cfg.n_heads) for x in (w.W_Q, w.W_K, w.W_V))
        W_O = w.W_O.double()
        first, second = {"q": (Q, K), "k": (K, Q), "v": (V, W_O.transpose(1, 2))}[kind]
        read.append(first)
        after.append(torch.linalg.qr(second, mode="r").R)
        senders.append((torch.linalg.qr(V, mode="r").R, W_O))
    out = torch.full((cfg.n_layers, cfg.n_heads, cfg.n_layers, cfg.n_heads), float("nan"), dtype=torch.float64)
    for sender, (R_V, W_O) in enumerate(senders):
        size = (R_V @ W_O).norm(dim=(1, 2))  # ||W_V W_O||, as the Q of a QR changes no norm
        for layer in range(sender + 1, cfg.n_layers):
            through = torch.einsum("sed,rdf->rsef", R_V @ W_O, read[layer])
            joined = torch.einsum("rsef,rgf->rseg", through, after[layer]).norm(dim=(2, 3))
            alone = torch.einsum("rdf,rgf->rdg", read[layer], after[layer]).norm(dim=(1, 2))
            out[layer, :, sender] = (joined / (size * alone[:, None]).clamp_min(1e-300)).cpu()
    return out


def chance(model) -> float:
    """The composition of two unrelated heads: random directions of the stream meet with 1 / sqrt(d_model)."""
    return model.cfg.d_model**-0.5
