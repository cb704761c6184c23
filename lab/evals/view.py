"""Widgets that show an eval: scores with intervals, the difference of two models, and a reader of every sample."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab import jsonl, models
from lab.errors import LabError
from lab.evals import facts
from lab.evals.graders import FAILURES
from lab.evals.harness import evaluate
from lab.evals.stats import compare, wilson
from lab.evals.task import Result, Sample, Step, Task, by_sample
from lab.evals.work import RESULTS
from lab.page.watch import action
from lab.runs import LIVE, Run, listed
from widgets.eval_reader import EvalReader
from widgets.intervals import Intervals
from widgets.run_monitor import RunMonitor
from widgets.table import Table

POLL_S = 0.5
HALVES: dict[str, Callable[[Sample], bool]] = {
    "all": lambda sample: True,
    "bundled facts": lambda sample: not facts.is_general(sample),
    "general knowledge": facts.is_general,
}


class Board:
    """What the page shows of an eval of one or two models; `show` fills it with results."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(dict.fromkeys(names))
        self.results: dict[str, list[Result]] = {name: [] for name in self.names}
        self.run: Run | None = None
        self.reader = EvalReader(self.names, kinds=FAILURES)
        self.scores = Intervals(title="Share right, with 95% interval (Wilson)")
        self.difference = Intervals(
            title=f"{self.names[0]} minus {self.names[-1]}, same samples", span=(-1, 1), at=0
        )
        self.groups = Table(
            [],
            [{"key": "about"}, {"key": "samples", "kind": "num"}, *self._columns()],
            page=12,
            name="groups",
        )
        self.failures = Table(
            [],
            [{"key": "failure"}, *self._columns("num"), {"key": "means", "title": "what it means"}],
            page=8,
            name="failures",
        )
        self.monitor = RunMonitor(
            [{"key": name, "label": f"{name} right", "unit": "%"} for name in self.names],
            act=action(self._running),
            label="",
            state="",
        )

    def show(self, results: Mapping[str, Sequence[Result]]) -> None:
        """Show these results of each model."""
        self.results = {name: list(results.get(name, ())) for name in self.names}
        self._refresh()

    def follow(self, run: Run, stopped: Callable[[], bool]) -> None:
        """Show a run's results as they come, until `stopped()`."""
        self.run = run
        tail = jsonl.Tail(run.path / RESULTS)
        self.results = {name: [] for name in self.names}
        total = 0
        while True:
            state = run.state  # before the rows: what ended has written everything
            try:
                rows = tail.rows()
                logged = run.metrics() if rows or not total else []
                began = run.status.get("started")
                fresh = [Result.from_row(row) for row in rows]
            except LabError as error:
                self.monitor.message = str(error)
                return
            except (KeyError, TypeError, ValueError):
                self.monitor.message = (
                    f"{RESULTS} of run {run.id} holds rows that are not eval results; start a new one."
                )
                return
            for result in fresh:
                if result.model in self.results:
                    self.results[result.model].append(result)
            if rows:
                self._refresh()
            if logged:  # a result reaches the disk a moment before its row of metrics
                total = logged[-1].get("total", 0)
            done = sum(map(len, self.results.values()))
            with self.monitor.hold_sync():
                self.monitor.state, self.monitor.label, self.monitor.message = state, run.id, run.error or ""
                self.monitor.step, self.monitor.steps = done, int(total)
                if state in LIVE and began:
                    self.monitor.seconds = round(time.time() - began, 1)
                self.monitor.values = {n: _share(r) for n, r in self.results.items() if r}
            if stopped():
                return
            time.sleep(POLL_S if state in LIVE else 3 * POLL_S)  # what ended may be resumed

    def _running(self) -> Run:
        if self.run is None:
            raise LabError("No run is shown: press the button to evaluate.")
        return self.run

    def _columns(self, kind: str = "bar") -> list[dict[str, Any]]:
        digits = {"digits": 0}
        return [
            {"key": name, "title": name, "kind": kind, **({"unit": "%"} if kind == "bar" else {}), **digits}
            for name in self.names
        ]

    def _refresh(self) -> None:
        self.reader.update(reader_samples(self.results))
        self.scores.update(score_rows(self.results))
        self.difference.update(difference_rows(self.results))
        self.groups.update(group_rows(self.results))
        self.failures.update(failure_rows(self.results))


