"""Sparse dictionaries: what a model keeps at one place, written as few of many directions.

    acts = encode(x)   x [.., d_in] -> [.., d_dict], never negative, mostly zero
    out = acts @ W_dec + b_dec

An autoencoder reads and writes the same activation; a transcoder reads what an MLP reads and writes what it writes
(Dunefsky et al. 2024). Rows of W_dec have length one, so an activation is the length of what its feature writes, in
the model's own units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from interp.features.straight_through import JumpReLU
from lab.errors import LabError

KINDS = ("topk", "jumprelu", "gated")

#: what can be written in features: key -> hook points within a block that are read and written, and a title
TARGETS: dict[str, tuple[str, str, str]] = {
    "resid_pre": ("hook_resid_pre", "hook_resid_pre", "residual stream (pre)"),
    "resid_mid": ("hook_resid_mid", "hook_resid_mid", "residual stream (mid)"),
    "resid_post": ("hook_resid_post", "hook_resid_post", "residual stream (post)"),
    "attn_out": ("hook_attn_out", "hook_attn_out", "attention output"),
    "mlp_out": ("hook_mlp_out", "hook_mlp_out", "MLP output"),
    "transcoder": ("ln2.hook_normalized", "hook_mlp_out", "MLP, from its input to its output (transcoder)"),
}


@dataclass(frozen=True)
class Shape:
    """What a dictionary is, without its weights. `k` is how many features are active a position: exactly
    ("topk"), or the mean it was trained towards; `width` is the kernel width of a JumpReLU's training."""

    kind: str
    d_in: int
    d_out: int
    d_dict: int
    k: int
    layer: int
    target: str = "resid_post"
    model: str = ""
    width: float = 0.001

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LabError(f"There is no dictionary of kind {self.kind!r}: choose one of {', '.join(KINDS)}.")
        if self.target not in TARGETS:
            raise LabError(f"There is no target {self.target!r}: choose one of {', '.join(TARGETS)}.")
        if not 0 < self.k <= self.d_dict:
            raise LabError(f"{self.k} active features of {self.d_dict} cannot be: choose 1 to {self.d_dict}.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Dictionary(nn.Module):
    """W_enc [d_in, d_dict], b_enc [d_dict], W_dec [d_dict, d_out], b_dec [d_out].

    Kinds: "topk" keeps the k largest pre-activations (Gao et al. 2024); "jumprelu" those above a threshold of
    their own, `log_threshold [d_dict]` (Rajamanoharan et al. 2024); "gated" decides by x W_enc + b_enc > 0 and measures
    by exp(r_mag) x W_enc + b_mag, both [d_dict] (Rajamanoharan et al. 2024a).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.W_enc = nn.Parameter(torch.zeros(shape.d_in, shape.d_dict))
        self.b_enc = nn.Parameter(torch.zeros(shape.d_dict))
        self.W_dec = nn.Parameter(torch.zeros(shape.d_dict, shape.d_out))
        self.b_dec = nn.Parameter(torch.zeros(shape.d_out))
        if shape.kind == "jumprelu":
            self.log_threshold = nn.Parameter(torch.full((shape.d_dict,), -3.0))
        if shape.kind == "gated":
            self.r_mag = nn.Parameter(torch.zeros(shape.d_dict))
            self.b_mag = nn.Parameter(torch.zeros(shape.d_dict))

    def init_weights(self, seed: int) -> Dictionary:
        """Random directions; where input and output are one space the encoder starts as the decoder transposed."""
        generator = torch.Generator().manual_seed(seed)
        decoder = torch.randn(self.W_dec.shape, generator=generator)
        encoder = torch.randn(self.W_enc.shape, generator=generator)
        with torch.no_grad():
            self.W_dec.copy_(decoder / decoder.norm(dim=1, keepdim=True))
            self.W_enc.copy_(encoder / encoder.norm(dim=0) if self.transcodes else self.W_dec.T)
        return self

    # ---- where it belongs

    @property
    def kind(self) -> str:
        return self.shape.kind

    @property
    def layer(self) -> int:
        return self.shape.layer

    @property
    def d_dict(self) -> int:
        return self.shape.d_dict

    @property
    def transcodes(self) -> bool:
        return self.site_in != self.site_out

    @property
    def site_in(self) -> str:
        """Name of the hook point it reads, `blocks.3.hook_resid_post`."""
        return f"blocks.{self.layer}.{TARGETS[self.shape.target][0]}"

    @property
    def site_out(self) -> str:
        """Name of the hook point it writes; of an autoencoder the same."""
        return f"blocks.{self.layer}.{TARGETS[self.shape.target][1]}"

    # ---- what it does

    @property
    def threshold(self) -> Tensor:
        """[d_dict], of a JumpReLU dictionary."""
        return self.log_threshold.exp()

    def pre(self, x: Tensor) -> Tensor:
        """Pre-activations x W_enc + b_enc: `[.., d_in] -> [.., d_dict]`."""
        return x.to(self.W_enc.dtype) @ self.W_enc + self.b_enc

    def activate(self, pre: Tensor) -> Tensor:
        """Pre-activations to feature activations, both `[.., d_dict]`."""
        return _ACTIVATE[self.kind](self, pre)

    def encode(self, x: Tensor) -> Tensor:
        """Feature activations `[.., d_in] -> [.., d_dict]`."""
        return self.activate(self.pre(x))

    def decode(self, acts: Tensor) -> Tensor:
        """`[.., d_dict] -> [.., d_out]`."""
        return acts @ self.W_dec + self.b_dec

    def forward(self, x: Tensor) -> Tensor:
        """The reconstruction (autoencoder) or imitation (transcoder), in the dtype of `x`."""
        return self.decode(self.encode(x)).to(x.dtype)

    @torch.no_grad()
    def normalise(self) -> None:
        """Give the rows of W_dec length one again, which an optimiser's step changes."""
        self.W_dec.div_(self.W_dec.norm(dim=1, keepdim=True).clamp_min(1e-8))


def _topk(dictionary: Dictionary, pre: Tensor) -> Tensor:
    values, at = pre.topk(dictionary.shape.k, dim=-1, sorted=False)
    return torch.zeros_like(pre).scatter_(-1, at, values.relu())


def _jumprelu(dictionary: Dictionary, pre: Tensor) -> Tensor:
    return JumpReLU.apply(pre.relu(), dictionary.threshold, dictionary.shape.width)


def _gated(dictionary: Dictionary, pre: Tensor) -> Tensor:
    magnitude = dictionary.r_mag.exp() * (pre - dictionary.b_enc) + dictionary.b_mag
    return (pre > 0) * magnitude.relu()


_ACTIVATE: dict[str, Callable[[Dictionary, Tensor], Tensor]] = {"topk": _topk, "jumprelu": _jumprelu, "gated": _gated}
