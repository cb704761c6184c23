"""Explain, then break: cut a circuit out of a model, or everything else, and see what the model can still do.

Ordinary text has no corrupted partner, so the edges read constants in place of what senders write: their means over a
batch of prompts, or zero. The cut model is called like the model it is made of, with a cache and hooks, so the lab's
generation and evals run on it unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch
from torch import Tensor

from interp.circuits.batch import right
from interp.circuits.edges import Cut, Study
from interp.circuits.graph import Graph
from interp.sites import chain
from lab.data import facts, ioi
from lab.evals.facts import task
from lab.evals.harness import evaluate
from lab.infer import generate
from lab.paths import ROOT

NEW_TOKENS = 12
WINDOW = 128  # tokens of prose at once


class CutModel:
    """A model with edges, bool [n_edges], that read constants [sender, d_model] in place of their sender's output."""

    def __init__(self, model, replaced: Tensor, constants: Tensor) -> None:
        self.inner, self.cfg = model, model.cfg
        self.device, self.dtype = model.device, model.dtype
        self._replaced = replaced[None].to(model.device)
        self._constants = constants[:, None, None].to(model.device, model.dtype)
        self._graph = Graph(model.cfg)

    def __call__(self, tokens: Tensor, hooks=None, cache=None, last: bool = False) -> Tensor:
        where = torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device)
        cut = Cut(self._graph, self._replaced, self._constants, where)
        return self.inner(tokens, hooks=chain(cut.hooks(), hooks), cache=cache, last=last)


def cut_model(lm, study: Study, replaced: Tensor, kind: str = "mean", name: str = "cut"):
    """The language model with these edges cut, as generation and evals take it; `kind` is "mean" or "zero"."""
    constants = study.means if kind == "mean" else torch.zeros_like(study.means)
    cut = CutModel(lm.model, replaced, constants)
    return SimpleNamespace(name=name, model=cut, tokenizer=lm.tokenizer, config=lm.config, path=lm.path, source=lm.source)


@dataclass(frozen=True)
class Outcome:
    """What a model can do: its greedy continuation; right answers of so many; perplexity per token on two texts."""

    name: str
    said: str = ""
    ioi: tuple[int, int] | None = None
    facts: tuple[int, int] | None = None
    told: float | None = None
    """perplexity of facts told in words kept from training"""
    prose: float | None = None
    """perplexity of plain English (the lab's own documentation)"""


def outcome(lm, prompt: str, sentences: int = 32, per_relation: int = 2) -> Iterator[Outcome]:
    """Measured one thing after another, so that a page can show what is there and stop."""
    state = Outcome(lm.name, "".join(token.text for token in generate(lm, prompt, NEW_TOKENS)))
    yield state
    asked = [(lm.tokenizer.encode(i.text), lm.tokenizer.encode(i.text + i.answer)) for i in ioi.prompts(sentences, seed=1)]
    given = right(lm.model, [(ids, whole[len(ids)]) for ids, whole in asked])
    state = replace(state, ioi=(sum(given), len(given)))
    yield state
    results = [r.grade.right for r in evaluate(lm, task(per_relation=per_relation, general=0))]
    state = replace(state, facts=(sum(results), len(results)))
    yield state
    state = replace(state, told=perplexity(lm, [p.text + p.answer for p in facts.scored(limit=sentences, seed=1)]))
    yield state
    yield replace(state, prose=perplexity(lm, prose(lm)))


def prose(lm, windows: int = 4) -> list[str]:
    """Windows of the lab's documentation, which no model of the lab was trained on."""
    text = (ROOT / "docs" / "HOUSE.md").read_text("utf-8")
    ids = lm.tokenizer.encode(text)
    return [lm.tokenizer.decode(ids[i * WINDOW : (i + 1) * WINDOW]) for i in range(min(windows, len(ids) // WINDOW))]


@torch.no_grad()
def perplexity(lm, texts: Sequence[str]) -> float:
    """exp of the mean negative log-likelihood a token, the first token of each text left out."""
    total, count = 0.0, 0
    for text in texts:
        ids = lm.tokenizer.encode(text)[: lm.config.context]
        tokens = torch.tensor([ids], device=lm.model.device)
        logprobs = lm.model(tokens)[0, :-1].float().log_softmax(-1)
        total -= float(logprobs.gather(-1, tokens[0, 1:, None]).double().sum())
        count += len(ids) - 1
    return math.exp(total / count)