def latest(names: Sequence[str]) -> Run | None:
    """The eval of these models that is still going, else the last that was finished."""
    found = None
    for run in listed():
        try:
            mine = run.kind == "eval" and run.spec.get("models") == list(names)
            state = run.state
        except LabError:
            continue  # a directory edited by hand; opening that run says what is wrong
        if mine and state in LIVE:
            return run
        if mine and state == "done" and found is None:
            found = run
    return found


def ask(names: Sequence[str], prompt: str, answer: str) -> EvalReader:
    """Put one prompt to each model, graded against an answer; LabError for bad input."""
    answers = tuple(part.strip() for part in answer.split(" or ") if part.strip())
    if not answers:
        raise LabError("The answer is empty; write what the model should say, or several with “ or ” between them.")
    sample = Sample("own", prompt, answers, group="your own")
    found: dict[str, list[Result]] = {}
    for name in dict.fromkeys(names):
        found[name] = list(evaluate(models.load(name), Task("own", (sample,))))
    return EvalReader(list(found), reader_samples(found), listed=False)


def reader_samples(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """Samples in the order of the groups, with what each model said, as the reader widget takes them."""
    found = {name: by_sample(mine) for name, mine in results.items()}
    samples = {r.sample.id: r.sample for mine in results.values() for r in mine}
    order = facts.group_order()
    return [
        {
            "id": s.id,
            "group": s.group,
            "prompt": s.prompt,
            "answers": list(s.answers),
            "results": {name: _told(mine.get(s.id)) for name, mine in found.items()},
        }
        for s in sorted(samples.values(), key=lambda s: (order.get(s.group, len(order)), s.id))
    ]


def score_rows(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """Share right of every model in each half, with Wilson's interval."""
    rows = []
    for half, belongs in HALVES.items():
        for name, mine in results.items():
            chosen = [r for r in mine if belongs(r.sample)]
            if chosen:
                right = sum(r.grade.right for r in chosen)
                found = wilson(right, len(chosen))
                rows.append(
                    {"label": half, "series": name, "value": found.value, "low": found.low, "high": found.high,
                     "note": f"{right} of {len(chosen)}"}
                )  # fmt: skip
    return rows


def difference_rows(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """First model minus second over the samples both have answered: paired bootstrap, exact McNemar."""
    if len(results) != 2:
        return []
    first, second = (by_sample(mine) for mine in results.values())
    rows = []
    for half, belongs in HALVES.items():
        both = [i for i in first if i in second and belongs(first[i].sample)]
        if both:
            found = compare([first[i].grade.right for i in both], [second[i].grade.right for i in both])
            d = found.difference
            note = f"right alone {found.only_first} and {found.only_second}, p {found.p_value:.2g}"
            rows.append(
                {
                    "label": half,
                    "series": "difference",
                    "value": d.value,
                    "low": d.low,
                    "high": d.high,
                    "note": note,
                }
            )
    return rows


def group_rows(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """Share right of every model in each group, in percent."""
    samples = {r.sample.id: r.sample for mine in results.values() for r in mine}
    rows: dict[str, dict[str, Any]] = {}
    order = facts.group_order()
    for sample in sorted(samples.values(), key=lambda s: order.get(s.group, len(order))):
        row = rows.setdefault(sample.group, {"about": sample.group, "samples": 0})
        row["samples"] += 1
    for name, mine in results.items():
        for group, row in rows.items():
            chosen = [r for r in mine if r.sample.group == group]
            row[name] = 100 * _share(chosen) if chosen else None
    return list(rows.values())


def failure_rows(results: Mapping[str, Sequence[Result]]) -> list[dict[str, Any]]:
    """How often each model failed in each way."""
    return [
        {"failure": kind, "means": means}
        | {name: sum(r.grade.failure == kind for r in mine) for name, mine in results.items()}
        for kind, means in FAILURES.items()
    ]


def _share(results: Sequence[Result]) -> float:
    return sum(r.grade.right for r in results) / len(results)


def _told(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "completion": result.completion,
        "right": result.grade.right,
        "why": result.grade.why,
        "failure": result.grade.failure,
        "prompt_steps": [_step(s) for s in result.prompt_steps],
        "steps": [_step(s) for s in result.steps],
        "choice": [list(item) for item in result.choice],
    }


def _step(step: Step) -> list[Any]:
    return [step.text, step.p, [list(item) for item in step.top]]
