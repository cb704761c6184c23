"""How well attribution graphs foretell what turning a feature off does to pocket."""

from typing import Any

from lab import records
from lab.bench import bench

PROMPTS = ("The Eiffel Tower is located in the city of", "The capital of Japan is", "The Colosseum is located in the city of",
           "The official language of Turkey is", "When Mary and John went to the store, John gave a drink to")  # fmt: skip


@bench("interp")
def graphs() -> None:
    """Correlation of foretold and true change of the answer's logit, 192 features of each of five prompts."""
    import statistics
    import time

    import torch

    from interp.graphs.attribute import attribute, bundle
    from interp.graphs.check import predicted, turned_off
    from interp.graphs.prune import scores
    from lab import models

    lm = models.load("pocket")
    dictionaries = bundle(lm)
    rows: list[dict[str, Any]] = []
    for prompt in PROMPTS:
        started = time.perf_counter()
        *_, (_, graph) = attribute(lm, lm.tokens(prompt)[0].tolist(), dictionaries, 192)
        seconds = time.perf_counter() - started
        which = [i for i in graph.find("feature") if graph.traced[i]]
        seen = torch.cat(list(turned_off(lm, graph, dictionaries, which)))[:, 0]
        said = predicted(graph, which)[:, 0]
        direct = -graph.edges[graph.find("logit")[0], which]

        def agreed(x: torch.Tensor) -> float:
            return float(torch.corrcoef(torch.stack([seen, x]))[0, 1])  # noqa: B023 - used within its turn

        told = scores(graph)
        rows.append({"prompt": prompt, "seconds": seconds, "along_paths": agreed(said), "direct_edges_alone": agreed(direct),
                     "replacement": told.replacement, "completeness": told.completeness})  # fmt: skip
    records.write(
        "interp.graphs.foretold", statistics.mean(row["along_paths"] for row in rows), "correlation", better="higher",
        compared=f"direct edges alone: {statistics.mean(row['direct_edges_alone'] for row in rows):.2f}",
        note="change of the answer's logit when one feature is turned off in the model, against the graph; mean over five prompts",
        detail={"prompts": rows},
    )  # fmt: skip
