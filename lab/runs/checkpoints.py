"""Checkpoints that are whole or absent.

A checkpoint is written in a hidden directory, gets a manifest of sizes and checksums, reaches the disk, and
only then takes its name. What bears the name `step-00000100` and matches its manifest is complete.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.runs import files

MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint of a run."""

    step: int
    path: Path

    def verify(self) -> "Checkpoint":
        """Read every byte against the manifest; LabError names the file that differs."""
        if problem := _problem(self.path, deep=True):
            raise LabError(f"The checkpoint {self.path} cannot be used: {problem}. Choose another step.")
        return self


def name(step: int) -> str:
    """The directory name of a step; eight digits, so that names sort as steps do."""
    return f"step-{step:08d}"


def listed(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints, oldest first; sizes are checked here, contents by `verify`."""
    found = []
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        paths = []
    except OSError as error:
        raise LabError(f"{folder} cannot be read ({error.strerror}).") from error
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match and not _problem(path, deep=False):
            found.append(Checkpoint(int(match[1]), path))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


@contextmanager
def writing(folder: Path, step: int) -> Iterator[Path]:
    """Give a directory to fill; on leaving without an error it becomes the checkpoint of `step`.

    A full disk becomes a LabError, the partial copy is removed, and earlier checkpoints are as they were.
    """
    aside, final = folder / f".writing-{name(step)}", folder / name(step)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder.mkdir(exist_ok=True)  # never the run's own directory, which somebody may have deleted
        aside.mkdir()
        yield aside
        _seal(aside)
        _put(aside, final)
    except BaseException as error:
        full = isinstance(error, Exception) and files.disk_full(error, folder)
        shutil.rmtree(aside, ignore_errors=True)
        if not full:
            raise
        earlier = [checkpoint.step for checkpoint in listed(folder)]
        kept = f"the one at step {earlier[-1]} is intact" if earlier else "there is no earlier one"
        raise LabError(
            f"The disk is full: the checkpoint at step {step} was not written, {kept}; free some room and resume."
        ) from error


def sweep(folder: Path) -> None:
    """Remove what an interrupted write left behind, and put back a checkpoint that was being replaced."""
    if not folder.is_dir():
        return
    for path in folder.glob(".old-*"):
        final = folder / path.name.removeprefix(".old-")
        if not final.exists():
            path.rename(final)
    for path in (*folder.glob(".writing-*"), *folder.glob(".old-*")):
        shutil.rmtree(path)


def _seal(aside: Path) -> None:
    inside = sorted(path for path in aside.rglob("*") if path.is_file())
    rows = {
        str(path.relative_to(aside)): {"bytes": path.stat().st_size, "sha256": _sum(path)} for path in inside
    }
    if not rows:
        raise ValueError("a checkpoint with no files")
    (aside / MANIFEST).write_text(json.dumps(rows, indent=1) + "\n")
    for path in (*inside, aside / MANIFEST, *(p for p in aside.rglob("*") if p.is_dir()), aside):
        files.sync(path)


def _put(aside: Path, final: Path) -> None:
    """Take the final name; a checkpoint of the same step steps aside first and goes when this one stands."""
    old = final.with_name(f".old-{final.name}")
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    aside.rename(final)
    files.sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _problem(path: Path, deep: bool) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        rows = json.loads((path / MANIFEST).read_text())
        for file, row in rows.items():
            size = (path / file).stat().st_size
            if size != row["bytes"]:
                return f"{file} has {size} bytes instead of {row['bytes']}"
            if deep and _sum(path / file) != row["sha256"]:
                return f"{file} is not what was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{MANIFEST} or what it lists cannot be read ({error.strerror})"
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is damaged"
    return None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
