"""Runs of one kind, for the notebooks that start them."""

from lab import runs
from lab.errors import LabError


def of_kind(kind: str) -> list[runs.Run]:
    """Newest first; directories that somebody damaged are left to `python -m lab runs`, which says what is wrong."""
    found = []
    for run in runs.listed():
        try:
            if run.kind == kind:
                found.append(run)
        except LabError:
            continue
    return found
