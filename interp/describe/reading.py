"""What describers look at: windows of text, and how active every neuron (or feature) is on each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.features import Dictionary
from interp.features.activations import at_sites
from lab.data import presets
from lab.data.mixture import Mixture
from lab.errors import LabError

ROWS = 32  # windows run at once


@dataclass(frozen=True)
class Text:
    """Windows of text: `tokens` [window, pos], and what each token id looks like."""

    tokens: Tensor
    piece: Callable[[int], str]

    @property
    def size(self) -> int:
        return self.tokens.numel()

    def excerpt(self, window: int) -> list[str]:
        return [self.piece(int(token)) for token in self.tokens[window]]


def text_for(lm, windows: int, length: int, held: bool, data: str = "mixed", seed: int = 0) -> Text:
    """Windows of a training set of the lab in this model's tokens; `held` draws from text no bundled model was
    trained on."""
    mark = lm.tokenizer.eos if lm.tokenizer.eos is not None else lm.tokenizer.bos
    if mark is None:
        raise LabError(f"{lm.name} has no token that ends a text; choose another model.")
    train, kept_back = presets.streams(data, lm.tokenizer.inner, mark, max(40_000, 2 * windows * length), seed)
    mixture = Mixture(kept_back if held else train, presets.weights(data), length, seed + 1)
    pieces: dict[int, str] = {}

    def piece(token: int) -> str:
        if token not in pieces:
            pieces[token] = lm.tokenizer.pieces([token])[0]
        return pieces[token]

    return Text(mixture.batch(0, windows)[:, :-1], piece)


@dataclass(frozen=True)
class Neurons:
    """The neurons of one MLP: what its hidden layer holds after the activation function."""

    layer: int

    @property
    def title(self) -> str:
        return f"neurons of layer {self.layer}"

    def count(self, config) -> int:
        return config.d_mlp

    def read(self, lm, text: Text) -> Iterator[Tensor]:
        """[window, pos, neuron] for `ROWS` windows after another; LabError for a layer without neurons."""
        if not 0 <= self.layer < lm.config.n_layers:
            raise LabError(f"Layer {self.layer} does not exist: this model has layers 0 to {lm.config.n_layers - 1}.")
        if lm.config.act == "none":
            raise LabError(f"{lm.name} is made of attention alone: it has no neurons.")
        yield from _at(lm, text, f"blocks.{self.layer}.mlp.hook_post")


@dataclass(frozen=True)
class Features:
    """The features of a sparse autoencoder or transcoder of this model (`interp.features.load`)."""

    dictionary: Dictionary
    name: str

    @property
    def layer(self) -> int:
        return self.dictionary.layer

    @property
    def title(self) -> str:
        return f"features of {self.name}"

    def count(self, config) -> int:
        return self.dictionary.d_dict

    def read(self, lm, text: Text) -> Iterator[Tensor]:
        """[window, pos, feature], as `Neurons.read`."""
        with torch.no_grad():
            for x in _at(lm, text, self.dictionary.site_in):
                yield self.dictionary.encode(x)


@torch.no_grad()
def _at(lm, text: Text, name: str) -> Iterator[Tensor]:
    for rows in text.tokens.split(ROWS):
        yield at_sites(lm.model, rows.to(lm.model.device), [name])[name].float().cpu()


def activations(source: Neurons | Features, lm, text: Text, which: Tensor | None = None) -> Tensor:
    """[window * pos, neuron] in float32, of the neurons `which` (all)."""
    return torch.cat([(x if which is None else x[..., which]).flatten(0, 1) for x in source.read(lm, text)])
