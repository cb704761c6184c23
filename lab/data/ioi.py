"""Indirect-object sentences: two people, one gives something, and the sentence must end in the other one's name.

"When Mary and John went to the store, John gave a drink to" -> " Mary". One combination in six of a template and
two names (in either order) is held out from training."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

HELD_OUT = 6  # one combination in so many

NAMES = (
    "Mary", "John", "Anna", "James", "Emma", "Robert", "Alice", "Michael", "Sarah", "David", "Laura", "William",
    "Kate", "Richard", "Susan", "Joseph", "Jane", "Thomas", "Lisa", "Charles", "Rachel", "Daniel", "Amy", "Matthew",
    "Helen", "Mark", "Ruth", "Paul", "Julia", "Steven", "Grace", "Andrew", "Clara", "Kevin", "Diana", "Brian",
    "Lucy", "George", "Martha", "Edward", "Sophie", "Peter", "Nancy", "Henry", "Maria", "Frank", "Linda", "Simon",
    "Carol", "Jack", "Emily", "Tom", "Olivia", "Adam", "Karen", "Luke", "Rose", "Sam", "Judy", "Max",
)  # fmt: skip
PLACES = (
    "store", "park", "school", "garden", "market", "office", "station", "library", "museum", "beach", "hospital",
    "restaurant", "theatre", "house", "harbour", "bakery",
)  # fmt: skip
OBJECTS = (
    "drink", "book", "ring", "letter", "flower", "key", "basket", "ticket", "present", "map", "coat", "lamp", "cake",
    "coin", "photo", "hat",
)  # fmt: skip
# {a} and {b} are the two people in order of appearance, {s} the one who gives; what follows is the other one
TEMPLATES = (
    "When {a} and {b} went to the {place}, {s} gave a {object} to",
    "After {a} and {b} arrived at the {place}, {s} handed a {object} to",
    "While {a} and {b} were at the {place}, {s} passed a {object} to",
    "Then {a} and {b} met near the {place}, and {s} showed a {object} to",
    "This morning {a} and {b} had a long talk at the {place}. Afterwards {s} brought a {object} to",
    "Because {a} and {b} were friends from the {place}, {s} sent a {object} to",
    "Yesterday {a} and {b} walked to the {place}, where {s} offered a {object} to",
    "Last week {a} and {b} shared a table at the {place}, and {s} lent a {object} to",
    "Once {a} and {b} had found the {place}, {s} decided to give a {object} to",
    "Friends said that {a} and {b} left the {place} early, after {s} sold a {object} to",
)


@dataclass(frozen=True)
class Ioi:
    """One sentence: the two names, who gives (`subject`), who receives (`answer`), template, place and object."""

    first: str
    second: str
    subject: str
    template: int
    place: str
    object: str

    @property
    def receiver(self) -> str:
        return self.second if self.subject == self.first else self.first

    @property
    def text(self) -> str:
        return TEMPLATES[self.template].format(
            a=self.first, b=self.second, s=self.subject, place=self.place, object=self.object
        )

    @property
    def answer(self) -> str:
        return f" {self.receiver}"

    @property
    def swapped(self) -> "Ioi":
        """The same sentence with the other person giving: the usual corrupted prompt."""
        return Ioi(self.first, self.second, self.receiver, self.template, self.place, self.object)


def is_held_out(template: int, a: str, b: str) -> bool:
    """Whether this template is never trained with these two names."""
    key = f"{template}|{'|'.join(sorted((a, b)))}"
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest()) % HELD_OUT == 0


def draw(rng: random.Random, held: bool) -> Ioi:
    """One sentence from one side of the split."""
    while True:
        first, second = rng.sample(NAMES, 2)
        template = rng.randrange(len(TEMPLATES))
        if is_held_out(template, first, second) == held:
            subject = rng.choice((first, second))
            return Ioi(first, second, subject, template, rng.choice(PLACES), rng.choice(OBJECTS))


def prompts(count: int, seed: int = 0, held: bool = True) -> list[Ioi]:
    """Prompts with answers, from held-out combinations unless told otherwise."""
    rng = random.Random(seed)
    return [draw(rng, held) for _ in range(count)]


def sentences(rng: random.Random) -> Iterator[str]:
    """Endless training sentences, never of a held-out combination."""
    while True:
        item = draw(rng, held=False)
        yield item.text + item.answer
