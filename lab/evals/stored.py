"""Results that come with the repository (`data/evals`), so that a page opens with something to read."""

from collections.abc import Sequence
from pathlib import Path

from lab import jsonl, models, paths
from lab.evals import facts
from lab.evals.harness import evaluate
from lab.evals.task import Result, read_results

PER_RELATION = 8  # bundled facts of each relation in the stored task


def path(model: str) -> Path:
    """Where the stored results of a model are; a run, a directory or a hub id never has any."""
    return paths.DATA / "evals" / f"facts.{model.replace('/', '_')}.jsonl"


def results(model: str) -> list[Result]:
    """Stored results of a model on the facts task; none when it was never stored."""
    return read_results(path(model))


def measure(model: str) -> Sequence[Result]:
    """Put the facts task to a model anew and store what it says."""
    found = list(evaluate(models.load(model), facts.task(PER_RELATION)))
    path(model).parent.mkdir(parents=True, exist_ok=True)
    aside = path(model).with_suffix(".new")
    aside.unlink(missing_ok=True)
    appender = jsonl.Appender(aside)
    for result in found:
        appender.append(result.to_row())
    appender.sync()
    appender.close()
    aside.replace(path(model))
    return found
