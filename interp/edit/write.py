"""The edit: chosen heads are made to say another city wherever they read the subject.

A head's output z at a position is replaced by its mean z at the last token of prompts about landmarks of the target
city. Where that happens is the point:

- "reads": at positions after the name where the strongest head pays at least `threshold` of its attention to the subject's tokens.
  Only the subject's name is given; that the question is about its city is found by the head itself.
- "mentioned": at every position after the subject's name.
- "always": everywhere, in every prompt.
- "last": at the last token of every prompt, as a patch does.

No weight changes, and a prompt without the subject's name is left alone by the first two. (Geva et al. 2023 find that
attention at the last token extracts what earlier layers have put at the subject; Meng et al. 2022 change the fact there,
in an MLP's weights.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.edit.landmarks import CHOOSING, Landmark, sentence
from interp.edit.rows import Rows, greedy, in_batches
from interp.sites import SITES, Hook, keep
from lab.errors import LabError

Head = tuple[int, int]  # layer, head
PLACES = ("reads", "mentioned", "always", "last")


@dataclass(frozen=True)
class Gate:
    """Write where `reader` pays at least `threshold` (0 to 1) of its attention to the subject."""

    reader: Head
    threshold: float


class Writer:
    """Values written into heads of one batch, as hooks for its pass and for the tokens decoded after it.

    `values` {(layer, head): [row, d_head]}. Afterwards `written` [row, pos] says where the batch was written (the pass
    of the prompts), `attention` [row, pos] what the reader paid to the subject there.
    """

    def __init__(self, rows: Rows, values: Mapping[Head, Tensor], place: str = "reads", gate: Gate | None = None) -> None:
        if place not in PLACES:
            raise LabError(f"There is no place called {place!r}; choose one of {', '.join(PLACES)}.")
        if not values:
            raise LabError("No head is chosen; choose at least one head of the map.")
        self.rows, self.place, self.gate = rows, place, gate
        self.written = self.attention = torch.zeros_like(rows.subject)
        self.start = 0  # tokens of the batch that earlier passes have put into the cache
        self._mask = rows.subject
        layers: dict[int, list[int]] = {}
        for layer, head in values:
            layers.setdefault(layer, []).append(head)
        self.hooks: dict[str, Hook] = {SITES["z"].name(i): self._write(values, i, h) for i, h in layers.items()}
        if place == "reads":
            if gate is None:
                raise LabError("Writing where a head reads the subject needs the head that is asked.")
            if early := [f"{i}.{h}" for i, h in sorted(values) if i < gate.reader[0]]:
                raise LabError(
                    f"Head {early[0]} works before head {gate.reader[0]}.{gate.reader[1]} has read; choose heads from layer "
                    f"{gate.reader[0]} on, or write everywhere."
                )
            self.hooks[SITES["pattern"].name(gate.reader[0])] = self._read

    def _read(self, pattern: Tensor, name: str) -> None:
        assert self.gate is not None
        row = pattern[:, self.gate.reader[1]]  # [row, query, key]
        subject = torch.nn.functional.pad(self.rows.subject, (0, row.shape[-1] - self.rows.subject.shape[1]))
        attention = (row * subject[:, None]).sum(-1)
        self._mask = (attention >= self.gate.threshold) & ~subject[:, subject.shape[1] - row.shape[1] :]
        if not self.start:
            self.attention = attention

    def _places(self, new: int) -> Tensor:
        rows, device = self.rows, self.rows.tokens.device
        if self.place == "reads":
            return self._mask
        if self.place == "always":
            return torch.ones(len(rows), new, dtype=torch.bool, device=device)
        if self.place == "last":
            return torch.arange(self.start, self.start + new, device=device)[None] == rows.ends[:, None]
        subject = torch.nn.functional.pad(rows.subject, (0, self.start + new - rows.subject.shape[1]))
        return (subject.cumsum(1) > 0)[:, self.start :] & ~subject[:, self.start :]

    def _write(self, values: Mapping[Head, Tensor], layer: int, heads: Sequence[int]) -> Hook:
        new = torch.stack([values[layer, h] for h in heads], 1)[:, None]  # [row, 1, head, d_head]

        def write(z: Tensor, name: str) -> Tensor:
            mask = self._places(z.shape[1])
            if not self.start:
                self.written = mask
            out = z.clone()
            out[:, :, list(heads)] = torch.where(mask[..., None, None], new.to(z.dtype), z[:, :, list(heads)])
            return out

        return write


class Editor:
    """A choice of heads and of a place for one model, that moves landmarks between the cities of `landmarks`."""

    def __init__(self, lm, landmarks: Sequence[Landmark], heads: Sequence[Head], gate: Gate | None = None,
                 place: str = "reads", donors: Donors | None = None) -> None:  # fmt: skip
        self.lm, self.heads, self.gate, self.place = lm, list(heads), gate, place
        self.donors = donors or Donors(lm, landmarks)

    def writer(self, rows: Rows, cities: Sequence[str]) -> Writer:
        """The hooks that make every row's subject stand in its city of `cities`."""
        values = [self.donors.of(city) for city in cities]
        return Writer(rows, {(i, h): torch.stack([v[i, h] for v in values]) for i, h in self.heads}, self.place, self.gate)

    def continue_(self, prompt: str, subject: str, city: str | None, new_tokens: int = 12) -> list[int]:
        """The greedy continuation, edited at every step (unedited for no city)."""
        rows = Rows(self.lm, [prompt], [subject])
        if city is None:
            return greedy(self.lm, rows.tokens, None, new_tokens)
        writer = self.writer(rows, [city])

        def after(length: int) -> None:
            writer.start = length

        return greedy(self.lm, rows.tokens, writer.hooks, new_tokens, after)


