"""What a training run looks like: its name, its panels, how long it will take, what its model would say."""

import functools
import json
import time
from collections.abc import Sequence
from typing import Any

import torch

from lab import jsonl, paths, runs
from lab.data import corpora, presets
from lab.errors import LabError
from lab.models import ModelConfig
from lab.models.decoder import Decoder
from lab.train.loop import next_token_loss
from lab.train.spec import SIZES, TrainSpec
from widgets.curves import Curves

SPECS = paths.DATA / "specs"

#: What the first run does unless told otherwise: capitals and landmarks, half of them known within a minute on
#: two cores (the record `train.first_run.seconds_to_half` says how soon).
FIRST_SIZE = "small"
FIRST = TrainSpec.sized(
    FIRST_SIZE, data="first", generated_tokens=200_000, context=64, batch=16, steps=600, lr=4e-3, eval_every=25,
    save_every=75,
)  # fmt: skip

FIGURES = (
    {"key": "loss", "label": "loss", "unit": "nats/token"},
    {"key": "grad_norm", "label": "gradient norm"},
    {"key": "lr", "label": "learning rate"},
    {"key": "tokens_per_s", "label": "throughput", "unit": "tokens/s"},
    {"key": "mfu", "label": "MFU", "unit": "%"},
)
_TASKS = {
    "first": "First facts recalled", "facts": "Facts recalled", "ioi": "Indirect objects right", "sums": "Sums right",
    "repeats": "Lists continued",
}  # fmt: skip


def training_runs() -> list[runs.Run]:
    """Training runs, newest first; damaged directories are left to `python -m lab runs`, which says what is wrong."""
    found = []
    for run in runs.listed():
        try:
            if run.kind == "train":
                TrainSpec.from_dict(run.spec)
                found.append(run)
        except (LabError, TypeError, AttributeError):
            continue
    return found


def label(run: runs.Run) -> str:
    """A run in one line: shape, data, rate, and when it was started."""
    spec = TrainSpec.from_dict(run.spec)
    shape = (spec.n_layers, spec.d_model, spec.n_heads, spec.d_mlp)
    size = next(
        (name for name, known in SIZES.items() if known == shape), f"{spec.n_layers} x {spec.d_model}"
    )
    when = time.strftime("%d %b %H:%M:%S", time.localtime(run.created))
    return f"{size}, {spec.data}, lr {spec.lr:g}, {when}"


def panels(specs: Sequence[TrainSpec]) -> list[dict[str, Any]]:
    """The charts for these runs: loss, what they recall, held-out loss of each domain, and the machinery."""
    domains = list(dict.fromkeys(d for spec in specs for d in presets.weights(spec.data)))
    recall = [
        {"key": d, "title": _TASKS.get(d, d), "unit": "share, held-out prompts", "zero": True}
        for d in domains
        if d not in corpora.DOMAINS and d != "text"
    ]
    held = [{"key": f"val_{d}", "title": f"Held-out loss, {d}", "unit": "nats/token"} for d in domains]
    return [
        {"key": "loss", "title": "Training loss", "unit": "nats/token"},
        *recall,
        *held,
        {"key": "grad_norm", "title": "Gradient norm", "unit": "before clipping"},
        {"key": "lr", "title": "Learning rate", "unit": ""},
        {"key": "tokens_per_s", "title": "Throughput", "unit": "tokens/s"},
        {"key": "mfu", "title": "Model FLOPs utilisation", "unit": "share of peak", "zero": True},
    ]


def seconds(spec: TrainSpec, vocab_size: int) -> float:
    """How long the steps of this run take here, from one step of the same shape timed now (a fraction of a second).

    A large batch is timed by one of its sequences, which makes the estimate a little pessimistic."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return spec.steps * _step_seconds(spec.config(vocab_size), spec.batch, spec.context, device)


@functools.lru_cache(maxsize=64)
def _step_seconds(cfg: ModelConfig, batch: int, context: int, device: str) -> float:
    model = Decoder(cfg).to(device).init_weights(0)
    one = _timed(model, 1, context)
    return _timed(model, batch, context) if one * batch < 0.6 else one * batch


def _timed(model: Decoder, batch: int, context: int) -> float:
    """Seconds of a forward and a backward pass and the optimiser's step, best of two."""
    rows = torch.randint(model.cfg.vocab_size, (batch, context + 1), device=model.device)
    optimiser = torch.optim.AdamW(model.parameters())
    best = float("inf")
    for _ in range(2):
        started = time.perf_counter()
        next_token_loss(model, rows).backward()
        optimiser.step()
        if rows.is_cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


COLUMNS = (
    {"key": "run", "title": "run"},
    {"key": "state", "title": "state"},
    {"key": "step", "title": "step", "kind": "num"},
    {"key": "loss", "title": "loss", "unit": "nats/token", "kind": "num"},
    {"key": "recall", "title": "right", "unit": "share", "kind": "bar"},
    {"key": "tokens_per_s", "title": "throughput", "unit": "tokens/s", "kind": "num"},
)


def line(run: runs.Run) -> dict[str, Any]:
    """A row of the list of runs; `recall` is the mean share of right answers over the tasks it is asked."""
    try:
        last = _last(run)
    except LabError:  # metrics damaged by hand: the run is listed, its curves will say what is wrong
        last = {}
    right = [last[task] for task in _TASKS if task in last]
    recall = sum(right) / len(right) if right else None
    keep = {key: last.get(key) for key in ("step", "loss", "tokens_per_s")}
    return {"id": run.id, "run": label(run), "state": run.state, **keep, "recall": recall}


def _last(run: runs.Run) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in run.metrics():
        found |= row
    return found


def differences(chosen: Sequence[runs.Run]) -> str:
    """The settings in which runs differ, as Markdown."""
    specs = [run.spec for run in chosen]
    keys = [k for k in dict.fromkeys(k for s in specs for k in s) if len({str(s.get(k)) for s in specs}) > 1]
    if not keys:
        return "The same settings: what differs is chance and the machine."
    return "; ".join(f"`{key}` {' / '.join(str(spec.get(key)) for spec in specs)}" for key in keys)


RECORDED = {"pocket": "pocket", "pocket-2": "pocket, second stage", "pocket-draft": "pocket draft"}


def recorded() -> Curves:
    """The recorded curves of the bundled models; LabError when they are not in the repository."""
    names = [name for name in RECORDED if (SPECS / f"{name}.metrics.jsonl").exists()]
    if not names:
        raise LabError("The recorded curves of the bundled models are missing: restore data/specs.")
    specs = [TrainSpec.from_dict(json.loads((SPECS / f"{name}.json").read_text())) for name in names]
    curves = Curves(series=[{"id": name, "label": RECORDED[name]} for name in names], panels=panels(specs))
    for name in names:
        curves.append(jsonl.read(SPECS / f"{name}.metrics.jsonl"), series=name)
    return curves
