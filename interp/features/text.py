"""Text to look for features in, which needs nothing downloaded: generated pages of the kinds pocket was trained on, with
seeds it never saw, and as prose and code what the lab and the packages under it say about themselves."""

from __future__ import annotations

import functools
import importlib.metadata
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab import paths
from lab.data import packed, templated
from lab.errors import LabError
from lab.models import LM

#: share of each domain in tokens: pocket's own mixture, without the mathematics
WEIGHTS = {"prose": 0.38, "code": 0.10, "facts": 0.27, "ioi": 0.04, "sums": 0.16, "repeats": 0.05}
PACKAGES = ("numpy", "plotly", "polars", "marimo", "safetensors", "tokenizers", "transformers", "torch", "anywidget", "pytest")
SEED = 90_001  # of the generated pages; training used 0 and 1
PAGE = 1_500  # characters a page of prose or code has at most


@dataclass(frozen=True)
class Text:
    """Windows of text: `tokens [rows, context + 1]` and the domain of each row."""

    tokens: Tensor
    domains: list[str]

    @property
    def positions(self) -> int:
        return self.tokens[:, 1:].numel()


def _paged(texts: Iterator[str]) -> list[str]:
    """Pages of whole paragraphs, in random but fixed order."""
    pages: list[str] = []
    for text in texts:
        page = ""
        for paragraph in text.split("\n\n"):
            if page and len(page) + len(paragraph) > PAGE:
                pages.append(page)
                page = ""
            page = f"{page}\n\n{paragraph}" if page else paragraph
        pages.append(page)
    random.Random(0).shuffle(pages)
    return [page for page in pages if len(page) > 80]


@functools.cache
def prose() -> list[str]:
    """The lab's documents and what packages say of themselves."""

    def texts() -> Iterator[str]:
        for path in (paths.ROOT / "README.md", *sorted((paths.ROOT / "docs").glob("*.md"))):
            if path.is_file():
                yield path.read_text(encoding="utf-8")
        for name in PACKAGES:
            try:
                yield (importlib.metadata.distribution(name).read_text("METADATA") or "").partition("\n\n")[2]
            except importlib.metadata.PackageNotFoundError:
                continue  # what is not installed has nothing to say

    return _paged(texts())


@functools.cache
def code() -> list[str]:
    """The lab's own source."""
    return _paged(p.read_text(encoding="utf-8") for part in ("lab", "kernels", "interp") for p in sorted((paths.ROOT / part).rglob("*.py")))


def _pages(domain: str) -> Iterator[str]:
    if domain in ("prose", "code"):
        return iter(prose() if domain == "prose" else code())
    return templated.pages(domain, SEED)


def text(lm: LM, positions: int, context: int = 128) -> Text:
    """About `positions` positions in rows of `context`, mixed as in `WEIGHTS`; the same text at every call.

    Prose and code end where there is no more of them.
    """
    mark = lm.tokenizer.eos if lm.tokenizer.eos is not None else lm.tokenizer.bos
    if mark is None:
        raise LabError(f"{lm.name} has no token that ends a text: choose another model.")
    context = min(context, lm.config.context - 1)
    rows, domains = [], []
    for domain, weight in WEIGHTS.items():
        wanted = max(1, round(positions * weight / context))
        stream = packed.tokenise(lm.tokenizer.inner, _pages(domain), mark, wanted * (context + 1))
        n = len(stream) // (context + 1)
        rows.append(stream.tokens[: n * (context + 1)].reshape(n, context + 1))
        domains += [domain] * n
    order = np.random.default_rng(0).permutation(len(domains))
    return Text(torch.from_numpy(np.concatenate(rows)[order]).long(), [domains[i] for i in order])


def rows_of(lm: LM, sentence: str) -> Tensor:
    """A typed sentence as a row `[1, pos]`; LabError when it is empty or too long."""
    if not sentence.strip():
        raise LabError("The sentence is empty: type at least one word.")
    return lm.tokens(sentence)

