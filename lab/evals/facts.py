"""The facts task: what a model knows, asked for in plain sentences that break off before the answer.

Two halves, put to every model alike. `bundled`: facts our own models were trained on, each in phrasings that fact
was never trained in. `general`: common knowledge that no table of ours holds.
"""

import random

from lab.data import facts
from lab.errors import LabError
from lab.evals.task import Sample, Task

OPTIONS = 8  # choices offered for a fact, the right one among them


def task(per_relation: int = 10, general: int | None = None, grader: str = "starts", seed: int = 0) -> Task:
    """The task with that many bundled facts of each relation and that many general ones (None: all)."""
    if per_relation < 0 or (general is not None and general < 0) or (per_relation == 0 and general == 0):
        raise LabError("The task has no samples; ask for at least one fact.")
    return Task("facts", (*bundled(per_relation, seed), *common(general, seed)), grader)


def bundled(per_relation: int, seed: int = 0) -> list[Sample]:
    """Facts of the tables, each in one phrasing kept from its training."""
    samples = []
    for relation in facts.RELATIONS:
        answers = sorted({f.answer for f in facts.facts(relation)})
        for prompt in facts.scored(relation, per_relation, seed):
            answer = prompt.answer.strip()
            samples.append(
                Sample(
                    id=f"{relation}/{prompt.fact.subject}/{prompt.phrasing}",
                    prompt=prompt.text,
                    answers=(answer,),
                    options=_options(answer, answers, f"{seed}{prompt.text}"),
                    group=relation.replace("_", " "),
                    kin=tuple(answers),
                )
            )
    return samples


def common(limit: int | None = None, seed: int = 0) -> list[Sample]:
    """Common knowledge of `data/facts/general.json`."""
    rows = list(facts.table("general"))
    if limit is not None and limit < len(rows):
        rows = random.Random(seed).sample(rows, limit)
    answers: dict[str, list[str]] = {}
    for row in facts.table("general"):
        answers.setdefault(row["group"], []).append(row["answer"])
    return [
        Sample(
            id=f"general/{row['prompt']}",
            prompt=row["prompt"],
            answers=(row["answer"], *filter(None, row["also"].split("|"))),
            options=_options(row["answer"], answers[row["group"]], f"{seed}{row['prompt']}"),
            group=row["group"],
            kin=tuple(answers[row["group"]]),
        )
        for row in rows
    ]


def group_order() -> dict[str, int]:
    """Place of each group: relations of the tables first, then common knowledge, as they are listed."""
    general = (row["group"] for row in facts.table("general"))
    names = dict.fromkeys([*(r.replace("_", " ") for r in facts.RELATIONS), *general])
    return {name: i for i, name in enumerate(names)}


def is_general(sample: Sample) -> bool:
    """Whether a sample asks for common knowledge rather than for a fact of the tables."""
    return sample.id.startswith("general/")


def _options(answer: str, answers: list[str], seed: str) -> tuple[str, ...]:
    """The answer and others of its kind, in an order that does not give it away."""
    others = [a for a in dict.fromkeys(answers) if a != answer]
    rng = random.Random(seed)
    chosen = [answer, *rng.sample(others, min(OPTIONS - 1, len(others)))]
    rng.shuffle(chosen)
    return tuple(chosen)
