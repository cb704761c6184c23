"""The live picture of one pair of prompts: heat maps to choose cells on, and what patching them does, as widgets."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from interp.attribution import agreement, attribute
from interp.baseline import Baseline, baseline
from interp.lenses.logit import LensResult, logit_lens
from interp.metrics import at_least_fp32
from interp.patching import TOP, continuations, generate, run_patched
from interp.prompts import Pair
from interp.sites import SITES, Intervention, Patch
from interp.sweep import Sweep, axis_of, grid, sweep
from lab.errors import LabError
from widgets.heatmap import Heatmap
from widgets.patched import Patched, key
from widgets.tokens import Tokens

NEW_TOKENS = 8
FRAME_S = 0.1  # a sweep redraws its map this often
TOLD = 0.02  # cells that restore less than this share are saved without their continuation
STREAMS = [s for s in SITES if axis_of(s) == "position"]
HEADS = [s for s in SITES if axis_of(s) == "head"]


class Board:
    """Widgets for one pair and metric. `live`: somebody can choose cells and `serve` answers them."""

    def __init__(self, lm, pair: Pair, metric: str = "logit_diff", live: bool = False) -> None:
        self.lm, self.pair, self.metric, self.live = lm, pair, metric, live
        self.base: Baseline = baseline(lm.model, pair, [s for s in SITES if s != "pattern"])
        self.scale = self.base.scale(pair, metric)
        started = time.perf_counter()
        self.estimates = attribute(lm.model, pair, metric)
        self.estimate_s = time.perf_counter() - started
        self.sweeps: dict[str, Sweep] = {}
        self._asked: queue.SimpleQueue[tuple[str, list[list[int]]]] = queue.SimpleQueue()
        # all at once: marimo closes a widget with the cell that made it, and the cell that shows a map runs for every site
        self.maps = {site: self._map(site) for site in self.estimates}
        self.unpatched: LensResult | None = None
        before = {"bars": self._bars(self.base.corrupted_logits), "prompt": pair.corrupted}
        self.panel = Patched(list(SITES), before, live)

    # ---- what is shown

    def strips(self) -> Tokens:
        """Both prompts, token over token, with the metric of each."""
        pair, scale = self.pair, self.scale
        differs = [p for p in range(len(pair.corrupted_ids)) if pair.differs(p)]
        partners = {s for p in range(len(pair.alignment)) if not pair.differs(p) and (s := pair.alignment[p]) is not None}
        answer, wrong = self._pieces([pair.answer_id, pair.wrong_id])
        top = [self._bars(x)[0] for x in (self.base.clean_logits, self.base.corrupted_logits)]

        def note(which: int, value: float) -> str:
            said, p = top[which]
            return f"says {said.strip()!r} ({p:.2f}); {scale.metric.title} {value:+.2f}"

        return Tokens(
            [
                {"label": f"clean, {answer.strip()}", "pieces": pair.clean_pieces, "ids": pair.clean_ids,
                 "marks": [i for i in range(len(pair.clean_ids)) if i not in partners], "note": note(0, scale.clean)},
                {"label": f"corrupted, {wrong.strip()}", "pieces": pair.corrupted_pieces, "ids": pair.corrupted_ids,
                 "marks": differs, "note": note(1, scale.corrupted)},
            ]
        )  # fmt: skip

    def map(self, site: str) -> Heatmap:
        """The heat map of a site, filled with its estimate until the exact sweep fills it again."""
        if site not in self.maps:
            grid(self.lm.config, self.pair, site)  # says why
        return self.maps[site]

    def _map(self, site: str) -> Heatmap:
        estimate, heads = self.estimates[site], axis_of(site) == "head"
        pair = self.pair
        clean = [pair.clean_pieces[s] if s is not None else "" for s in pair.alignment]
        heat = Heatmap(
            estimate.numpy(),
            col_labels=None if heads else clean,
            col_labels2=None if heads else pair.corrupted_pieces,
            row_title="layer",
            col_title="head" if heads else "token position (clean above, corrupted below where they differ)",
            value_title=f"Share of the answer restored, estimated in {self.estimate_s:.1f} s",
            vmax=1.0 if not heads else None,
            selected=[self.first_cell(site)],
            channel=site,
        )
        if self.live:
            heat.observe(lambda change, site=site: self._asked.put((site, change["new"])), "selected")
        return heat

    def first_cell(self, site: str) -> list[int]:
        """The cell that is chosen to begin with: the strongest estimate, for streams before the last position."""
        estimate = self.estimates[site].nan_to_num(-9)
        if axis_of(site) == "position" and estimate.shape[1] > 1:
            estimate = estimate[:, :-1]
        row, column = divmod(int(estimate.argmax()), estimate.shape[1])
        return [row, column]

    # ---- chosen cells

    def patches(self, site: str, cells: Sequence[Sequence[int]]) -> list[Patch]:
        heads = axis_of(site) == "head"
        return [Patch(site, r, head=c) if heads else Patch(site, r, position=c) for r, c in cells]

    def title(self, site: str, cells: Sequence[Sequence[int]]) -> str:
        if len(cells) > 1:
            return f"Patched together: {len(cells)} cells, {SITES[site].title}"
        row, column = cells[0]
        if axis_of(site) == "head":
            return f"Patched: layer {row}, head {column}"
        return f"Patched: layer {row}, position {column} (“{self.pair.corrupted_pieces[column].strip()}”)"

    def text(self, site: str, changed: float, share: float, cells: int = 1) -> str:
        if changed == 0:  # a sweep does not run such a cell
            return "the same in both runs, bit for bit: patching changes nothing"
        noun = "head" if axis_of(site) == "head" else "stream" if "resid" in site else "output"
        what = f"fired once, changed the {noun} by" if cells == 1 else f"each fired once, changed the {noun} by up to"
        return f"{what} {changed:.0%} of its norm; {share:.0%} of the {self.scale.metric.title} returns"

    def open(self, site: str) -> None:
        """Patch what is chosen on this site's map, and put it on screen in place of a choice on another map."""
        cells = self.map(site).selected
        self.panel.opened = key(site, cells)
        self.patch(site, cells)

    def patch(self, site: str, cells: Sequence[Sequence[int]]) -> None:
        """Patch these cells together and show everything about it."""
        named = key(site, cells)
        if not cells:
            return
        patches = self.patches(site, cells)
        base = self._base(site)
        try:
            run = run_patched(self.lm, self.pair, patches, self.metric, 0, base)
        except LabError as error:  # a cell without a partner, dragged over
            self.panel.show({"key": named, "title": "Not patched", "text": str(error), "bars": []})
            return
        result = {
            "key": named,
            "title": self.title(site, cells),
            "text": self.text(site, max(r.changed for r in run.receipts), run.share, len(cells)),
            "bars": list(zip(self._pieces(run.answer.ids), run.answer.probs)),
            "receipts": [[r.site, r.fired, r.changed] for r in run.receipts],
        }
        self.panel.show(result)  # the answer first: writing on takes several times as long
        said = run_patched(self.lm, self.pair, patches, self.metric, NEW_TOKENS, base).answer.continuation
        result["said"] = self.lm.tokenizer.decode(said)
        self.panel.show(result)
        if "said" not in self.panel.before:
            _, (said,) = generate(self.lm, [self.pair.corrupted_ids], NEW_TOKENS)
            self.panel.before = {**self.panel.before, "said": self.lm.tokenizer.decode(said)}
        self.panel.show({**result, "lens": self._lens(patches, site)})

    def _lens(self, patches: list[Patch], site: str) -> dict:
        """Probability of both answers at the last position after every layer, before and after."""
        track = [self.pair.answer_id, self.pair.wrong_id]
        if self.unpatched is None:
            self.unpatched = logit_lens(self.lm, self.pair.corrupted_ids, track=track, k=1, last=True)
        act = Intervention(patches, self._base(site).clean, self.pair.alignment)
        after = logit_lens(self.lm, self.pair.corrupted_ids, act.hooks, track=track, k=1, last=True)
        return {
            "rows": after.rows,
            "tokens": self._pieces(track),
            "before": [self.unpatched.tracked[t][:, -1].tolist() for t in track],
            "after": [after.tracked[t][:, -1].tolist() for t in track],
            "tops": [
                list(zip(self._pieces(lens.ids[:, -1, 0].tolist()), lens.probs[:, -1, 0].tolist()))
                for lens in (self.unpatched, after)
            ],
        }

    def serve(self, stopped: Callable[[], bool]) -> None:
        """Answer choices until told to stop; of choices made meanwhile only the newest counts."""
        while not stopped():
            try:
                asked = self._asked.get(timeout=0.2)
            except queue.Empty:
                continue
            while not self._asked.empty():
                asked = self._asked.get()
            self.patch(*asked)

    # ---- the exact sweep

    def sweep(self, site: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Measure every cell of a site, drawing as it goes; when stopped, what was measured stays."""
        heat, drawn, told = self.map(site), 0.0, 0
        result: Sweep | None = None
        for result in sweep(self.lm.model, self.pair, site, self.metric, self._base(site)):
            now = time.perf_counter()
            if now - drawn > FRAME_S:
                drawn = now
                heat.update(result.share.numpy())
                heat.value_title = f"Share of the answer restored, exact: {result.fraction:.0%}"
                if len(result.filled) > told:
                    self.panel.know(dict(self._known(result, result.filled[told:])))
                    told = len(result.filled)
            if stopped():
                break
        assert result is not None
        self.sweeps[site] = result
        heat.update(result.share.numpy())
        self.panel.know(dict(self._known(result, result.filled[told:])))
        heat.value_title = self._measured(site, result)

    def _measured(self, site: str, result: Sweep) -> str:
        if result.fraction < 1:
            return f"Share of the answer restored, cancelled at {result.fraction:.0%}"
        r = agreement(self.estimates[site], result.share)
        return f"Share of the answer restored, exact in {result.seconds:.1f} s (the estimate correlates {r:.2f})"

    def _known(self, result: Sweep, cells: Sequence[tuple[int, int]]) -> Iterator[tuple[str, dict]]:
        for row, column in cells:
            cell = [[row, column]]
            share, changed = float(result.share[row, column]), float(result.changed[row, column])
            yield key(result.site, cell), {
                "title": self.title(result.site, cell),
                "text": self.text(result.site, changed, share),
                "bars": list(zip(self._pieces(result.top_ids[row, column].tolist()), result.top_probs[row, column].tolist())),
            }  # fmt: skip

    def write_out(self, site: str) -> None:
        """Add the continuation of every cell that restores something, for a page that will be read without Python."""
        result = self.sweeps[site]
        cells = [[r, c] for r, c in result.filled if abs(result.share[r, c]) >= TOLD]
        said = continuations(self.lm, self.pair, self.patches(site, cells), NEW_TOKENS, self._base(site))
        known = self.panel.cells
        names = [key(site, [cell]) for cell in cells]
        self.panel.know({n: {**known[n], "said": self.lm.tokenizer.decode(s)} for n, s in zip(names, said)})

    # ---- small things

    def _base(self, site: str) -> Baseline:
        if site == "pattern":  # patterns make attention run unfused, so they are kept only when asked for
            return baseline(self.lm.model, self.pair, ("pattern",))
        return self.base

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        return self.lm.tokenizer.pieces(list(ids))

    def _bars(self, logits: torch.Tensor) -> list[tuple[str, float]]:
        top = at_least_fp32(logits).softmax(-1).topk(TOP)
        return list(zip(self._pieces(top.indices.tolist()), top.values.tolist()))
