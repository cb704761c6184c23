"""What is probed for: prompts with a label, the entity they are about, and the token they are read at."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from lab.data import facts, ioi
from lab.errors import LabError

FEWEST = 8  # entities a class must have


@dataclass(frozen=True)
class Example:
    """One prompt. `subject` is read at its last token; without one, the prompt is read at its own last token."""

    text: str
    entity: str
    wording: int
    label: int
    subject: str | None = None


@dataclass(frozen=True)
class Task:
    """`ask` puts the probed property to the model as a question, {s} the entity; None where there is no such question."""

    title: str
    classes: tuple[str, ...]
    examples: tuple[Example, ...]
    ask: str | None = None

    @property
    def majority(self) -> float:
        """What always naming the commonest class gets right."""
        return max(Counter(e.label for e in self.examples).values()) / len(self.examples)


def _of_countries(title: str, labels: dict[str, str], wordings: tuple[str, ...], ask: str | None, limit: int) -> Task:
    counts = Counter(labels.values())
    classes = tuple(sorted(c for c, n in counts.items() if n >= FEWEST))
    names = sorted(s for s, label in labels.items() if label in classes)
    names = random.Random(0).sample(names, min(limit, len(names)))
    examples = [
        Example(_capital(w.format(s=name)), name, i, classes.index(labels[name]), name)
        for name in names for i, w in enumerate(wordings)
    ]  # fmt: skip
    return Task(title, classes, tuple(examples), ask)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


# nothing in these words asks for a continent or a currency
_ASIDE = ("Yesterday we spoke of {s} and", "In the atlas, the page of {s} shows")


def continent(limit: int = 160) -> Task:
    """The continent of a country, read at its name while something else is said."""
    labels = {f.subject: f.answer for f in facts.facts("continent")}
    return _of_countries("continent of a country", labels, _ASIDE, "{s} is located on the continent of", limit)


def currency(limit: int = 160) -> Task:
    """Whether a country pays with the euro, the dollar, the franc or something else."""
    common = {"euro", "dollar", "franc", "pound", "dinar", "peso"}
    labels = {f.subject: f.answer if f.answer in common else "another" for f in facts.facts("currency")}
    return _of_countries("currency of a country", labels, _ASIDE, "The currency of {s} is the", limit)


def language(limit: int = 160) -> Task:
    """The main language of a country, of those that several share."""
    labels = {f.subject: f.answer for f in facts.facts("language")}
    return _of_countries("language of a country", labels, _ASIDE, "The main language of {s} is", limit)


def next_is_a_city(limit: int = 160) -> Task:
    """Whether the prompt is to be answered with a city, read at its last token; the wordings differ by relation."""
    asks: tuple[tuple[str, int, tuple[int, int]], ...] = (
        ("capital", 1, (0, 7)), ("landmark", 1, (0, 10)), ("currency", 0, (0, 2)), ("language", 0, (0, 1)),
    )  # fmt: skip
    examples = []
    for relation, label, wordings in asks:
        for fact in facts.facts(relation)[: limit // len(asks)]:
            for i, wording in enumerate(wordings):
                examples.append(Example(facts.prompt(fact, wording).text, f"{relation}|{fact.subject}", i, label))
    return Task("is the next answer a city", ("another kind", "a city"), tuple(examples))


def receiver(limit: int = 160) -> Task:
    """Of two people in a sentence, whether the one named first is the one to come, read at the last token."""
    examples = [
        Example(item.text, f"{item.first}|{item.second}", 0, int(item.receiver == item.second)) for item in ioi.prompts(limit)
    ]
    return Task("which of two names comes next", ("the first", "the second"), tuple(examples))


TASKS: dict[str, Callable[[int], Task]] = {
    "continent of a country": continent,
    "language of a country": language,
    "currency of a country": currency,
    "is the next answer a city": next_is_a_city,
    "which of two names comes next": receiver,
}


def task(title: str, limit: int = 160) -> Task:
    """A task by its title, with at most `limit` entities; LabError for one that does not exist."""
    if title not in TASKS:
        raise LabError(f"There is no probing task {title!r}; choose one of {', '.join(TASKS)}.")
    return TASKS[title](limit)
