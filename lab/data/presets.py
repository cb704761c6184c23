"""Named training sets that need nothing downloaded, a text file of one's own, and the full mixture."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from lab.data import corpora, packed, templated
from lab.errors import LabError
from lab.paths import cache


@dataclass(frozen=True)
class Preset:
    """What a training set is for, and the weight of each domain in it."""

    title: str
    weights: dict[str, float]


PRESETS = {
    "mixed": Preset("facts, names, sums and lists", {"facts": 0.5, "ioi": 0.2, "sums": 0.15, "repeats": 0.15}),
    "first": Preset("first facts: capitals and landmarks, known within a minute", {"first": 1.0}),
    "facts": Preset("facts in many phrasings", {"facts": 1.0}),
    "ioi": Preset("indirect objects: who gets the drink", {"ioi": 1.0}),
    "sums": Preset("additions of two digits", {"sums": 1.0}),
    "repeats": Preset("repeated lists", {"repeats": 1.0}),
    "pocket": Preset(
        "the mixture of the bundled models",
        {"prose": 0.36, "code": 0.09, "maths": 0.05, "facts": 0.26, "ioi": 0.04, "sums": 0.15, "repeats": 0.05},
    ),
}
FILE = "file:"  # "file:/path/to/text" trains on a text of the user's
HELD_TOKENS = 200_000  # of each domain, to validate on
KEPT_FROM = 2_000_000  # tokens of generated text from which a stream is cached


def weights(name: str) -> dict[str, float]:
    """The domains of a training set; LabError when there is none of that name."""
    if name.startswith(FILE):
        return {"text": 1.0}
    if name not in PRESETS:
        raise LabError(f"There is no training set {name!r}: choose one of {', '.join(PRESETS)}, or {FILE}<path>.")
    return PRESETS[name].weights


def _file(name: str) -> tuple[str, str]:
    """Training and held-out part of a user's file: the last twentieth is held out."""
    path = Path(name.removeprefix(FILE)).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path} cannot be read ({error.strerror}): give the path of a text file.") from None
    except UnicodeDecodeError:
        raise LabError(f"{path} is not UTF-8 text: convert it, or choose another file.") from None
    if len(text) < 2_000:
        raise LabError(f"{path} holds {len(text)} characters: a training text needs at least 2,000.")
    cut = len(text) - len(text) // 20
    return text[:cut], text[cut:]


def _texts(name: str, domain: str, held: bool, seed: int) -> Iterator[str]:
    if domain == "text":
        yield _file(name)[held]
    elif domain in corpora.DOMAINS:
        yield from corpora.load(domain, held)
    else:
        yield from templated.pages(domain, seed * 2 + held)


def stream(
    name: str, domain: str, held: bool, tokenizer: tokenizers.Tokenizer, mark: int, tokens: int, seed: int
) -> packed.Stream:
    """One domain as tokens: generated text up to `tokens`, a corpus whole. What took long to make is cached."""
    texts = _texts(name, domain, held, seed)
    if domain not in corpora.DOMAINS and tokens < KEPT_FROM:
        return packed.tokenise(tokenizer, texts, mark, tokens)
    limit = None if domain in corpora.DOMAINS else tokens
    words = hashlib.blake2b(tokenizer.to_str().encode(), digest_size=4).hexdigest()
    part = f"{domain}.{'held' if held else 'train'}" + (f".{tokens}.{seed}" if limit else "")
    path = cache() / "streams" / f"{part}.{words}.npy"
    if not path.exists():
        packed.tokenise(tokenizer, texts, mark, limit).save(path)
    return packed.Stream.load(path, mark)


def sizes(name: str, tokens: int) -> dict[str, int]:
    """How many tokens of each domain are made when `tokens` of generated text are shared out by weight."""
    share = weights(name)
    generated = {d: w for d, w in share.items() if d not in corpora.DOMAINS}
    total = sum(generated.values()) or 1.0
    return {d: max(int(tokens * generated.get(d, total) / total), 4_096) for d in share}


def streams(
    name: str, tokenizer: tokenizers.Tokenizer, mark: int, tokens: int, seed: int
) -> tuple[dict[str, packed.Stream], dict[str, packed.Stream]]:
    """Training and held-out streams of a training set, by domain; `tokens` of generated text in all."""
    amounts = sizes(name, tokens)
    held_size = min(HELD_TOKENS, max(tokens // 20, 4_096))
    train = {d: stream(name, d, False, tokenizer, mark, n, seed) for d, n in amounts.items()}
    held = {d: stream(name, d, True, tokenizer, mark, held_size, seed) for d in amounts}
    return train, held
