"""Repeated lists: after "river lamp stone river lamp" comes "stone". What induction heads are for."""

import random
from collections.abc import Iterator

WORDS = (
    "apple", "river", "stone", "lamp", "chair", "moon", "glass", "horse", "paper", "bridge", "cloud", "knife", "bread",
    "train", "tree", "clock", "water", "house", "bird", "table", "fire", "road", "door", "ship", "king", "wood", "hand",
    "snow", "dog", "ball", "star", "wall", "field", "box", "cat", "fish", "salt", "gold", "wind", "milk", "rain", "hill",
    "sand", "rope", "bell", "song", "sea", "cup", "leaf", "bone", "coal", "corn", "desk", "drum", "farm", "gate",
    "iron", "lake", "nail", "nest", "pipe", "root", "seed", "silk", "tent", "wheel",
)  # fmt: skip


def words(rng: random.Random, length: int) -> list[str]:
    """Distinct words in random order."""
    return rng.sample(WORDS, length)


def sentences(rng: random.Random) -> Iterator[str]:
    """Endless lists of 4 to 16 words, each said two or three times, in one of a few notations."""
    while True:
        chosen = words(rng, rng.randint(4, 16))
        times = rng.choice((2, 2, 3))
        style = rng.randrange(3)
        if style == 0:
            yield " ".join(chosen * times)
        elif style == 1:
            yield ", ".join(chosen * times)
        else:
            said = ", ".join(chosen)
            yield f"The list is: {said}. Again: " + ". Again: ".join([said] * (times - 1))


def prompts(count: int, seed: int = 0, length: int = 8) -> list[tuple[str, str]]:
    """A list said once and then begun again, with the word that must follow (with its leading space)."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        chosen = words(rng, length)
        cut = rng.randrange(1, length)
        found.append((" ".join(chosen + chosen[:cut]), f" {chosen[cut]}"))
    return found


def tokens(rng: random.Random, vocabulary: range, length: int, times: int = 2) -> list[int]:
    """Random tokens repeated: the cleanest test of induction. Token ids, `length * times` of them."""
    return [rng.choice(vocabulary) for _ in range(length)] * times
