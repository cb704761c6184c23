"""The live picture of an edit: where a fact is carried, what the edited model says, and what the edit does elsewhere."""

from __future__ import annotations

import html
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import marimo
import torch

from interp.edit import measure
from interp.edit.landmarks import (
    CHOOSING,
    HELD_OUT,
    Landmark,
    known,
    need,
    sentence,
    split,
    targets,
    unrelated,
)
from interp.edit.locate import Average, average, effects, few, interval, pair_of, pairs, shared_phrasing
from interp.edit.rows import Rows, ask
from interp.edit.write import Donors, Editor, Gate, Head, gate_for
from lab import records
from lab.data import facts
from lab.errors import LabError
from widgets.bars import Bars
from widgets.intervals import Intervals
from widgets.tokens import Tokens

RECORD = "interp.r9.edit_success"
ASKED, PAIRS = 32, 10  # landmarks and pairs a page measures by itself
TOP = 6


@dataclass(frozen=True)
class Located:
    """Which heads of a model carry the city of a landmark. `curve` {count: {"restored" | "lost": [mean, low, high]}};
    `record` is the row it was read from, None when it was measured now."""

    marks: list[Landmark]
    judge: list[Landmark]
    maps: dict[str, Average]
    curve: dict[int, dict[str, list[float]]]
    heads: list[Head]
    gate: Gate
    donors: Donors
    record: dict[str, Any] | None

    def mark(self, subject: str) -> Landmark:
        return next(m for m in self.marks if m.subject == subject)

    @property
    def cities(self) -> list[str]:
        return sorted({m.city for m in self.marks})


_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_locks: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def located(lm) -> Located:
    """Once a model: from the record where this model has one, else measured on fewer facts. LabError when the model
    knows too few landmarks."""
    with _guard:
        lock = _locks.setdefault(lm.model, threading.Lock())
    with lock:
        if lm.model not in _found:
            _found[lm.model] = _recorded(lm) or _measured(lm)
        return _found[lm.model]


