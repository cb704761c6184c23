"""Widgets that show inference while it happens; the same ones hold the result afterwards."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from lab.infer.cost import step_cost
from lab.infer.generate import Token, encode_prompt, generate
from lab.infer.measure import Measured, best_ceiling, time_step
from widgets.curves import Curves
from widgets.roofline import Roofline
from widgets.table import Table
from widgets.tokens import Tokens

if TYPE_CHECKING:
    from lab.models import LM, ModelConfig
    from lab.profiling.hardware import Ceiling

_measuring = threading.Lock()
REFRESH_S = 0.1  # a page cannot use more than ten pictures a second

STEP_COLUMNS = (
    {"key": "step", "title": "step"},
    {"key": "rows", "title": "rows", "kind": "num"},
    {"key": "new", "title": "new", "kind": "num"},
    {"key": "past", "title": "cached", "kind": "num"},
    {"key": "ms", "title": "measured", "unit": "ms", "kind": "num", "digits": 2},
    {"key": "floor", "title": "roofline", "unit": "ms", "kind": "num", "digits": 2},
    {"key": "times", "title": "times over", "kind": "num", "digits": 1},
    {"key": "mb", "title": "moved", "unit": "MB", "kind": "num", "digits": 1},
    {"key": "intensity", "title": "FLOP/byte", "kind": "num", "digits": 1},
    {"key": "gbps", "title": "GB/s", "kind": "num", "digits": 1},
    {"key": "gflops", "title": "GFLOP/s", "kind": "num", "digits": 1},
    {"key": "bound", "title": "limited by"},
)


def ceiling_row(ceiling: "Ceiling", dtype: torch.dtype) -> dict[str, Any]:
    """A ceiling as the roofline widget takes it."""
    name = str(dtype).removeprefix("torch.")
    return {
        "name": f"{ceiling.name}, {name}",
        "flops_per_s": ceiling.flops_per_s(dtype),
        "bytes_per_s": ceiling.bandwidth,
    }


def step_row(name: str, m: Measured, ceiling: "Ceiling", dtype: torch.dtype) -> dict[str, Any]:
    """One measured step as a row of `STEP_COLUMNS`."""
    return {
        "id": name,
        "step": name,
        "rows": m.batch,
        "new": m.new,
        "past": m.past,
        "ms": m.seconds * 1e3,
        "floor": m.predicted(ceiling, dtype) * 1e3,
        "times": m.seconds / m.predicted(ceiling, dtype),
        "mb": m.cost.bytes / 1e6,
        "intensity": m.cost.intensity,
        "gbps": m.bytes_per_s / 1e9,
        "gflops": m.flops_per_s / 1e9,
        "bound": m.bound(ceiling, dtype),
    }


def point(name: str, m: Measured, group: str | None = None) -> dict[str, Any]:
    """One measured step as a point of the roofline widget."""
    return {
        "label": name,
        "intensity": m.cost.intensity,
        "flops_per_s": m.flops_per_s,
        "group": group or m.phase,
        "note": f"{m.batch} x {m.new} new, {m.past} cached, {m.seconds * 1e3:.3g} ms",
    }


@contextmanager
def _alone(stopped: Callable[[], bool]) -> Iterator[bool]:
    """Whether it is our turn: two measurements at once, in two tabs, would each slow the other and be wrong."""
    mine = _measuring.acquire(timeout=REFRESH_S)
    while not mine and not stopped():
        mine = _measuring.acquire(timeout=REFRESH_S)
    try:
        yield mine
    finally:
        if mine:
            _measuring.release()


class Generation:
    """Tokens, time per token, roofline and a table of the two kinds of step, filled while a model generates."""

    def __init__(self, lm: "LM", ceiling: "Ceiling") -> None:
        self.lm, self.ceiling, self.dtype = lm, ceiling, lm.model.dtype
        self.warm = False
        self.prompt = ""
        self.made: list[Token] = []
        self.shade = "probability"
        self.strip = Tokens([], value_title="probability")
        self.curves = Curves(
            series=[{"id": "measured", "label": "measured"}, {"id": "roof", "label": "roofline"}],
            panels=[
                {"key": "ms", "title": "Time per token", "unit": "ms", "zero": True},
                {"key": "gbps", "title": "Bytes moved", "unit": "GB/s", "zero": True},
            ],
            x="context",
            x_title="tokens in the cache",
        )
        self.roofline = Roofline(
            [ceiling_row(ceiling, self.dtype)], title="Where the two kinds of step stand"
        )
        self.table = Table([], STEP_COLUMNS, page=4, name="steps")

    def run(self, prompt: str, stopped: Callable[[], bool], **settings: Any) -> None:
        """Generate, showing each token; `stopped()` is asked between tokens. LabError for bad input."""
        with _alone(stopped) as mine:  # whoever generated here before has shown its last
            if mine:
                self._run(prompt, stopped, settings)

    def _run(self, prompt: str, stopped: Callable[[], bool], settings: dict[str, Any]) -> None:
        self.prompt, self.made = prompt, []
        self.curves.clear()
        ids = encode_prompt(self.lm, prompt)
        if not self.warm:  # the first forward of a process also sets up threads and tables
            time_step(self.lm.model, len(ids), goes=1)
            self.ceiling = best_ceiling(self.ceiling)
            self.roofline.ceilings = [ceiling_row(self.ceiling, self.dtype)]
            self.warm = True
        shown = 0
        last = 0.0
        for token in generate(self.lm, prompt, **settings):
            self.made.append(token)
            now = time.perf_counter()
            if now - last > REFRESH_S:
                self._show(self.made[shown:], going=True)
                shown, last = len(self.made), now
            if stopped():
                break
        self._show(self.made[shown:], going=False)

    def colour(self, shade: str) -> None:
        """Shade the tokens by "probability", or by "time" in milliseconds."""
        self.shade = shade
        if self.made:
            self._strip(going=False)

    def decoded(self) -> Measured | None:
        """The median decode step so far."""
        steps = sorted((t for t in self.made if t.phase == "decode"), key=lambda t: t.seconds)
        if not steps:
            return None
        middle = steps[len(steps) // 2]
        return Measured("decode", 1, middle.context - 1, 1, middle.seconds, middle.cost)

    def prefilled(self) -> Measured | None:
        """The prefill of the prompt."""
        if not self.made:
            return None
        first = self.made[0]
        return Measured("prefill", first.context, 0, 1, first.seconds, first.cost)

    def _show(self, fresh: Iterable[Token], going: bool) -> None:
        roof_gbps = self.ceiling.bandwidth / 1e9
        rows = []
        for token in fresh:
            if token.phase == "decode":
                floor = token.cost.roof_seconds(self.ceiling.flops_per_s(self.dtype), self.ceiling.bandwidth)
                at = {"context": token.context}
                rows.append(
                    {**at, "run": "measured", "ms": token.seconds * 1e3, "gbps": token.bytes_per_s / 1e9}
                )
                rows.append({**at, "run": "roof", "ms": floor * 1e3, "gbps": roof_gbps})
        self.curves.append(rows)
        steps = [
            (name, m) for name, m in (("prefill", self.prefilled()), ("decode, median", self.decoded())) if m
        ]
        self.table.update([step_row(name, m, self.ceiling, self.dtype) for name, m in steps])
        self.roofline.update([point(name, m) for name, m in steps])
        self._strip(going)

    def _strip(self, going: bool) -> None:
        if self.shade == "time":
            values = [t.seconds * 1e3 for t in self.made]
            # prefill takes far longer than any decode step: let the decode steps set the scale
            top = max(sorted(values[1:] or values)[: max(1, math.ceil(0.95 * len(values)))])
            title = "ms"
        else:
            values, top, title = [math.exp(t.logprob) for t in self.made], 1.0, "probability"
        pieces = self.lm.tokenizer.pieces
        prompt = {"label": "prompt", "pieces": pieces(self.lm.tokenizer.encode(self.prompt))}
        answer = {
            "label": "generated",
            "pieces": [t.piece for t in self.made],
            "values": values,
            "ids": [t.id for t in self.made],
            "note": "" if going else self._ending(),
        }
        with self.strip.hold_sync():
            self.strip.value_title, self.strip.vmax = title, top
            self.strip.update([prompt, answer])

    def _ending(self) -> str:
        if not self.made:
            return "cancelled before the first token"
        last = self.made[-1]
        seconds = sum(t.seconds for t in self.made)
        why = {None: "cancelled", "length": "as long as asked", "context": "the context is full"}
        return f"{why.get(last.finish, last.finish)}; {len(self.made)} tokens in {seconds:.2g} s"


class Sweep:
    """Measured steps of growing length and batch on a roofline, with what the roofline says beside each."""

    def __init__(self, ceiling: "Ceiling", dtype: torch.dtype, title: str) -> None:
        self.ceiling, self.dtype = ceiling, dtype
        self.roofline = Roofline([ceiling_row(ceiling, dtype)], title=title)
        self.table = Table([], STEP_COLUMNS, page=16, name="sweep")
        self.points: list[tuple[str, Measured]] = []

    def run(self, steps: Iterable[Measured], stopped: Callable[[], bool]) -> None:
        """Show each step as it is measured, under a ceiling measured afresh."""
        self.points = []
        turns = iter(steps)
        while not (self.points and stopped()):
            with _alone(
                stopped
            ) as mine:  # step by step, so that somebody who generates does not wait for all
                if not self.points:
                    self.ceiling = best_ceiling(self.ceiling)
                    self.roofline.ceilings = [ceiling_row(self.ceiling, self.dtype)]
                m = next(turns, None) if mine else None
            if m is None:
                break
            name = f"prefill {m.new}" if m.phase == "prefill" else f"decode x{m.batch}"
            self.points.append((name, m))
            self.roofline.update([point(n, p) for n, p in self.points])
            self.table.update([step_row(n, p, self.ceiling, self.dtype) for n, p in self.points])


def recorded(row: Mapping[str, Any]) -> Roofline:
    """The roofline of a record of `lab.bench.infer`: points and ceiling as they were measured then."""
    detail = row["detail"]
    ceiling = detail["ceiling"]
    points = [
        {
            "label": name,
            "intensity": p["intensity"],
            "flops_per_s": p["flops_per_s"],
            "group": "prefill" if p["new"] > 1 else "decode",
            "note": f"{p['batch']} x {p['new']} new, {p['past']} cached, {p['seconds'] * 1e3:.3g} ms",
        }
        for name, p in sorted(detail["points"].items(), key=lambda item: item[1]["new"] == 1)  # prefill first
    ]
    roof = {**ceiling, "name": f"{ceiling['name']}, {detail['dtype']}"}
    case = row["id"].rpartition("fraction.")[2]
    return Roofline([roof], points, title=f"{case}, recorded on {ceiling['name']}, {row['date'][:10]}")


def cache_rows(
    cfg: "ModelConfig",
    heads: int,
    context: int,
    batch: int,
    dtype: torch.dtype,
    weights: torch.dtype,
    bytes_per_s: float,
) -> list[dict[str, Any]]:
    """What the cache of a model costs with one head a query, the given number of key-value heads, and one for all."""
    rows = []
    kinds = {1: "multi-query", cfg.n_heads: "multi-head"}
    for n in sorted({cfg.n_heads, heads, cfg.n_kv_heads, 1}, reverse=True):
        shape = replace(cfg, n_kv_heads=n)
        cost = step_cost(shape, 1, context, batch, weights, dtype)
        seconds = cost.bytes / bytes_per_s
        rows.append(
            {
                "id": n,
                "kind": kinds.get(n, "grouped") + (", this model" if n == cfg.n_kv_heads else ""),
                "heads": n,
                "token": shape.kv_bytes_per_token(dtype) / 1e3,
                "cache": shape.kv_bytes_per_token(dtype) * context * batch / 1e9,
                "share": 100 * cost.kv_read / cost.bytes,
                "ms": seconds * 1e3,
                "rate": batch / seconds,
                "intensity": cost.intensity,
            }
        )
    return rows
