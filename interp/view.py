"""The live picture of one pair of prompts: heat maps to choose cells on, and what patching them does, as widgets."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from interp.ablation import Treated, Treatment
from interp.attribution import agreement
from interp.jobs import Jobs
from interp.lenses.logit import LensResult, logit_lens
from interp.metrics import at_least_fp32
from interp.patching import TOP, attention_patterns, continuations, generate, run_patched
from interp.prompts import Pair
from interp.setting import FINE, Setting, site_of
from interp.sites import SITES, Intervention, Patch
from interp.sweep import Sweep, sweep
from lab.errors import LabError
from widgets.attention import Attention
from widgets.heatmap import Heatmap
from widgets.patched import Patched, key
from widgets.tokens import Tokens

NEW_TOKENS = 8
FRAME_S = 0.1  # a sweep redraws its map this often
TOLD = 0.02  # cells that restore less than this share are saved without their continuation
SENT = 800  # cells whose answers go to the page while a sweep runs; those of a larger one go at its end, all at once
SHOWN = 300  # characters of a prompt that are repeated beside its continuation


class Board(Setting):
    """Widgets for one setting. `live`: somebody can choose cells and `serve` answers them."""

    def __init__(
        self, lm, pair: Pair, metric: str = "logit_diff", live: bool = False, treatment: Treatment | None = None, step: int = 1
    ) -> None:
        super().__init__(lm, pair, metric, treatment or Treatment(), step)
        self.live = live
        self.sweeps: dict[str, Sweep] = {}
        self.jobs = Jobs(self.sweep)
        self._asked: queue.SimpleQueue[tuple[str, list[list[int]]]] = queue.SimpleQueue()
        # all at once: marimo closes a widget with the cell that made it, and the cell that shows a map runs for every site
        self.maps = {name: self._map(name) for name in self.estimates}
        self.unpatched: LensResult | None = None
        text = self.pair.corrupted
        before = {"bars": self._bars(self.base.corrupted_logits), "prompt": text if len(text) <= SHOWN else f"… {text[-SHOWN:]}"}
        self.panel = Patched(list(self.maps), before, live)
        self._chosen: list[Patch] = []
        self._attention: tuple[Attention, int] | None = None

    # ---- what is shown

    def strips(self) -> Tokens:
        """Both prompts, token over token, with the metric of each."""
        pair = self.given
        differs = [p for p in range(len(pair.corrupted_ids)) if pair.differs(p)]
        partners = {s for p in range(len(pair.alignment)) if not pair.differs(p) and (s := pair.alignment[p]) is not None}
        answer, wrong = self._pieces([pair.answer_id, pair.wrong_id])
        ends = [(self.base.clean_logits, self.scale.clean), (self.base.corrupted_logits, self.scale.corrupted)]

        def note(which: int) -> str:
            logits, value = ends[which if self.treatment.restores else 1 - which]
            said, p = self._bars(logits)[0]
            patched = self.how and (which == 1) == self.treatment.restores
            return f"says {said.strip()!r} ({p:.2f}); {self.scale.metric.title} {value:+.2f}{'; this run is patched' if patched else ''}"

        return Tokens(
            [
                {"label": f"clean, {answer.strip()}", "pieces": pair.clean_pieces, "ids": pair.clean_ids,
                 "marks": [i for i in range(len(pair.clean_ids)) if i not in partners], "note": note(0)},
                {"label": f"corrupted, {wrong.strip()}", "pieces": pair.corrupted_pieces, "ids": pair.corrupted_ids,
                 "marks": differs, "note": note(1)},
            ]
        )  # fmt: skip

    def map(self, name: str) -> Heatmap:
        """The heat map of a site, filled with its estimate until the exact sweep fills it again."""
        if name not in self.maps:
            self.cells(name)  # says why
            raise LabError("There is no estimate of this site for this intervention or prompt; choose another site.")
        return self.maps[name]

    def _map(self, name: str) -> Heatmap:
        estimate, site, pair = self.estimates[name], SITES[site_of(name)], self.pair
        positions = not site.heads or name.endswith(FINE)
        other = [pair.clean_pieces[s] if s is not None else "" for s in pair.alignment]
        rows = None
        if name.endswith(FINE):
            rows = [f"{i}.{h}" for i in range(self.lm.config.n_layers) for h in range(site.n_heads(self.lm.config))]
        where = "token position" + ("" if other == pair.corrupted_pieces else " (written from above, patched run below where they differ)")
        heat = Heatmap(
            estimate.numpy(),
            row_labels=rows,
            col_labels=other if positions else None,
            col_labels2=pair.corrupted_pieces if positions else None,
            row_title="layer.head" if rows else "layer",
            col_title=where if positions else site.noun,
            value_title=f"Share of the answer {self.outcome}{self.how}, estimated in {self.estimate_s:.1f} s",
            vmax=1.0 if not site.heads else None,
            selected=[self.first_cell(name)],
            channel=name,
        )
        if self.live:
            heat.observe(lambda change, name=name: self._asked.put((name, change["new"])), "selected")
        return heat

    # ---- chosen cells

    def open(self, name: str) -> None:
        """Patch what is chosen on this map, and put it on screen in place of a choice on another map."""
        cells = self.map(name).selected
        self.panel.opened = key(name, cells)
        self.patch(name, cells)

    def patch(self, name: str, cells: Sequence[Sequence[int]]) -> None:
        """Patch these cells together and show everything about it."""
        named = key(name, cells)
        if not cells:
            return
        patches = self.patches(name, cells)
        base = self.base_of(site_of(name))
        try:
            run = run_patched(self.lm, self.pair, patches, self.metric, 0, base)
        except LabError as error:  # a cell without a partner, dragged over
            self.panel.show({"key": named, "title": "Not patched", "text": str(error), "bars": []})
            return
        self._chosen = patches
        result = {
            "key": named,
            "title": self.title(name, cells),
            "text": self.text(name, max(r.changed for r in run.receipts), run.share, len(cells)),
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
        self.panel.show({**result, "lens": self._lens(patches, base)})
        if self._attention:
            widget, layer = self._attention
            widget.update(self._pattern(layer, "patched"))

    def _lens(self, patches: list[Patch], base: Treated) -> dict:
        """Probability of both answers at the last position after every layer, before and after."""
        track = [self.pair.answer_id, self.pair.wrong_id]
        if self.unpatched is None:
            self.unpatched = logit_lens(self.lm, self.pair.corrupted_ids, track=track, k=1, last=True)
        act = Intervention(patches, base.clean, self.pair.alignment)
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

    # ---- where heads look

    def attention(self, layer: int, run: str, head: int) -> Attention:
        """Patterns of one layer in the "clean", "corrupted" or "patched" run; the last one follows what is chosen."""
        pieces = {"clean": self.given.clean_pieces, "corrupted": self.given.corrupted_pieces, "patched": self.pair.corrupted_pieces}[run]
        widget = Attention(
            self._pattern(layer, run), pieces, selected=min(head, self.lm.config.n_heads - 1),
            title=f"Attention in layer {layer}, {run} run", query=len(pieces) - 1,
        )  # fmt: skip
        self._attention = (widget, layer) if run == "patched" else None
        return widget

    def _pattern(self, layer: int, run: str) -> np.ndarray:
        ids = {"clean": self.given.clean_ids, "corrupted": self.given.corrupted_ids, "patched": self.pair.corrupted_ids}[run]
        hooks = None
        if run == "patched" and self._chosen:
            hooks = Intervention(self._chosen, self.base_of(self._chosen[0].site).clean, self.pair.alignment).hooks
        return attention_patterns(self.lm, ids, layer, hooks).float().numpy()

    # ---- the exact sweep

    def sweep(self, name: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Measure the cells of a map, drawing as it goes; when stopped, what was measured stays."""
        heat, drawn, told, site = self.map(name), 0.0, 0, site_of(name)
        result: Sweep | None = None
        steps = sweep(self.lm.model, self.pair, site, self.metric, self.base_of(site), self.cells(name), self.shape(name))
        for result in steps:
            now = time.perf_counter()
            if now - drawn > FRAME_S:
                drawn = now
                heat.update(result.share.numpy())
                heat.value_title = f"Share of the answer {self.outcome}{self.how}, exact: {result.fraction:.0%}"
                if told < len(result.filled) <= SENT:
                    self.panel.know(dict(self._known(name, result, result.filled[told:])))
                    told = len(result.filled)
            if stopped():
                break
        assert result is not None
        self.sweeps[name] = result
        heat.update(result.share.numpy())
        self.panel.know(dict(self._known(name, result, result.filled[told:])))
        heat.value_title = self._measured(name, result)

    def _measured(self, name: str, result: Sweep) -> str:
        share = f"Share of the answer {self.outcome}{self.how}"
        if result.fraction < 1:
            return f"{share}, cancelled at {result.fraction:.0%}"
        r = agreement(self.estimates[name], result.share)
        some = f"{len(result.filled)} strongest neurons " if name == "neuron" else ""
        return f"{share}, {some}exact in {result.seconds:.1f} s (the estimate correlates {r:.2f})"

    def _known(self, name: str, result: Sweep, cells: Sequence[tuple[int, int]]) -> Iterator[tuple[str, dict]]:
        for row, column in cells:
            cell = [[row, column]]
            share, changed = float(result.share[row, column]), float(result.changed[row, column])
            yield key(name, cell), {
                "title": self.title(name, cell),
                "text": self.text(name, changed, share),
                "bars": list(zip(self._pieces(result.top_ids[row, column].tolist()), result.top_probs[row, column].tolist())),
            }  # fmt: skip

    def write_out(self, name: str) -> None:
        """Add the continuation of every cell that restores something, for a page that will be read without Python."""
        result = self.sweeps[name]
        cells = [[r, c] for r, c in result.filled if abs(result.share[r, c]) >= TOLD]
        said = continuations(self.lm, self.pair, self.patches(name, cells), NEW_TOKENS, self.base_of(site_of(name)))
        known = self.panel.cells
        names = [key(name, [cell]) for cell in cells]
        self.panel.know({n: {**known[n], "said": self.lm.tokenizer.decode(s)} for n, s in zip(names, said)})

    # ---- small things

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        return self.lm.tokenizer.pieces(list(ids))

    def _bars(self, logits: torch.Tensor) -> list[tuple[str, float]]:
        top = at_least_fp32(logits).softmax(-1).topk(TOP)
        return list(zip(self._pieces(top.indices.tolist()), top.values.tolist()))