def _recorded(lm) -> Located | None:
    if lm.name != "smollm2-135m":
        return None
    try:
        row = records.read(RECORD)
    except LabError:
        return None
    d = row["detail"]
    marks = [Landmark(s, city, country, tuple(right)) for s, city, country, right in d["facts"]]

    def table(values: list[list[float]]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    maps = {
        where: Average(table(m["mean"]), table(m["low"]), table(m["high"]), m["facts"])
        for where, m in d["effect"].items()
    }
    gate = Gate(tuple(d["gate"]["reader"]), d["gate"]["threshold"])
    judge = [m for m in marks if m.subject in d["judged"]]
    curve = {int(k): v for k, v in d["together"].items()}
    return Located(marks, judge, maps, curve, [tuple(h) for h in d["heads"]], gate, Donors(lm, marks), row)


def _measured(lm) -> Located:
    marks = known(lm, ASKED)
    need(marks, lm.name)
    choose, judge = split(marks)
    found = pairs(lm, choose, choose)[:PAIRS]
    if not found:
        raise LabError(f"{lm.name} answers no two landmarks in one phrasing, so there is nothing to exchange; train it longer.")
    mean = average([effects(lm, pair, mark.subject) for mark, pair in found])
    order = mean.strongest()
    count, curve = few(lm, found, order)
    spread = {k: {"restored": interval(t.restored), "lost": interval(t.lost)} for k, t in curve.items()}
    gate = gate_for(lm, choose[:PAIRS], order[0])
    return Located(marks, judge or choose, {"last": mean}, spread, order[:count], gate, Donors(lm, marks), None)


def this_fact(lm, found: Located, mark: Landmark, city: str, where: str = "last") -> torch.Tensor:
    """Effect of every head for one landmark and one other city, [layer, head]."""
    for other in found.marks:
        if other.city == city and (phrasing := shared_phrasing(mark, other)):
            return effects(lm, pair_of(lm, mark, other, phrasing), mark.subject, where)
    raise LabError(f"No landmark of {city} is answered in the same words as {mark.subject}; choose another city.")


def strongest(found: Located, count: int = 12) -> Intervals:
    """The strongest heads with their intervals over facts."""
    effect = found.maps["last"]
    heads = effect.strongest(count)
    shares = [[float(x[head]) for x in (effect.mean, effect.low, effect.high)] for head in heads]
    rows = [
        {"label": f"{layer}.{head}", "series": "share", "value": value, "low": low, "high": high}
        for (layer, head), (value, low, high) in zip(heads, shares)
    ]
    span = (min(0.0, *(low for _, low, _ in shares)), max(high for _, _, high in shares))
    return Intervals(rows, f"The strongest {len(rows)}, layer.head, with 95% intervals over facts", span, at=0.0)


# ---- what the edited model says


class Said:
    """One prompt of any wording, unedited and edited: next tokens, continuations, where the reader read."""

    def __init__(self, lm, editor: Editor, mark: Landmark, city: str, prompt: str, new_tokens: int = 12) -> None:
        self.lm, self.city = lm, city
        began = time.perf_counter()
        rows = Rows(lm, [prompt], [mark.subject])
        writer = editor.writer(rows, [city])
        before = rows.logits().softmax(-1)[0]
        after = rows.logits(writer.hooks).softmax(-1)[0]
        self.before, self.after = self._top(before), self._top(after)
        plain = editor.continue_(prompt, mark.subject, None, new_tokens)
        said = editor.continue_(prompt, mark.subject, city, new_tokens)
        self.plain, self.said = lm.tokenizer.decode(plain), lm.tokenizer.decode(said)
        self.pieces = lm.tokenizer.pieces(rows.tokens[0].tolist())
        self.mentions = bool(rows.subject.any())
        self.written = writer.written[0].nonzero()[:, 0].tolist()
        self.attention = writer.attention[0].float().tolist() if editor.place == "reads" else None
        self.seconds = time.perf_counter() - began

    def _top(self, p: torch.Tensor) -> list[tuple[str, float]]:
        best = p.topk(TOP)
        return list(zip(self.lm.tokenizer.pieces(best.indices.tolist()), best.values.tolist()))

    def strip(self, gate: Gate) -> Tokens:
        """The prompt; shaded by what the reader pays to the subject, outlined where the heads are written."""
        fired = len(self.written)
        note = f"written at {fired} of {len(self.pieces)} tokens" if fired else "written nowhere: the edit does not fire"
        reader = f"{gate.reader[0]}.{gate.reader[1]}"
        return Tokens(
            [{"label": "prompt", "pieces": self.pieces, "marks": self.written, "values": self.attention, "note": note}],
            value_title=f"attention of head {reader} to the subject", vmax=1.0,
        )  # fmt: skip

    def bars(self) -> Bars:
        return Bars(self.after, compare=self.before, title="Next token", names=("unedited", "edited"), vmax=1.0)


def phrasing_rows(lm, editor: Editor, mark: Landmark, city: str) -> list[dict[str, Any]]:
    """Every phrasing, those that chose heads and those that did not, before and after the edit."""
    wanted = lm.tokenizer.single(f" {city}")
    texts = [sentence(p, mark.subject) for p in (*HELD_OUT, *CHOOSING)]
    trials = measure.edited(lm, editor, [((mark, city), text, wanted) for text in texts])
    home = lm.tokenizer.single(f" {mark.city}")
    return [
        {
            "phrasing": "held out" if i < len(HELD_OUT) else "chose heads", "prompt": t.prompt,
            "before": lm.tokenizer.pieces([t.before])[0], "after": lm.tokenizer.pieces([t.after])[0],
            "p_before": t.p_before, "p_after": t.p_after,
            "outcome": _outcome(t, home),
        }
        for i, t in enumerate(trials)
    ]  # fmt: skip


def _outcome(trial: measure.Trial, home: int) -> str:
    if trial.before != home:
        return "moved, though not known before" if trial.moved else "not known before"
    return "moved" if trial.moved else "unchanged" if not trial.changed else "another answer"


# ---- what the edit does in general


@dataclass(frozen=True)
class Step:
    """How far a measurement is, and the shares known so far as rows of an interval plot."""

    fraction: float
    rows: list[dict[str, Any]]


def judged(lm, found: Located, editor: Editor, count: int = 8, stopped: Callable[[], bool] = lambda: False) -> Iterator[Step]:
    """Success, side effects, neighbours and perplexity over `count` facts that chose no heads; each yields what is known."""
    marks = found.judge[:count]
    cities = targets(found.marks, marks, 1)
    plan = [(mark, cities[mark][0]) for mark in marks]
    questions = unrelated(lm, 40)
    rows: dict[str, dict[str, Any]] = {}
    trials: list[measure.Trial] = []
    stages = len(marks) + 4

    def told(at: int) -> Step:
        return Step(at / stages, list(rows.values()))

    for i, mark in enumerate(marks):
        trials += measure.moves(lm, editor, measure.answered(lm, [mark]), cities)
        rows["success"] = row("answers with the target city, held-out phrasings", measure.moved(trials), len(trials))
        yield told(i + 1)
        if stopped():
            return
    for i, (label, mention) in enumerate((("unrelated answers changed, landmark mentioned before", True),
                                         ("unrelated answers changed, landmark not mentioned", False))):  # fmt: skip
        aside = measure.bystanders(lm, editor, plan, questions, mention)
        rows[label] = row(label, measure.changed(aside), len(aside))
        yield told(len(marks) + 1 + i)
        if stopped():
            return
    near = measure.neighbours(lm, editor, plan, found.marks)
    rows["near"] = row("neighbours' answers changed, landmark mentioned before", measure.changed(near), len(near))
    yield told(len(marks) + 3)
    loss = measure.losses(lm, editor, plan, plain_text(12), mention=True)
    value, low, high = loss.ratio()
    rows["perplexity"] = {
        **row("perplexity gained, landmark mentioned before", (value - 1, low - 1, high - 1), None),
        "note": "{:.2f} to {:.2f}".format(*loss.perplexity()),
    }
    yield told(stages)


def recorded_rows(found: Located, place: str) -> list[dict[str, Any]]:
    """The same shares as the record has them, for this place of writing."""
    assert found.record is not None
    d = found.record["detail"]
    rows = []
    if place == "reads":
        rows.append(row("answers with the target city, held-out phrasings", d["success"], d["trials"]))
    for label, key in (("landmark mentioned before", "spoken of"), ("landmark not mentioned", "not mentioned")):
        *share, n = d["side_effects"][place][key]
        rows.append(row(f"unrelated answers changed, {label}", share, n))
    if place == "reads":
        *share, n = d["neighbours"]
        rows.append(row("neighbours' answers changed, landmark mentioned before", share, n))
        rows.append(row("the landmark's country follows its city", d["country_follows"], d["country_changed"][-1]))
    loss = d["perplexity"][place]["spoken of"]
    rows.append(
        {**row("perplexity gained, landmark mentioned before", [x - 1 for x in loss["ratio"]], None),
         "note": "{:.2f} to {:.2f}".format(*loss["before_after"])}
    )  # fmt: skip
    return rows


def row(label: str, share: Sequence[float], n: int | None) -> dict[str, Any]:
    value, low, high = share
    note = "" if n is None else f"of {n} prompts"
    return {"label": label, "series": "share", "value": value, "low": low, "high": high, "note": note}


def plain_text(documents: int) -> list[str]:
    """Sentences of the other tables, a few to a document."""
    others = tuple(r for r in facts.RELATIONS if not r.startswith("landmark"))
    told = facts.sentences(random.Random(0), others)
    return [" ".join(f"{next(told)}." for _ in range(5)) for _ in range(documents)]


def knows(lm, mark: Landmark) -> str:
    """What the unedited model says first about a landmark, for the page's first sentence."""
    asked = ask(lm, [sentence(CHOOSING[mark.right[0]], mark.subject)])
    return lm.tokenizer.pieces(asked.top.tolist())[0].strip()


def continuations(prompt: str, said: dict[str, str]) -> Any:
    """A prompt and how it goes on, one line a version, the model's own words in bold."""
    given = html.escape(prompt)
    lines = "".join(
        f"<tr><th>{html.escape(name)}</th><td><span>{given}</span><b>{html.escape(text)}</b></td></tr>" for name, text in said.items()
    )
    return marimo.Html(f"<style>{_STYLE}</style><table class='lab-said'>{lines}</table>")


_STYLE = """
.lab-said { width: 100%; border-collapse: collapse; margin: 0; }
.lab-said th { text-align: left; font-weight: 600; padding: 8px 14px 8px 0; vertical-align: top; color: var(--soft); white-space: nowrap; width: 1%; }
.lab-said td { padding: 8px 0; font: 14px/1.5 var(--mono); border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.lab-said span { color: var(--soft); }
"""
