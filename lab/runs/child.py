"""The process of one run: `python -m lab.runs.child <run directory>`."""

import fcntl
import os
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.runs import checkpoints, files, kinds, process
from lab.runs.context import CANCEL, Context

#: Seconds a run has to stop by itself once it is asked to; then its process ends.
GRACE = 20.0


class Status:
    """status.json, written only by the process that holds the run's lock."""

    def __init__(self, path: Path, attempt: int) -> None:
        self._file = path / "status.json"
        self._lock = threading.Lock()
        self._ended = False
        self.row: dict[str, Any] = {
            "state": "running",
            "pid": os.getpid(),
            "process": process.mark(os.getpid()),
            "host": socket.gethostname(),
            "attempt": attempt,
            "started": time.time(),
            "ended": None,
            "error": None,
        }
        files.write_json(self._file, self.row)

    def end(self, state: str, error: str | None = None) -> None:
        """Write the last state; the first caller wins."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self.row |= {"state": state, "ended": time.time(), "error": error}
                files.write_json(self._file, self.row)


def _watch(ctx: Context, status: Status) -> None:
    """End a run that was asked to stop and takes no notice: the work may be deep in one call.

    Work that has noticed is left to write its last checkpoint.
    """
    while not (ctx.stopping.wait(0.25) or (ctx.path / CANCEL).exists()):
        if not (ctx.path / "spec.json").exists():  # somebody deleted the directory: nothing left to work for
            os._exit(1)
    ctx.stopping.set()
    time.sleep(float(os.environ.get("LAB_GRACE", GRACE)))
    if ctx.heeded:
        return
    print("asked to stop and did not: ending the process", flush=True)
    status.end("cancelled")
    os._exit(1)


def _alone(path: Path) -> bool:
    """Take the run's lock, which goes with this process and is not inherited by its children: two processes never
    write one run. A process that has said its last word may take seconds to go, so a resumed run waits for it."""
    lock = os.open(path / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    until = time.monotonic() + GRACE
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if files.read_json(path / "status.json")["state"] != "starting" or time.monotonic() > until:
                return False
            time.sleep(0.05)


def main(path: Path) -> int:
    if not _alone(path):
        print("another process already works on this run", flush=True)
        return 1
    before = files.read_json(path / "status.json")
    status = Status(path, before.get("attempt", 0) + 1)
    try:
        spec = files.read_json(path / "spec.json")
        checkpoints.sweep(path / "checkpoints")
        ctx = Context(path)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ctx.stopping.set())
        threading.Thread(target=_watch, args=(ctx, status), daemon=True).start()
        kinds.load(kinds.trusted(spec["kind"], spec["work"]))(spec["spec"], ctx)
        ctx.close()
    except LabError as error:
        print(error, flush=True)
        status.end("failed", str(error))
        return 1
    except BaseException as error:  # whatever it was, the status must say that the run ended and why
        traceback.print_exc()
        status.end("failed", _sentence(error, path))
        return 1
    status.end("cancelled" if ctx.heeded else "done")
    return 0


def _sentence(error: BaseException, path: Path) -> str:
    if files.disk_full(error, path):
        return "The disk is full: what was written before is intact; free some room and resume."
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "The memory is full: choose a smaller model, batch or context."
    return f"{type(error).__name__}: {error} (the log has the traceback)"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
