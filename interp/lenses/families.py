"""Many prompts of one kind with their answers, as token ids, for measures that need more than one sentence."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from interp.lenses.direct import Asked
from interp.prompts import answer_token
from lab.data import facts, ioi, repeats
from lab.errors import LabError

#: key -> title
FAMILIES = {
    "ioi": "indirect objects: the right name against the other",
    "capital": "capitals: the country's against another's",
    "landmark": "landmarks: their city against another",
    "language": "languages: the country's against another's",
    "symbol": "elements: their symbol against another",
    "repeats": "repeated lists: the next word against the one just said",
}


def _texts(key: str, count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Prompt, answer, other answer."""
    if key == "ioi":
        for item in ioi.prompts(count, seed):
            yield item.text, item.answer, f" {item.subject}"
    elif key == "repeats":
        for text, answer in repeats.prompts(count, seed):
            yield text, answer, f" {text.split()[-1]}"
    else:
        for one, other in facts.pairs(key, seed=seed):
            yield one.text, one.answer, other.answer


def own_words(lm, length: int = 6, seed: int = 0) -> list[str]:
    """Words that a model of made-up words knows, each one token and set apart by spaces."""
    length = max(1, min(length, lm.config.context // 2))
    drawn = random.Random(seed).sample(range(lm.tokenizer.vocab_size), min(3 * length, lm.tokenizer.vocab_size))
    words = [piece.strip() for piece in lm.tokenizer.pieces(drawn)]
    return [w for w in words if w and len(_tokens(lm, w)) == 1][:length]


def readable(lm, texts: Mapping[str, str]) -> dict[str, str]:
    """Those of the texts that this model can read, else one of its own words said twice."""
    found = {title: text for title, text in texts.items() if _tokens(lm, text)}
    return found or {"its own words, twice": " ".join(own_words(lm) * 2)}


def _tokens(lm, text: str) -> list[int]:
    try:
        return lm.tokens(text)[0].tolist()
    except LabError:
        return []


def asked(lm, key: str, count: int, seed: int = 0) -> list[Asked]:
    """Up to `count` prompts of this kind whose answers are one token each; LabError when there is none."""
    if key not in FAMILIES:
        raise LabError(f"There are no prompts of the kind {key!r}; choose one of {', '.join(FAMILIES)}.")
    found = []
    for text, answer, other in _texts(key, 4 * count, seed):
        try:
            ids = lm.tokenizer.encode(text)
            right, wrong = (answer_token(lm.tokenizer, word, text) for word in (answer, other))
        except LabError:
            continue  # several tokens for this tokenizer
        if right != wrong and len(ids) <= lm.config.context:
            found.append(Asked(ids, right, wrong))
        if len(found) == count:
            break
    if not found:
        raise LabError(f"{lm.name} has no single token for any answer of these prompts, or cannot read them; choose another kind.")
    return found
