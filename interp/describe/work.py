"""Run of kind "describe": every neuron of a model, layer by layer, or every feature of a dictionary.

Rows of `descriptions.jsonl`: layer, neuron, text, score, control, table. A layer is written whole, so a run that is
cancelled and resumed goes on with the next one; with an endpoint, neuron by neuron.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from interp import features
from interp.describe.endpoint import Endpoint
from interp.describe.reading import Features, Neurons, Text, text_for
from interp.describe.score import LEGIBLE, Scored, describe, judged
from lab import jsonl, models
from lab.errors import LabError

if TYPE_CHECKING:
    from lab.runs import Run
    from lab.runs.context import Context

FILE = "descriptions.jsonl"


@dataclass(frozen=True)
class DescribeSpec:
    """`layers` None: all of the model; `dictionary`: features of it in place of neurons; `each`: only so many of a
    source, evenly spaced (None: all). `url` and `served`: an endpoint describes in place of the local describer."""

    model: str = "pocket"
    layers: list[int] | None = None
    dictionary: str | None = None
    each: int | None = None
    windows: int = 400
    held: int = 200
    length: int = 64
    data: str = "mixed"
    seed: int = 0
    url: str | None = None
    served: str = ""

    def __post_init__(self) -> None:
        for key in ("windows", "held", "length"):
            if type(value := getattr(self, key)) is not int or not 4 <= value <= 100_000:
                raise LabError(f"{key} is {value!r}: it must be a whole number from 4 to 100,000.")
        if self.each is not None and (type(self.each) is not int or self.each < 1):
            raise LabError(f"each is {self.each!r}: it must be a whole number of at least 1.")

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> DescribeSpec:
        if unknown := sorted(set(given) - {f.name for f in fields(cls)}):
            raise LabError(f"A run of descriptions has no setting {unknown[0]!r}.")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sources(self, config) -> list[Neurons | Features]:
        if self.dictionary:
            return [Features(features.load(self.dictionary), self.dictionary)]
        return [Neurons(i) for i in (range(config.n_layers) if self.layers is None else self.layers)]


def chosen(count: int, each: int | None) -> torch.Tensor:
    """Which neurons: all, or `each` of them evenly spaced."""
    return torch.arange(count) if each is None or each >= count else torch.linspace(0, count - 1, each).long()


def rows(source: Neurons | Features, scored: Scored, which: torch.Tensor, piece) -> list[dict[str, Any]]:
    """One row a neuron; numbers that do not exist are None."""

    def told(x: torch.Tensor, i: int) -> float | None:
        return None if x[i].isnan() else round(float(x[i]), 4)

    return [
        {
            "layer": source.layer, "neuron": int(n), "text": d.words(piece),
            "score": told(scored.score, i), "control": told(scored.control, i), "table": told(scored.table, i),
        }
        for i, (n, d) in enumerate(zip(which, scored.descriptions))
    ]  # fmt: skip


def work(given: dict[str, Any], ctx: Context) -> None:
    """Describe and score; logs a row a source with the share legible so far."""
    spec = DescribeSpec.from_dict(given)
    lm = models.load(spec.model)
    done = {(row["layer"], row["neuron"]) for row in jsonl.read(ctx.path / FILE)} if (ctx.path / FILE).exists() else set()
    out = jsonl.Appender(ctx.path / FILE)
    ctx.note(f"reading {spec.windows} windows to describe from and {spec.held} held-out ones")
    seen = text_for(lm, spec.windows, spec.length, False, spec.data, spec.seed)
    held = text_for(lm, spec.held, spec.length, True, spec.data, spec.seed)
    endpoint = Endpoint(spec.url, spec.served) if spec.url else None
    for step, source in enumerate(spec.sources(lm.config)):
        which = chosen(source.count(lm.config), spec.each)
        todo = torch.tensor([int(n) for n in which if (source.layer, int(n)) not in done], dtype=torch.long)
        if not len(todo):
            continue
        started = time.perf_counter()
        if endpoint is not None:
            scores = _asked(endpoint, source, lm, seen, held, todo, out, ctx)
        elif ctx.cancelled:
            return
        else:
            scored = describe(source, lm, seen, held, todo)
            for row in rows(source, scored, todo, seen.piece):
                out.append(row)
            scores = scored.score
        if not len(scores):
            return
        known = scores.nan_to_num(0)
        ctx.log(
            step + 1, layer=source.layer, neurons=len(known), legible=float((known >= LEGIBLE).double().mean()),
            score=float(known.mean()), neurons_per_s=len(known) / (time.perf_counter() - started),
        )  # fmt: skip
        if ctx.cancelled:
            return


def _asked(endpoint: Endpoint, source, lm, seen: Text, held: Text, todo: torch.Tensor, out, ctx: Context) -> torch.Tensor:
    """Neuron by neuron over HTTP; stops between neurons when cancelled."""
    scores = []
    for i, n in enumerate(todo.tolist()):
        if ctx.cancelled:
            break
        text, score = judged(endpoint, source, lm, todo[i : i + 1], seen, held)
        scores.append(score)
        out.append({"layer": source.layer, "neuron": n, "text": text, "score": round(score, 4), "control": None, "table": None})
        ctx.log(i + 1, layer=source.layer, neuron=n, score=score)
    return torch.tensor(scores, dtype=torch.float64)


def described(run: Run) -> list[dict[str, Any]]:
    """What a run has written so far."""
    file = run.path / FILE
    return jsonl.read(file) if file.exists() else []
