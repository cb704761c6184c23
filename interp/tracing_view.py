"""Causal tracing as pictures: three maps of one fact, average curves of many, and patching beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from interp.prompts import Pair, align
from interp.sweep import grid, sweep
from interp.tracing import (
    KINDS,
    ROLES,
    TITLES,
    Average,
    Corruption,
    Recall,
    Trace,
    forwards,
    seconds_needed,
    trace,
)
from lab.errors import LabError
from widgets.bands import Bands
from widgets.heatmap import Heatmap
from widgets.table import Table

FRAME_S = 0.15
LONG = 48  # tokens; of longer prompts a choice of positions is traced
CHOSEN = 24


def positions(recall: Recall) -> list[int] | None:
    """Every position of a prompt of usual length; else the subject, what follows it, the last, and some between."""
    length = len(recall.ids)
    if length <= LONG:
        return None
    spread = np.linspace(recall.first, length - 1, CHOSEN).round().astype(int).tolist()
    return sorted({*range(recall.first, min(recall.last + 2, recall.first + CHOSEN)), *spread, length - 1})


class OneFact:
    """Maps [layer, position] of the indirect effect of hidden states, MLPs and attention on one fact."""

    def __init__(self, lm, recall: Recall, corruption: Corruption, window: int) -> None:
        self.lm, self.recall, self.corruption, self.window = lm, recall, corruption, window
        self.traces: dict[str, Trace] = {}
        blank = np.full((lm.config.n_layers, len(recall.ids)), np.nan)
        labels = [f"{p}*" if recall.first <= i <= recall.last else p for i, p in enumerate(recall.pieces)]
        self.maps = {
            kind: Heatmap(
                blank, col_labels=labels, row_title="layer", col_title="token position (* subject)",
                value_title=self._title(kind), vmax=1.0,
            )
            for kind in KINDS
        }  # fmt: skip

    def _title(self, kind: str) -> str:
        wide = "" if kind == "state" or self.window == 1 else f", {self.window} layers together"
        return f"Restoring one {TITLES[kind]}" if kind == "state" else f"Restoring {TITLES[kind]}{wide}"

    @property
    def seconds(self) -> float:
        return sum(
            seconds_needed(self.lm.model, self.recall, kind, self.corruption.samples, self.window) for kind in KINDS
        ) * self.share_of_positions  # fmt: skip

    @property
    def share_of_positions(self) -> float:
        chosen = positions(self.recall)
        return 1.0 if chosen is None else len(chosen) / (len(self.recall.ids) - self.recall.first)

    @property
    def forwards(self) -> int:
        return round(3 * forwards(self.lm.config.n_layers, self.recall, self.corruption.samples) * self.share_of_positions)

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Trace all three kinds, drawing as they fill; when stopped, what was measured stays."""
        for kind, heat in self.maps.items():
            drawn = 0.0
            for done in trace(self.lm.model, self.recall, kind, self.corruption, self.window, positions(self.recall)):
                self.traces[kind] = done
                now = time.perf_counter()
                if now - drawn > FRAME_S or done.fraction == 1:
                    drawn = now
                    heat.vmax = max(0.05, abs(done.total_effect))
                    heat.update(done.indirect.numpy())
                if stopped():
                    heat.update(done.indirect.numpy())
                    return

    def beside_patching(self, other: Recall) -> Bands:
        """Hidden states at two positions: restored after noise, and copied from another fact's prompt."""
        r = self.recall
        *_, done = trace(self.lm.model, r, "state", self.corruption, 1, [r.last, len(r.ids) - 1])
        pair = Pair(
            r.text, other.text, "", "", r.ids, other.ids, r.pieces, other.pieces, r.answer_id, other.answer_id,
            align(r.ids, other.ids),
        )  # fmt: skip
        site = KINDS["state"]
        cells = [c for c in grid(self.lm.config, pair, site) if c.column in (r.last, len(r.ids) - 1)]
        *_, swept = sweep(self.lm.model, pair, site, "probability", cells=cells)
        mean = np.full((2, 2, self.lm.config.n_layers), np.nan)
        for panel, position in enumerate((r.last, len(r.ids) - 1)):
            mean[panel, 0] = done.indirect[:, position] / done.total_effect
            mean[panel, 1] = swept.share[:, position]
        return Bands(
            ["last subject token", "last token"], ["restored after noise", f"patched into “{other.subject}”"],
            range(self.lm.config.n_layers), mean, np.full_like(mean, np.nan), x_title="layer", y_title="share of the total effect",
        )  # fmt: skip


