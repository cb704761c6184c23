"""Additions. Of two numbers below 100 one unordered pair in eight is held out, in both orders and every phrasing.

Training also sees sums of three-digit numbers, far too many to memorise: what carries over is the method."""

import hashlib
import random
import re
from collections.abc import Iterator

TEMPLATES = (
    "{a} + {b} = {c}",
    "{a}+{b}={c}",
    "{a} plus {b} is {c}",
    "{a} plus {b} equals {c}",
    "The sum of {a} and {b} is {c}",
    "What is {a} + {b}? {c}",
    "Adding {a} to {b} gives {c}",
    "If you add {a} and {b} you get {c}",
)
SCORED = TEMPLATES[0]
HELD_OUT = 8  # one pair in so many
LIMIT = 100  # scored operands are 0 .. LIMIT-1
WIDE = 1_000  # training goes up to here ...
WIDE_SHARE = 0.4  # ... in this share of its sentences

_SUM = re.compile(r"(?<!\d)(\d{1,2})\s*(?:\+|plus|and)\s*(\d{1,2})(?!\d)")


def is_held_out(a: int, b: int) -> bool:
    """Whether a + b (and b + a) is kept from training."""
    low, high = sorted((a, b))
    return int.from_bytes(hashlib.blake2b(f"{low}+{high}".encode(), digest_size=4).digest()) % HELD_OUT == 0


def pairs(held: bool) -> list[tuple[int, int]]:
    """Every ordered pair of one side of the split."""
    return [(a, b) for a in range(LIMIT) for b in range(LIMIT) if is_held_out(a, b) == held]


def sentence(a: int, b: int, template: str = SCORED) -> str:
    """`12 + 34 = 46`."""
    return template.format(a=a, b=b, c=a + b)


def prompt(a: int, b: int, template: str = SCORED) -> tuple[str, str]:
    """What is shown and what should follow: `("12 + 34 =", " 46")`."""
    shown = template.format(a=a, b=b, c="").rstrip()
    return shown, sentence(a, b, template)[len(shown) :]


def sentences(rng: random.Random) -> Iterator[str]:
    """Endless training sentences, never of a held-out pair."""
    trained = pairs(False)
    while True:
        a, b = rng.choice(trained)
        if rng.random() < WIDE_SHARE:
            a, b = rng.randrange(LIMIT, WIDE), rng.randrange(WIDE)
            a, b = rng.choice(((a, b), (b, a)))
        yield sentence(a, b, rng.choice(TEMPLATES))


def prompts(rng: random.Random, count: int, held: bool = True) -> list[tuple[str, str]]:
    """Distinct prompts with answers, from the held-out pairs unless told otherwise."""
    chosen = rng.sample(pairs(held), count)
    return [prompt(a, b) for a, b in chosen]


def mentions_held_out(text: str) -> bool:
    """Whether a text states a held-out addition with its result (used to keep corpora clean)."""
    for match in _SUM.finditer(text):
        a, b = int(match[1]), int(match[2])
        if is_held_out(a, b) and re.search(rf"(?<!\d){a + b}(?!\d)", text[match.start() : match.end() + 24]):
            return True
    return False
