"""Named training sets that need nothing downloaded, a text file of one's own, and the full mixture."""

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
        {"prose": 0.34, "code": 0.10, "maths": 0.06, "facts": 0.26, "ioi": 0.07, "sums": 0.11, "repeats": 0.06},
    ),
}
FILE = "file:"  # "file:/path/to/text" trains on a text of the user's
HELD_TOKENS = 200_000  # of each domain, to validate on


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
    """One domain as tokens: generated text up to `tokens`, a corpus whole (tokenised once, then cached)."""
    if domain not in corpora.DOMAINS:
        return packed.tokenise(tokenizer, _texts(name, domain, held, seed), mark, tokens)
    path = cache() / "streams" / f"{domain}.{'held' if held else 'train'}.{tokenizer.get_vocab_size()}.xz"
    if not path.exists():
        packed.tokenise(tokenizer, _texts(name, domain, held, seed), mark).save(path)
    return packed.Stream.load(path, mark)


def streams(
    name: str, tokenizer: tokenizers.Tokenizer, mark: int, tokens: int, seed: int
) -> tuple[dict[str, packed.Stream], dict[str, packed.Stream]]:
    """Training and held-out streams of a training set, by domain; `tokens` of generated text in all."""
    share = weights(name)
    generated = {d: w for d, w in share.items() if d not in corpora.DOMAINS and d != "text"}
    total = sum(generated.values()) or 1.0

    def size(domain: str) -> int:
        return max(int(tokens * generated.get(domain, total) / total), 4_096)

    train = {d: stream(name, d, False, tokenizer, mark, size(d), seed) for d in share}
    held_size = min(HELD_TOKENS, max(tokens // 20, 4_096))
    held = {d: stream(name, d, True, tokenizer, mark, held_size, seed) for d in share}
    return train, held
