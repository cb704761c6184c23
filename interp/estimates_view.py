"""Estimate against exact as pictures: points that move when they are measured, and what each token contributes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from interp.attribution import agreement
from interp.baseline import baseline
from interp.estimates import METHODS, estimate
from interp.estimates import STEPS as PATH
from interp.headsweep import strongest
from interp.integrated import Attribution, of_site, of_tokens, widened
from interp.metrics import Scale
from interp.prompts import Pair
from interp.sites import SITES, sites_of
from interp.sweep import Cell, grid, seconds_needed, sweep
from widgets.scatter import Scatter
from widgets.table import Table
from widgets.tokens import Tokens

MOST = 600  # points of one picture: of more cells the strongest estimates and, evenly, of the rest
SAMPLE = 48  # points measured before anything is chosen
FRAME_S = 0.15
SHORT = {"gradient": "one gradient", "path": "mean of gradients", "integrated": "integrated at the site"}
STEPS = (1, 2, 4, 8, 16, 32)


def label(site: str, cell: Cell, pair: Pair) -> str:
    if SITES[site].heads:
        return f"layer {cell.layer}, {SITES[site].noun} {cell.column}"
    return f"layer {cell.layer}, position {cell.column} “{pair.corrupted_pieces[cell.column].strip()}”"


def points(cells: Sequence[Cell], values: Tensor, most: int = MOST) -> list[Cell]:
    """At most `most` cells: half of them the strongest estimates, the others evenly from what is left."""
    if len(cells) <= most:
        return list(cells)
    ranked = strongest(cells, values, len(cells))
    rest = ranked[most // 2 :]
    return ranked[: most // 2] + [rest[i] for i in np.linspace(0, len(rest) - 1, most - most // 2).astype(int)]


class Comparison:
    """One site of one pair: the scatter of estimates, and the table of the same points."""

    def __init__(self, lm, pair: Pair, site: str, method: str, metric: str, live: bool = False) -> None:
        self.lm, self.pair, self.site, self.metric = lm, pair, site, metric
        self.base = baseline(lm.model, pair, (site,))
        started = time.perf_counter()
        values = estimate(lm.model, pair, site, method, metric, self.base)
        self.seconds = time.perf_counter() - started
        self.all_cells = grid(lm.config, pair, site)
        self.cells = points(self.all_cells, values)
        self.shape = (values.shape[0], values.shape[1])
        self.estimates = np.array([float(values[c.row, c.column]) for c in self.cells])
        self.exact = np.full(len(self.cells), np.nan)
        self._place = {(c.row, c.column): i for i, c in enumerate(self.cells)}
        self._asked: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        labels = [label(site, c, pair) for c in self.cells]
        self.scatter = Scatter(
            self.exact, self.estimates, [c.layer for c in self.cells], labels,
            title=f"{SITES[site].title[:1].upper()}{SITES[site].title[1:]}",
            x_title="exact share restored", y_title="estimated share restored", colour_title="layer",
        )  # fmt: skip
        self.table = Table(
            self._rows(),
            [
                {"key": "what", "title": "patched"}, {"key": "estimate", "kind": "num", "digits": 3},
                {"key": "exact", "kind": "num", "digits": 3}, {"key": "off", "title": "off by", "kind": "bar", "digits": 3},
            ],
            page=12, sort=["off", "down"], name=f"estimates-{site}",
        )  # fmt: skip
        if live:
            self.scatter.observe(lambda change: self._asked.put(list(change["new"])), "selected")

    def _rows(self) -> list[dict]:
        return [
            {"what": label(self.site, c, self.pair), "estimate": e, "exact": x, "off": abs(e - x)}
            for c, e, x in zip(self.cells, self.estimates, self.exact)
        ]

    @property
    def sample(self) -> list[int]:
        """Points spread evenly over the ranks of their estimates."""
        order = np.argsort(-np.abs(np.nan_to_num(self.estimates)))
        return order[np.linspace(0, len(order) - 1, min(SAMPLE, len(order))).astype(int)].tolist()

    def seconds_for(self, which: Sequence[int]) -> float:
        return seconds_needed(self.lm.model, self.pair, self.site, [self.cells[i] for i in which]) if which else 0.0

    @property
    def r(self) -> float:
        """Correlation over what is measured."""
        return agreement(torch.tensor(self.estimates), torch.tensor(self.exact))

    def measure(self, which: Sequence[int], stopped: Callable[[], bool] = lambda: False) -> None:
        """Patch exactly these points, moving them as they come; when stopped, what was measured stays."""
        todo = [self.cells[i] for i in which if np.isnan(self.exact[i])]
        if not todo:
            return
        with self._lock:  # a brush and the button may both be at work
            drawn, seen = time.perf_counter(), 0
            steps = sweep(self.lm.model, self.pair, self.site, self.metric, self.base, todo, self.shape)
            for result in steps:
                for row, column in result.filled[seen:]:
                    self.exact[self._place[row, column]] = float(result.share[row, column])
                seen = len(result.filled)
                if time.perf_counter() - drawn > FRAME_S:
                    drawn = time.perf_counter()
                    self.scatter.update(self.exact)
                if stopped():
                    break
            self.scatter.update(self.exact)
            self.table.update(self._rows())

    def serve(self, stopped: Callable[[], bool]) -> None:
        """Measure what is brushed until told to stop; of brushes made meanwhile only the newest counts."""
        while not stopped():
            try:
                asked = self._asked.get(timeout=0.2)
            except queue.Empty:
                continue
            while not self._asked.empty():
                asked = self._asked.get()
            self.measure(asked, stopped)


class EverySite:
    """Correlation of the methods with the exact sweep, site by site."""

    def __init__(self, lm, pair: Pair, metric: str, sites: Sequence[str] | None = None) -> None:
        self.lm, self.pair, self.metric = lm, pair, metric
        self.sites = [s for s in sites or sites_of(lm.model) if s != "pattern" or pair.equal_length]
        self.methods = [m for m in METHODS if m != "path" or pair.equal_length]
        self.table = Table(
            [],
            [
                {"key": "site"}, {"key": "cells", "kind": "num"},
                *({"key": m, "title": f"r, {SHORT[m]}", "kind": "bar", "digits": 3} for m in self.methods),
            ],
            name="estimates-by-site",
        )  # fmt: skip

    def _cells(self, site: str) -> list[Cell]:
        return grid(self.lm.config, self.pair, site)

    @property
    def seconds(self) -> float:
        """Expected duration: the sweeps, and for the estimates one batch of gradients a layer, timed just now."""
        sweeps = [self._cells(s)[: MOST if s == "neuron" else None] for s in self.sites]
        metric = baseline(self.lm.model, self.pair).scale(self.pair, self.metric).value
        started = time.perf_counter()
        of_site(self.lm.model, self.pair, "resid_mid", 0, metric, PATH)
        gradients = (time.perf_counter() - started) * (self.lm.config.n_layers + 2) * len(self.sites)
        return gradients + sum(seconds_needed(self.lm.model, self.pair, s, c) for s, c in zip(self.sites, sweeps))

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        rows = []
        for site in self.sites:
            if stopped():
                return
            base = baseline(self.lm.model, self.pair, (site,))
            found = {m: estimate(self.lm.model, self.pair, site, m, self.metric, base) for m in self.methods}
            rough = found["gradient"]
            cells = points(self._cells(site), rough)
            for result in sweep(self.lm.model, self.pair, site, self.metric, base, cells, (len(rough), rough.shape[1])):
                if stopped() and result.fraction < 1:
                    return
            rows.append({
                "site": SITES[site].title, "cells": len(cells),
                **{m: agreement(found[m], result.share) for m in self.methods},
            })  # fmt: skip
            self.table.update(rows)


# ---- token by token


class TokenView:
    """Gradient x input and integrated gradients on the embeddings of the clean prompt, in a wide precision."""

    def __init__(self, lm, pair: Pair, scale: Scale, baseline: str, steps: int) -> None:
        self.lm, self.pair = lm, pair
        wide = lm.config.n_params() < 50e6  # a copy in float64 of a larger model takes gigabytes
        self.model = widened(lm.model, torch.float64 if wide else torch.float32)
        self.metric, self.baseline, self.steps, self.unit = scale.value, baseline, steps, scale.metric.unit

    def attribution(self, method: str, steps: int | None = None, rule: str = "gauss") -> Attribution:
        return of_tokens(
            self.model, self.pair.clean_ids, self.metric, method, self.baseline, steps or self.steps,
            self.pair.corrupted_ids, rule,
        )  # fmt: skip

    def strips(self) -> Tokens:
        """Both methods, token under token, shaded on one scale."""
        rows, most = [], 0.0
        slope, whole = self.attribution("gradient"), self.attribution("integrated")
        for title, found, note in (
            ("gradient × input", slope, f"sum {slope.total:+.2f}"),
            (f"integrated gradients, {self.steps} steps", whole, f"sum {whole.total:+.2f} of {whole.difference:+.2f}"),
        ):
            values = found.tokens.tolist()
            most = max(most, max(abs(v) for v in values))
            rows.append({"label": title, "pieces": self.pair.clean_pieces, "ids": self.pair.clean_ids, "values": values, "note": note})
        return Tokens(rows, value_title="contribution to the metric", vmax=most or 1.0)

    def errors(self, most: int = STEPS[-1]) -> dict[str, list[float]]:
        """Completeness error by rule, for every number of STEPS up to `most`."""
        rules = ("gauss", "midpoint")
        return {rule: [self.attribution("integrated", n, rule).error for n in STEPS if n <= most] for rule in rules}


def layers(lm, pair: Pair, site: str, scale: Scale, steps: int) -> tuple[np.ndarray, list[dict]]:
    """Integrated gradients at every layer of a stream site: shares [layer, position], and rows that say how complete."""
    wide = widened(lm.model, torch.float64 if lm.config.n_params() < 50e6 else torch.float32)
    found = [of_site(wide, pair, site, i, scale.value, steps) for i in range(lm.config.n_layers)]
    span = scale.clean - scale.corrupted
    rows = [
        {"layer": i, "sum": f.total, "difference": f.difference, "error": f.error} for i, f in enumerate(found)
    ]
    return np.stack([(f.tokens / span).cpu().numpy() for f in found]), rows

