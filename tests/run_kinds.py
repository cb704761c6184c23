"""Small kinds of runs for the tests: real work, real files, a few milliseconds a step."""

import json
import resource
import time
from pathlib import Path


def count(spec, ctx):
    """Add up integers; the sum is the state a checkpoint carries."""
    step, total = 0, 0
    if newest := ctx.latest():
        state = json.loads((newest.path / "state.json").read_text())
        step, total = newest.step, state["total"]
    ctx.note(f"from step {step}")
    while step < spec["steps"]:
        step += 1
        total += step
        ctx.log(step, total=total)
        if step % spec.get("every", 10) == 0:
            with ctx.checkpoint(step) as directory:
                (directory / "state.json").write_text(json.dumps({"total": total}))
                (directory / "weights.bin").write_bytes(bytes([step % 251]) * spec.get("bytes", 1000))
        if ctx.cancelled:
            return
        time.sleep(spec.get("pause", 0.0))


def deaf(spec, ctx):
    """Takes no notice of being asked to stop."""
    ctx.log(1, x=1.0)
    time.sleep(600)


def broken(spec, ctx):
    ctx.log(1, loss=float("nan"))
    raise RuntimeError("the work went wrong")


def small_disk(spec, ctx):
    """A disk that takes no file larger than 64 KiB: the kernel itself refuses the write."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    for step, size in ((1, 1000), (2, 1_000_000)):
        ctx.log(step, size=size)
        with ctx.checkpoint(step) as directory:
            if spec.get("safetensors"):
                import torch
                from safetensors.torch import save_file

                save_file({"w": torch.zeros(size // 4)}, directory / "model.safetensors")
            else:
                Path(directory / "weights.bin").write_bytes(b"x" * size)


def slow_to_go(spec, ctx):
    """Stops when asked, and then takes its time to leave, as a process full of memory does."""
    import atexit

    atexit.register(time.sleep, 1.5)
    while not ctx.cancelled:
        time.sleep(0.01)
