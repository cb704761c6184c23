"""The same analysis on every backend, as tables and maps that fill while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from interp.backends import BACKENDS, any_backend, load, parity
from interp.prompts import Pair
from interp.sites import SITES, sites_of
from interp.sweep import Sweep, axis_of, grid, sweep
from lab.errors import LabError
from lab.models import LM
from widgets.heatmap import Heatmap
from widgets.table import Table

FRAME_S = 0.1  # a sweep redraws its map this often
STARTS_S = 8.0  # what importing TransformerLens and nnsight takes, once a process
SMALL = 50_000_000  # parameters of a model that is compared without being asked
FLOOR = "float64"  # our decoder once more, in double precision: how far rounding alone goes
PACKAGES = {"bridge": "transformer-lens", "nnsight": "nnsight"}
TITLES = {"own": "our decoder", "bridge": "TransformerLens", "nnsight": "nnsight", FLOOR: "ours in float64"}
Stopped = Callable[[], bool]


def never() -> bool:
    return False


@dataclass
class Row:
    """What is known of one backend so far."""

    state: str = "waits"
    load_s: float | None = None
    forward_s: float | None = None
    sweep_s: float | None = None
    points: int | None = None
    apart: float | None = None  # largest difference of its map from the reference's


def reference(name: str, progress: Any = None) -> LM:
    """The model in float32 that others are compared with: ours where our decoder reads it, else nnsight's."""
    return any_backend(name, torch.float32, progress)


class Comparison:
    """One model and pair on every backend. The reference is measured at once, the others by `run`."""

    def __init__(self, lm: LM, pair: Pair) -> None:
        self.lm, self.pair = lm, pair
        self.first = next(key for key, title in BACKENDS.items() if lm.source == title) if hasattr(lm.model, "cannot") else "own"
        self.others = [key for key in (FLOOR, *BACKENDS) if key != self.first and not (key == FLOOR and self.first != "own")]
        self.rows = {key: Row() for key in (self.first, *self.others)}
        self.found: dict[str, list[parity.Row]] = {}
        self._seen: parity.Seen | None = None
        self.models: dict[str, Any] = {self.first: lm.model}
        self.tokens = torch.tensor([pair.clean_ids], device=lm.model.device)
        self.summary = Table([], self._summary_columns(), page=5, name="backends")
        self.parity = Table([], self._parity_columns(), page=18, name="parity")
        self.cannot = Table(
            [], [{"key": "library"}, {"key": "point", "title": "hook points"}, {"key": "why", "title": "why not"}], name="cannot"
        )
        self._timed_pass(self.first)
        self.draw()

    def sites(self) -> list[str]:
        return [s for s in sites_of(self.lm.model) if s != "pattern" or self.pair.equal_length]

    @property
    def small(self) -> bool:
        """Is it quick enough not to be asked for?"""
        return sum(p.numel() for p in self.lm.model.parameters()) < SMALL

    def seconds(self, site: str) -> float:
        """Expected duration of all that `run` does for a site, from a pass of a few rows timed just now."""
        rows = 4
        tokens = torch.tensor([self.pair.corrupted_ids] * rows, device=self.lm.model.device)
        started = time.perf_counter()
        with torch.no_grad():
            self.lm.model(tokens, last=True)
        row_s = (time.perf_counter() - started) / rows
        patched = 3 * parity.CELLS * len(self.sites())
        swept = len(grid(self.lm.model.cfg, self.pair, site))
        return STARTS_S + row_s * (len(self.rows) * patched + 2.5 * swept)

    def run(self, maps: Maps, stopped: Stopped = never) -> None:
        """Load every backend, compare its activations and patched logits, sweep the site; what is measured stays."""
        for key in self.rows:
            if stopped():
                return
            try:
                self._load(key)
                if key not in self.found and key != self.first:
                    self._note(key, "compares")
                    self.found[key] = self._compare(self.models[key])
                if key != FLOOR:
                    self._note(key, "sweeps")
                    self.rows[key].sweep_s = maps.fill(key, self.models[key], stopped)
                    self.rows[key].apart = maps.apart(key, self.first)
                self._note(key, "done")
            except LabError as error:
                self._note(key, str(error))
                maps.refuse(key, str(error))

    def _load(self, key: str) -> None:
        if key in self.models:
            return
        self._note(key, "loads")
        started = time.perf_counter()
        backend, dtype = ("own", torch.float64) if key == FLOOR else (key, torch.float32)
        self.models[key] = load(self.lm.name, backend, dtype).model
        spent = time.perf_counter() - started
        self.rows[key].load_s = spent if spent > 0.01 else None  # in memory already
        self._timed_pass(key)

    def _timed_pass(self, key: str) -> None:
        model = self.models[key]
        with torch.no_grad():
            model(self.tokens)
            started = time.perf_counter()
            model(self.tokens)
        row = self.rows[key]
        row.forward_s, row.points = time.perf_counter() - started, len(model.hook_names())

    def _compare(self, model: Any) -> list[parity.Row]:
        if self._seen is None:
            self._seen = parity.see(self.lm.model, self.tokens, self.pair)
        return parity.compare(self._seen, parity.see(model, self.tokens, self.pair))

    def _note(self, key: str, state: str) -> None:
        self.rows[key].state = state
        self.draw()

    # ---- tables

    def draw(self) -> None:
        self.summary.update(list(self._summary()))
        self.parity.update(list(self._parity()))
        self.cannot.update(list(self._cannot()))

    def worst(self, key: str, what: str = "max_abs") -> float | None:
        """The largest difference found on a backend, activations and patched logits alike."""
        return max((getattr(row, what) for row in self.found[key]), default=None) if key in self.found else None

    def _summary(self) -> Iterator[dict[str, Any]]:
        for key, row in self.rows.items():
            package = PACKAGES.get(key)
            yield {
                "backend": TITLES[key] + (f" {version(package)}" if package else ""),
                "load": _short(row.load_s), "forward": _short(row.forward_s and 1e3 * row.forward_s), "sweep": _short(row.sweep_s),
                "points": row.points, "worst": _short(self.worst(key)), "relative": _short(self.worst(key, "relative")),
                "apart": _short(row.apart),
                "state": "reference" if key == self.first and row.state in ("waits", "done") else row.state,
            }  # fmt: skip

    def _cannot(self) -> Iterator[dict[str, str]]:
        for key, model in self.models.items():
            reasons: dict[str, list[str]] = {}
            for point, why in getattr(model, "cannot", {}).items():
                reasons.setdefault(why, []).append(parity.split(point.replace("*", "0"))[1])
            for why, points in reasons.items():
                yield {"library": TITLES[key], "point": ", ".join(points), "why": why}

    @staticmethod
    def _summary_columns() -> list[dict[str, Any]]:
        return [
            {"key": "backend"}, {"key": "load", "title": "loads in", "unit": "s", "kind": "num"},
            {"key": "forward", "title": "one pass", "unit": "ms", "kind": "num"},
            {"key": "sweep", "title": "the sweep", "unit": "s", "kind": "num"},
            {"key": "points", "title": "hook points", "kind": "num"},
            {"key": "worst", "title": "max |Δ|", "kind": "num"}, {"key": "relative", "title": "relative", "kind": "num"},
            {"key": "apart", "title": "maps differ by", "kind": "num"}, {"key": "state", "title": "state"},
        ]  # fmt: skip

    def _parity(self) -> Iterator[dict[str, Any]]:
        lines: dict[tuple[str, str], dict[str, Any]] = {}
        for key, rows in self.found.items():
            for row in rows:
                line = lines.setdefault((row.kind, row.point), {"point": row.point, "kind": row.kind})
                line |= {key: _short(row.max_abs), f"{key}_relative": _short(row.relative)}
        yield from lines.values()

    def _parity_columns(self) -> list[dict[str, Any]]:
        columns: list[dict[str, Any]] = [{"key": "point", "kind": "mono"}, {"key": "kind", "title": "compared"}]
        for key in self.others:
            columns.append({"key": key, "title": f"{TITLES[key]}: max |Δ|", "kind": "num"})
            if key != FLOOR:
                columns.append({"key": f"{key}_relative", "title": "relative", "kind": "num"})
        return columns


