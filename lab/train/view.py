"""What a training run looks like: its name, its panels, how long it will take, what its model would say."""

import functools
import time
from collections.abc import Sequence
from typing import Any

import torch

from lab import runs
from lab.data import corpora, presets
from lab.errors import LabError
from lab.models import ModelConfig
from lab.models.decoder import Decoder
from lab.train.loop import next_token_loss
from lab.train.spec import SIZES, TrainSpec

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
    size = next((name for name, known in SIZES.items() if known == shape), f"{spec.n_layers} x {spec.d_model}")
    when = time.strftime("%d %b %H:%M:%S", time.localtime(run.created))
    return f"{size}, {spec.data}, lr {spec.lr:g}, {when}"


def panels(specs: Sequence[TrainSpec]) -> list[dict[str, str]]:
    """The charts for these runs: loss, what they recall, held-out loss of each domain, and the machinery."""
    domains = list(dict.fromkeys(d for spec in specs for d in presets.weights(spec.data)))
    recall = [
        {"key": d, "title": _TASKS.get(d, d), "unit": "share, held-out prompts"}
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
        {"key": "mfu", "title": "Model FLOPs utilisation", "unit": "share of peak"},
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
    """Seconds of a forward and a backward pass, best of two."""
    rows = torch.randint(model.cfg.vocab_size, (batch, context + 1), device=model.device)
    best = float("inf")
    for _ in range(2):
        started = time.perf_counter()
        next_token_loss(model, rows).backward()
        if rows.is_cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


def compare(chosen: Sequence[runs.Run]) -> list[dict[str, Any]]:
    """Runs side by side: the settings that differ, and the last of each number."""
    specs = [run.spec for run in chosen]
    keys = [k for k in dict.fromkeys(k for spec in specs for k in spec) if len({str(s.get(k)) for s in specs}) > 1]
    rows = []
    for run, spec in zip(chosen, specs):
        last: dict[str, Any] = {}
        for row in run.metrics():
            last |= row
        numbers = {k: v for k, v in last.items() if isinstance(v, (int, float)) and k not in ("time", "grad_norm", "lr")}
        rows.append({"run": label(run), "state": run.state, **{k: spec.get(k) for k in keys}, **numbers})
    return rows
