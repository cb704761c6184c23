"""Append-only tables of JSON rows, one a line: written whole, read without a torn last row.

A row is handed to the kernel in one write, so a process killed at any moment leaves whole rows and at most
one torn one, at the end. Readers leave a torn last row out; the next writer cuts it off.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

from lab.errors import LabError

# JSON has no words for these, and a loss that became NaN must be seen as such.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Row = dict[str, Any]


def finite(value: Any) -> Any:
    """The value with every number in it that is not finite replaced by its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def dump(row: Row) -> bytes:
    """One line of strict JSON; numbers that are not finite are written as their names."""
    text = json.dumps(finite(row), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def _load(line: bytes, path: Path, number: int) -> Row:
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("not an object")
        if any(not isinstance(row.get(key, 0), int | float) for key in ("step", "time")):
            raise ValueError("its step or time is not a number")
    except (ValueError, RecursionError) as error:
        raise LabError(
            f"Line {number} of {path} is not a JSON object ({error}); mend or remove that line."
        ) from error
    return {k: _NOT_FINITE.get(v, v) if isinstance(v, str) else v for k, v in row.items()}


class Appender:
    """Appends rows to one file that no other process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        repair(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, row: Row) -> None:
        """Write one row, whole or not at all; OSError when the disk does not take it."""
        line = dump(row)
        size = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, line)
            while written < len(line):  # a disk that is nearly full takes a part; the next write says why
                written += os.write(self._fd, line[written:])
        except OSError:
            os.ftruncate(self._fd, size)
            raise

    def sync(self) -> None:
        """Reach the disk itself: kill -9 does not need this, a power cut does."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class Tail:
    """Reads what has been appended since the last look; remembers its place in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._line = 0

    def rows(self) -> list[Row]:
        """Rows completed since the last call; LabError when a whole line is not JSON."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LabError(f"{self.path} cannot be read ({error.strerror}); mend or remove it.") from error
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        rows = [_load(line, self.path, n) for n, line in enumerate(lines, self._line + 1) if line.strip()]
        self._offset, self._line = self._offset + len(whole), self._line + len(lines)
        return rows


def read(path: Path) -> list[Row]:
    """Every whole row of the file; none when there is no file."""
    return Tail(path).rows()


def repair(path: Path) -> int:
    """Cut off a torn last row; returns the bytes removed."""
    try:
        with path.open("r+b") as file:
            data = file.read()
            torn = len(data) - (data.rfind(b"\n") + 1)
            if torn:
                file.truncate(len(data) - torn)
            return torn
    except FileNotFoundError:
        return 0
