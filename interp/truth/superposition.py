"""Toy models of superposition: more features than dimensions, and the shapes they settle into (Elhage et al. 2022).

A sparse vector x of n features goes through m < n dimensions and back: x' = relu(W^T W x + b). Each feature is there
with probability `density` and then uniform in `least`..1; the loss is the squared error weighted by importance. The
rarer features are, the more of them share the dimensions, in shapes known from geometry.

    python -m interp.truth.superposition --out FILE     # trains the bundled sweep over densities, a few minutes

Which shape is the best depends on what a feature is when it is there. Of two features that meet in an antipodal pair
the smaller is lost, and of values in 0..1 that is little: three features in two dimensions become a pair and one
alone. Of features that are simply 1 it is everything, and the same three become a triangle.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from interp.truth.packed import read
from lab import paths
from lab.errors import LabError

BATCH = 512
LR = 0.02
EXACT = 8  # features of 0 or 1: 2^8 vectors are all there are


@dataclass(frozen=True)
class Shape:
    """`features` vectors spread evenly in `hidden` dimensions; each has the dimensionality hidden / features."""

    title: str
    features: int
    hidden: int
    density: float  # at which training reaches it,
    least: float  # with features of at least this size

    @property
    def dimensionality(self) -> float:
        return self.hidden / self.features


SHAPES = (
    Shape("antipodal pair", 2, 1, 0.1, 0.0),
    Shape("triangle", 3, 2, 0.03, 1.0),
    Shape("tetrahedron", 4, 3, 0.03, 1.0),
    Shape("pentagon", 5, 2, 0.05, 0.0),
)


@dataclass(frozen=True)
class Toy:
    """Trained models, one a density: `W` [density, hidden, feature], `b` [density, feature], `loss` [density], float32.

    `loss` is the expected squared error, importance-weighted and summed over features, divided by what storing
    nothing would cost.
    """

    densities: tuple[float, ...]
    importance: Tensor
    W: Tensor
    b: Tensor
    loss: Tensor


def dimensionality(W: Tensor) -> Tensor:
    """The share of a dimension each feature has, [..., hidden, feature] -> [..., feature].

    |W_i|^2 / sum over j of (W_i / |W_i| . W_j)^2: 1 when alone, 1/2 in an antipodal pair, 0 when not stored.
    """
    W = W.double()
    size = W.square().sum(-2)
    gram = W.transpose(-1, -2) @ W
    overlap = gram.square().sum(-1)
    return size.square() / overlap.clamp_min(1e-300)


def per_feature(W: Tensor) -> Tensor:
    """Dimensions a stored feature has on average: hidden / |W|^2 in Frobenius norm, [..., hidden, feature] -> [...]."""
    return W.shape[-2] / W.double().square().sum((-1, -2))


def sample(densities: Tensor, rows: int, features: int, generator: torch.Generator, least: float = 0.0) -> Tensor:
    """Sparse vectors [density, row, feature]: 0, or with probability `density` uniform in least..1."""
    u = torch.rand(len(densities), rows, features, generator=generator)
    # below the density the number is there; scaled it is uniform in 0..1 again, so one draw does for both
    chance = densities[:, None, None]
    return torch.where(u < chance, least + (1 - least) * u / chance, 0.0)


def patterns(densities: Tensor, features: int) -> tuple[Tensor, Tensor]:
    """All vectors of zeros and ones [1, 2^n, feature] and the probability of each at each density [density, 2^n, 1]."""
    x = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * features).view(-1, features)
    chance = densities[:, None, None]
    return x[None], torch.where(x > 0, chance, 1 - chance).prod(-1, keepdim=True)


def train(
    features: int,
    hidden: int,
    densities: Sequence[float],
    importance: float = 1.0,
    least: float = 0.0,
    steps: int = 1000,
    seed: int = 0,
    restarts: int = 1,
    each: Callable[[float, Tensor], bool] | None = None,
) -> Toy:
    """Train one model a density, all at once. Feature i has the importance `importance` ** i.

    With `restarts` every density is tried that often and the best kept. `each(fraction, W)` is told ten times on the
    way and stops by True. A few features that are either 0 or 1 are summed over exactly; others are drawn. LabError for a setting that stores nothing or needs no superposition.
    """
    if not 1 <= hidden <= features:
        raise LabError(f"{features} features in {hidden} dimensions: choose at least one dimension and no more than features.")
    if not densities or not all(0 < d <= 1 for d in densities):
        raise LabError("A density is the probability that a feature is there: choose numbers above 0 and up to 1.")
    if not 0 <= least <= 1:
        raise LabError(f"The smallest value of a feature that is there is {least}; choose one from 0 to 1.")
    if not 0 < importance <= 1:
        raise LabError(f"The importance falls by a factor of {importance} from feature to feature; choose one above 0 and up to 1.")
    generator = torch.Generator().manual_seed(seed)
    chance = torch.tensor(densities, dtype=torch.float32).repeat_interleave(restarts)
    weight = importance ** torch.arange(features, dtype=torch.float32)
    W = (torch.randn(len(chance), hidden, features, generator=generator) / math.sqrt(hidden)).requires_grad_()
    b = torch.zeros(len(chance), 1, features, requires_grad=True)
    optimiser = torch.optim.AdamW([W, b], lr=LR, weight_decay=0.0, betas=(0.9, 0.99), fused=True)
    # without this the rare features' gradients would be as small as they are rare
    scale = weight / chance[:, None, None]
    exact = least == 1 and features <= EXACT

    def vectors(rows: int) -> tuple[Tensor, Tensor | float]:
        if exact:
            return patterns(chance, features)
        return sample(chance, rows, features, generator, least), 1 / rows

    for step in range(steps):
        rate = LR * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.param_groups[0]["lr"] = rate
        x, share = vectors(BATCH)
        loss = (_error(W, b, x).square() * scale * share).sum()
        W.grad, b.grad = torch.autograd.grad(loss, [W, b])
        optimiser.step()
        if each is not None and (step + 1) % max(1, steps // 10) == 0 and each((step + 1) / steps, W.detach()[::restarts]):
            break
    W, b = W.detach(), b.detach()
    x, share = vectors(32 * BATCH)
    with torch.no_grad():
        lost = (_error(W, b, x).square() * weight * share).sum((1, 2))
        reached = lost / (x.square() * weight * share).sum((1, 2))
    best = reached.view(-1, restarts).argmin(1) + restarts * torch.arange(len(densities))
    return Toy(tuple(densities), weight, W[best], b[best, 0], reached[best])


def _error(W: Tensor, b: Tensor, x: Tensor) -> Tensor:
    return torch.relu(x @ W.transpose(1, 2) @ W + b) - x


def seconds(features: int, hidden: int, densities: Sequence[float], **setting: Any) -> float:
    """How long `train` takes here for its 1,000 steps, from a few steps made now."""
    train(features, hidden, densities, steps=2, **setting)
    began = time.perf_counter()
    train(features, hidden, densities, steps=40, **setting)
    return 1000 * (time.perf_counter() - began) / 40


def settle(shape: Shape, seed: int = 0, steps: int = 1000) -> Tensor:
    """Train until the features stand in this shape: W [hidden, feature]. Many starts end in a worse one."""
    densities, restarts = [shape.density], 40 if shape.least == 1 else 4
    return train(shape.features, shape.hidden, densities, least=shape.least, steps=steps, seed=seed, restarts=restarts).W[0]


# ---- the bundled sweep

PHASES = paths.MODELS / "superposition" / "phases.safetensors"


def phases() -> Toy:
    """64 features in 8 dimensions at 25 densities from 1 to 0.01, trained for 6,000 steps each."""
    kept = read(PHASES)
    densities = tuple(kept["densities"].tolist())
    return Toy(densities, kept["importance"], kept["W"].float(), kept["b"].float(), kept["loss"])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m interp.truth.superposition")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    toy = train(64, 8, [10 ** (-i / 12) for i in range(25)], steps=6000)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"densities": torch.tensor(toy.densities), "importance": toy.importance, "loss": toy.loss}
    save_file({**tensors, "W": toy.W.half(), "b": toy.b.half()}, args.out)


if __name__ == "__main__":
    main(sys.argv[1:])
