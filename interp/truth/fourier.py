"""Modular addition read in the Fourier basis of the numbers mod p (Nanda et al. 2023, sections 4 and 5).

The learned algorithm: embed a and b as cos(w a), sin(w a), cos(w b), sin(w b) for a few frequencies w = 2 pi k / p,
multiply them in attention and MLP into cos(w (a + b)) and sin(w (a + b)), and let the logit of c be a sum of
cos(w (a + b - c)), which is largest where c = a + b mod p.

Everything here is float64. `k` counts from 1 to (p - 1) / 2 and is stored at index k - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.truth.modular import loss64, questions


def basis(p: int, device: torch.device | str = "cpu") -> Tensor:
    """Orthonormal rows [p, p]: the constant, then cosine and sine of frequency 1, 2, ..., (p - 1) / 2."""
    x = torch.arange(p, dtype=torch.float64, device=device)
    angle = 2 * math.pi / p * torch.outer(torch.arange(1, p // 2 + 1, device=device), x)
    waves = torch.stack([angle.cos(), angle.sin()], 1).flatten(0, 1) * math.sqrt(2 / p)
    return torch.cat([torch.full((1, p), p**-0.5, dtype=torch.float64, device=device), waves])


def spectrum(rows: Tensor) -> Tensor:
    """Squared norm at each frequency of a function on the numbers, `[p, ...]` -> `[(p - 1) / 2]`; the constant is left out."""
    p = rows.shape[0]
    parts = basis(p, rows.device)[1:] @ rows.double().reshape(p, -1)
    return parts.square().sum(-1).reshape(-1, 2).sum(-1)


def gini(values: Tensor) -> float:
    """Gini coefficient: 0 when all are equal, towards 1 when one has everything."""
    ordered, n = values.double().flatten().sort().values, values.numel()
    rank = torch.arange(1, n + 1, dtype=torch.float64, device=values.device)
    return float(((2 * rank - n - 1) * ordered).sum() / (n * ordered.sum()))


def share_of_largest(values: Tensor, n: int = 5) -> float:
    """Share of the total that the n largest have."""
    return float(values.topk(n).values.sum() / values.sum())


@torch.no_grad()
def all_logits(model) -> Tensor:
    """Logits after `=` for every pair, [a, b, c]."""
    p = model.cfg.vocab_size - 1
    return model(questions(p, model.device)[0], last=True)[:, -1].double().reshape(p, p, p)


def by_sum(logits: Tensor) -> Tensor:
    """Mean over all pairs with a + b = s mod p: [a, b, c] -> [s, c].

    cos(w_k (a + b)) and sin(w_k (a + b)) for all k, with the constant, span the functions of a + b, so this is the
    projection onto all of them at once.
    """
    p = logits.shape[0]
    s = torch.arange(p, device=logits.device)
    rolled = logits[s[None, :], (s[:, None] - s[None, :]) % p]  # [s, a, c]
    return rolled.mean(1)


def component(logits: Tensor, keys: list[int]) -> Tensor:
    """What the directions cos(w_k (a + b)), sin(w_k (a + b)) of the given frequencies write: [s, c]."""
    p = logits.shape[0]
    rows = [i for k in keys for i in (2 * k - 1, 2 * k)]
    waves = basis(p, logits.device)[rows]
    return waves.T @ (waves @ by_sum(logits))


def _spread(of_sum: Tensor) -> Tensor:
    """[s, c] -> [a, b, c]."""
    s = torch.arange(of_sum.shape[0], device=of_sum.device)
    return of_sum[(s[:, None] + s[None, :]) % of_sum.shape[0]]


def restricted(logits: Tensor, keys: list[int]) -> Tensor:
    """Logits with only the key frequencies left (and the mean logit of each answer, which knows nothing of a and b)."""
    return _spread(component(logits, keys)) + logits.mean((0, 1))


def excluded(logits: Tensor, keys: list[int]) -> Tensor:
    """Logits with the key frequencies taken out: what memorisation alone would say."""
    return logits - _spread(component(logits, keys))


def waves_of_answer(logits: Tensor) -> Tensor:
    """Coefficient of cos(w_k (a + b - c)) in the logits, by least squares: [(p - 1) / 2]."""
    p = logits.shape[0]
    rows = basis(p, logits.device)[1:]
    both = rows @ by_sum(logits) @ rows.T  # frequency of a + b by frequency of c
    cc, ss = both.diagonal()[0::2], both.diagonal()[1::2]
    # cos(w (s - c)) = cos cos + sin sin; each product of two orthonormal waves is 2 / p of it
    return (cc + ss) / p


def formula(coefficients: Tensor, p: int) -> Tensor:
    """The logits [a, b, c] that the algorithm itself would give: sum over k of coefficient * cos(w_k (a + b - c))."""
    x = torch.arange(p, dtype=torch.float64, device=coefficients.device)
    k = torch.arange(1, p // 2 + 1, device=coefficients.device)
    wave = (coefficients[:, None] * (2 * math.pi / p * torch.outer(k, x)).cos()).sum(0)
    s = torch.arange(p, device=coefficients.device)
    return wave[(s[:, None, None] + s[None, :, None] - s[None, None, :]) % p]


def explained(logits: Tensor, coefficients: Tensor) -> float:
    """Share of the variance of the logits (less each prompt's mean, which softmax ignores) that `formula` explains."""
    centred = logits - logits.mean(-1, keepdim=True)
    rest = centred - formula(coefficients, logits.shape[0])
    return float(1 - rest.square().sum() / centred.square().sum())


def key_frequencies(logits: Tensor, least: float = 0.01) -> list[int]:
    """Frequencies that carry at least this share of all that the logits know of a + b - c, ascending."""
    energy = waves_of_answer(logits).square()
    return [k + 1 for k, share in enumerate((energy / energy.sum()).tolist()) if share >= least]


@dataclass(frozen=True)
class Look:
    """What one model does after `=`, for every pair: `logits` [a, b, c], `neurons` [a, b, neuron] after the ReLU,
    `attention` [a, b, head] that goes to a, and its `keys`, the frequencies its logits are made of."""

    logits: Tensor
    neurons: Tensor
    attention: Tensor

    @property
    def keys(self) -> list[int]:
        return key_frequencies(self.logits)


@torch.no_grad()
def look(model) -> Look:
    """One forward pass over all pairs."""
    p = model.cfg.vocab_size - 1
    names = ("blocks.0.mlp.hook_post", "blocks.0.attn.hook_pattern")
    logits, kept = model.run_with_cache(questions(p, model.device)[0], lambda name: name in names)
    post, pattern = (kept[name] for name in names)
    return Look(
        logits[:, -1].double().reshape(p, p, p), post[:, -1].reshape(p, p, -1), pattern[:, :, -1, 0].reshape(p, p, -1)
    )


def plane(values: Tensor) -> Tensor:
    """Energy of functions of two numbers by frequency, [a, b, n] -> [(p + 1) / 2, (p + 1) / 2], summed over n.

    Row and column 0 are the constants in a and in b; sine and cosine of a frequency are added up.
    """
    p, n = values.shape[0], values.shape[-1]
    rows = basis(p, values.device)
    parts = (rows @ (rows @ values.double().reshape(p, -1)).reshape(p, p, n)).square().sum(-1)
    groups = torch.cat([torch.zeros(1, dtype=torch.long), torch.arange(1, p // 2 + 1).repeat_interleave(2)])
    half = torch.zeros(p // 2 + 1, p, dtype=torch.float64).index_add_(0, groups, parts)
    return torch.zeros(p // 2 + 1, p // 2 + 1, dtype=torch.float64).index_add_(1, groups, half)


def neuron_fits(activations: Tensor) -> tuple[Tensor, Tensor]:
    """How well one frequency explains each neuron: activations [a, b, neuron] -> (best k [neuron], share [neuron]).

    The share is that of the variance over all pairs that lies in the eight waves of degree one and two in that
    frequency: cos and sin of w a and of w b, and their four products.
    """
    p, n = activations.shape[0], activations.shape[-1]
    rows = basis(p, activations.device)
    parts = (rows @ (rows @ activations.double().reshape(p, -1)).reshape(p, p, n)).square()
    total = parts.sum((0, 1)) - parts[0, 0]
    pairs = parts[1:, 1:].reshape(p // 2, 2, p // 2, 2, n).sum((1, 3)).diagonal(dim1=0, dim2=1).T  # [k, n]
    only_a = parts[1:, 0].reshape(p // 2, 2, n).sum(1)
    only_b = parts[0, 1:].reshape(p // 2, 2, n).sum(1)
    share, best = ((pairs + only_a + only_b) / total.clamp_min(1e-30)).max(0)
    return best + 1, share


def circle(embedding: Tensor, k: int) -> Tensor:
    """The numbers' embeddings [p, d] seen in the plane where frequency k lives: [p, 2].

    The plane is spanned by what the embedding writes for cos(w_k a) and sin(w_k a), made orthonormal; a point whose
    embedding were this frequency alone would lie on a circle (an ellipse, when sine and cosine differ in norm).
    """
    p = embedding.shape[0]
    written = basis(p, embedding.device)[2 * k - 1 : 2 * k + 1] @ embedding.double()
    plane, _ = torch.linalg.qr(written.T)
    plane = plane * torch.sign((written.T * plane).sum(0))
    return embedding.double() @ plane


@torch.no_grad()
def weights_of(model) -> tuple[Tensor, Tensor]:
    """The embedding of the numbers [p, d] and the map from neurons to logits [p, neuron]."""
    mlp = model.mlp_weights(0)
    return model.W_E[:-1].double(), (mlp.W_out.double() @ model.W_U.double()).T


def progress(model, train: Tensor, test: Tensor, keys: list[int]) -> dict[str, Tensor]:
    """The paper's progress measures at one point of training, scalars and two spectra [(p - 1) / 2].

    Losses in nats: of the training and the test pairs, `restricted_loss` over all pairs, `excluded_loss` over the
    training pairs.
    """
    logits = all_logits(model)
    p = logits.shape[0]
    s = torch.arange(p, device=logits.device)
    answers = ((s[:, None] + s[None, :]) % p).flatten()
    flat = logits.reshape(-1, p)
    right = (flat.argmax(-1) == answers).double()
    embedding, logit_map = weights_of(model)
    spectra = {"embedding": spectrum(embedding), "logit_map": spectrum(logit_map)}
    weight_norm = torch.stack([w.detach().double().square().sum() for w in model.parameters()]).sum()
    return {
        "train_loss": loss64(flat[train], answers[train]),
        "test_loss": loss64(flat[test], answers[test]),
        "train_right": right[train].mean(),
        "test_right": right[test].mean(),
        "restricted_loss": loss64(restricted(logits, keys).reshape(-1, p), answers),
        "excluded_loss": loss64(excluded(logits, keys).reshape(-1, p)[train], answers[train]),
        "weight_norm": weight_norm,
        "gini_embedding": torch.tensor(gini(spectra["embedding"].sqrt())),
        "gini_logit_map": torch.tensor(gini(spectra["logit_map"].sqrt())),
        **spectra,
    }
