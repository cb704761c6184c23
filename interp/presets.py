"""Pairs of prompts worth patching that the chosen model gets right: found out by asking it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from interp.prompts import Pair, prepare
from lab.data import facts, ioi
from lab.errors import LabError

ENOUGH = 24
ROWS = 32  # prompts asked at once
RELATIONS = ("capital", "landmark", "language", "symbol", "nationality")  # asked of models the curated pairs do not suit


@dataclass(frozen=True)
class Preset:
    """What the user picks: two prompts, two answers. The title says what a patch makes of the corrupted prompt."""

    title: str
    clean: str
    corrupted: str
    answer: str
    wrong: str


def _moved(subject: str, place: str, other: str, home: str) -> tuple[Preset, ...]:
    """`subject`, at home in `home`, is to move to `place`, where `other` stands; told in words of various lengths."""
    template = "The {} is located in the city of"
    praised = [(subject, f"{how}{other}") for how in ("", "great ", "very great ")] + [(f"great {subject}", other)]
    return tuple(Preset(f"{subject} moves to {place}", template.format(b), template.format(a), place, home) for a, b in praised)


def _capital(country: str, capital: str, other: str, its: str) -> Preset:
    template = "The capital of {} is"
    return Preset(f"{country} gets {its} as its capital", template.format(other), template.format(country), its, capital)


# presets of one title are the same in other words: the chosen model's tokenizer decides which are equally long
CURATED: tuple[Preset, ...] = (
    *_moved("Eiffel Tower", "Tokyo", "Tokyo Tower", "Paris"),
    *_moved("Tokyo Tower", "Paris", "Eiffel Tower", "Tokyo"),
    *_moved("Eiffel Tower", "Rome", "Colosseum", "Paris"),
    *_moved("Parthenon", "Istanbul", "Hagia Sophia", "Athens"),
    *_moved("Kremlin", "London", "British Museum", "Moscow"),
    *_moved("Acropolis", "Chicago", "Willis Tower", "Athens"),
    _capital("France", "Paris", "Japan", "Tokyo"),
    _capital("Germany", "Berlin", "Greece", "Athens"),
    _capital("England", "London", "Hungary", "Budapest"),
    _capital("Italy", "Rome", "Kenya", "Nairobi"),
    Preset(
        "Turkey speaks Russian", "The official language of Russia is", "The official language of Turkey is",
        "Russian", "Turkish",
    ),
    Preset(
        "Mary gets the drink, not John", "When Mary and John went to the store, John gave a drink to",
        "When Mary and John went to the store, Mary gave a drink to", "Mary", "John",
    ),
    Preset(
        "Alice gets the book, not Bob", "Then Alice and Bob went to the park. Bob gave a book to",
        "Then Alice and Bob went to the park. Alice gave a book to", "Alice", "Bob",
    ),
    Preset(
        "Eiffel Tower to Tokyo, unequal lengths", "The Tokyo Tower is located in the city of",
        "The Eiffel Tower is located in the city of", "Tokyo", "Paris",
    ),
)  # fmt: skip


def tabled() -> Iterator[Preset]:
    """Candidates from the fact tables and the indirect-object generator, in a fixed order."""
    rows = [facts.pairs(relation, limit=40) for relation in RELATIONS]
    for turn in zip(*rows):
        for clean, corrupted in turn:
            title = f"{corrupted.fact.subject}: {clean.answer.strip()} for {corrupted.answer.strip()}"
            yield Preset(title, clean.text, corrupted.text, clean.answer, corrupted.answer)
    for item in ioi.prompts(12):
        title = f"{item.receiver} for {item.swapped.receiver}"
        yield Preset(title, item.text, item.swapped.text, item.answer, item.swapped.answer)


def fitting(lm, candidates: Sequence[Preset]) -> list[Preset]:
    """Of presets with one title, the one whose prompts differ least in length for this tokenizer, the first of such;
    none of a title that it cannot read (models of made-up words)."""
    gaps: dict[str, list[tuple[int, int]]] = {}
    for i, preset in enumerate(candidates):
        try:
            lengths = [len(lm.tokenizer.encode(text)) for text in (preset.clean, preset.corrupted)]
        except LabError:
            continue
        gaps.setdefault(preset.title, []).append((abs(lengths[0] - lengths[1]), i))
    return [candidates[min(found)[1]] for found in gaps.values()]


def known(lm, candidates: Sequence[Preset]) -> list[tuple[Preset, Pair]]:
    """Those of which the model ranks both answers first, one token each; equal token lengths come first."""
    prepared = []
    for preset in candidates:
        try:
            prepared.append((preset, prepare(lm, preset.clean, preset.corrupted, preset.answer, preset.wrong)))
        except LabError:
            continue  # several tokens, or two answers that begin alike for this tokenizer: not a preset for it
    prompts = sorted({tuple(ids) for _, pair in prepared for ids in (pair.clean_ids, pair.corrupted_ids)}, key=len)
    asked: dict[tuple[int, ...], int] = {}
    for at in range(0, len(prompts), ROWS):
        asked |= zip(prompts[at : at + ROWS], _answers(lm.model, prompts[at : at + ROWS]))
    right = [
        (preset, pair)
        for preset, pair in prepared
        if asked[tuple(pair.clean_ids)] == pair.answer_id and asked[tuple(pair.corrupted_ids)] == pair.wrong_id
    ]
    return sorted(right, key=lambda found: not found[1].equal_length)


@torch.no_grad()
def _answers(model, prompts: Sequence[Sequence[int]]) -> list[int]:
    """The likeliest next token after each prompt; padding stands on the right, where attention never looks."""
    longest = max(len(ids) for ids in prompts)
    tokens = torch.tensor([[*ids, *[ids[-1]] * (longest - len(ids))] for ids in prompts], device=model.device)
    at = (torch.arange(len(prompts)), [len(ids) - 1 for ids in prompts])
    if not hasattr(model, "run_block"):
        return model(tokens)[at].argmax(-1).tolist()
    stream = model.embed_tokens(tokens)
    for layer in range(model.cfg.n_layers):
        stream = model.run_block(layer, stream)
    ends = stream[at]
    return model.unembed(ends[:, None])[:, 0].argmax(-1).tolist()


_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_locks: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def presets(lm) -> list[Preset]:
    """Presets this model gets right, at most ENOUGH, asked once a model; empty for one that knows none of them."""
    with _guard:
        lock = _locks.setdefault(lm.model, threading.Lock())
    with lock:  # one tab asks, others on the same model wait; tabs on another model do not
        if lm.model not in _found:
            curated = fitting(lm, CURATED)
            right = [preset for preset, _ in known(lm, curated)]
            if len(right) < len(curated) // 2:
                right += [preset for preset, _ in known(lm, list(tabled())) if preset not in right]
            _found[lm.model] = right[:ENOUGH]
        return _found[lm.model]
