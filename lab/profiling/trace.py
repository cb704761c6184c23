"""Read a chrome trace into tables: events with self times, operators, memory.

Times are microseconds from the first event; FLOPs are counted from recorded shapes (two a multiply-add, as
torch.utils.flop_counter does); bytes are those of an operator's tensor inputs, since outputs are not recorded.
"""

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lab.errors import LabError

LIMIT = 500_000_000  # bytes of JSON; the usual viewers die at about the same size

_KIND = {
    "cpu_op": "operator", "user_annotation": "range", "gpu_user_annotation": "GPU range", "kernel": "kernel",
    "gpu_memcpy": "copy", "gpu_memset": "copy", "cuda_runtime": "runtime", "cuda_driver": "runtime",
}  # fmt: skip
_ITEMSIZE = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short": 2,
    "bool": 1, "unsigned char": 1, "signed char": 1, "c10::Float8_e4m3fn": 1,
}  # fmt: skip
# what an operator is for, by words of its name, first match wins
GROUPS: dict[str, tuple[str, ...]] = {
    "attention": ("scaled_dot_product", "flash", "fmha", "attention"),
    "matrix product": ("mm", "matmul", "linear", "gemm", "cutlass", "cublas", "nvjet", "sm90_xmma"),
    "optimiser": ("adam", "optimizer", "clip_grad", "multi_tensor", "foreach", "zero_grad"),
    "norm and softmax": ("norm", "softmax", "nll_loss", "cross_entropy", "rsqrt", "mean"),
    "copy and layout": (
        "copy", "memcpy", "memset", "::to", "contiguous", "clone", "cat", "view", "reshape", "transpose", "expand",
        "slice", "select", "empty", "fill", "zero", "detach", "::t", "unsafe", "as_strided", "squeeze", "permute",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """`events`: name, kind, group, lane (index), depth, start, duration, self (us), flops, bytes, shapes, device
    (us of GPU work an operator launched). `memory`: time (us), bytes allocated, by device."""

    events: pl.DataFrame
    lanes: list[str]
    memory: pl.DataFrame
    card: str | None = None  # the GPU it was recorded on

    @property
    def duration(self) -> float:
        """Microseconds from the first event's start to the last one's end."""
        return float((self.events["start"] + self.events["duration"]).max() or 0)  # type: ignore[arg-type]

    def operators(self) -> pl.DataFrame:
        """One row a name and kind, largest self time first; a call nested in one of the same name is the same call."""
        table = self.events.group_by("name", "kind", "group").agg(
            pl.col("outer").sum().alias("calls"),
            pl.col("self").sum(),
            pl.col("duration").filter(pl.col("outer")).sum().alias("total"),
            pl.col("device", "flops", "bytes").sum(),
            pl.col("shapes").drop_nulls().mode().sort().first(),
        )
        return table.with_columns(share=pl.col("self") / pl.col("self").sum()).sort("self", descending=True)


def read(path: Path) -> Trace:
    """The trace in a `.json` or `.json.gz`; LabError when it is too large, or not a trace."""
    return parse(_text(path), path.name)


def _text(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise LabError(f"There is no trace at {path}.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise LabError(
            f"{path.name} cannot be read ({error}); it may be cut short, so record it again."
        ) from error
    if len(text) > LIMIT:
        raise LabError(
            f"{path.name} is over {LIMIT // 1_000_000} MB of JSON; profile fewer steps, or switch off stacks and shapes."
        )
    return text


def parse(text: bytes, name: str = "the trace") -> Trace:
    """The trace in a chrome trace's JSON text."""
    try:
        document = json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise LabError(f"{name} is not JSON ({error}); it may be cut short, so record it again.") from error
    rows = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise LabError(
            f"{name} has no traceEvents; only chrome traces, as torch.profiler exports them, are read."
        )
    try:
        return _tables(document, [row for row in rows if isinstance(row, dict)], name)
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:  # any field may be anything
        raise LabError(
            f"{name} holds an event that torch.profiler does not write ({error!r}); record it again."
        ) from error


def _tables(document: Any, rows: list[dict[str, Any]], name: str) -> Trace:
    spans = [row for row in rows if row.get("ph") == "X" and row.get("cat") in _KIND and _timed(row)]
    if not spans:
        raise LabError(
            f"{name} holds no timed operators; record it with torch.profiler around at least one step."
        )
    origin = min(row["ts"] for row in spans)
    spans.sort(key=lambda row: (row["ts"], -row["dur"]))
    lanes, lane_of = _lanes(spans)
    columns: dict[str, list[Any]] = defaultdict(list)
    stacks: dict[int, list[int]] = defaultdict(list)
    ends: list[float] = []
    device = _device_time(spans)
    for i, row in enumerate(spans):
        lane, start, length = lane_of[_key(row)], row["ts"] - origin, row["dur"]
        args = row.get("args") or {}
        stack = stacks[lane]
        while stack and ends[stack[-1]] <= start + 1e-9:
            stack.pop()
        if stack:
            columns["self"][stack[-1]] -= length
        ends.append(start + length)
        kind = _KIND[row["cat"]]
        columns["name"].append(str(row["name"]))
        columns["kind"].append(kind)
        columns["group"].append(group(str(row["name"]), kind))
        columns["lane"].append(lane)
        columns["depth"].append(len(stack))
        columns["outer"].append(all(spans[j]["name"] != row["name"] for j in stack))
        columns["start"].append(start)
        columns["duration"].append(length)
        columns["self"].append(length)
        columns["device"].append(device.get(args.get("External id"), 0.0) if kind == "operator" else 0.0)
        columns["flops"].append(flops(str(row["name"]), args.get("Input Dims") or []))
        columns["bytes"].append(_bytes(args.get("Input Dims") or [], args.get("Input type") or []))
        columns["shapes"].append(_shapes(args.get("Input Dims") or []))
        stack.append(i)
    schema = {
        "lane": pl.UInt16,
        "depth": pl.UInt16,
        "flops": pl.Float64,
        "bytes": pl.Float64,
        "shapes": pl.String,
    }
    events = pl.DataFrame(columns, schema_overrides=schema).with_columns(pl.col("self").clip(lower_bound=0.0))
    on_gpu = (events["kind"] == "kernel").any()
    cards = document.get("deviceProperties") if on_gpu and isinstance(document, dict) else None
    card = cards[0].get("name") if isinstance(cards, list) and cards and isinstance(cards[0], dict) else None
    return Trace(events, lanes, _memory(rows, origin), card)


def difference(before: Trace, after: Trace) -> pl.DataFrame:
    """What a change did, operator by operator: calls and self times (us) of both, the largest change first."""
    keys = ["name", "kind", "group"]
    sides = [t.operators().select(*keys, "calls", "self") for t in (before, after)]
    both = sides[0].join(sides[1], on=keys, how="full", coalesce=True, suffix="_after").fill_null(0)
    change = (pl.col("self_after") - pl.col("self")).alias("change")
    return both.with_columns(change).sort(pl.col("change").abs(), descending=True)


def points(trace: Trace) -> list[dict[str, Any]]:
    """Products and attention of a trace as points under the roofline, the longest first.

    Intensity counts input bytes alone, since outputs are not recorded: a point stands a little too far right.
    """
    found = []
    for row in trace.operators().filter(pl.col("flops") > 0, pl.col("bytes") > 0).iter_rows(named=True):
        if (seconds := (row["device"] or row["total"]) / 1e6) > 0:
            found.append(
                {
                    "label": row["name"].removeprefix("aten::"),
                    "intensity": row["flops"] / row["bytes"],
                    "flops_per_s": row["flops"] / seconds,
                    "group": row["group"],
                    "note": f"{row['calls']} calls",
                }
            )
    return found[:8]


def _timed(row: dict[str, Any]) -> bool:
    ts, dur = row.get("ts"), row.get("dur")
    return (
        isinstance(ts, int | float) and isinstance(dur, int | float) and math.isfinite(ts + dur) and dur >= 0
    )


def _key(row: dict[str, Any]) -> tuple[str, str, bool]:
    return str(row.get("pid")), str(row.get("tid")), row["cat"] == "gpu_user_annotation"


def _lanes(spans: list[dict[str, Any]]) -> tuple[list[str], dict[tuple, int]]:
    """Names of the lanes, CPU threads first in order of appearance, and the lane of each (pid, tid)."""
    on_gpu: dict[tuple, bool] = {}
    autograd = set()
    for row in spans:
        key = _key(row)
        on_gpu.setdefault(key, _KIND[row["cat"]] in ("kernel", "copy") or row["cat"] == "gpu_user_annotation")
        if str(row["name"]).startswith("autograd::engine"):
            autograd.add(key)
    order = sorted(on_gpu, key=lambda key: (on_gpu[key], not key[2]))  # stable: by first event within each
    names, threads = [], 0
    for key in order:
        if key[2]:
            names.append("GPU ranges")
        elif on_gpu[key]:
            names.append(f"GPU stream {key[1].removeprefix('stream ')}")
        else:
            threads += 1
            names.append(f"CPU thread {threads}" + (", backward" if key in autograd and threads > 1 else ""))
    return names, {key: i for i, key in enumerate(order)}


def _device_time(spans: list[dict[str, Any]]) -> dict[Any, float]:
    """Microseconds of kernels by the external id of the operator that launched them."""
    found: dict[Any, float] = defaultdict(float)
    for row in spans:
        if _KIND[row["cat"]] in ("kernel", "copy"):
            found[(row.get("args") or {}).get("External id")] += row["dur"]
    found.pop(None, None)
    return found


def group(name: str, kind: str) -> str:
    """What an operator or kernel is for."""
    if kind == "runtime" or kind.endswith("range"):
        return kind.removeprefix("GPU ")
    low = name.lower()
    for known, words in GROUPS.items():
        if any(word in low for word in words):
            return known
    return "element-wise" if kind in ("operator", "kernel") else "copy and layout"


def _mm(a: Sequence[int], b: Sequence[int]) -> float:
    return 2.0 * math.prod(a) * b[-1]


def _attention(q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> float:
    return 2.0 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


_FLOPS: dict[str, Callable[[list], float]] = {
    "aten::mm": lambda d: _mm(d[0], d[1]),
    "aten::bmm": lambda d: _mm(d[0], d[1]),
    "aten::addmm": lambda d: _mm(d[1], d[2]),
    "aten::baddbmm": lambda d: _mm(d[1], d[2]),
    "aten::_scaled_dot_product_flash_attention": lambda d: _attention(*d[:3]),
    "aten::_scaled_dot_product_flash_attention_for_cpu": lambda d: _attention(*d[:3]),
    "aten::_scaled_dot_product_efficient_attention": lambda d: _attention(*d[:3]),
    "aten::_scaled_dot_product_cudnn_attention": lambda d: _attention(*d[:3]),
    # five products instead of two: the scores again, then the gradients of v, p, q, k
    "aten::_scaled_dot_product_flash_attention_backward": lambda d: 2.5 * _attention(*d[1:4]),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": lambda d: 2.5 * _attention(*d[1:4]),
    "aten::_scaled_dot_product_efficient_attention_backward": lambda d: 2.5 * _attention(*d[1:4]),
    "aten::_scaled_dot_product_cudnn_attention_backward": lambda d: 2.5 * _attention(*d[1:4]),
}


def flops(name: str, dims: list) -> float:
    """FLOPs of an operator from its input shapes; 0 for those that are not matrix products or attention."""
    count = _FLOPS.get(name)
    if count is None:
        return 0.0
    try:
        return count(dims)
    except (IndexError, TypeError):  # recorded without shapes
        return 0.0


def _bytes(dims: list, types: list) -> float:
    return float(
        sum(
            math.prod(d) * _ITEMSIZE.get(t, 0)
            for d, t in zip(dims, types)
            if d and all(isinstance(n, int) for n in d)
        )
    )


def _shapes(dims: list) -> str | None:
    told = [" x ".join(map(str, d)) for d in dims if d and all(isinstance(n, int) for n in d)]
    return ", ".join(told[:2]) or None


def _memory(rows: list[dict[str, Any]], origin: float) -> pl.DataFrame:
    """The allocator's running total after each allocation and release."""
    points = [
        (row["ts"] - origin, float(args["Total Allocated"]), "GPU" if args.get("Device Type") == 1 else "CPU")
        for row in rows
        if row.get("name") == "[memory]" and "Total Allocated" in (args := row.get("args") or {})
    ]
    return pl.DataFrame(
        points, schema={"time": pl.Float64, "bytes": pl.Float64, "device": pl.String}, orient="row"
    ).sort("time")


def timeline(trace: Trace) -> dict[str, Any]:
    """Arguments for `widgets.timeline.Timeline`."""
    names = trace.events.select("name", "kind", "group", "shapes").unique(
        ["name", "kind"], keep="first", maintain_order=True
    )
    index = {pair: i for i, pair in enumerate(names.select("name", "kind").iter_rows())}
    events = trace.events
    memory = trace.memory
    if (device := "GPU") in memory["device"]:
        memory = memory.filter(pl.col("device") == device)
    return {
        "start": events["start"].to_numpy(),
        "duration": events["duration"].to_numpy(),
        "self_time": events["self"].to_numpy(),
        "name": np.array([index[pair] for pair in events.select("name", "kind").iter_rows()]),
        "lane": events["lane"].to_numpy(),
        "depth": events["depth"].to_numpy(),
        "flops": events["flops"].to_numpy(),
        "bytes": events["bytes"].to_numpy(),
        "device": events["device"].to_numpy(),
        "names": names.to_dicts(),
        "lanes": trace.lanes,
        "memory": (memory["time"].to_numpy(), memory["bytes"].to_numpy()),
    }
