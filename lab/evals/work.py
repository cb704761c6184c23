"""The run kind "eval": one task put to one model after another, results appended one by one to `results.jsonl`."""

from typing import TYPE_CHECKING, Any

from lab import jsonl, models
from lab.errors import LabError
from lab.evals import facts
from lab.evals.harness import evaluate
from lab.evals.task import read_results

if TYPE_CHECKING:
    from lab.runs.context import Context

RESULTS = "results.jsonl"


def work(spec: dict[str, Any], ctx: "Context") -> None:
    """Run `{"models": [...], "per_relation": 10, "general": null, "grader": "starts", "seed": 0}`.

    Results already in the directory are kept, so a run that was killed goes on where it stopped. Each result is
    also a row of metrics: how many are done, and how many of this model's are right.
    """
    names = spec.get("models")
    if not isinstance(names, list) or not names:
        raise LabError('The eval names no model; give a list, for instance {"models": ["pocket"]}.')
    shape = {key: spec[key] for key in ("per_relation", "general", "grader", "seed") if key in spec}
    task = facts.task(**shape)
    path = ctx.path / RESULTS
    appender = jsonl.Appender(path)
    kept = read_results(path)
    done = len(kept)
    try:
        for name in names:
            mine = [r for r in kept if r.model == name]
            right, seen = sum(r.grade.right for r in mine), len(mine)
            ctx.note(f"{name}: {len(task.samples)} samples, {seen} of them done")
            for result in evaluate(models.load(name), task, skip={r.sample.id for r in mine}):
                appender.append(result.to_row())
                done, seen, right = done + 1, seen + 1, right + result.grade.right
                ctx.log(
                    done,
                    model=name,
                    seen=seen,
                    right=right,
                    share=right / seen,
                    total=len(names) * len(task.samples),
                )
                if ctx.cancelled:
                    return
    finally:
        appender.sync()
        appender.close()
