"""Prompt pairs of one behaviour, side by side: what a circuit is found on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.metrics import METRICS, at_least_fp32
from lab.data import facts, ioi
from lab.errors import LabError

ROWS = 32  # prompts asked at once
CANDIDATES = 160  # pairs tried for a batch
BEHAVIOURS = {
    "ioi": "Indirect object: who receives the gift",
    "landmark": "Landmark to its city",
    "city": "City to its country",
    "language": "Country to its language",
    "symbol": "Element to its symbol",
}


@dataclass(frozen=True)
class Batch:
    """Clean and corrupted prompts [row, pos]; both of a row are equally long, shorter rows are padded on the right.

    The answer is read at position `ends` [row]; `answer` and `wrong` [row] are the token ids of the clean and of the
    corrupted answer. Attention is causal, so padding is never looked at.
    """

    clean: Tensor
    corrupted: Tensor
    ends: Tensor
    answer: Tensor
    wrong: Tensor
    texts: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.clean)

    @property
    def length(self) -> int:
        return self.clean.shape[1]

    def rows(self, at: slice) -> Batch:
        """Some of the rows, with no more padding than they need."""
        longest = int(self.ends[at].max()) + 1
        return Batch(
            self.clean[at, :longest], self.corrupted[at, :longest], self.ends[at], self.answer[at], self.wrong[at], self.texts[at]
        )  # fmt: skip

    def parts(self, rows: int) -> Iterator[Batch]:
        """At most so many rows at a time."""
        for start in range(0, len(self), rows):
            yield self.rows(slice(start, start + rows))

    def to(self, device: torch.device) -> Batch:
        names = ("clean", "corrupted", "ends", "answer", "wrong")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def changed(self) -> Tensor:
        """Positions from the first difference between the prompts on, bool [row, pos]."""
        return (self.clean != self.corrupted).cumsum(-1) > 0

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], answer: Sequence[int], wrong: Sequence[int],
        texts: Sequence[tuple[str, str]] = (),
    ) -> Batch:  # fmt: skip
        """From token ids; LabError when the prompts of a pair differ in length or there is none."""
        if not pairs:
            raise LabError("There is no pair of prompts; give at least one.")
        for i, (clean, corrupted) in enumerate(pairs):
            if len(clean) != len(corrupted):
                raise LabError(
                    f"The prompts of pair {i + 1} have {len(clean)} and {len(corrupted)} tokens; edges are replaced position "
                    "by position, so choose two prompts of equally many tokens."
                )
        longest = max(len(clean) for clean, _ in pairs)

        def padded(which: int) -> Tensor:
            return torch.tensor([[*pair[which], *[pair[which][-1]] * (longest - len(pair[which]))] for pair in pairs])

        ends = torch.tensor([len(clean) - 1 for clean, _ in pairs])
        return cls(padded(0), padded(1), ends, torch.tensor(list(answer)), torch.tensor(list(wrong)), tuple(texts))


Measure = Callable[[Tensor], Tensor]
"""Logits [.., row, read position, vocab] to the metric [.., row]."""


def measure(batch: Batch, metric: str, clean_logits: Tensor) -> Measure:
    """A metric of `interp.metrics` for every row of a batch at its last position; `clean_logits` [row, 1, vocab]."""
    if metric not in METRICS:
        raise LabError(f"There is no metric called {metric!r}; choose one of {', '.join(METRICS)}.")
    clean = at_least_fp32(clean_logits[:, 0]).log_softmax(-1)

    def value(logits: Tensor) -> Tensor:
        last = at_least_fp32(logits[..., 0, :])
        answer = batch.answer.expand(last.shape[:-1])[..., None]
        if metric == "kl":
            return (clean.exp() * (clean - last.log_softmax(-1))).sum(-1)
        if metric == "probability":
            return last.softmax(-1).gather(-1, answer)[..., 0]
        wrong = batch.wrong.expand(last.shape[:-1])[..., None]
        return (last.gather(-1, answer) - last.gather(-1, wrong))[..., 0]

    return value


def behaviour(lm, name: str, rows: int = 16, seed: int = 0) -> Batch:
    """Pairs of one behaviour that this model answers rightly on both sides, of equal token length, one-token answers.

    LabError when there are none.
    """
    if name not in BEHAVIOURS:
        raise LabError(f"There is no behaviour {name!r}; choose one of {', '.join(BEHAVIOURS)}.")
    found: list[tuple[list[int], list[int], int, int, tuple[str, str]]] = []
    for candidates in _chunks(_candidates(lm, name, seed), ROWS):
        correct = right(lm.model, [side for c in candidates for side in ((c[0], c[2]), (c[1], c[3]))])
        found += [c for i, c in enumerate(candidates) if correct[2 * i] and correct[2 * i + 1]]
        if len(found) >= rows:
            break
    if not found:
        raise LabError(
            f"{lm.name} answers no pair of “{BEHAVIOURS[name]}” rightly on both sides, so there is no circuit to find; "
            "choose another behaviour or model."
        )
    found = sorted(found[:rows], key=lambda c: len(c[0]))  # neighbours need little padding
    return Batch.of([(c[0], c[1]) for c in found], [c[2] for c in found], [c[3] for c in found], [c[4] for c in found])


def _candidates(lm, name: str, seed: int):
    """Tokenised pairs: (clean ids, corrupted ids, answer id, wrong id, texts); those that do not fit are left out."""
    if name == "ioi":
        items = ioi.prompts(CANDIDATES, seed)
        sides = [((i.text, i.answer), (i.swapped.text, i.swapped.answer)) for i in items]
    else:
        sides = []
        for phrasing in range(4):
            told = [facts.prompt(f, phrasing) for f in facts.facts(name)]
            asked = [(p.text, p.answer) for p in told]
            sides += [(a, b) for a, b in zip(asked, [*asked[7 + seed :], *asked[: 7 + seed]]) if a[1] != b[1]]
    encode = lm.tokenizer.encode
    for (clean, right), (corrupted, wrong) in sides:
        ids, other, a, b = encode(clean), encode(corrupted), encode(clean + right), encode(corrupted + wrong)
        one_token = a[:-1] == ids and b[:-1] == other
        if one_token and len(ids) == len(other) <= lm.config.context and a[-1] != b[-1]:
            yield ids, other, a[-1], b[-1], (clean, corrupted)


def _chunks(items, size: int):
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


@torch.no_grad()
def right(model, asked: Sequence[tuple[Sequence[int], int]]) -> list[bool]:
    """Whether the likeliest next token after each prompt is its answer."""
    longest = max(len(ids) for ids, _ in asked)
    tokens = torch.tensor([[*ids, *[ids[-1]] * (longest - len(ids))] for ids, _ in asked], device=model.device)
    logits = model(tokens)
    return [int(row[len(ids) - 1].argmax()) == answer for row, (ids, answer) in zip(logits, asked)]
