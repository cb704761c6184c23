"""Measurements that can be set against each other: a layer x column grid for every pair of prompts.

Effects are in the metric's own unit, not shares of a model's clean run, so that a model which knows the answer half
as well also shows half the effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.attribution import attribute
from interp.baseline import baseline
from interp.heads.patterns import detect, repeated
from interp.lenses.direct import direct
from interp.lenses.logit import logit_lens
from interp.presets import Preset, presets, tabled
from interp.prompts import Pair, prepare
from lab.errors import LabError

METRIC = "logit_diff"


@dataclass(frozen=True)
class Measure:
    """`of(lm, pair)` gives [layer, column]; `columns(config)` names the columns."""

    key: str
    title: str
    unit: str
    column_title: str
    columns: Callable[..., list[str]]
    of: Callable[..., Tensor]


def _effect(site: str) -> Callable[..., Tensor]:
    """Attribution patching in logits: [layer, head], or for streams [layer, (last differing token, last token)]."""

    def of(lm, pair: Pair) -> Tensor:
        share = attribute(lm.model, pair, METRIC, (site,))[site]
        scale = baseline(lm.model, pair).scale(pair, METRIC)
        effect = share * (scale.clean - scale.corrupted)
        return effect if site == "z" else effect[:, _ends(pair)]

    return of


def _ends(pair: Pair) -> list[int]:
    """The last token in which the prompts differ, and the last token."""
    last = len(pair.alignment) - 1
    aligned = [p for p in range(last) if pair.differs(p) and pair.alignment[p] is not None]
    return [aligned[-1] if aligned else 0, last]


def _lens(lm, pair: Pair) -> Tensor:
    """Log-probability of the answer over the wrong one, read after every layer at the last position: [layer, 1]."""
    lens = logit_lens(lm, pair.clean_ids, track=(pair.answer_id, pair.wrong_id), k=1, last=True)
    right, wrong = (lens.tracked[token][1:].double().clamp_min(1e-12).log() for token in (pair.answer_id, pair.wrong_id))
    return right - wrong


def _direct(lm, pair: Pair) -> Tensor:
    """Direct logit attribution of each head on the clean prompt: [layer, head]."""
    ids = [torch.tensor([[token]], device=lm.model.device) for token in (pair.answer_id, pair.wrong_id)]
    tokens = torch.tensor([pair.clean_ids], device=lm.model.device)
    return direct(lm.model, tokens, ids[0], ids[1], neurons=False).heads[0, 0].cpu()


def _detector(kind: str) -> Callable[..., Tensor]:
    """A head detector's score on repeated random tokens, drawn anew for each pair: [layer, head]."""

    def of(lm, pair: Pair) -> Tensor:
        tokens = repeated(lm, rows=2, seed=sum(pair.clean_ids))
        return detect(lm.model, tokens, (kind,))[kind].cpu()

    return of


def _heads(config) -> list[str]:
    return [str(i) for i in range(config.n_heads)]


MEASURES: dict[str, Measure] = {
    m.key: m
    for m in (
        Measure("heads", "estimated effect of each head", "logits", "head", _heads, _effect("z")),
        Measure("stream", "estimated effect of the residual stream", "logits", "token", lambda _: ["subject", "last"], _effect("resid_pre")),
        Measure("mlp", "estimated effect of each MLP", "logits", "token", lambda _: ["subject", "last"], _effect("mlp_out")),
        Measure("direct", "direct attribution of each head", "logits", "head", _heads, _direct),
        Measure("induction", "induction score of each head", "attention", "head", _heads, _detector("induction")),
        Measure("previous", "previous-token score of each head", "attention", "head", _heads, _detector("previous")),
        Measure("lens", "logit lens, answer over wrong answer", "nats", "position", lambda _: ["last"], _lens),
    )
}  # fmt: skip


def questions(lm, limit: int = 24) -> list[Preset]:
    """Pairs to measure on: those the model gets right, filled up with others of the fact tables."""
    right = presets(lm)
    return list(dict.fromkeys([*right, *tabled()]))[:limit]


def asked(lms: Sequence, candidates: Sequence[Preset]) -> list[tuple[Pair, ...]]:
    """Candidates as pairs for every model, those that each can read as single-token answers; LabError when too few."""
    out = []
    for p in candidates:
        try:
            out.append(tuple(prepare(lm, p.clean, p.corrupted, p.answer, p.wrong) for lm in lms))
        except LabError:
            continue  # an answer of several tokens for one of them
    if len(out) < 4:
        raise LabError("Fewer than four pairs of prompts have single-token answers for both models; choose models that read alike.")
    return out


def measured(lms: Sequence, pairs: Sequence[tuple[Pair, ...]], measure: Measure) -> Iterator[list[Tensor]]:
    """After each pair the grids so far, one [pair, layer, column] a model; LabError when their shapes differ."""
    shapes = {(lm.config.n_layers, len(measure.columns(lm.config))) for lm in lms}
    if len(shapes) > 1:
        told = " and ".join(f"{a} layers of {b}" for a, b in sorted(shapes))
        raise LabError(f"The two models have {told}; cell by cell only models of one shape can be compared.")
    grids: list[list[Tensor]] = [[] for _ in lms]
    for each in pairs:
        for grid, lm, pair in zip(grids, lms, each):
            grid.append(measure.of(lm, pair).double())
        yield [torch.stack(grid) for grid in grids]
