"""Runs: work in a process of its own, with a directory that outlives it.

run = lab.runs.start("train", spec)      # returns at once
run.state, run.metrics(), run.checkpoints(), run.cancel(), run.resume(), run.delete()
"""

import re
import secrets
import shutil
import sys
import time
from typing import Any

from lab import paths, records
from lab.errors import LabError
from lab.runs import files, kinds
from lab.runs.checkpoints import Checkpoint
from lab.runs.context import Context
from lab.runs.run import LIVE, Run, launch, starting

__all__ = ["LIVE", "Checkpoint", "Context", "Run", "get", "listed", "start"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


def start(kind: str, spec: dict[str, Any], name: str | None = None) -> Run:
    """Start a run and return at once; a separate process does the work.

    The directory appears whole, under an id no other run has: two runs started together never share one.
    """
    told = {
        "kind": kind,
        "work": kinds.entry(kind),
        "name": name,
        "created": time.time(),
        "spec": spec,
    }
    root = paths.runs()
    root.mkdir(parents=True, exist_ok=True)
    run_id = f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    aside, final = root / f".new-{run_id}-{secrets.token_hex(4)}", root / run_id
    try:
        (aside / "checkpoints").mkdir(parents=True)
        (aside / "traces").mkdir()
        files.write_json(aside / "spec.json", told)
        files.write_json(aside / "env.json", _environment())
        files.write_json(aside / "status.json", starting(attempt=0))
        (aside / "metrics.jsonl").touch()
        aside.rename(final)  # fails when the name is taken: a directory with files is never replaced
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if final.exists():
            return start(kind, spec, name)
        raise LabError(f"The run could not be started: {error.strerror} ({root}).") from error
    launch(final, told)
    return Run(final)


def listed() -> list[Run]:
    """Every run, newest first. Damaged directories are in the list, and say in `error` what is wrong."""
    root = paths.runs()
    if not root.is_dir():
        return []
    found = [Run(path) for path in root.iterdir() if path.is_dir() and _ID.fullmatch(path.name)]
    return sorted(found, key=_age, reverse=True)


def get(id: str) -> Run:
    """The run of this id; LabError when there is none."""
    path = paths.runs() / id
    if not _ID.fullmatch(id) or not (paths.there(path) and path.is_dir()):
        raise LabError(f"There is no run {id if len(id) <= 80 else id[:80] + '...'!r}; `python -m lab runs` lists those there are.")
    return Run(path)


def _age(run: Run) -> float:
    try:
        return run.created
    except LabError:  # edited by hand: still listed, by its directory's date
        return run.path.stat().st_mtime if run.path.exists() else 0.0


def _environment() -> dict[str, Any]:
    return {
        "hardware": records.hardware(),
        "versions": records.versions(),
        "python": sys.executable,
        "started_by": sys.argv[:1],
    }
