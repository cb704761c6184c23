"""Training runs of dictionaries as they are shown: their names, charts, how long they take, where they end."""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

from interp.features import store
from interp.features.activations import Scale
from interp.features.spec import FeatureSpec
from interp.features.trainer import Trainer
from interp.features.view import reading_speed
from lab import models, runs
from lab.errors import LabError

#: what trains here unless told otherwise: small enough for a minute on two cores
FIRST = FeatureSpec(d_dict=512, k=16, steps=300, batch=1024, eval_every=50, save_every=100)
PANELS = (
    {"key": "error", "title": "Error", "unit": "share of the variance missed", "log": True},
    {"key": "val_loss_recovered", "title": "Loss recovered", "unit": "share, held-out text"},
    {"key": "l0", "title": "L0", "unit": "features active a token"},
    {"key": "dead", "title": "Dead features", "unit": "share", "zero": True},
    {"key": "val_explained", "title": "Explained variance", "unit": "share, held-out text"},
    {"key": "activations_per_s", "title": "Throughput", "unit": "activations/s"},
)
FIGURES = (
    {"key": "error", "label": "error"},
    {"key": "l0", "label": "L0"},
    {"key": "dead", "label": "dead", "unit": "%"},
    {"key": "val_loss_recovered", "label": "loss recovered", "unit": "%"},
    {"key": "activations_per_s", "label": "throughput", "unit": "activations/s"},
)


def trainable() -> list[str]:
    """Models at hand whose activations a dictionary can be trained on here."""
    return [info.name for info in models.available() if info.ready]


def check(spec: FeatureSpec) -> FeatureSpec:
    """The spec; LabError when its model has no such layer."""
    layers = models.load(spec.model).config.n_layers
    if not 0 <= spec.layer < layers:
        raise LabError(f"Layer {spec.layer} does not exist: {spec.model} has layers 0 to {layers - 1}.")
    return spec


def training_runs() -> list[runs.Run]:
    """Runs that train dictionaries, newest first."""
    found = []
    for run in runs.listed():
        try:
            if run.kind == "sae":
                FeatureSpec.from_dict(run.spec)
                found.append(run)
        except (LabError, TypeError, AttributeError):
            continue
    return found


def label(run: runs.Run) -> str:
    """`TopK 16 of 512, layer 3, 30 Nov 20:14`."""
    spec = FeatureSpec.from_dict(run.spec)
    return f"{store.title(spec.shape(1, 1))}, {time.strftime('%d %b %H:%M:%S', time.localtime(run.created))}"


def point(run: runs.Run) -> dict[str, Any] | None:
    """Where a run's last evaluation lies beside the sweep, or None before its first."""
    spec = FeatureSpec.from_dict(run.spec)
    last: dict[str, Any] = {}
    for row in run.metrics():
        last |= row
    if "val_loss_recovered" not in last:
        return None
    return {
        "kind": spec.kind, "d_dict": spec.d_dict, "l0": last["val_l0"], "loss_recovered": last["val_loss_recovered"],
        "dead": last["val_dead"], "activations": last["activations"], "lr": spec.lr,
    }  # fmt: skip


def seconds(spec: FeatureSpec) -> float:
    """How long a run takes here, from one step and the reading speed measured just now; evaluations included."""
    lm = models.load(spec.model)
    width = lm.config.d_model
    step = _step_seconds(spec.kind, width, spec.d_dict, spec.k, min(spec.batch, 512)) * spec.batch / min(spec.batch, 512)
    read = spec.batch / reading_speed(spec.model, spec.layer)
    whole = 4 * spec.eval_windows * spec.context * lm.config.n_layers / (spec.layer + 1) * read / spec.batch
    return spec.steps * (step + read) + spec.steps / spec.eval_every * whole


@functools.lru_cache(maxsize=32)
def _step_seconds(kind: str, width: int, d_dict: int, k: int, batch: int) -> float:
    x = torch.randn(batch, width)
    trainer = Trainer(FIRST.changed(kind=kind, d_dict=d_dict, k=k), Scale.of(x), Scale.of(x))
    trainer.step(x, x)
    started = time.perf_counter()
    trainer.step(x, x)
    return time.perf_counter() - started


def toy_spec(kind: str, features: int, batch: int = 512) -> FeatureSpec:
    """A dictionary for `toy.Superposition`: a few more directions than there are, as many active as fire together.

    The number of active features of the other kinds has to be steered down first, which takes its time."""
    steps, lr = (250, 1e-2) if kind == "topk" else (1_600, 3e-3)
    return FeatureSpec(kind=kind, d_dict=features + features // 4, k=3, steps=steps, batch=batch, lr=lr, log_every=steps // 25,
                       dead_after=20_000, width=0.05)  # fmt: skip
