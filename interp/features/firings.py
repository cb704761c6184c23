"""Where every feature of a dictionary fires in a text, and what that says about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.features.activations import at_sites
from interp.features.dictionary import Dictionary
from interp.features.text import Text
from lab.errors import LabError
from lab.models import LM

ROWS = 32  # windows run at a time


@dataclass(frozen=True)
class Firings:
    """All activations above zero, those of one feature side by side, strongest first.

    Feature f fires at positions `at[offsets[f]:offsets[f + 1]]` (row * context + position) with `value` there.
    """

    text: Text
    offsets: Tensor  # [d_dict + 1]
    at: Tensor  # [n] int32
    value: Tensor  # [n]
    fraction: float = 1.0  # of the text that was read

    @property
    def context(self) -> int:
        return self.text.tokens.shape[1] - 1

    @property
    def positions(self) -> int:
        """Positions read."""
        return round(self.fraction * len(self.text.tokens)) * self.context

    def of(self, feature: int) -> tuple[Tensor, Tensor]:
        """Where one feature fires, and how strongly; strongest first."""
        part = slice(int(self.offsets[feature]), int(self.offsets[feature + 1]))
        return self.at[part], self.value[part]

    def density(self) -> Tensor:
        """Share of positions at which each feature fires [d_dict]."""
        return self.offsets.diff() / max(1, self.positions)

    def most(self) -> Tensor:
        """Largest activation of each feature [d_dict], zero where it never fired."""
        some = self.offsets.diff() > 0
        out = torch.zeros(len(some))
        out[some] = self.value[self.offsets[:-1][some]]
        return out

    def mean(self) -> Tensor:
        """Mean activation of each feature where it fires [d_dict], zero where it never did."""
        total = torch.zeros(len(self.offsets) - 1).index_add_(0, self.owner(), self.value)
        return total / self.offsets.diff().clamp_min(1)

    def owner(self) -> Tensor:
        """The feature of every firing [n]."""
        return torch.repeat_interleave(torch.arange(len(self.offsets) - 1), self.offsets.diff())

    def token(self) -> Tensor:
        """The token at which each firing is [n]."""
        return self.text.tokens[:, :-1].reshape(-1)[self.at]


def collect(lm: LM, dictionary: Dictionary, text: Text) -> Iterator[Firings]:
    """Run the text through model and dictionary; what was found so far, after every few rows and at the end.

    LabError when the dictionary was made for activations of another width.
    """
    fit(lm, dictionary)
    rows, where, values = 0, [], []
    parts = text.tokens[:, :-1].split(ROWS)
    for i, part in enumerate(parts):
        acts = encoded(lm, dictionary, part)
        at = acts.nonzero()  # [n, 3]
        values.append(acts[at[:, 0], at[:, 1], at[:, 2]].cpu())
        at = at.cpu()
        where.append(torch.stack([at[:, 2], (at[:, 0] + rows) * part.shape[1] + at[:, 1]], 1).int())
        rows += len(part)
        if i % 8 == 7 or i == len(parts) - 1:
            yield _sorted(text, dictionary.d_dict, torch.cat(where), torch.cat(values), rows / len(text.tokens))


@torch.no_grad()
def encoded(lm: LM, dictionary: Dictionary, tokens: Tensor) -> Tensor:
    """Feature activations `[batch, pos, d_dict]`, float32."""
    x = at_sites(lm.model, tokens.to(lm.model.device), [dictionary.site_in])[dictionary.site_in]
    return dictionary.encode(x)


def fit(lm: LM, dictionary: Dictionary) -> None:
    """LabError unless the dictionary belongs to this model's width and layers."""
    shape = dictionary.shape
    if shape.d_in != lm.config.d_model or shape.layer >= lm.config.n_layers:
        raise LabError(
            f"The dictionary was made for layer {shape.layer} of a model {shape.d_in} wide; {lm.name} has "
            f"{lm.config.n_layers} layers {lm.config.d_model} wide: choose another."
        )


def _sorted(text: Text, d_dict: int, where: Tensor, value: Tensor, fraction: float) -> Firings:
    order = value.argsort(descending=True)
    order = order[where[order, 0].argsort(stable=True)]
    counts = torch.bincount(where[:, 0], minlength=d_dict)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    return Firings(text, offsets, where[order, 1].contiguous(), value[order], fraction)
