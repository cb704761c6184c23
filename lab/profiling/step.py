"""Profile one training step: forward, loss, backward, AdamW, with shapes and memory, as a chrome trace.

A step writes gradients and moves weights, so it always runs on a model of its own: in a run of kind
"profile", which loads one for itself.
"""

import contextlib
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    from lab.models.decoder import Decoder
    from lab.runs import Context, Run

# what trace.py reads; the profiler writes as much again of flow arrows and host details
_KEPT = {
    "cpu_op",
    "user_annotation",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "gpu_user_annotation",
    "cuda_runtime",
}
WARM_UP = 2  # steps before the one recorded: allocations, compilation of kernels, optimiser state


def work(spec: dict[str, Any], ctx: "Context") -> None:
    """Run of kind "profile": `spec` has `model`, `batch`, `length`."""
    import torch

    from lab import models

    device = "cuda" if torch.cuda.is_available() else "cpu"
    lm = models.load(spec["model"], dtype=torch.float32, device=device)
    ctx.note(f"profiling {lm.name} on {device}, {spec['batch']} x {spec['length']} tokens")
    path = ctx.path / "traces" / "step.json.gz"
    path.parent.mkdir(exist_ok=True)
    ctx.log(WARM_UP, **profile(lm.model, spec["batch"], spec["length"], path))


def profiles() -> "list[Run]":
    """Runs of kind "profile", newest first, without those somebody damaged."""
    from lab import runs

    found = []
    for run in runs.listed():
        with contextlib.suppress(LabError):
            if run.kind == "profile":
                found.append(run)
    return found


def trace_of(run: "Run") -> Path:
    """Where a profile's trace is once it is done."""
    return run.path / "traces" / "step.json.gz"


def profile(model: "Decoder", batch: int, length: int, path: Path) -> dict[str, float]:
    """Record one step on random tokens into `path` (.json.gz); returns seconds with and without the profiler.

    On a GPU the matrix products run in bfloat16 under autocast, as in training.
    """
    import torch
    from torch.profiler import ProfilerActivity, record_function

    device = model.device
    on_gpu = device.type == "cuda"
    model.requires_grad_(True)  # models are loaded for reading
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(model.cfg.vocab_size, (batch, length + 1), device=device)

    def step() -> None:
        with record_function("forward"), torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    def timed() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        started = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    for _ in range(WARM_UP):
        timed()
    plain = min(timed() for _ in range(3))
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as recorded:
        seconds = timed()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        recorded.export_chrome_trace(str(raw))
        compact(json.loads(raw.read_text(errors="replace")), path)
    return {"seconds": plain, "seconds_profiled": seconds, "tokens": batch * length}


def compact(trace: dict[str, Any], path: Path) -> None:
    """Keep what is drawn and tabulated; the result is still a chrome trace that Perfetto opens."""
    kept = [
        event
        for event in trace["traceEvents"]
        if event.get("cat") in _KEPT or event.get("name") == "[memory]" or event.get("ph") == "M"
    ]
    for event in kept:
        args = event.get("args", {})
        event["args"] = {key: args[key] for key in _ARGS if key in args}
    cards = [{"id": card.get("id"), "name": card.get("name")} for card in trace.get("deviceProperties", [])]
    whole = {"schemaVersion": 1, "displayTimeUnit": "ms", "deviceProperties": cards, "traceEvents": kept}
    aside = path.with_suffix(".part")
    with gzip.open(aside, "wt", compresslevel=6) as file:
        json.dump(whole, file, separators=(",", ":"))
    aside.replace(path)


_ARGS = (
    "name", "labels", "sort_index", "External id", "correlation", "stream", "device", "Input Dims", "Input type",
    "Sequence number", "Fwd thread id", "Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id",
    "grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %",
)  # fmt: skip
