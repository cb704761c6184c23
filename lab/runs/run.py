"""A run seen from outside: from a notebook, the front page or a terminal."""

import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import jsonl, paths
from lab.errors import LabError
from lab.runs import checkpoints, files, process
from lab.runs.checkpoints import Checkpoint
from lab.runs.context import CANCEL

LIVE = ("starting", "running")
STATES = (*LIVE, "done", "cancelled", "failed")  # what a run writes; "lost" is seen from outside
_STARTING_S = 30.0  # a process that has not reported by then never will

# Children of this process, so that the ended ones are reaped and do not stay as zombies.
_children: list[subprocess.Popen] = []


@dataclass(frozen=True)
class Run:
    """One run directory. Nothing is cached: every question is answered from the disk."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def spec(self) -> dict[str, Any]:
        """What the run was asked to do; LabError when spec.json cannot be read."""
        return self._told()["spec"]

    @property
    def kind(self) -> str:
        return self._told()["kind"]

    @property
    def name(self) -> str:
        """The name a person gave it, or its id."""
        return self._told()["name"] or self.id

    @property
    def created(self) -> float:
        """When it was started, in seconds since 1970."""
        return self._told()["created"]

    @property
    def status(self) -> dict[str, Any]:
        """status.json as the run wrote it; LabError when it cannot be read."""
        row = files.read_json(self.path / "status.json")
        if not {"state", "error"} <= row.keys():
            raise LabError(f"{self.path / 'status.json'} lacks its state; mend it or delete the run.")
        told = (row.get("process", ""), row["error"], row.get("pid", 0), row.get("attempt", 0))
        times = _is_time(row.get("started")) and (row.get("ended") is None or _is_time(row["ended"]))
        if row["state"] not in STATES or not times or not all(map(isinstance, told, (str, str | None, int, int))):
            raise LabError(f"{self.path / 'status.json'} holds something else than a run writes; delete the run.")
        return row

    @property
    def state(self) -> str:
        """ "starting", "running", "done", "cancelled", "failed" or "lost" (its process was killed).

        A directory that somebody damaged counts as failed; `error` says what is wrong with it.
        """
        try:
            self._told()
            row = self.status
            if row["state"] not in LIVE or self._lives(row):
                return row["state"]
            # It may have ended between the two looks: only its last word counts.
            last = self.status["state"]
        except LabError:
            return "failed"
        if last not in LIVE:
            return last
        return "cancelled" if (self.path / CANCEL).exists() else "lost"

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def error(self) -> str | None:
        """One sentence when the run failed, was lost or its directory is damaged."""
        try:
            self._told()
            row = self.status
        except LabError as error:
            return str(error)
        if row["error"] is None and self.state == "lost":
            return "The run's process was killed; what it wrote is kept, and it can be resumed."
        return row["error"]

    def metrics(self, after: int = 0) -> list[jsonl.Row]:
        """Rows of metrics.jsonl past the first `after`; a torn last row is not shown.

        A resumed run logs the steps since its checkpoint again: the newer row takes the older one's place.
        """
        rows: dict[tuple, jsonl.Row] = {}
        for row in jsonl.read(self.path / "metrics.jsonl"):
            rows[row.get("step"), tuple(sorted(row))] = row
        return list(rows.values())[after:]

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first."""
        return checkpoints.listed(self.path / "checkpoints")

    def log(self) -> str:
        """What the run printed."""
        path = self.path / "log.txt"
        try:
            return path.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise LabError(f"{path} cannot be read ({error.strerror}).") from error

    def cancel(self, wait: float = 0.0) -> None:
        """Ask the run to stop; it keeps a last checkpoint, and ends by force when it does not listen.

        Returns at once, or after up to `wait` seconds, when whatever still runs is killed.
        """
        if not self.live:
            raise LabError(f"The run {self.id} is not running: it is {self.state}.")
        try:
            (self.path / CANCEL).touch()
        except OSError as error:
            raise LabError(f"The run {self.id} cannot be told to stop ({error.strerror}: {self.path}).") from error
        until = time.monotonic() + wait
        while wait and self.live and time.monotonic() < until:
            time.sleep(0.05)
        if wait and self.live and "pid" in (row := self.status):
            process.kill(row["pid"], row["process"])

    def resume(self) -> "Run":
        """Go on from the newest complete checkpoint, in a new process."""
        told = self._told()
        with files.exclusive(self.path / "resume.lock"):  # two tabs may press the same button
            if (state := self.state) in (*LIVE, "done"):
                raise LabError(f"The run {self.id} is {state}: there is nothing to resume.")
            (self.path / CANCEL).unlink(missing_ok=True)
            attempt = self.status.get("attempt", 0)
            files.write_json(self.path / "status.json", starting(attempt))
            launch(self.path, told)
        return self

    def wait(self, timeout: float) -> str:
        """Wait for the end of the run, at most `timeout` seconds; returns the state."""
        until = time.monotonic() + timeout
        while (state := self.state) in LIVE and time.monotonic() < until:
            time.sleep(0.02)
        return state

    def delete(self) -> None:
        """Remove the directory and everything in it; refused while the run is live."""
        if self.live:
            raise LabError(f"The run {self.id} is {self.state}: cancel it before deleting it.")
        aside = self.path.with_name(f".deleted-{self.id}")
        try:
            self.path.rename(aside)  # gone from every list at once
        except FileNotFoundError:
            raise LabError(f"There is no run {self.id!r} any more; it was deleted already.") from None
        except OSError as error:
            raise LabError(f"The run {self.id} cannot be deleted ({error.strerror}: {self.path}).") from error
        for path in self.path.parent.glob(".deleted-*"):  # also what an interrupted deletion left
            shutil.rmtree(path, ignore_errors=True)  # another tab may be at it; what stays, the next one removes

    def _told(self) -> dict[str, Any]:
        row = files.read_json(self.path / "spec.json")
        if missing := {"kind", "work", "name", "created", "spec"} - row.keys():
            raise LabError(f"{self.path / 'spec.json'} lacks {min(missing)!r}; mend it or delete the run.")
        told = (row["kind"], row["work"], row["name"], row["spec"])
        if not all(map(isinstance, told, (str, str, str | None, dict))) or not _is_time(row["created"]):
            raise LabError(f"{self.path / 'spec.json'} holds something else than a run writes; delete the run.")
        return row

    def _lives(self, row: dict[str, Any]) -> bool:
        for child in _children[:]:
            if child.poll() is not None:
                _children.remove(child)
        if "pid" in row:
            return process.alive(row["pid"], row.get("process", ""))
        return time.time() - row.get("started", 0) < _STARTING_S


def _is_time(value: Any) -> bool:
    """Whether this is a time in seconds since 1970 that a clock can show."""
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1e11


def starting(attempt: int) -> dict[str, Any]:
    """The status of a run whose process has not reported yet."""
    return {"state": "starting", "attempt": attempt, "started": time.time(), "error": None}


def launch(path: Path, told: dict[str, Any]) -> None:
    """Start the run's process in a session of its own: it outlives the notebook and the server."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(paths.ROOT), os.environ.get("PYTHONPATH", "")])}
    with (path / "log.txt").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "lab.runs.child", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=paths.ROOT,
            env=env,
            start_new_session=True,
        )
    _children.append(child)
