"""The notebooks there are, read from their files: a new file appears by itself."""

import inspect
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab import paths

#: The loop in its order: id, title, what one does there.
STATIONS = (
    ("data", "Data", "Filter, deduplicate, mix, generate."),
    ("train", "Training", "Pretrain, shard, watch it learn."),
    ("kernels", "Kernels", "Make the hardware do less."),
    ("inference", "Inference", "Serve it: cache, batch, quantize."),
    ("evals", "Evals", "Judge it, and judge the judge."),
    ("posttrain", "Post-training", "Teach it what good means."),
    ("interp", "Interpretability", "Open it and change what it believes."),
    ("research", "Research", "Let the machine run the next experiment."),
    ("deploy", "Deploy", "Put it where people work."),
)
TITLES = {id: title for id, title, _ in STATIONS}
# The first thing in the file but comments. Not `ast`: CPython 3.11's parser fails now and then ("AST constructor
# recursion depth mismatch") when several threads parse, and here every tab looks at the files.
_DOCSTRING = re.compile(r"\A(?:\s*#[^\n]*\n)*\s*(?P<q>\"{3}|'{3})(.*?)(?P=q)", re.DOTALL)
_FIELD = re.compile(r"^[ \t]*(exhibits|start|order)[ \t]*:[ \t]*(.*(?:(?<=,)\n.*)*)$", re.MULTILINE)


@dataclass(frozen=True)
class Notebook:
    """One file of `notebooks/<station>/<topic>.py`; `path` is `station/topic`, also its address under /nb/."""

    path: str
    station: str
    title: str
    question: str
    exhibits: tuple[str, ...] = ()
    start: str | None = None  # a line for "Start here"
    minutes: str | None = None
    order: float = 100.0


def docstring(file: Path) -> str:
    """The text a module begins with, or nothing."""
    found = _DOCSTRING.match(file.read_text("utf-8", errors="replace"))
    return inspect.cleandoc(found[2]) if found else ""


def read(file: Path, root: Path) -> Notebook:
    """A notebook's entry from its docstring: title, question, then `exhibits:`, `start:`, `order:` lines.

    A file without one is listed under its name."""
    path = file.relative_to(root).with_suffix("").as_posix()
    station = path.split("/", 1)[0]
    fallback = file.stem.replace("_", " ").capitalize()
    doc = docstring(file)
    fields = {key: " ".join(value.split()) for key, value in _FIELD.findall(doc)}
    prose = [" ".join(p.split()) for p in re.split(r"\n\s*\n", _FIELD.sub("", doc)) if p.strip()]
    start, _, minutes = fields.get("start", "").rpartition(",")
    if fields.get("start") and not re.fullmatch(r"\s*\d+ min", minutes):
        start, minutes = fields["start"], ""
    order = re.fullmatch(r"[\d.]+", fields.get("order", ""))
    return Notebook(
        path, station,
        title=prose[0].rstrip(".") if prose else fallback,
        question=prose[1] if len(prose) > 1 else "",
        exhibits=tuple(e.strip().rstrip(".") for e in fields.get("exhibits", "").split(",") if e.strip()),
        start=start or None, minutes=minutes.strip() or None,
        order=float(order[0]) if order else 100.0,
    )  # fmt: skip


def notebooks(root: Path | None = None) -> list[Notebook]:
    """Every notebook of a known station, in the loop's order, then `order`, then title."""
    root = root or paths.NOTEBOOKS
    places = {id: n for n, (id, _, _) in enumerate(STATIONS)}
    found = [
        read(file, root)
        for file in sorted(root.glob("*/**/*.py"))
        if file.relative_to(root).parts[0] in places
        and not any(part.startswith(("_", ".")) for part in file.relative_to(root).parts)
    ]
    return sorted(found, key=lambda n: (places[n.station], n.order, n.title))


def listed() -> list[dict[str, Any]]:
    """`notebooks` as the front page wants them."""
    return [asdict(n) for n in notebooks()]
