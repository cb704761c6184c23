"""Pairs of texts that differ in one respect, to read a steering vector from, and prompts to judge it on.

Pairs and prompts never share a subject: what is held out was not read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from lab.data import facts


@dataclass(frozen=True)
class Contrast:
    """`pairs` (first side, second side) make the vector; `prompts` judge it by the words of either side that follow.
    `sample` is a prompt to write on from."""

    title: str
    sides: tuple[str, str]
    pairs: tuple[tuple[str, str], ...]
    prompts: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]
    sample: str


_FILLERS = (
    ("the food was", "excellent", "awful"), ("the film was", "wonderful", "terrible"), ("the hotel was", "lovely", "dirty"),
    ("my teacher is", "kind", "cruel"), ("this book is", "brilliant", "boring"), ("the music was", "beautiful", "horrible"),
    ("our journey was", "delightful", "miserable"), ("the service was", "superb", "rude"), ("the weather is", "gorgeous", "dreadful"),
    ("her speech was", "inspiring", "disgusting"), ("the party was", "fantastic", "a disaster"), ("the coffee is", "perfect", "disappointing"),
)  # fmt: skip
_FRENCH = (
    ("The cat sleeps on the chair.", "Le chat dort sur la chaise."), ("I would like a glass of water.", "Je voudrais un verre d'eau."),
    ("The train leaves at eight.", "Le train part à huit heures."), ("My sister lives in the city.", "Ma sœur habite dans la ville."),
    ("We read a book every week.", "Nous lisons un livre chaque semaine."), ("The children play in the garden.", "Les enfants jouent dans le jardin."),
    ("It is cold this morning.", "Il fait froid ce matin."), ("He works in a small shop.", "Il travaille dans un petit magasin."),
    ("The house is near the sea.", "La maison est près de la mer."), ("Where is the station?", "Où est la gare ?"),
)  # fmt: skip


def sentiment() -> Contrast:
    """Praise against blame."""
    return Contrast(
        "praise or blame", ("praise", "blame"),
        tuple((f"I must say that {what} {good}", f"I must say that {what} {bad}") for what, good, bad in _FILLERS),
        ("I think that the museum is", "Everybody says the new phone is", "To me the painting looks", "The cake we bought tastes", "I feel",
         "The actor's performance was", "Living in this town is", "My experience with this company was", "Her garden is", "The game was"),
        ("good", "great", "wonderful", "excellent", "beautiful", "amazing", "fantastic", "perfect", "delicious", "happy", "lovely"),
        ("bad", "terrible", "awful", "horrible", "poor", "boring", "disappointing", "sad", "ugly", "dreadful", "worse"),
        "Yesterday I went to the cinema. I think that the film was",
    )  # fmt: skip


def french() -> Contrast:
    """French against English."""
    return Contrast(
        "French or English", ("French", "English"), tuple((b, a) for a, b in _FRENCH),
        ("The weather today is", "My friend told me that", "In the evening we", "The dog and", "She opened the door and", "After the meal",
         "He wrote a letter to", "On the table there is"),
        ("le", "la", "les", "de", "et", "est", "un", "une", "des", "du", "que", "dans"),
        ("the", "a", "and", "is", "of", "to", "in", "that", "we", "was", "an"),
        "Good morning! My name is",
    )  # fmt: skip


def continent(first: str, second: str, seed: int = 0) -> Contrast:
    """Countries of two continents, half of each for the vector and half to judge it."""
    rng, phrasing = random.Random(seed), "{s} is located on the continent of"
    sides = []
    for name in (first, second):
        countries = [f.subject for f in facts.facts("continent") if f.answer == name]
        rng.shuffle(countries)
        sides.append([phrasing.format(s=c[0].upper() + c[1:]) for c in countries])
    half = min(len(side) for side in sides) // 2
    return Contrast(
        f"{first} or {second}", (first, second), tuple(zip(sides[0][:half], sides[1][:half])),
        (*sides[0][half : half + 12], *sides[1][half : half + 12]), (first,), (second,), sides[1][half],
    )  # fmt: skip


def language(first: str, second: str, seed: int = 0) -> Contrast:
    """Countries by the language that is spoken there."""
    rng, phrasing = random.Random(seed), "The main language of {s} is"
    sides = []
    for name in (first, second):
        countries = [f.subject for f in facts.facts("language") if f.answer == name]
        rng.shuffle(countries)
        sides.append([phrasing.format(s=c) for c in countries])
    half = min(len(side) for side in sides) // 2
    return Contrast(
        f"{first} or {second}, the language", (first, second), tuple(zip(sides[0][:half], sides[1][:half])),
        (*sides[0][half : half + 10], *sides[1][half : half + 10]), (first,), (second,), sides[1][half],
    )  # fmt: skip


def everything() -> dict[str, Contrast]:
    """All contrasts by title: two from the tables, which our own models know, and two of plain language."""
    found = (continent("Asia", "Africa"), continent("Europe", "Asia"), language("Spanish", "English"), sentiment(), french())
    return {c.title: c for c in found}
