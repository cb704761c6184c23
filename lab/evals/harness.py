"""Put a task to a model: complete every prompt, weigh the options where there are any, grade."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from lab.evals.graders import grader
from lab.evals.task import Result, Step, Task
from lab.infer import complete, score

if TYPE_CHECKING:
    from lab.models import LM


def evaluate(lm: "LM", task: Task, skip: Collection[str] = ()) -> Iterator[Result]:
    """Results as batches finish, shortest prompts first; samples whose id is in `skip` are left out.

    Greedy, so the same model and task give the same results. Stop iterating to cancel.
    """
    judge = grader(task.grader)
    samples = [s for s in task.samples if s.id not in skip]
    weigh = task.grader == "choice"
    for i, completion in complete(lm, [s.prompt for s in samples], task.max_tokens, stops=task.stops):
        sample = samples[i]
        choice: tuple[tuple[str, float], ...] = ()
        if weigh:
            (scored,) = score(lm, [sample.prompt], [[" " + option for option in sample.options]])
            choice = tuple(sorted(((s.text[1:], s.mean) for s in scored), key=lambda item: -item[1]))
        yield Result(
            sample=sample,
            model=lm.name,
            completion=completion.text,
            grade=judge(sample, completion.text, choice),
            prompt_steps=_steps(lm, completion.prompt_ids, completion.prompt_logprobs, completion.prompt_top),
            steps=_steps(lm, completion.ids, completion.logprobs, completion.top),
            choice=choice,
        )


def _steps(
    lm: "LM",
    ids: Sequence[int],
    logprobs: Sequence[float | None],
    tops: Sequence[Sequence[tuple[int, float]]],
) -> tuple[Step, ...]:
    """Tokens as a reader sees them."""
    pieces = lm.tokenizer.pieces
    return tuple(
        Step(
            piece, None if logprob is None else math.exp(logprob), tuple((pieces([i])[0], p) for i, p in top)
        )
        for piece, logprob, top in zip(pieces(list(ids)), logprobs, tops)
    )
