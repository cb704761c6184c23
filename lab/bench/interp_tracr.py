"""Circuit methods on compiled programs, whose circuits are known, and the compiled models against Tracr's."""

import json

import torch

from lab import paths, records
from lab.bench import bench

REFERENCE = paths.ROOT / "tests" / "fixtures" / "tracr.json"


@bench("interp")
def known_circuits() -> None:
    """Area under the ROC curve of every method and ablation; the figure is that of exact edge patching, ablation zero."""
    from interp.circuits.graph import Graph
    from interp.circuits.score import auroc
    from interp.truth.marks import ROWS
    from interp.truth.programs import PROGRAMS
    from interp.truth.recovery import METHODS, ORDER, edge_scores
    from interp.truth.view import known

    cases, details = {}, {}
    for key in PROGRAMS:
        compiled, true, _ = known(key)
        graph = Graph(compiled.model.cfg)
        truth = graph.mask(true)
        table = {m: {kind: auroc(edge_scores(compiled, m, kind, ROWS), truth) for kind in ORDER} for m in METHODS}
        cases[key] = table["exact"]["zero"]
        details[key] = {
            "method": "exact", "ablation": "zero", "edges": graph.n_edges, "circuit": len(true), "rows": ROWS, "auroc": table,
        }  # fmt: skip
    records.write_cases(
        "interp.tracr.auroc", cases, "AUROC", bar=1.0, better="higher", details=details,
        note="exact edge patching, edges replaced by zero; other methods and ablations in the detail",
    )  # fmt: skip


@bench("interp")
def against_tracr() -> None:
    """Largest difference of any attention or MLP output from Tracr's own model, over four programs and their inputs."""
    from interp.truth.view import known

    reference = json.loads(REFERENCE.read_text())
    names = reference["ours"]
    worst, compared = 0.0, 0
    for key, theirs in reference["programs"].items():
        compiled, *_ = known(key)
        at = {label: i for i, label in enumerate(compiled.labels)}
        labels = [_ours(label, names) for label in theirs["labels"]]
        for case in theirs["inputs"]:
            _, acts = compiled.model.run_with_cache(compiled.encode(case["tokens"]))
            for half, entries in enumerate(case["outputs"]):
                ours = acts[f"blocks.{half // 2}.hook_{'mlp' if half % 2 else 'attn'}_out"][0]
                wanted = torch.zeros_like(ours)
                for position, column, value in entries:
                    wanted[position, at[labels[column]]] = value
                worst = max(worst, float((ours - wanted).abs().max()))
                compared += ours.numel()
    records.write(
        "interp.tracr.reference", worst, "largest difference", 1e-5, compared=reference["source"],
        note=f"{compared:,} numbers, every attention and MLP output, directions matched by name", detail={"programs": list(reference["programs"])},
    )  # fmt: skip


def _ours(label: str, names: dict[str, str]) -> str:
    name, colon, value = label.partition(":")
    return names.get(name, name) + colon + value
