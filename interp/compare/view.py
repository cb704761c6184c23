"""The pictures of a comparison and of a film of checkpoints, as widgets that a thread fills."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from interp.compare.along import Film
from interp.compare.difference import Difference, difference
from interp.compare.measures import Measure, asked, measured
from interp.presets import Preset
from lab.errors import LabError
from lab.runs import LIVE, Run
from widgets.curves import Curves
from widgets.heatmap import Heatmap
from widgets.intervals import Intervals
from widgets.scrubber import Scrubber
from widgets.table import Table

FRAME_S = 0.2
TOP = 10
COLUMNS = (
    {"key": "cell", "title": "cell"},
    {"key": "first", "title": "first model", "kind": "num", "digits": 3},
    {"key": "second", "title": "second model", "kind": "num", "digits": 3},
    {"key": "mean", "title": "difference", "kind": "num", "digits": 3},
    {"key": "low", "title": "2.5 %", "kind": "num", "digits": 3},
    {"key": "high", "title": "97.5 %", "kind": "num", "digits": 3},
    {"key": "clear", "title": "leaves 0 out"},
)


def heat(measure: Measure, config, title: str, channel: str = "") -> Heatmap:
    """An empty map of this measure on a model of that shape."""
    columns = measure.columns(config)
    blank = torch.full((config.n_layers, len(columns)), float("nan"))
    return Heatmap(
        blank.numpy(), col_labels=columns, row_title="layer", col_title=measure.column_title, value_title=title,
        unit=measure.unit, channel=channel,
    )  # fmt: skip


class Beside:
    """Two models, their maps, the difference with intervals."""

    def __init__(self, lms: Sequence, candidates: Sequence[Preset], measure: Measure) -> None:
        self.lms, self.measure = lms, measure
        self.pairs = asked(lms, candidates)
        next(measured(lms, self.pairs[:1], measure))  # says at once when the shapes differ, and warms up for `seconds`
        names = [*(lm.name for lm in lms), "second minus first"]
        self.first, self.second, self.delta = (heat(measure, lms[0].config, name) for name in names)
        self.table = Table([], COLUMNS, name="difference", page=8)
        self.intervals = Intervals(title=f"Largest differences, {measure.unit}, 95 % intervals", at=0.0, percent=False, span=(-1.0, 1.0))

    def seconds(self) -> float:
        """What all pairs take, by the first of them."""
        started = time.perf_counter()
        next(measured(self.lms, self.pairs[:1], self.measure))
        return (time.perf_counter() - started) * len(self.pairs)

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Measure all pairs, drawing as they come; when stopped, what was measured stays."""
        drawn, grids = 0.0, None
        for grids in measured(self.lms, self.pairs, self.measure):
            enough = len(grids[0]) >= 4
            if enough and time.perf_counter() - drawn > FRAME_S:
                drawn = time.perf_counter()
                self._draw(difference(grids[0], grids[1], draws=200), len(grids[0]))
            if stopped():
                break
        if grids is not None and len(grids[0]) >= 2:
            self._draw(difference(grids[0], grids[1]), len(grids[0]))

    def _draw(self, d: Difference, n: int) -> None:
        most = float(torch.stack([d.first.abs(), d.second.abs()]).max()) or 1.0
        for widget, values in ((self.first, d.first), (self.second, d.second), (self.delta, d.mean)):
            widget.vmax = most  # one scale, so that the three can be compared by eye
            widget.update(values.numpy())
        self.delta.value_title = f"difference, {n} pairs"
        rows = [self._row(d, int(i)) for i in d.mean.abs().flatten().argsort(descending=True)]
        self.table.update(rows)
        top = rows[:TOP]
        self.intervals.title = (
            f"Largest differences, {self.measure.unit}, 95 % intervals: {int(d.clear.sum())} of {d.mean.numel()} cells leave zero out"
        )
        reach = max([abs(r[k]) for r in top for k in ("low", "high")], default=0) * 1.05 or 1.0
        self.intervals.span = [-reach, reach]
        self.intervals.update([{"label": r["cell"], "series": "", "value": r["mean"], "low": r["low"], "high": r["high"]} for r in top])

    def _row(self, d: Difference, i: int) -> dict:
        layer, column = divmod(i, d.mean.shape[1])
        label = self.measure.columns(self.lms[0].config)[column]
        numbers = {key: float(getattr(d, key)[layer, column]) for key in ("first", "second", "mean", "low", "high")}
        clear = "yes" if d.clear[layer, column] else "no"
        return {"cell": f"layer {layer}, {self.measure.column_title} {label}", **numbers, "clear": clear}


class Reel:
    """A film of checkpoints: a map that the scrubber moves, and the strongest cells as curves over training."""

    def __init__(self, run: Run, config, candidates: Sequence[Preset], measure: Measure) -> None:
        self.run, self.candidates, self.film = run, candidates, Film(measure)
        self.config = config
        self.heat = heat(measure, config, f"{measure.title}, mean over {len(candidates)} pairs", channel=f"film-{run.id}")
        self.scrubber = Scrubber(title="checkpoint at step", channel=f"film-{run.id}")
        self.curves = Curves(
            panels=[{"key": "value", "title": "Strongest cells", "unit": measure.unit, "zero": True}], x_title="training step"
        )

    def catch_up(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """One more checkpoint on film, drawn; False when all are."""
        if not self.film.catch_up(self.run, self.candidates, stopped):
            return False
        frames = self.film.stacked()
        self.heat.film(self.film.steps, frames.numpy())
        follow = self.scrubber.value in (None, *self.scrubber.steps[-1:])
        with self.scrubber.hold_sync():
            self.scrubber.steps = list(self.film.steps)
            if follow:
                self.scrubber.value = self.film.steps[-1]
        self._curves(frames)
        return True

    def _curves(self, frames: torch.Tensor) -> None:
        columns = self.film.measure.columns(self.config)
        strongest = frames.abs().amax(0).flatten().argsort(descending=True)[:6].tolist()
        rows = []
        for i in strongest:
            layer, column = divmod(i, len(columns))
            name = f"{layer}.{columns[column]}"
            rows += [{"run": name, "step": s, "value": float(f[layer, column])} for s, f in zip(self.film.steps, frames)]
        with self.curves.hold_sync():
            self.curves.clear()
            self.curves.series = []
            self.curves.append(rows)

    def follow(self, stopped: Callable[[], bool]) -> None:
        """Film every checkpoint, then those that come, until told to stop or the run has ended."""
        while not stopped():
            try:
                if self.catch_up(stopped):
                    continue
                if self.run.state not in LIVE:
                    return
            except LabError as error:
                self.heat.value_title = str(error)
                return
            time.sleep(0.5)
