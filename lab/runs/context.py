"""What a run's own code sees of its run."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import jsonl
from lab.errors import LabError
from lab.runs import checkpoints
from lab.runs.checkpoints import Checkpoint

CANCEL = "cancel"  # a file of this name in the run's directory asks it to stop


class Context:
    """Handed to `work(spec, ctx)`; every method may be called from the run's process only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stopping = threading.Event()  # set by signals and by the watcher of the cancel file
        self.heeded = False
        self._metrics = jsonl.Appender(path / "metrics.jsonl")

    def log(self, step: int, **values: float | int | str | bool) -> None:
        """Append one row to metrics.jsonl: numbers (tensors of one element too), or text such as a sample."""
        row: jsonl.Row = {"step": int(step), "time": round(time.time(), 3)}
        self._metrics.append(row | {key: _plain(value) for key, value in values.items()})

    @contextmanager
    def checkpoint(self, step: int) -> Iterator[Path]:
        """A directory to fill; it becomes the checkpoint of `step` when it is complete and on the disk."""
        with checkpoints.writing(self.path / "checkpoints", int(step)) as directory:
            yield directory
        self._metrics.sync()  # rows up to a checkpoint survive a power cut too

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint whose every byte is as written, or None."""
        for checkpoint in reversed(checkpoints.listed(self.path / "checkpoints")):
            try:
                return checkpoint.verify()
            except LabError as error:
                self.note(str(error))
        return None

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to stop: write what should be kept and return."""
        if self.stopping.is_set() or (self.path / CANCEL).exists():
            self.heeded = True
        return self.heeded

    def note(self, text: str) -> None:
        """A line in log.txt."""
        print(time.strftime("%H:%M:%S"), text, flush=True)

    def close(self) -> None:
        self._metrics.sync()
        self._metrics.close()


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    return value.item()  # a tensor or a numpy scalar
