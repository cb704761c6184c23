"""One measurement along the checkpoints of a run, one that is still going included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interp.compare.measures import Measure, asked, measured
from interp.presets import Preset
from lab import models
from lab.runs import Run


@dataclass
class Film:
    """`frames[i]` [layer, column] is the mean over the prompts at checkpoint `steps[i]`; `spread[i]` its standard error."""

    measure: Measure
    steps: list[int] = field(default_factory=list)
    frames: list[Tensor] = field(default_factory=list)
    spread: list[Tensor] = field(default_factory=list)

    def catch_up(
        self, run: Run, candidates: Sequence[Preset], stopped: Callable[[], bool] = lambda: False
    ) -> bool:
        """Measure the first checkpoint that is not on film yet; False when there is none, or when stopped."""
        todo = [c.step for c in run.checkpoints() if c.step not in self.steps]
        if not todo:
            return False
        lm = models.load(f"run:{run.id}@{todo[0]}")
        for grids in measured([lm], asked([lm], candidates), self.measure):
            if stopped():
                return False
            grid = grids[0]
        at = sum(step < todo[0] for step in self.steps)  # a resumed run may fill a gap
        self.steps.insert(at, todo[0])
        self.frames.insert(at, grid.mean(0))
        self.spread.insert(at, grid.std(0) / len(grid) ** 0.5)
        return True

    def stacked(self) -> Tensor:
        """[step, layer, column]."""
        return torch.stack(self.frames)
