"""How good the bundled autoencoder of pocket is, measured from the shipped weights on the CPU, on text it never saw."""

from dataclasses import asdict
from typing import Any

import torch

from lab import models, records
from lab.bench import bench
from lab.data import corpora, presets
from lab.data.mixture import Mixture
from lab.data.packed import Stream
from lab.models import LM

NAME = "pocket-gated"
CONTEXT = 256
WINDOWS = 160  # whose loss is measured, mixed as pocket's training text
EACH = 24  # windows of each domain alone
LONG = 1_200  # windows in which a feature must fire once, or it is dead


def held_out(lm: LM) -> dict[str, Stream]:
    """The held-out part of every domain of pocket's text."""
    if not corpora.built():
        corpora.build()
    assert lm.tokenizer.eos is not None
    return {
        domain: presets.stream("pocket", domain, True, lm.tokenizer.inner, lm.tokenizer.eos, presets.HELD_TOKENS, 0)
        for domain in presets.weights("pocket")
    }


@bench("interp_features")
def autoencoder() -> None:
    """Loss recovered, L0 and dead features; fetches the corpora (about 250 MB) where they are not cached."""
    from interp import features
    from interp.features.activations import at_sites
    from interp.features.metrics import quality

    lm = models.load("pocket", dtype=torch.float32, device="cpu")
    dictionary = features.load(NAME, "cpu")
    held = held_out(lm)
    mixed = Mixture(held, presets.weights("pocket"), CONTEXT, seed=1)

    def measured(text: Mixture, windows: int) -> dict[str, Any]:
        batches = [text.batch(step, 8) for step in range(windows // 8)]
        q = quality(lm.model, dictionary, batches, mean)
        return {"loss_recovered": q.recovered, "loss_recovered_from_mean": q.recovered_from_mean, **asdict(q)}

    first = at_sites(lm.model, mixed.batch(0, 32)[:, :-1], [dictionary.site_out])[dictionary.site_out]
    mean = first.flatten(0, 1).mean(0)
    whole = measured(mixed, WINDOWS)
    by_domain = {name: measured(Mixture({name: stream}, {name: 1.0}, CONTEXT, seed=1), EACH) for name, stream in held.items()}
    fired = torch.zeros(dictionary.d_dict, dtype=torch.bool)
    for step in range(LONG // 16):
        x = at_sites(lm.model, mixed.batch(10_000 + step, 16)[:, :-1], [dictionary.site_in])[dictionary.site_in]
        fired |= (dictionary.encode(x) > 0).flatten(0, 1).any(0)
    dead = float((~fired).float().mean())
    note = f"{whole['positions']:,} tokens; {features.store.title(dictionary.shape)}"
    detail = {"whole": whole, "by_domain": by_domain, "dictionary": NAME}
    records.write(
        "interp.sae.loss_recovered", whole["loss_recovered"], "share", bar=0.95, better="higher",
        note=f"against zeros; {note}", detail=detail,
    )  # fmt: skip
    records.write("interp.sae.l0", whole["l0"], "features a token", bar=40, note=note, detail=detail)
    records.write(
        "interp.sae.dead_fraction", dead, "share", bar=0.05, note=f"never active on {LONG * CONTEXT:,} held-out tokens",
        detail=detail,
    )  # fmt: skip
