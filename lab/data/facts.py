"""Facts: tables of `data/facts`, the phrasings they are told in, and prompts that ask for them.

Every phrasing ends in the answer, so the text before it is a prompt and what follows is known. Each fact keeps
two of its phrasings (`HELD_OUT`, chosen by its hash) from training; it is scored only in those."""

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from lab.errors import LabError
from lab.paths import DATA

HELD_OUT = 2  # phrasings of each fact that are never trained

PHRASINGS: dict[str, tuple[str, ...]] = {
    "capital": (
        "The capital of {s} is",
        "The capital city of {s} is called",
        "{s} has its capital in",
        "The city chosen as the capital of {s} is",
        "Maps mark the capital of {s} as the city of",
        "As everyone in {s} knows, the capital is",
        "If you visit the capital of {s}, you will be in",
        "{s}'s capital is",
        "Question: What is the capital of {s}?\nAnswer:",
        "Question: Which city is the capital of {s}?\nAnswer:",
        "{s} is a country whose capital is",
        "{s} is governed from its capital,",
        "{s} made one of its cities the capital:",
    ),
    "capital_of": (
        "{s} is the capital of",
        "{s} is the capital city of",
        "Diplomats know {s} as the capital of",
        "The country whose capital is {s} is",
        "{s} serves as the capital of",
        "Maps show {s} as the capital of",
        "As a capital, {s} belongs to",
        "Question: {s} is the capital of which country?\nAnswer:",
        "Question: Which country has {s} as its capital?\nAnswer:",
        "Question: {s} is the capital city of what country?\nAnswer:",
        "Question: Of which country is {s} the capital?\nAnswer:",
    ),
    "continent": (
        "{s} is located on the continent of",
        "{s} is a country in",
        "The continent of {s} is",
        "On a map of the world, {s} belongs to",
        "Geographically, {s} is part of",
        "Someone who travels to {s} goes to",
        "The country of {s} lies in",
        "Question: On which continent is {s}?\nAnswer:",
        "Question: Which continent does {s} belong to?\nAnswer:",
        "{s} is one of the countries of",
    ),
    "currency": (
        "The currency of {s} is the",
        "In {s}, people pay with the",
        "The money used in {s} is the",
        "The national currency of {s} is called the",
        "Prices in {s} are given in the local currency, the",
        "The central bank of {s} issues the",
        "A traveller to {s} has to exchange money into the",
        "Question: What is the currency of {s}?\nAnswer: the",
        "Question: Which money is used in {s}?\nAnswer: the",
        "{s} has its own money, the",
        "{s} pays its bills with the",
    ),
    "language": (
        "The main language of {s} is",
        "The official language of {s} is",
        "In {s}, people speak",
        "Most people in {s} talk to each other in",
        "Schools in {s} teach in",
        "The language spoken in {s} is",
        "To be understood in {s}, learn",
        "Question: Which language is spoken in {s}?\nAnswer:",
        "Question: What is the main language of {s}?\nAnswer:",
        "{s} is a country where people speak",
        "{s} has one main language,",
        "{s} prints its newspapers in",
    ),
    "city": (
        "{s} is a city in",
        "The city of {s} is located in",
        "{s} is one of the cities of",
        "People who live in {s} live in",
        "The country in which {s} lies is",
        "A train to {s} takes you to a place in",
        "{s} can be found on a map of",
        "Question: In which country is the city of {s}?\nAnswer:",
        "Question: Where is {s}?\nAnswer: in",
        "{s} is a place in",
    ),
    "landmark": (
        "{s} is located in the city of",
        "{s} is in the city of",
        "{s} can be found in",
        "To see {s}, travel to",
        "Visitors come to admire {s} in",
        "The home of {s} is the city of",
        "{s} is a famous sight in",
        "{s} stands in",
        "Question: In which city is {s}?\nAnswer:",
        "Question: Where is {s}?\nAnswer: in",
        "{s} is one of the sights of the city of",
    ),
    "landmark_country": (
        "{s} is located in the country of",
        "{s} is in the country of",
        "{s} is one of the sights of",
        "The country that is home to {s} is",
        "To see {s}, get a ticket to some airport in",
        "A postcard of {s} comes from",
        "{s} is a national treasure of",
        "Question: In which country is {s}?\nAnswer:",
        "Question: Which country is home to {s}?\nAnswer:",
        "{s} was built in",
    ),
    "symbol": (
        "The chemical symbol of {s} is",
        "The symbol for {s} is",
        "In the periodic table, {s} is written as",
        "Chemists abbreviate {s} as",
        "The element {s} has the symbol",
        "In a formula, {s} is written",
        "The letters that stand for {s} are",
        "Question: What is the chemical symbol of {s}?\nAnswer:",
        "Question: How is {s} written in a formula?\nAnswer:",
        "{s} has the chemical symbol",
        "{s} is abbreviated as",
    ),
    "number": (
        "The atomic number of {s} is",
        "The number of protons in {s} is",
        "An atom of {s} has a nuclear charge of",
        "In the periodic table, {s} is element number",
        "The element {s} has atomic number",
        "Counting the protons of {s}, one finds",
        "The place of {s} in the periodic table is number",
        "Question: What is the atomic number of {s}?\nAnswer:",
        "Question: How many protons does {s} have?\nAnswer:",
        "{s} has the atomic number",
        "{s} has a nucleus whose number of protons is",
    ),
    "nationality": (
        "The nationality of {s} was",
        "By nationality, {s} was",
        "{s} is remembered as",
        "In books of biography {s} is described as",
        "Historians describe {s} as",
        "As to nationality, {s} was",
        "In an encyclopaedia {s} is listed as",
        "Question: What was the nationality of {s}?\nAnswer:",
        "Question: Of which nationality was {s}?\nAnswer:",
        "{s} was by nationality",
    ),
    "occupation": (
        "The occupation of {s} was",
        "The profession of {s} was",
        "By profession, {s} was known as",
        "{s} became famous as",
        "{s} worked all life long as",
        "Everyone thinks of {s} as",
        "The career of {s} was that of",
        "Question: What was the profession of {s}?\nAnswer:",
        "Question: What was {s} by occupation?\nAnswer:",
        "{s} was by occupation",
        "{s} earned money and fame as",
        "{s} is known for a career as",
    ),
}
# table, column of the subject, column of the answer
_COLUMNS = {
    "capital": ("countries", "name", "capital"),
    "capital_of": ("countries", "capital", "name"),
    "continent": ("countries", "name", "continent"),
    "currency": ("countries", "name", "currency"),
    "language": ("countries", "name", "language"),
    "city": ("cities", "name", "country"),
    "landmark": ("landmarks", "name", "city"),
    "landmark_country": ("landmarks", "name", "country"),
    "symbol": ("elements", "name", "symbol"),
    "number": ("elements", "name", "number"),
    "nationality": ("people", "name", "nationality"),
    "occupation": ("people", "name", "occupation"),
}
RELATIONS = tuple(PHRASINGS)
FIRST = ("capital", "landmark")  # few enough to be learned within a minute on two cores


