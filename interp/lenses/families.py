"""Many prompts of one kind with their answers, as token ids, for measures that need more than one sentence."""

from __future__ import annotations

from collections.abc import Iterator

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


def asked(lm, key: str, count: int, seed: int = 0) -> list[Asked]:
    """Up to `count` prompts of this kind whose answers are one token each; LabError when there is none."""
    if key not in FAMILIES:
        raise LabError(f"There are no prompts of the kind {key!r}; choose one of {', '.join(FAMILIES)}.")
    found = []
    for text, answer, other in _texts(key, 4 * count, seed):
        ids = lm.tokenizer.encode(text)
        try:
            right, wrong = (answer_token(lm.tokenizer, word, text) for word in (answer, other))
        except LabError:
            continue  # several tokens for this tokenizer
        if right != wrong and len(ids) <= lm.config.context:
            found.append(Asked(ids, right, wrong))
        if len(found) == count:
            break
    if not found:
        raise LabError(f"{lm.name} splits every answer of these prompts into several tokens; choose another kind.")
    return found
