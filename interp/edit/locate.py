"""Which heads carry a fact: every head patched on its own, exactly, averaged over facts; then the strongest together.

The clean prompt asks about another landmark in the same words, so a head that restores the other city's lead over
the right one carries the city. Patching happens at the last token, where the answer is read out, or at the subject's
last token, where it is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.baseline import baseline
from interp.bootstrap import mean_interval
from interp.edit.landmarks import CHOOSING, Landmark, sentence
from interp.edit.rows import Rows, mentions
from interp.edit.write import Head, Writer
from interp.prompts import Pair, prepare
from interp.sites import SITES, Patch, keep
from interp.sweep import Cell, sweep
from lab.errors import LabError

WHERE = ("last", "subject")


def pair_of(lm, mark: Landmark, other: Landmark, phrasing: str) -> Pair:
    """Clean: the other landmark; corrupted: this one; answers: their cities."""
    return prepare(lm, sentence(phrasing, other.subject), sentence(phrasing, mark.subject), other.city, mark.city)


def shared_phrasing(mark: Landmark, other: Landmark, turn: int = 0) -> str | None:
    """A phrasing of CHOOSING in which both are answered right; `turn` walks through them."""
    both = [i for i in mark.right if i in other.right]
    return CHOOSING[both[turn % len(both)]] if both else None


def pairs(lm, marks: Sequence[Landmark], others: Sequence[Landmark]) -> list[tuple[Landmark, Pair]]:
    """Each landmark opposite one of another city, in a phrasing both are answered in; those that find none are left out."""
    found = []
    for i, mark in enumerate(marks):
        for step in range(len(others)):
            other = others[(7 * i + 3 + step) % len(others)]
            if other.city != mark.city and (phrasing := shared_phrasing(mark, other, i)):
                found.append((mark, pair_of(lm, mark, other, phrasing)))
                break
    return found


def effects(lm, pair: Pair, subject: str, where: str = "last") -> Tensor:
    """Share of the logit difference restored by each head's z at one position, [layer, head]; exact."""
    length = len(pair.corrupted_ids)
    if where not in WHERE:
        raise LabError(f"Heads are patched at one of {', '.join(WHERE)}, not at {where!r}.")
    if where == "last":
        at = length - 1
    else:
        spelled = mentions(lm.tokenizer, pair.corrupted, subject)
        if not spelled:
            raise LabError(f"The prompt does not mention {subject}; name it as the table of landmarks does.")
        at = spelled[-1]
    config, model = lm.config, lm.model
    shape = (config.n_layers, config.n_heads)
    cells = [Cell(i, h, Patch("z", i, at, h), at) for i in range(shape[0]) for h in range(shape[1])]
    for cell in cells[:1]:
        cell.patch.check(config, pair.alignment)
    *_, result = sweep(model, pair, "z", base=baseline(model, pair, ("z",)), cells=cells, shape=shape)
    return result.share


@dataclass(frozen=True)
class Average:
    """Mean effect of every head over facts with its 95% interval (bootstrap over facts), [layer, head]."""

    mean: Tensor
    low: Tensor
    high: Tensor
    facts: int

    def strongest(self, k: int | None = None) -> list[Head]:
        """Heads by mean effect, the strongest first, of those that work no earlier than the strongest of all: it is
        asked whether the subject is being read, and the others follow it."""
        heads = self.mean.shape[1]
        order = [divmod(i, heads) for i in self.mean.flatten().argsort(descending=True).tolist()]
        return [head for head in order if head[0] >= order[0][0]][:k]


def average(each: Sequence[Tensor]) -> Average:
    """From the effects of every fact, [layer, head] each."""
    return Average(*mean_interval(torch.stack(list(each))), len(each))


def interval(shares: Tensor) -> list[float]:
    """Mean of one number a fact with its 95% interval."""
    return [float(x) for x in mean_interval(shares)]


ENOUGH = 0.9  # of the logit difference that the chosen heads restore together
COUNTS = (1, 2, 3, 4, 6, 8, 10, 12, 16)


@dataclass(frozen=True)
class Together:
    """Shares of the logit difference for the strongest k heads at once, [fact] each: `restored` when the other
    landmark's values are written into this one's run, `lost` when the run of the other one gets this one's."""

    heads: list[Head]
    restored: Tensor
    lost: Tensor


def together(lm, found: Sequence[tuple[Landmark, Pair]], heads: Sequence[Head]) -> Together:
    """Patch these heads together at the last token, in both directions."""
    layers = sorted({layer for layer, _ in heads})
    names = [SITES["z"].name(i) for i in layers]
    runs, kept, plain = [], [], []
    for texts in ([pair.clean for _, pair in found], [pair.corrupted for _, pair in found]):
        rows = Rows(lm, texts)
        acts: dict[str, Tensor] = {}
        plain.append(rows.logits(keep(names, acts)))
        kept.append({i: rows.last(acts[SITES["z"].name(i)]) for i in layers})
        runs.append(rows)
    index = torch.arange(len(found))
    good, bad = torch.tensor([p.answer_id for _, p in found]), torch.tensor([p.wrong_id for _, p in found])

    def difference(logits: Tensor) -> Tensor:
        return (logits[index, good] - logits[index, bad]).double().cpu()

    clean, corrupted = (difference(logits) for logits in plain)
    shares = []
    for run, source in ((1, 0), (0, 1)):
        values = {(i, h): kept[source][i][:, h] for i, h in heads}
        patched = difference(runs[run].logits(Writer(runs[run], values, "last").hooks))
        shares.append((patched - (corrupted, clean)[1 - run]) / (clean - corrupted))
    return Together(list(heads), shares[0], -shares[1])


def few(lm, found: Sequence[tuple[Landmark, Pair]], order: Sequence[Head]) -> tuple[int, dict[int, Together]]:
    """How many of these heads (the strongest first) restore ENOUGH together, and what every count of COUNTS does."""
    curve = {k: together(lm, found, order[:k]) for k in COUNTS if k <= len(order)}
    return next((k for k, t in curve.items() if t.restored.mean() >= ENOUGH), max(curve)), curve
