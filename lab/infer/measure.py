"""Time one step on the machine at hand, and put the time beside what the step had to move and compute."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lab.errors import LabError
from lab.infer.cost import Cost, step_cost
from lab.infer.steps import decode_one, prefill
from lab.models import KVCache

if TYPE_CHECKING:
    from lab.models import Decoder
    from lab.profiling.hardware import Ceiling


@dataclass(frozen=True)
class Measured:
    """One kind of step and the time it took."""

    phase: str
    """ "prefill" or "decode" """
    new: int
    past: int
    batch: int
    seconds: float
    cost: Cost

    @property
    def bytes_per_s(self) -> float:
        return self.cost.bytes / self.seconds

    @property
    def flops_per_s(self) -> float:
        return self.cost.flops / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return self.batch * self.new / self.seconds

    def predicted(self, ceiling: "Ceiling", dtype: torch.dtype) -> float:
        """Seconds the roofline allows at best."""
        return self.cost.roof_seconds(ceiling.flops_per_s(dtype), ceiling.bandwidth)

    def bound(self, ceiling: "Ceiling", dtype: torch.dtype) -> str:
        """Which of the two limits a perfect machine would meet first."""
        return "memory" if self.cost.intensity < ceiling.ridge(dtype) else "compute"


def time_step(
    model: "Decoder", new: int, past: int = 0, batch: int = 1, goes: int = 5, graph: bool = False
) -> Measured:
    """Fastest time of a step of `new` tokens a row behind `past` cached ones, as the ceilings are the fastest too:
    other programs only ever add time.

    Tokens are random and the cache holds noise, since neither changes the time. The cache is wound back between goes, so each does the same. `graph` replays a CUDA graph of the step: what is
    left is the work of the GPU, without Python launching one kernel after another.
    """
    if past + new > model.cfg.context:
        raise LabError(
            f"{past + new:,} tokens are wanted and this model holds {model.cfg.context:,}; choose fewer."
        )
    device = model.device
    cache = KVCache(model.cfg, batch, past + new, model.dtype, device)
    cache.k.normal_()
    cache.v.normal_()
    tokens = torch.randint(model.cfg.vocab_size, (batch, new), device=device)

    def step() -> None:
        cache.length = past
        if new == 1:
            decode_one(model, tokens[:, 0], cache)
        else:
            prefill(model, tokens, cache)

    step()
    run = _graphed(step) if graph else step
    fastest = min(_timed(run, device) for _ in range(goes))
    return Measured(
        phase="decode" if new == 1 and past else "prefill",
        new=new,
        past=past,
        batch=batch,
        seconds=fastest,
        cost=step_cost(model.cfg, new, past, batch, model.dtype),
    )


def best_ceiling(known: "Ceiling") -> "Ceiling":
    """A processor's ceilings measured now, or what was known where that is higher: other programs only ever take
    away. A GPU keeps its data sheet."""
    from lab.profiling import hardware

    if known.name != hardware.machine().cpu:
        return known
    now = hardware.measure("cpu", known.name)
    flops = {name: max(rate, now.flops[name]) for name, rate in known.flops.items()}
    return hardware.Ceiling(known.name, flops, max(known.bandwidth, now.bandwidth), known.source)


@dataclass(frozen=True)
class Plan:
    """Prefill of each length, then decoding behind `context` tokens for each batch: two ways to the right of the
    roofline."""

    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    context: int
    goes: int = 3

    def floor_s(self, model: "Decoder", ceiling: "Ceiling") -> float:
        """The least time all goes can take under these ceilings."""
        cfg, dtype = model.cfg, model.dtype
        costs = [step_cost(cfg, n, dtype=dtype) for n in self.lengths]
        costs += [step_cost(cfg, 1, self.context, b, dtype) for b in self.batches]
        once = sum(cost.roof_seconds(ceiling.flops_per_s(dtype), ceiling.bandwidth) for cost in costs)
        return (self.goes + 1) * once

    def measure(self, model: "Decoder") -> Iterator[Measured]:
        """Each step when it has been timed."""
        for length in self.lengths:
            yield time_step(model, length, goes=self.goes)
        for batch in self.batches:
            yield time_step(model, 1, self.context, batch, self.goes)


def _timed(run: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def _graphed(step: Callable[[], None]) -> Callable[[], object]:
    """The step as a CUDA graph; shapes and places in the cache are frozen into it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
