"""Prompt pairs of one behaviour, side by side: what a circuit is found on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.metrics import METRICS, at_least_fp32
from lab.data import facts, ioi
from lab.errors import LabError

ASKED = 160  # prompts tried for a batch
BEHAVIOURS = {
    "ioi": "Indirect object: who receives the gift",
    "landmark": "Landmark to its city",
    "city": "City to its country",
    "language": "Country to its language",
    "symbol": "Element to its symbol",
    "induction": "Repeated random tokens: what came next",
}
SEGMENT = 12  # tokens of a random text before it comes again


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
    draw = {"ioi": _swapped, "induction": _repeated}.get(name, _facts)
    found = draw(lm, name, rows, seed)
    if not found:
        raise LabError(
            f"{lm.name} answers no pair of “{BEHAVIOURS[name]}” rightly on both sides, so there is no circuit to find; "
            "choose another behaviour or model."
        )
    found = sorted(found[:rows], key=lambda c: len(c[0]))  # neighbours need little padding
    return Batch.of([(c[0], c[1]) for c in found], [c[2] for c in found], [c[3] for c in found], [c[4] for c in found])


Found = tuple[list[int], list[int], int, int, tuple[str, str]]  # clean ids, corrupted ids, answer, wrong, texts


def _one_token(lm, text: str, answer: str) -> tuple[list[int], int] | None:
    """A prompt and its answer as tokens; None when the answer is several or melts into the prompt."""
    ids, whole = lm.tokenizer.encode(text), lm.tokenizer.encode(text + answer)
    return (ids, whole[-1]) if whole[:-1] == ids and len(whole) <= lm.config.context else None


def _swapped(lm, name: str, rows: int, seed: int) -> list[Found]:
    """Indirect objects with their giver and receiver swapped."""
    found: list[Found] = []
    for chunk in _chunks(ioi.prompts(ASKED, seed), rows):
        sides = [(_one_token(lm, i.text, i.answer), _one_token(lm, i.swapped.text, i.swapped.answer), i) for i in chunk]
        whole = [(a, b, (i.text, i.swapped.text)) for a, b, i in sides if a and b and len(a[0]) == len(b[0]) and a[1] != b[1]]
        correct = right(lm.model, [side for a, b, _ in whole for side in (a, b)]) if whole else []
        found += [(a[0], b[0], a[1], b[1], texts) for n, (a, b, texts) in enumerate(whole) if correct[2 * n] and correct[2 * n + 1]]
        if len(found) >= rows:
            break
    return found


def _repeated(lm, name: str, rows: int, seed: int) -> list[Found]:
    """Random tokens that come again; in the corrupted prompt they stood in another order before."""
    generator = torch.Generator().manual_seed(seed)
    begin = [] if lm.tokenizer.bos is None else [lm.tokenizer.bos]
    asked: list[Found] = []
    while len(asked) < ASKED:
        first = torch.randperm(lm.config.vocab_size, generator=generator)[:SEGMENT]
        shuffled = first[torch.randperm(SEGMENT, generator=generator)]
        last = int(torch.randint(SEGMENT // 2, SEGMENT - 1, (1,), generator=generator))
        stood = int((shuffled == first[last]).nonzero())
        if stood == SEGMENT - 1 or shuffled[stood + 1] == first[last + 1]:
            continue
        clean, corrupted = ([*begin, *before.tolist(), *first[: last + 1].tolist()] for before in (first, shuffled))
        texts = (lm.tokenizer.decode(clean), lm.tokenizer.decode(corrupted))
        asked.append((clean, corrupted, int(first[last + 1]), int(shuffled[stood + 1]), texts))
    found: list[Found] = []
    for chunk in _chunks(asked, rows):
        correct = right(lm.model, [side for c in chunk for side in ((c[0], c[2]), (c[1], c[3]))])
        found += [c for n, c in enumerate(chunk) if correct[2 * n] and correct[2 * n + 1]]
        if len(found) >= rows:
            break
    return found


def suited(lm) -> str:
    """The first behaviour this model shows; LabError when it shows none."""
    for name in BEHAVIOURS:
        try:
            behaviour(lm, name, 1)
        except LabError:
            continue
        return name
    raise LabError(f"{lm.name} shows none of the behaviours a circuit is looked for here; train it longer or choose another.")


def _facts(lm, name: str, rows: int, seed: int) -> list[Found]:
    """Facts the model knows, each beside another that is asked in the same words and equally many tokens."""
    told = [facts.prompt(f, phrasing) for phrasing in range(4) for f in facts.facts(name)[seed:]]
    tokens = [(p, side) for p in told if (side := _one_token(lm, p.text, p.answer))]
    known: dict[tuple[int, int], list[tuple[str, list[int], int]]] = {}
    found: list[Found] = []
    for chunk in _chunks(tokens[:ASKED], 2 * rows):
        for (p, (ids, answer)), correct in zip(chunk, right(lm.model, [side for _, side in chunk])):
            if correct:
                known.setdefault((p.phrasing, len(ids)), []).append((p.text, ids, answer))
        found = [
            (a[1], b[1], a[2], b[2], (a[0], b[0]))
            for group in known.values()
            for a, b in zip(group, [*group[1:], group[0]])
            if a[2] != b[2]
        ]
        if len(found) >= rows:
            break
    return found


def _chunks(items: Sequence, size: int) -> Iterator[Sequence]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@torch.no_grad()
def right(model, asked: Sequence[tuple[Sequence[int], int]]) -> list[bool]:
    """Whether the likeliest next token after each prompt is its answer."""
    longest = max(len(ids) for ids, _ in asked)
    tokens = torch.tensor([[*ids, *[ids[-1]] * (longest - len(ids))] for ids, _ in asked], device=model.device)
    logits = model(tokens)
    return [int(row[len(ids) - 1].argmax()) == answer for row, (ids, answer) in zip(logits, asked)]
