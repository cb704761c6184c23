"""How many of pocket's neurons, and of its dictionary's features, a short description tells."""

from lab import records
from lab.bench import bench


@bench("interp")
def descriptions() -> None:
    """Every neuron of every layer, and every feature of a bundled autoencoder, by the local describer."""
    import torch

    from interp import features
    from interp.describe.reading import Features, Neurons, text_for
    from interp.describe.score import describe
    from lab import models

    lm = models.load("pocket")
    seen, held = text_for(lm, 400, 64, False), text_for(lm, 200, 64, True)

    def told(source) -> dict[str, float]:
        scored = describe(source, lm, seen, held)
        known = {key: float(getattr(scored, key).nan_to_num(0).mean()) for key in ("score", "control", "table")}
        return {"units": len(scored.descriptions), "silent": int(scored.silent.sum()), "legible": scored.legible, **known}

    layers = [told(Neurons(i)) for i in range(lm.config.n_layers)]
    cases = {"neurons": sum(row["legible"] for row in layers) / len(layers)}
    details: dict = {"neurons": {"layers": layers}}
    name = next(info.name for info in features.available() if info.shape.model == "pocket" and info.shape.target != "transcoder")
    found = told(Features(features.load(name), name))
    cases["features"], details["features"] = found["legible"], found | {"dictionary": name}
    assert all(torch.isfinite(torch.tensor(row["score"])) for row in [*layers, found])
    records.write_cases(
        "interp.describe.legible", cases, "share of units", better="higher", details=details,
        compared="the same activations and another unit's description (control in detail)",
        note="correlation of simulated and true activation of at least 0.5 on held-out text; at most three clauses a description",
    )  # fmt: skip
