"""Pages of generated text: facts, indirect objects, sums, repeated lists; endless, fixed by their seed."""

import functools
import itertools
import random
from collections.abc import Callable, Iterator

from lab.data import facts, ioi, repeats, sums
from lab.errors import LabError

KINDS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "facts": facts.sentences,
    "first": functools.partial(facts.sentences, relations=facts.FIRST),
    "ioi": ioi.sentences,
    "sums": sums.sentences,
    "repeats": repeats.sentences,
}


def pages(kind: str, seed: int) -> Iterator[str]:
    """Documents of one to eight sentences. The sentences never say what is held out for scoring."""
    if kind not in KINDS:
        raise LabError(f"There is no generated text of kind {kind!r}: choose one of {', '.join(KINDS)}.")
    rng = random.Random(f"{kind}-{seed}")
    sentences = KINDS[kind](rng)
    while True:
        count = 1 if kind == "repeats" else rng.choice((1, 1, 2, 3, 5, 8))
        gap = rng.choice((". ", ".\n", "\n"))
        text = gap.join(itertools.islice(sentences, count))
        yield text + "." if gap.startswith(".") else text