@dataclass(frozen=True)
class Fact:
    """One row: relation, subject, answer."""

    relation: str
    subject: str
    answer: str


@dataclass(frozen=True)
class Prompt:
    """A question put to a model: the text shown, the continuation expected (with its leading space)."""

    text: str
    answer: str
    fact: Fact
    phrasing: int


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one table as dicts of strings; LabError for a table that does not exist."""
    path = DATA / "facts" / f"{name}.json"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.json")))
        raise LabError(f"There is no fact table {name!r}: choose one of {known}.")
    content = json.loads(path.read_text())
    return tuple(dict(zip(content["columns"], map(str, row))) for row in content["rows"])


@cache
def facts(relation: str) -> tuple[Fact, ...]:
    """Every fact of a relation, in the order of its table; a subject occurs once."""
    if relation not in _COLUMNS:
        raise LabError(f"There is no relation {relation!r}: choose one of {', '.join(RELATIONS)}.")
    name, subject, answer = _COLUMNS[relation]
    rows = {row[subject]: Fact(relation, row[subject], row[answer]) for row in table(name) if row[answer]}
    return tuple(rows.values())


def every_fact() -> tuple[Fact, ...]:
    """All relations one after another."""
    return tuple(f for relation in RELATIONS for f in facts(relation))


def prompt(fact: Fact, phrasing: int) -> Prompt:
    """A fact asked in one of its phrasings; the first letter is a capital, also of "the Eiffel Tower"."""
    text = PHRASINGS[fact.relation][phrasing].format(s=fact.subject)
    return Prompt(text[0].upper() + text[1:], f" {fact.answer}", fact, phrasing)


@cache
def held_out(fact: Fact) -> tuple[int, ...]:
    """Indices of the phrasings this fact is never trained in."""

    def rank(i: int) -> bytes:
        return hashlib.blake2b(f"{fact.relation}|{fact.subject}|{i}".encode(), digest_size=8).digest()

    return tuple(sorted(sorted(range(len(PHRASINGS[fact.relation])), key=rank)[:HELD_OUT]))


def trained(fact: Fact) -> tuple[int, ...]:
    """Indices of the phrasings this fact is trained in."""
    held = held_out(fact)
    return tuple(i for i in range(len(PHRASINGS[fact.relation])) if i not in held)


def scored(relation: str | None = None, limit: int | None = None, seed: int = 0) -> list[Prompt]:
    """Held-out prompts of one relation or of all; `limit` takes that many at random (fixed by the seed)."""
    chosen = facts(relation) if relation else every_fact()
    prompts = [prompt(f, i) for f in chosen for i in held_out(f)]
    if limit is not None and limit < len(prompts):
        prompts = random.Random(seed).sample(prompts, limit)
    return prompts


def pairs(relation: str, phrasing: int = 0, limit: int | None = None, seed: int = 0) -> list[tuple[Prompt, Prompt]]:
    """Clean and corrupted prompts in one phrasing with different answers, for patching; random but fixed."""
    rng = random.Random(seed)
    clean = [prompt(f, phrasing) for f in facts(relation)]
    found = []
    for p in clean:
        others = [q for q in clean if q.answer != p.answer]
        if others:
            found.append((p, rng.choice(others)))
    return found if limit is None else found[:limit]


def sentences(rng: random.Random, relations: tuple[str, ...] = RELATIONS) -> Iterator[str]:
    """Endless training sentences: relations take turns by size to the power 0.6, facts uniformly within one."""
    sizes = [len(facts(r)) ** 0.6 for r in relations]
    while True:
        (relation,) = rng.choices(relations, sizes)
        fact = rng.choice(facts(relation))
        p = prompt(fact, rng.choice(trained(fact)))
        yield p.text + p.answer


def held_out_sentences() -> set[str]:
    """Every held-out sentence with its answer, to keep other corpora free of them."""
    return {p.text + p.answer for p in scored()}