def _short(x: float | None) -> float | None:
    """Two digits tell a difference or a time."""
    return None if x is None else float(f"{x:.2g}")


class Maps:
    """The exact sweep of one site by every backend, side by side."""

    def __init__(self, comparison: Comparison, site: str) -> None:
        pair, config = comparison.pair, comparison.lm.model.cfg
        self.pair, self.site = pair, site
        self.shape = (config.n_layers, SITES[site].n_heads(config) or len(pair.alignment))
        heads = axis_of(site) == "head"
        self.maps = {
            key: Heatmap(
                torch.full(self.shape, float("nan")).numpy(), row_title="layer",
                col_labels=None if heads else pair.corrupted_pieces,
                col_title=SITES[site].noun if heads else "token of the corrupted prompt", vmax=1.0 if not heads else None,
                value_title=TITLES[key],
            )
            for key in comparison.rows if key != FLOOR
        }  # fmt: skip

    def fill(self, key: str, model: Any, stopped: Stopped = never) -> float:
        """Sweep, drawing as it goes; seconds."""
        heat, drawn = self.maps[key], 0.0
        result: Sweep | None = None
        for result in sweep(model, self.pair, self.site):
            now = time.perf_counter()
            if now - drawn > FRAME_S:
                drawn = now
                heat.update(result.share.numpy())
                heat.value_title = f"{TITLES[key]}: {result.fraction:.0%}"
            if stopped():
                break
        assert result is not None
        heat.update(result.share.numpy())
        heat.value_title = f"{TITLES[key]}: {result.seconds:.1f} s" + (", cancelled" if result.fraction < 1 else "")
        return result.seconds

    def apart(self, key: str, first: str) -> float | None:
        """Largest difference between two maps, in shares of the answer; None where one of them has cells that the other lacks."""
        mine, other = (torch.from_numpy(self.maps[name].values.copy()) for name in (key, first))
        if key == first or not torch.equal(mine.isnan(), other.isnan()):
            return None
        return float((mine - other).abs().nan_to_num(0).max())

    def refuse(self, key: str, why: str) -> None:
        if key in self.maps:
            self.maps[key].value_title = f"{TITLES[key]}: {why}"
