"""The key-value cache."""

from __future__ import annotations

import torch
from torch import Tensor

from lab.errors import LabError

from .config import ModelConfig


class KVCache:
    """Keys (rotated) and values of every layer, `[layer, batch, kv_head, position, d_head]`, filled from the left.

    `pad`, `[batch]`, holds how many tokens of left padding each row starts with: prompts of unequal length are
    padded on the left, padding is never attended to, and positions count from the first real token.
    """

    def __init__(
        self,
        cfg: ModelConfig,
        batch: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        pad: Tensor | None = None,
    ) -> None:
        if length > cfg.context:
            raise LabError(
                f"{length} tokens are wanted and this model reads {cfg.context}; shorten the text or ask for less."
            )
        shape = (cfg.n_layers, batch, cfg.n_kv_heads, length, cfg.d_head)
        self.k = torch.empty(shape, dtype=dtype, device=device)
        self.v = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0
        self.pad = pad

    @property
    def capacity(self) -> int:
        return self.k.shape[3]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write `[batch, kv_head, new, d_head]` behind what is there; give all keys and values so far.

        `length` moves only once the whole forward pass is done (`advance`), so every layer writes at one place.
        """
        end = self.length + k.shape[2]
        if end > self.capacity:
            raise LabError(
                f"The cache holds {self.capacity} tokens and {end} are wanted; shorten the prompt or ask for less."
            )
        self.k[layer, :, :, self.length : end] = k
        self.v[layer, :, :, self.length : end] = v
        return self.k[layer, :, :, :end], self.v[layer, :, :, :end]

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def nbytes(self) -> int:
        """Bytes of the filled part."""
        return 2 * self.k[:, :, :, : self.length].numel() * self.k.element_size()
