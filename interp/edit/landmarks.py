"""Landmarks a model knows: found by asking it in several phrasings, never listed by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interp.edit.rows import ask
from lab.data import facts
from lab.errors import LabError

# heads are chosen, and values of a target read, in these
CHOOSING = (
    "{s} is located in the city of",
    "{s} is in the city of",
    "{s} is one of the sights of the city of",
    "{s} is a landmark in the city of",
    "{s} is a tourist attraction in the city of",
)
# and edits are judged in these, which chose nothing
HELD_OUT = (
    "Last summer we saw {s} in the city of",
    "My favourite place is {s} in the city of",
    "You can visit {s} in the city of",
    "If you want to visit {s}, you have to go to the city of",
    "Tourists who want to see {s} travel to the city of",
    "The home of {s} is the city of",
    "{s} is a famous landmark in",
    "{s} is a famous sight in",
    "I took a photo of {s} in",
    "Visitors come to admire {s} in",
    "To see {s}, travel to",
    "{s} can be found in",
    "{s} stands in",
    "Question: In which city is {s}?\nAnswer:",
    "Question: Where is {s}?\nAnswer: in",
)
LEADS = ("I have a picture of {s} on my wall. ", "We talked about {s} yesterday. ", "Last year we went to see {s}. ")
COUNTRY = "{s} is located in the country of"
LEAST = 3  # of the phrasings in CHOOSING that must be answered right for a landmark to count as known
SUPPORT = 2  # landmarks whose prompts a target city's values are averaged over, at least

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Landmark:
    """A landmark whose city the model names; `right` are the phrasings of CHOOSING in which it does."""

    subject: str
    city: str
    country: str
    right: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A prompt and the token id of its right answer."""

    text: str
    answer_id: int


def sentence(phrasing: str, subject: str) -> str:
    """The phrasing filled in, beginning with a capital."""
    text = phrasing.format(s=subject)
    return text[0].upper() + text[1:]


def candidates(lm) -> list[dict[str, str]]:
    """Rows of the landmark table whose city is one token here and not given away by the landmark's own name."""
    tokenizer = lm.tokenizer
    return [
        row
        for row in facts.table("landmarks")
        if row["city"].lower() not in row["name"].lower() and len(tokenizer.encode(f" {row['city']}")) == 1
    ]


def known(lm, limit: int | None = None, progress: Progress | None = None) -> list[Landmark]:
    """Landmarks of the table (the first `limit` candidates) that the model gets right in LEAST phrasings or more."""
    rows = candidates(lm)[:limit]
    prompts = [sentence(phrasing, row["name"]) for row in rows for phrasing in CHOOSING]
    said = ask(lm, prompts, progress=progress).top.view(len(rows), len(CHOOSING)).tolist() if rows else []
    found = []
    for row, tokens in zip(rows, said):
        answer = lm.tokenizer.single(f" {row['city']}")
        right = tuple(i for i, token in enumerate(tokens) if token == answer)
        if len(right) >= LEAST:
            found.append(Landmark(row["name"], row["city"], row["country"], right))
    return found


def need(landmarks: Sequence[Landmark], name: str) -> None:
    """LabError unless there are two cities to move between."""
    if len({mark.city for mark in landmarks}) < 2:
        raise LabError(f"{name} does not know the cities of enough landmarks to move one; train it longer or choose another model.")


def split(landmarks: Sequence[Landmark], seed: int = 0) -> tuple[list[Landmark], list[Landmark]]:
    """Three fifths that choose heads, two fifths that never do; at random but fixed."""
    shuffled = random.Random(seed).sample(list(landmarks), len(landmarks))
    cut = round(0.6 * len(shuffled))
    return shuffled[:cut], shuffled[cut:]


def targets(landmarks: Sequence[Landmark], of: Sequence[Landmark], count: int, seed: int = 0,
            standing: range = range(SUPPORT, 10**6)) -> dict[Landmark, list[str]]:  # fmt: skip
    """`count` other cities for each landmark in `of`, at random but fixed, among those in which as many known landmarks
    stand as `standing` says: what one landmark's prompts have in common is not only its city."""
    known_in = Counter(mark.city for mark in landmarks)
    cities = sorted(city for city, n in known_in.items() if n in standing)
    rng, found = random.Random(seed), {}
    for mark in of:
        others = [city for city in cities if city != mark.city]
        found[mark] = rng.sample(others, min(count, len(others)))
    return found


def unrelated(lm, limit: int = 200, seed: int = 0) -> list[Question]:
    """Questions of common knowledge and of other tables that the model answers with the right first token."""
    asked = [(row["prompt"], row["answer"]) for row in facts.table("general")]
    for relation in ("capital", "continent", "currency", "language", "symbol"):
        asked += [(facts.prompt(f, 0).text, f.answer) for f in facts.facts(relation)[:80]]
    if len(asked) > 2 * limit:
        asked = random.Random(seed).sample(asked, 2 * limit)
    first = [lm.tokenizer.encode(f" {answer}")[0] for _, answer in asked]
    said = ask(lm, [text for text, _ in asked]).top.tolist()
    return [Question(text, a) for (text, _), a, token in zip(asked, first, said) if a == token][:limit]
