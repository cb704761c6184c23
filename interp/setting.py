"""What one page patches: a pair of prompts, a metric, an intervention; its estimates, its cells, and their names."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from interp.ablation import WRITES, Treated, Treatment, treat
from interp.attribution import attribute
from interp.headsweep import (
    LONGEST,
    Cost,
    by_position,
    check_memory,
    every,
    preview,
    shape_by_position,
    strongest,
)
from interp.prompts import Pair
from interp.sites import SITES, Patch, sites_of
from interp.sweep import Cell, axis_of, grid

NEURONS = 200  # of so many the exact sweep is made, those of largest estimate
LONG_PATTERN = 256  # tokens; patterns of longer prompts fill the memory
STREAMS = [s for s in SITES if axis_of(s) == "position"]
HEADS = [s for s in SITES if axis_of(s) == "head"]
FINE = "@"  # a map named "z@" has a row a head and a column a position


def site_of(name: str) -> str:
    """The site a map shows."""
    return name.removesuffix(FINE)


class Setting:
    """`given` are the prompts as written; `pair` has them in their roles, `corrupted` being the run that is patched,
    and `base` holds the two runs. `step` sweeps every so many layers only.

    A map is named by its site, "z@" one with a row a head and a column a position. `estimates` has one for each.
    """

    def __init__(self, lm, pair: Pair, metric: str, treatment: Treatment, step: int = 1) -> None:
        self.lm, self.given, self.metric, self.treatment, self.step = lm, pair, metric, treatment, step
        length = len(pair.alignment)
        self.sites = [s for s in sites_of(lm.model) if s != "pattern" or (pair.equal_length and length <= LONG_PATTERN)]
        check_memory(lm.model.device, self._bytes(), "Keeping every activation of these prompts")
        kept = [s for s in self.sites if s != "pattern"]
        self.pair, self.base = treat(lm, pair, self.treatment, kept)
        self.scale = self.base.scale(self.pair, metric)
        self.estimates = self._estimate()

    def _bytes(self) -> int:
        """Both runs' activations at every site, the same again with gradients, and the graph between them."""
        c, length = self.lm.config, max(len(self.given.clean_ids), len(self.given.corrupted_ids))
        width = 5 * c.d_model + 2 * (c.n_heads + c.n_kv_heads) * c.d_head + 4 * c.d_mlp
        pattern = 4 * c.n_heads * length if "pattern" in self.sites else 0
        return 5 * c.n_layers * length * (width + pattern) * self.lm.model.dtype.itemsize

    def _estimate(self) -> dict[str, Tensor]:
        """Estimated shares by map: [layer, position or head], and finer ones [layer * heads + head, position]."""
        sites = self.sites
        if self.treatment.write not in ("copy", "zero"):  # the others need prompts of equal length, and noise is none
            sites = [s for s in sites if s != "pattern"]
        base = self.base if "pattern" not in sites else treat(self.lm, self.given, self.treatment, sites)[1]
        heads = [s for s in sites if axis_of(s) == "head" and s != "neuron" and len(self.pair.alignment) <= LONGEST]
        started = time.perf_counter()
        found = attribute(self.lm.model, self.pair, self.metric, sites, base, by_position=heads)
        self.estimate_s = time.perf_counter() - started
        fine = {site + FINE: found[site].flatten(0, 1) for site in heads}
        return {**found, **{site: found[site].nansum(-1) for site in heads}, **fine}

    def base_of(self, site: str) -> Treated:
        if site == "pattern":  # patterns make attention run unfused, so they are kept only when asked for
            return treat(self.lm, self.given, self.treatment, ("pattern",))[1]
        return self.base

    # ---- cells

    def first_cell(self, name: str) -> list[int]:
        """The cell that is chosen to begin with: the strongest estimate, for streams before the last position."""
        estimate = self.estimates[name].nan_to_num(-9)
        if axis_of(site_of(name)) == "position" and estimate.shape[1] > 1:
            estimate = estimate[:, :-1]
        row, column = divmod(int(estimate.argmax()), estimate.shape[1])
        return [row, column]

    def cells(self, name: str) -> list[Cell]:
        """What a sweep of this map measures: of neurons the strongest, of a long prompt every few layers."""
        site, config = site_of(name), self.lm.config
        if name.endswith(FINE):
            return every(by_position(config, self.pair, site), self.step, config.n_layers)
        cells = grid(config, self.pair, site)
        if site == "neuron":
            return strongest(cells, self.estimates[name], NEURONS)
        return every(cells, self.step, config.n_layers)

    def shape(self, name: str) -> tuple[int, int] | None:
        """Rows and columns of a finer map; None for the grid of a site."""
        return shape_by_position(self.lm.config, self.pair, site_of(name)) if name.endswith(FINE) else None

    def cost(self, name: str) -> Cost:
        """What a sweep of this map takes; LabError when the memory does not hold it."""
        site = site_of(name)
        cost = preview(self.lm.model, self.pair, site, self.cells(name))
        check_memory(self.lm.model.device, cost.bytes, "This sweep")
        return cost

    # ---- in words

    @property
    def outcome(self) -> str:
        return "restored" if self.treatment.restores else "lost"

    @property
    def how(self) -> str:
        """The intervention in words, where it is not the usual one."""
        t = self.treatment
        return "" if t.restores and t.write == "copy" else f", {WRITES[t.write]} into the {t.into} run"

    def patches(self, name: str, cells: Sequence[Sequence[int]]) -> list[Patch]:
        site = site_of(name)
        if name.endswith(FINE):
            heads = SITES[site].n_heads(self.lm.config)
            return [Patch(site, r // heads, position=c, head=r % heads) for r, c in cells]
        heads_only = axis_of(site) == "head"
        return [Patch(site, r, head=c) if heads_only else Patch(site, r, position=c) for r, c in cells]

    def title(self, name: str, cells: Sequence[Sequence[int]]) -> str:
        if len(cells) > 1:
            return f"Patched together: {len(cells)} cells, {SITES[site_of(name)].title}"
        (patch,) = self.patches(name, cells)
        words = [f"layer {patch.layer}"]
        if patch.head is not None:
            words.append(f"{SITES[patch.site].noun} {patch.head}")
        if patch.position is not None:
            words.append(f"position {patch.position} (“{self.pair.corrupted_pieces[patch.position].strip()}”)")
        return f"Patched: {', '.join(words)}"

    def text(self, name: str, changed: float, share: float, cells: int = 1) -> str:
        if changed == 0:  # a sweep does not run such a cell
            return "the same in both runs, bit for bit: patching changes nothing"
        site = SITES[site_of(name)]
        noun = site.noun if site.heads else "stream" if "resid" in site.key else "output"
        what = f"fired once, changed the {noun} by" if cells == 1 else f"each fired once, changed the {noun} by up to"
        effect = "returns" if self.treatment.restores else "is lost"
        return f"{what} {changed:.0%} of its norm; {share:.0%} of the {self.scale.metric.title} {effect}"
