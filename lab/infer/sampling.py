"""From logits to one token: temperature, then top-k, top-p and min-p, in the order transformers applies them."""

import torch
from torch import Tensor

from lab.errors import LabError

NAN = "The model answers with NaN: its weights are damaged or its training diverged; choose another checkpoint."


def check_sampling(temperature: float, top_k: int | None, top_p: float | None, min_p: float | None) -> None:
    """LabError when a setting is outside its range."""
    if not 0 <= temperature < float("inf"):
        raise LabError(
            f"Temperature {temperature:g} is not a number from 0 up; 0 always takes the likeliest token."
        )
    if top_k is not None and top_k < 1:
        raise LabError(f"top_k {top_k} keeps no token; give 1 or more, or leave it off.")
    if top_p is not None and not 0 < top_p <= 1:
        raise LabError(f"top_p {top_p:g} is not a share of the probability above 0 and up to 1.")
    if min_p is not None and not 0 <= min_p <= 1:
        raise LabError(
            f"min_p {min_p:g} is not a share of the likeliest token's probability between 0 and 1."
        )


def probabilities(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """The distribution one token is drawn from: `[..., vocab]` logits to float32 probabilities that sum to one.

    top_k keeps the k likeliest tokens (ties at the border stay), top_p the smallest set of likeliest tokens that
    holds at least that mass, min_p every token with at least that share of the likeliest one's probability.
    Temperature 0 puts everything on the first largest logit.
    """
    check_sampling(temperature, top_k, top_p, min_p)
    logits = logits.float()
    if logits.isnan().any():  # on a GPU drawing from them would end the process
        raise LabError(NAN)
    best = logits.argmax(-1, keepdim=True)
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, best, 1.0)
    # subtracting the largest first keeps a tiny temperature from overflowing to inf - inf
    logits = (logits - logits.gather(-1, best)) / max(temperature, 1e-30)  # in float32 anything smaller is zero
    if top_k is not None and top_k < logits.shape[-1]:
        border = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < border, float("-inf"))
    probs = logits.softmax(-1)
    if top_p is not None and top_p < 1:
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        mass_before = ordered.cumsum(-1) - ordered
        keep = torch.zeros_like(probs, dtype=torch.bool).scatter_(-1, order, mass_before < top_p)
        probs = probs.where(keep, 0)
    if min_p:
        probs = probs.where(probs >= min_p * probs.amax(-1, keepdim=True), 0)
    return probs / probs.sum(-1, keepdim=True)


def sample(
    logits: Tensor,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one token for each row: `[batch, vocab]` logits to `[batch]` int64."""
    if temperature == 0:
        check_sampling(temperature, top_k, top_p, min_p)
        return logits.argmax(-1)
    probs = probabilities(logits, temperature, top_k, top_p, min_p)
    return torch.multinomial(probs, 1, generator=generator).squeeze(-1)
