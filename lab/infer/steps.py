"""The two kinds of step that inference is made of."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lab.models import Decoder, KVCache


@torch.inference_mode()
def prefill(model: "Decoder", tokens: Tensor, cache: "KVCache") -> Tensor:
    """Read a whole prompt `[batch, pos]` into the cache; logits of what follows it, `[batch, vocab]`.

    Every weight is read once for all positions together, so this is limited by arithmetic.
    """
    return model(tokens, cache=cache, last=True)[:, -1]


@torch.inference_mode()
def decode_one(model: "Decoder", token: Tensor, cache: "KVCache") -> Tensor:
    """Put one more token a row, `[batch]`, behind what the cache holds; logits of the next one, `[batch, vocab]`.

    Every weight is read again for this one position, so this is limited by memory bandwidth.
    """
    return model(token[:, None], cache=cache)[:, -1]
