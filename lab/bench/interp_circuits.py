"""How well edges are scored, and how much one circuit's claim depends on how it is asked."""

import statistics
import time

import torch

from lab import models, records
from lab.bench import bench
from lab.bench.interp import timed

PAIRS = 8
SHARE = 0.1  # of the edges, the strongest


def _study(name: str, behaviour: str):
    from interp.circuits.batch import behaviour as batch_of
    from interp.circuits.edges import Study

    lm = models.load(name, dtype=torch.float32)
    return Study(lm.model, batch_of(lm, behaviour, PAIRS))


@bench("interp")
def scores() -> None:
    """Every edge of the bundled model: both estimates against replacing it by itself."""
    from interp.attribution import agreement
    from interp.circuits.attribution import attribute_study
    from interp.circuits.edges import exact

    study = _study("pocket", "ioi")
    seconds, runs = timed(lambda: attribute_study(study, steps=5), 5)
    started = time.perf_counter()
    truth = exact(study)
    exact_s = time.perf_counter() - started
    detail = {"edges": study.graph.n_edges, "pairs": len(study.batch), "exact_s": exact_s, "runs": runs}
    for case, steps, bar in (("eap_r", 1, 0.85), ("eap_ig_r", 5, 0.95)):
        r = agreement(attribute_study(study, steps=steps), truth)
        records.write(
            f"interp.circuit.{case}.pocket", r, "Pearson's r", bar=bar, better="higher", detail=detail,
            compared="every edge replaced by itself", note="indirect object, 8 pairs, logit difference, fp32",
        )  # fmt: skip
    records.write(
        "interp.circuit.score_s.pocket", seconds, "s", bar=2.0, compared=f"every edge replaced by itself, {exact_s:.0f} s",
        note=f"median of 5, EAP-IG with 5 gradients, {study.graph.n_edges:,} edges, {len(study.batch)} pairs", detail=detail,
    )  # fmt: skip


@bench("interp")
def circuit() -> None:
    """Faithfulness of the strongest tenth of the edges, and how far apart protocols put it."""
    from interp.circuits.attribution import attribute_study
    from interp.circuits.discovery import strongest
    from interp.circuits.faithfulness import bootstrap, curve
    from interp.circuits.protocol import claims

    study = _study("pocket", "ioi")
    graph = study.graph
    kept = strongest(graph, attribute_study(study, steps=5), round(SHARE * graph.n_edges))
    measured = curve(study, [kept])
    told = bootstrap(measured.kept[0], measured.clean, measured.other)
    records.write(
        "interp.circuit.faithfulness.pocket", told.value, "of the logit difference", bar=0.9, better="higher",
        note=f"indirect object, {int(kept.sum())} of {graph.n_edges} edges kept, the others read the corrupted prompt",
        detail={"interval": [told.low, told.high], "left_without": measured.left_without[0]},
    )  # fmt: skip
    asked = list(claims(study, kept, metrics=("logit_diff",)))
    values = [c.faithfulness.value for c in asked]
    records.write(
        "interp.circuit.protocol_span.pocket", max(values) - min(values), "of the logit difference",
        note=f"largest minus smallest faithfulness of the same circuit over {len(asked)} protocols",
        detail={c.key: c.faithfulness.value for c in asked} | {"median": statistics.median(values)},
    )  # fmt: skip


@bench("interp")
def smollm2() -> None:
    """All edges of SmolLM2 in one go."""
    from interp.circuits.attribution import attribute_study

    study = _study("smollm2-135m", "landmark")
    seconds, runs = timed(lambda: attribute_study(study, steps=1), 3)
    records.write(
        "interp.circuit.score_s.smollm2", seconds, "s", bar=10.0,
        note=f"median of 3, EAP with one gradient, {study.graph.n_edges:,} edges, {len(study.batch)} pairs, fp32",
        detail={"runs": runs},
    )  # fmt: skip
