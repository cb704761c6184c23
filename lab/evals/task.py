"""What an eval is made of: samples, a task that groups them, a grade, and the result that is stored."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import jsonl
from lab.errors import LabError


@dataclass(frozen=True)
class Sample:
    """One question: the model goes on from the prompt, the grader looks for an answer."""

    id: str
    prompt: str
    answers: tuple[str, ...]
    """every form that counts, the usual one first"""
    options: tuple[str, ...] = ()
    """for a choice by likelihood: the right answer and others of its kind"""
    group: str = ""
    kin: tuple[str, ...] = ()
    """every answer of its kind, to tell failures apart; not stored with the results"""


@dataclass(frozen=True)
class Task:
    """Samples with the grader that judges them and how long an answer may get."""

    name: str
    samples: tuple[Sample, ...]
    grader: str = "starts"
    max_tokens: int = 12
    stops: tuple[str, ...] = ("\n", ".")


@dataclass(frozen=True)
class Grade:
    """A judgement with its reason, in words that a reader can check."""

    right: bool
    why: str
    failure: str | None = None
    """what kind of failure, None when right"""


@dataclass(frozen=True)
class Step:
    """One token as the model saw it coming."""

    text: str
    p: float | None
    """probability the model gave it; None for the first token of a prompt, which nothing predicts"""
    top: tuple[tuple[str, float], ...] = ()
    """likeliest tokens in its place"""


@dataclass(frozen=True)
class Result:
    """A sample, what the model said, and the judgement: one row of `results.jsonl`."""

    sample: Sample
    model: str
    completion: str
    grade: Grade
    prompt_steps: tuple[Step, ...] = field(default=())
    steps: tuple[Step, ...] = field(default=())
    choice: tuple[tuple[str, float], ...] = ()
    """log-likelihood a token of each option, best first, when the task offers options"""

    def to_row(self) -> dict[str, Any]:
        """As a JSON object; `from_row` reads it back."""
        row = _rounded(asdict(self))
        del row["sample"]["kin"]
        return row

    @staticmethod
    def from_row(row: dict[str, Any]) -> "Result":
        sample = row["sample"]
        return Result(
            sample=Sample(
                id=sample["id"],
                prompt=sample["prompt"],
                answers=tuple(sample["answers"]),
                options=tuple(sample["options"]),
                group=sample["group"],
            ),
            model=row["model"],
            completion=row["completion"],
            grade=Grade(**row["grade"]),
            prompt_steps=tuple(_step(s) for s in row["prompt_steps"]),
            steps=tuple(_step(s) for s in row["steps"]),
            choice=tuple((text, value) for text, value in row["choice"]),
        )


def _step(row: dict[str, Any]) -> Step:
    return Step(row["text"], row["p"], tuple((text, p) for text, p in row["top"]))


def _rounded(value: Any) -> Any:
    """Floats to three significant figures: a stored result is read by people and must stay small."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


def read_results(path: Path) -> list[Result]:
    """Results of a file, in order, without a last row cut short by a kill; LabError when a row is something else."""
    try:
        return [Result.from_row(row) for row in jsonl.read(path)]
    except (KeyError, TypeError, ValueError) as problem:
        raise LabError(
            f"{path.name} holds rows that are not eval results; delete it and run the eval again."
        ) from problem


def by_sample(results: Iterable[Result]) -> dict[str, Result]:
    """Results under the id of their sample."""
    return {r.sample.id: r for r in results}