def partner(recall: Recall, others: Sequence[Recall]) -> Recall:
    """A fact of another answer whose prompt has its subject at the same tokens; LabError when none has."""
    for other in others:
        same = (other.first, other.last, len(other.ids)) == (recall.first, recall.last, len(recall.ids))
        if same and other.answer_id != recall.answer_id:
            return other
    raise LabError(
        "No other recalled fact has its subject at the same tokens, so there is nothing to patch from; choose another fact."
    )


class ManyFacts:
    """Average indirect effects by role of the token, with 95% intervals over facts, while they are measured."""

    def __init__(self, lm, corruption: Corruption, window: int) -> None:
        self.lm, self.corruption, self.window = lm, corruption, window
        self.averages = {kind: Average(kind) for kind in KINDS}
        wide = f", {window} layers together" if window > 1 else ""
        panels = [f"{TITLES[k]}{'' if k == 'state' else wide}" for k in KINDS]
        self.curves = Bands(
            panels, ROLES, range(lm.config.n_layers), x_title="layer", y_title="average indirect effect, probability",
            title="Average indirect effect", note="No fact traced yet.",
        )  # fmt: skip
        columns: list[dict[str, Any]] = [
            {"key": "what", "title": "restored"}, {"key": "role", "title": "at"}, {"key": "layer", "title": "layer", "kind": "num"},
            {"key": "effect", "title": "largest average indirect effect", "kind": "bar", "digits": 3},
            {"key": "half", "title": "± 95%", "kind": "num", "digits": 3}, {"key": "facts", "title": "facts", "kind": "num"},
        ]  # fmt: skip
        self.table = Table([], columns, page=18, name="causal-tracing")

    def seconds(self, recalls: Sequence[Recall]) -> float:
        if not recalls:
            return 0.0
        some = recalls[len(recalls) // 2]
        kinds = [seconds_needed(self.lm.model, some, kind, self.corruption.samples, self.window) for kind in KINDS]
        return sum(kinds) * len(recalls)

    def run(self, recalls: Sequence[Recall], stopped: Callable[[], bool] = lambda: False) -> None:
        """Trace these facts one after another; when stopped, the facts already done stay."""
        for fact in recalls:
            for kind, average in self.averages.items():
                for done in trace(self.lm.model, fact, kind, self.corruption, self.window, positions(fact)):
                    if stopped() and done.fraction < 1:
                        self._say(f" of {len(recalls)} facts, stopped")
                        return
                average.add(done)
            self._say(" facts" if fact is recalls[-1] else f" of {len(recalls)} facts")

    def _say(self, more: str) -> None:
        done = min(len(a.totals) for a in self.averages.values())
        if not done:
            return
        found = [a.indirect for a in self.averages.values()]
        mean, half = (torch.stack([f[i] for f in found]).numpy() for i in (0, 1))
        total, wide = self.averages["state"].total
        spread = f" ± {wide:.3f}" if done > 1 else ""
        self.curves.update(mean, half, f"{done}{more}; average total effect {total:.3f}{spread} (probability lost to the noise).")
        rows = []
        for k, kind in enumerate(KINDS):
            for r, role in enumerate(ROLES):
                if np.isnan(mean[k, r]).all():
                    continue
                layer = int(np.nanargmax(mean[k, r]))
                rows.append({
                    "what": TITLES[kind], "role": role, "layer": layer, "effect": float(mean[k, r, layer]),
                    "half": float(half[k, r, layer]), "facts": int((~torch.stack(self.averages[kind].effects)[:, r, layer].isnan()).sum()),
                })  # fmt: skip
        self.table.update(rows)