class Donors:
    """Mean z at the last token of prompts about a city's landmarks, in the phrasings of CHOOSING they are right in."""

    def __init__(self, lm, landmarks: Sequence[Landmark]) -> None:
        self.lm, self.landmarks = lm, list(landmarks)
        self._kept: dict[str, Tensor] = {}

    def of(self, city: str) -> Tensor:
        """[layer, head, d_head], float32."""
        if city not in self._kept:
            prompts = [sentence(CHOOSING[i], m.subject) for m in self.landmarks if m.city == city for i in m.right]
            if not prompts:
                raise LabError(f"No known landmark stands in {city}, so there is nothing to read its values from; choose another city.")
            self._kept[city] = mean_z(self.lm, prompts)
        return self._kept[city]


def mean_z(lm, prompts: Sequence[str]) -> Tensor:
    """Mean over prompts of every head's z at the last token, [layer, head, d_head] in float32."""
    config = lm.config
    total = torch.zeros(config.n_layers, config.n_heads, config.d_head, device=lm.model.device)
    names = [SITES["z"].name(i) for i in range(config.n_layers)]
    for _, rows in in_batches(lm, prompts):
        acts: dict[str, Tensor] = {}
        rows.logits(keep(names, acts))
        total += torch.stack([rows.last(acts[name]).float().sum(0) for name in names])
    return total / len(prompts)


@torch.no_grad()
def attention_to_subject(lm, prompts: Sequence[str], subjects: Sequence[str], head: Head) -> Tensor:
    """What a head pays, at the last token of each prompt, to the tokens of its subject, [prompt]."""
    paid = torch.zeros(len(prompts))
    name = SITES["pattern"].name(head[0])
    for part, rows in in_batches(lm, prompts, subjects):
        acts: dict[str, Tensor] = {}
        rows.logits(keep([name], acts))
        last = rows.last(acts[name].transpose(1, 2))[:, head[1]]  # [row, key]
        paid[part] = (last * rows.subject).sum(-1).float().cpu()
    return paid


def gate_for(lm, landmarks: Sequence[Landmark], reader: Head) -> Gate:
    """Half the median attention this head pays to the subject when it is asked for the city of these landmarks."""
    asked = [(sentence(CHOOSING[i], m.subject), m.subject) for m in landmarks for i in m.right]
    paid = attention_to_subject(lm, [text for text, _ in asked], [s for _, s in asked], reader)
    return Gate(reader, float(paid.median()) / 2)
