"""The live picture of one behaviour's circuit: widgets that fill while edges are scored, searched, measured and cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.circuits.attribution import attribute_study, rows_at_once
from interp.circuits.batch import Batch, behaviour
from interp.circuits.discovery import Progress, acdc, strongest, strongest_nodes
from interp.circuits.edges import KINDS, POSITIONS, Study, exact
from interp.circuits.faithfulness import SHARES, Curve, bootstrap, curve
from interp.circuits.picture import CARRIED, drawn, picture
from interp.circuits.protocol import Claim, claims
from interp.circuits.surgery import Outcome, cut_model, outcome
from interp.metrics import METRICS
from lab import models
from lab.errors import LabError
from widgets.intervals import Intervals
from widgets.scatter import Scatter
from widgets.table import Table
from widgets.tokens import Tokens

FRAME_S = 0.2  # a search redraws this often
MANY, FEW = 10_000, 300  # of a model with so many edges, only so many are tried one by one
SAMPLE = 60  # edges measured exactly to begin with, half of them the strongest
STEPS = 5  # of the integrated gradients
SCORE = {"eap": ("EAP, one gradient", 1), "eap_ig": (f"EAP-IG, {STEPS} gradients", STEPS)}
Stopped = Callable[[], bool]


def precise(lm):
    """The same model in float32: a difference of two bf16 streams has few digits left."""
    return lm if lm.model.dtype in (torch.float32, torch.float64) else models.load(lm.name, dtype=torch.float32)


@dataclass(frozen=True)
class Cost:
    """What an action will take: forwards of the batch, seconds, bytes held at once."""

    forwards: int
    seconds: float
    bytes: float = 0.0


class Board:
    """Everything the page shows about one model, behaviour, kind of ablation and metric.

    Making it runs the batch a few times; nothing is scored yet. The widgets are filled by the methods of the same
    names, which take long, stop when told to and keep what they have measured.
    """

    def __init__(self, lm, name: str, kind: str, metric: str, method: str = "eap_ig", rows: int = 8) -> None:
        self.lm, self.name, self.kind, self.metric, self.method = lm, name, kind, metric, method
        self.batch: Batch = behaviour(lm, name, rows)
        fits = rows_at_once(lm.config, self.batch.length, lm.model.dtype.itemsize)
        self.batch = self.batch.rows(slice(0, fits))
        self.study = Study(lm.model, self.batch, metric)
        self.graph = self.study.graph
        started = time.perf_counter()
        self.ends = self.study.values(torch.stack([self.graph.none(), self.graph.all()]), kind)
        self.seconds_a_set = time.perf_counter() - started  # the other run and one with every edge replaced
        if abs(float(self.ends[0].mean() - self.ends[1].mean())) < 1e-4:
            raise LabError(f"Replacing every edge leaves the {METRICS[metric].title} as it is; choose another metric or ablation.")
        unit = METRICS[metric].unit
        self.scores: Tensor | None = None
        self.greedy: Tensor | None = None
        self.picture = picture(self.graph, "No edge is scored yet", unit)
        self.search = picture(self.graph, "ACDC has not searched yet", unit)
        self.search.quiet = True
        self.faithful = Intervals(title="Faithfulness by the share kept", span=(-0.2, 1.2), at=1.0)
        self.protocol = Intervals(title="One circuit, every protocol", span=(-0.5, 1.5), at=1.0)
        self.scatter = Scatter([0.0], [0.0], title="Estimate against exact")
        self.table = Table([], [
            {"key": "model", "title": "model"}, {"key": "said", "title": "goes on", "kind": "mono"},
            {"key": "ioi", "title": "indirect objects right", "kind": "bar", "digits": 2},
            {"key": "facts", "title": "facts right", "kind": "bar", "digits": 2},
            {"key": "told", "title": "perplexity, held-out facts", "kind": "num"},
            {"key": "prose", "title": "perplexity, prose", "kind": "num"},
        ], name="cut-models")  # fmt: skip

    # ---- what it will take

    @property
    def score_cost(self) -> Cost:
        """A gradient costs about three times the run with every head's input kept apart."""
        steps = SCORE[self.method][1]
        held = self.study.clean.numel() * self.study.clean.element_size() * 4
        return Cost(3 * steps, 1.5 * steps * self.seconds_a_set, held)

    @property
    def most(self) -> int:
        """How many edges, the strongest first, are measured or searched one by one: all of a small model."""
        return self.graph.n_edges if self.graph.n_edges < MANY else FEW

    @property
    def exact_cost(self) -> Cost:
        return Cost(self.most, 0.25 * self.most * self.seconds_a_set)

    @property
    def search_cost(self) -> Cost:
        return Cost(self.most, 0.3 * self.most * self.seconds_a_set)

    @property
    def protocol_cost(self) -> Cost:
        runs = len(KINDS) * len(POSITIONS) * 3
        return Cost(runs, 0.5 * runs * self.seconds_a_set)

    # ---- scoring

    def strips(self) -> Tokens:
        """The first pair of the batch."""
        pieces, batch = self.lm.tokenizer.pieces, self.batch
        end = int(batch.ends[0]) + 1
        told = METRICS[self.metric]
        rows = []
        for label, ids, value in (("clean", batch.clean[0], self.ends[0, 0]), ("other", batch.corrupted[0], self.ends[1, 0])):
            answer = pieces([int((batch.answer if label == "clean" else batch.wrong)[0])])[0].strip()
            name = f"corrupted, {answer}" if label == "other" else f"clean, {answer}"
            note = f"{told.title} {float(value):+.2f}" + ("" if label == "clean" or self.kind == "counterfactual" else f" ({self.kind})")
            marks = (batch.clean[0, :end] != batch.corrupted[0, :end]).nonzero().flatten().tolist()
            rows.append({"label": name, "pieces": pieces(ids[:end].tolist()), "ids": ids[:end].tolist(), "marks": marks, "note": note})
        return Tokens(rows)

    def score(self) -> None:
        """Estimate every edge and draw the strongest."""
        started = time.perf_counter()
        self.scores = attribute_study(self.study, self.kind, SCORE[self.method][1])
        took = time.perf_counter() - started
        self.picture.update(drawn(self.graph, self.scores))
        self.picture.title = f"{self.graph.n_edges:,} edges scored by {SCORE[self.method][0]} in {took:.1f} s"

    def need_scores(self) -> Tensor:
        if self.scores is None:
            raise LabError("The edges are not scored yet; press the button above first.")
        return self.scores

    def circuit(self, source: str, size: int) -> Tensor:
        """The circuit the page speaks of: the strongest `size` edges, or what ACDC has found."""
        if source == "acdc":
            if self.greedy is None:
                raise LabError("ACDC has not finished a search yet; start it below, or take the strongest edges.")
            return self.greedy
        return strongest(self.graph, self.need_scores(), size)

    # ---- faithfulness by size

    def measure(self, stopped: Stopped = lambda: False) -> None:
        """Faithfulness of growing circuits, of edges and of whole nodes, drawn size by size."""
        scores, graph = self.need_scores(), self.graph
        rows: list[dict[str, Any]] = []
        curves: dict[str, list[Curve]] = {"edges": [], "nodes": []}
        for share in SHARES[2:-1]:
            by_edges = strongest(graph, scores, max(1, round(share * graph.n_edges)))
            by_nodes = strongest_nodes(graph, scores, max(1, round(share * len(graph.senders))))
            for level, mask in (("edges", by_edges), ("nodes", by_nodes)):
                one = curve(self.study, [mask], self.kind)
                curves[level].append(one)
                told = bootstrap(one.kept[0], one.clean, one.other)
                rows.append({
                    "label": f"{share:.1%}".replace(".0%", "%"), "series": f"only the strongest {level}",
                    "value": told.value, "low": told.low, "high": told.high,
                    "note": f"{one.sizes[0]:,} edges; {one.left_without[0]:.0%} without them".replace("-0%", "0%"),
                })  # fmt: skip
            self.faithful.update(rows)
            if stopped():
                return
        areas = {level: _joined(parts) for level, parts in curves.items()}
        said = ", ".join(f"{level} CPR {c.cpr:.2f}, CMD {c.cmd:.2f}" for level, c in areas.items())
        self.faithful.title = f"Faithfulness by the share kept ({said})"

    # ---- estimate against exact

    def compare(self, every: bool = False, stopped: Stopped = lambda: False) -> None:
        """Replace edges one at a time: a sample of the strongest and of all, or as many as `most` says."""
        scores, n = self.need_scores(), self.graph.n_edges
        strong = scores.abs().topk(min(n, SAMPLE // 2)).indices
        others = torch.randperm(n, generator=torch.Generator().manual_seed(0))[: SAMPLE // 2]
        edges = scores.abs().topk(self.most).indices if every else torch.cat([strong, others]).unique()
        edges = edges.sort().values
        names = [" → ".join(self.graph.edge(i)) for i in edges.tolist()]
        told = METRICS[self.metric]
        layers = torch.cat([torch.full((p.size,), p.layer) for p in self.graph.points])[edges]
        board = self.scatter
        with board.hold_sync():
            blank = Scatter(
                [float("nan")] * len(edges), scores[edges].numpy(), layers.numpy(), names, "Estimate against exact",
                f"exact: metric lost when this edge alone is replaced, {told.unit}", f"{SCORE[self.method][0]}, {told.unit}",
                "layer of the receiver",
            )  # fmt: skip
            for trait in ("x", "y", "colour", "labels", "title", "x_title", "y_title", "colour_title"):
                setattr(board, trait, getattr(blank, trait))
        measured = torch.full((n,), float("nan"), dtype=torch.float64)
        started, last = time.perf_counter(), 0.0
        for group in edges.split(max(16, 4 * self.study.sets_at_once)):
            measured = torch.where(measured.isnan(), exact(self.study, self.kind, group), measured)
            now = time.perf_counter()
            if now - last > FRAME_S:
                last = now
                board.update(measured[edges].numpy())
            if stopped():
                break
        board.update(measured[edges].numpy())
        done = int((~measured.isnan()).sum())
        board.title = f"{done:,} of {n:,} edges measured exactly in {time.perf_counter() - started:.1f} s"

    # ---- ACDC

    def discover(self, threshold: float, stopped: Stopped = lambda: False) -> None:
        """The greedy search; what it keeps is drawn with the estimated weights."""
        weights = self.need_scores()
        started, last, state = time.perf_counter(), 0.0, None
        self.search.shown = CARRIED
        start = None if self.most == self.graph.n_edges else strongest(self.graph, weights, self.most)
        for state in acdc(self.study, threshold, self.kind, start):
            now = time.perf_counter()
            if now - last > FRAME_S:
                last = now
                self.search.title = f"ACDC: {state.done:,} of {state.total:,} edges decided, {int(state.kept.sum()):,} kept"
                if now - started > 1 and state.done > 0.5 * state.total:
                    self.search.update(drawn(self.graph, weights, state.kept))
            if stopped():
                break
        assert state is not None
        self._found(state, threshold, time.perf_counter() - started)

    def _found(self, state: Progress, threshold: float, seconds: float) -> None:
        whole = state.done == state.total
        kept = state.kept if whole else self.graph.prune(state.kept)
        self.greedy = kept
        self.search.update(drawn(self.graph, self.need_scores(), kept))
        measured = curve(self.study, [kept, strongest(self.graph, self.need_scores(), int(kept.sum()))], self.kind)
        mine, theirs = measured.faithfulness
        self.search.title = (
            f"ACDC {'kept' if whole else 'stopped at'} {int(kept.sum()):,} edges at {threshold:g} after {state.forwards:,} runs in "
            f"{seconds:.0f} s: faithfulness {mine:.2f} (as many by score: {theirs:.2f})"
        )

    # ---- protocol

    def ask(self, mask: Tensor, kinds: Sequence[str], positions: Sequence[str], levels: Sequence[str], metrics: Sequence[str],
            stopped: Stopped = lambda: False) -> None:  # fmt: skip
        """Faithfulness of one circuit under these protocols, and the range of them."""
        told: list[Claim] = []
        for claim in claims(self.study, mask, kinds, positions, levels, metrics):
            told.append(claim)
            if len(told) % len(metrics) == 0:
                self.protocol.update([_row(c) for c in told])
            if stopped():
                return
        values = [c.faithfulness.value for c in told]
        same = next((c for c in told if (c.kind, c.positions, c.level, c.metric) == (self.kind, "all", "edges", self.metric)), None)
        found = f", {same.faithfulness.value:.0%} as it was found" if same else ""
        self.protocol.title = f"Faithfulness of these {int(mask.sum()):,} edges: {min(values):.0%} to {max(values):.0%}{found}"

    # ---- explain, then break

    def break_it(self, mask: Tensor, prompt: str, replace: str, stopped: Stopped = lambda: False) -> None:
        """The whole model, only the circuit, all but the circuit, and all but as many random edges."""
        random = self.graph.none()
        order = torch.randperm(self.graph.n_edges, generator=torch.Generator().manual_seed(0))
        random[order[: int(mask.sum())]] = True
        rows: list[dict[str, Any]] = []
        for name, gone in (
            ("whole", self.graph.none()), ("only the circuit", ~mask), ("without the circuit", mask),
            ("without as many random edges", random),
        ):  # fmt: skip
            for state in outcome(cut_model(self.lm, self.study, gone, replace, name), prompt):
                self.table.update([*rows, _told(state)])
                if stopped():
                    return
            rows.append(_told(state))


def _joined(parts: Sequence[Curve]) -> Curve:
    first = parts[0]
    return Curve(
        first.total, [p.sizes[0] for p in parts], torch.cat([p.kept for p in parts]), torch.cat([p.without for p in parts]),
        first.clean, first.other,
    )  # fmt: skip


def _row(claim: Claim) -> dict[str, Any]:
    told = claim.faithfulness
    return {"label": claim.key, "series": METRICS[claim.metric].title, "value": told.value, "low": told.low, "high": told.high}


def _told(state: Outcome) -> dict[str, Any]:
    def of(pair: tuple[int, int] | None) -> float | None:
        return None if pair is None else pair[0] / pair[1]

    return {
        "id": state.name, "model": state.name, "said": state.said, "ioi": of(state.ioi), "facts": of(state.facts),
        "told": state.told, "prose": state.prose,
    }  # fmt: skip
