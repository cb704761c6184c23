"""Records of the facts eval: share right with its interval, bundled and general halves; the results are kept too."""

from lab import records
from lab.bench import bench

MODELS = {"pocket": "pocket", "smollm2": "smollm2-135m"}


@bench("evals")
def facts_task() -> None:
    """Both models on the facts task; their results are stored for the notebook to open with."""
    from lab.evals import facts, stored, wilson

    shares, details = {}, {}
    for case, name in MODELS.items():
        results = stored.measure(name)
        halves = {
            "all": results,
            "bundled": [r for r in results if not facts.is_general(r.sample)],
            "general": [r for r in results if facts.is_general(r.sample)],
        }
        detail = {}
        for half, mine in halves.items():
            right = sum(r.grade.right for r in mine)
            interval = wilson(right, len(mine))
            detail[half] = {"right": right, "total": len(mine), "low": interval.low, "high": interval.high}
        shares[case] = detail["all"]["right"] / detail["all"]["total"]
        details[case] = detail
    records.write_cases(
        "evals.facts",
        shares,
        "share right",
        better="higher",
        details=details,
        note="greedy completions that begin with the answer; bundled facts in phrasings they were never trained in",
    )
