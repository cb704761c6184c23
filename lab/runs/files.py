"""Small files written whole, and read with a sentence when somebody edited them."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.errors import LabError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write aside and rename, so that a reader sees the old file or the new one, never half of one."""
    data = json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        if not disk_full(error, path.parent) or not path.exists():
            raise
        # No room for a second copy; the old file's own block still takes these few hundred bytes.
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; LabError when it is missing or is not one."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise LabError(f"{path.name} is missing from {path.parent}; restore it or delete the run.") from error
    except OSError as error:
        raise LabError(f"{path} cannot be read ({error.strerror}); mend it or delete the run.") from error
    except (ValueError, RecursionError) as error:
        raise LabError(f"{path} is not valid JSON ({error}); mend it or delete the run.") from error
    if not isinstance(value, dict):
        raise LabError(f"{path} does not hold a JSON object; mend it or delete the run.")
    return value


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """One holder at a time, among threads and processes; the lock goes with its holder."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LabError(f"{path.parent} cannot be written ({error.strerror}).") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, reach the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def disk_full(error: BaseException, where: Path) -> bool:
    """Whether a write failed for want of room: by its error number, by what the Rust writer says of it
    (safetensors raises its own class), or, where the library swallowed both, by the room that is left."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    if any(f"os error {number}" in str(error) for number in _FULL):
        return True
    return isinstance(error, RuntimeError) and shutil.disk_usage(where).free < 2**20
