"""Readers that turn the formats found in packages into plain documents. Each takes a folder, yields str."""

import gzip
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

Reader = Callable[[Path], Iterator[str]]


def unwrap(text: str) -> str:
    """Hard-wrapped paragraphs on one line each; indented and list lines stay as they are."""
    paragraphs = re.split(r"\n\s*\n", text)
    joined = []
    for p in paragraphs:
        lines = p.strip("\n").split("\n")
        plain = all(not line.startswith((" ", "\t", "-", "*", "+", "|", "..", "=", "#")) for line in lines)
        joined.append(" ".join(line.strip() for line in lines) if plain else "\n".join(lines))
    return "\n\n".join(joined)


def read(path: Path) -> str:
    """A text file, gzip or plain, with undecodable bytes replaced."""
    data = gzip.decompress(path.read_bytes()) if path.suffix in {".gz", ".dz"} else path.read_bytes()
    return data.decode("utf-8", errors="replace")


def files(folder: Path, *patterns: str) -> Iterator[Path]:
    """Regular files that match, sorted so that every machine reads them in one order."""
    yield from sorted(p for pattern in patterns for p in folder.rglob(pattern) if p.is_file() and not p.is_symlink())


def texts(*patterns: str, without: str = r"(?!)") -> Reader:
    """A reader of plain text files: one file, one document; `without` is a pattern of paths to leave out."""

    def reader(folder: Path) -> Iterator[str]:
        for path in files(folder, *patterns):
            if not re.search(without, str(path.relative_to(folder))):
                yield read(path)

    return reader


def wiki(folder: Path) -> Iterator[str]:
    """Encyclopaedia introductions: title, then the extract."""
    for path in files(folder, "summaries_en-us.json"):
        for row in json.loads(path.read_text()).values():
            yield f"{row['title']}\n{row['extract']}"


def wordnet(folder: Path) -> Iterator[str]:
    """Glosses with their words, about a screen of neighbouring senses to a document."""
    kinds = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
    for path in files(folder, "data.noun", "data.verb", "data.adj", "data.adv"):
        page: list[str] = []
        for line in path.read_text().splitlines():
            if line.startswith("  "):
                continue
            head, gloss = line.split(" | ", 1)
            parts = head.split()
            words = [parts[4 + 2 * i].replace("_", " ").split("(")[0] for i in range(int(parts[3], 16))]
            page.append(f"{', '.join(words)} ({kinds[path.suffix[1:]]}): {gloss.strip()}")
            if len(page) == 12:
                yield "\n".join(page)
                page = []
        if page:
            yield "\n".join(page)


def dictionary(folder: Path) -> Iterator[str]:
    """dictd databases: entries start in the first column; pronunciation marks and source tags are dropped."""
    for path in files(folder, "*.dict.dz"):
        for entry in re.split(r"\n(?=\S)", read(path)):
            text = re.sub(r" \\[^\\\n]{1,60}\\", "", entry)
            text = re.sub(r"\[(?:1913 Webster|PJC|WordNet[^\]]*|Webster 1913[^\]]*)[^\]]*\]", "", text)
            text = re.sub(r"[{}]", "", text)
            lines = [line.strip() for line in text.split("\n")]
            text = re.sub(r"(?<=\S)\n(?=\S)", " ", "\n".join(lines))
            yield re.sub(r"\n{2,}", "\n", text).strip()


def fortunes(folder: Path) -> Iterator[str]:
    """Epigrams, one a document."""
    for path in files(folder, "games/fortunes/*"):
        if path.suffix == "":
            yield from (f.strip() for f in re.split(r"\n%\n", read(path)))


def rdata(folder: Path) -> Iterator[str]:
    """Character vectors of an R lazy-load database: zlib blocks of XDR, strings are CHARSXP records."""
    for path in files(folder, "data/Rdata.rdb"):
        data, at = path.read_bytes(), 0
        while at + 6 < len(data):
            block = zlib.decompressobj()
            xdr = block.decompress(data[at + 4 :])
            at = len(data) - len(block.unused_data)
            lines, i = [], 0
            while (i := xdr.find(b"\x00\x04\x00\x09", i)) >= 0 and i + 8 <= len(xdr):
                (size,) = struct.unpack(">i", xdr[i + 4 : i + 8])
                size = max(size, 0)
                lines.append(xdr[i + 8 : i + 8 + size].decode("utf-8", errors="replace"))
                i += 8 + size
            yield from split_long(unwrap("\n".join(lines)))


def split_long(text: str, limit: int = 12_000) -> Iterator[str]:
    """Cut a book at paragraph ends into pieces of about `limit` characters."""
    piece: list[str] = []
    for paragraph in text.split("\n\n"):
        piece.append(paragraph)
        if sum(map(len, piece)) > limit:
            yield "\n\n".join(piece)
            piece = []
    if piece:
        yield "\n\n".join(piece)


def metamath(folder: Path) -> Iterator[str]:
    """Statements with their comments, a dozen to a document; compressed proofs are left out."""
    for path in files(folder, "set.mm", "iset.mm", "nf.mm", "hol.mm"):
        page: list[str] = []
        source = path.read_text(errors="replace")
        for comment, label, body in re.findall(
            r"\$\(\s((?:(?!\$\)).)*?)\s\$\)\s+(\S+) \$[ap] (.*?)\s\$[.=]", source, flags=re.S
        ):
            text = " ".join(comment.split())
            page.append(f"{text}\n{label}: {' '.join(body.split())}")
            if len(page) == 8:
                yield "\n\n".join(page)
                page = []
        if page:
            yield "\n\n".join(page)


class _Text(HTMLParser):
    """Visible text of a page; block elements end a line."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.skip = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "style", "head", "nav"}:
            self.skip += 1
        elif tag in {"p", "div", "li", "tr", "h1", "h2", "h3", "h4", "pre", "br", "dt", "dd"}:
            self.out.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style", "head", "nav"}:
            self.skip = max(0, self.skip - 1)

    def handle_data(self, data: str) -> None:
        if not self.skip:
            self.out.append(re.sub(r"\s+", " ", data))


def html(pattern: str) -> Reader:
    """A reader of web pages: visible text, one page a document."""

    def reader(folder: Path) -> Iterator[str]:
        for path in files(folder, pattern):
            parser = _Text()
            parser.feed(read(path))
            yield re.sub(r"\n\s*\n+", "\n", "".join(parser.out)).strip()

    return reader
