"""Ground truth for dictionaries: activations that are sums of few known directions, more of them than dimensions
(Elhage et al. 2022, "Toy models of superposition"; recovered by a dictionary as in Sharkey et al. 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.features.activations import Scale
from interp.features.dictionary import Dictionary
from interp.features.spec import FeatureSpec
from interp.features.trainer import Trainer


@dataclass(frozen=True)
class Superposition:
    """`features` unit directions in `width` dimensions, each present with probability `density`, of size 0 to 1."""

    features: int = 96
    width: int = 32
    density: float = 0.03
    seed: int = 7  # unlike a dictionary's, or it would start at the truth

    def directions(self) -> Tensor:
        """[features, width]."""
        drawn = torch.randn(self.features, self.width, generator=torch.Generator().manual_seed(self.seed))
        return drawn / drawn.norm(dim=1, keepdim=True)

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Feature values `[size, features]` and the activations they make `[size, width]`."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step + 1)
        values = torch.rand(size, self.features, generator=generator)
        values = values * (torch.rand(size, self.features, generator=generator) < self.density)
        return values, values @ self.directions()


def recover(truth: Superposition, spec: FeatureSpec) -> Iterator[tuple[int, Dictionary]]:
    """Train a dictionary on activations alone; the step and the dictionary so far, every `spec.log_every` steps."""
    scale = Scale.of(truth.batch(-1, 8192)[1])
    trainer = Trainer(spec, scale, scale)
    while trainer.done < spec.steps:
        x = truth.batch(trainer.done, spec.batch)[1]
        trainer.step(x, x)
        if trainer.done % spec.log_every == 0 or trainer.done == spec.steps:
            yield trainer.done, trainer.folded()


def cosines(dictionary: Dictionary, directions: Tensor) -> Tensor:
    """Cosine of every learned direction with every true one `[d_dict, features]`."""
    learned = dictionary.W_dec.detach()
    return learned @ directions.T / learned.norm(dim=1, keepdim=True)


def mean_max_cosine(dictionary: Dictionary, directions: Tensor) -> float:
    """The mean over true directions of the cosine with the learned direction that is nearest (MMCS)."""
    return float(cosines(dictionary, directions).amax(0).mean())
