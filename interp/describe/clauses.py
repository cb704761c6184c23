"""The local describer: a description is up to three clauses, found by fitting, that a person reads at a glance.

A clause names a set of tokens that stand at a place ("here", "before", "two before"), or a kind of token. It raises or
lowers the activation by an amount. For all neurons of a layer at once the best clause is searched, what it explains is
taken away, and the next one searched (matching pursuit). The best set of tokens of a given size is a run of the tokens
in the order of their mean activation (Breiman et al. 1984, for regression trees), so no subset is left untried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


def visible(piece: str) -> str:
    """A token on one line."""
    return piece.replace("\n", "⏎").replace("\t", "⇥")


PLACES = ("here", "before", "two before")
MOST_TOKENS = 8  # in one clause
LEAST_SEEN = 4  # times a token must occur for a clause to name it
CLAUSES = 3
WORTH = 0.02  # of the variance: what a further clause must explain


def _kinds() -> dict[str, Callable[[str], bool]]:
    return {
        "digits": lambda s: s.strip().isdigit(),
        "capitalised words": lambda s: s.strip()[:1].isupper() and s[:1] == " ",
        "lower-case words": lambda s: s[:1] == " " and s.strip()[:1].islower(),
        "pieces inside a word": lambda s: s[:1].isalpha(),
        "punctuation": lambda s: bool(s.strip()) and not any(c.isalnum() for c in s),
        "line ends": lambda s: "\n" in s or "⏎" in s,
    }


KINDS = _kinds()
REPEATS = {
    "tokens seen earlier in the text": "seen",
    "tokens after one that was seen earlier": "after seen",
    "the first token": "first",
}


@dataclass(frozen=True)
class Clause:
    """Adds `weight` wherever it holds: `place` and `tokens`, or a `kind`."""

    weight: float
    place: str = "here"
    tokens: tuple[int, ...] = ()
    kind: str = ""

    def words(self, piece: Callable[[int], str]) -> str:
        verb = "" if self.weight >= 0 else "less "
        if self.kind:
            return f"{verb}{'on' if self.place == 'here' else 'after'} {self.kind}"
        where = {"here": "on", "before": "after", "two before": "two after"}[self.place]
        return f"{verb}{where} {', '.join(f'“{visible(piece(t)).strip() or piece(t)}”' for t in self.tokens)}"


@dataclass(frozen=True)
class Description:
    """What a neuron does: clauses added up over a floor."""

    clauses: tuple[Clause, ...] = field(default=())
    floor: float = 0.0

    def words(self, piece: Callable[[int], str]) -> str:
        return "; ".join(c.words(piece) for c in self.clauses) or "nothing that a short description tells"


class Questions:
    """Every question a clause may ask, answered for each token of a text: columns of zeros and ones."""

    def __init__(self, tokens: Tensor, piece: Callable[[int], str]) -> None:
        """`tokens` [window, pos]."""
        blank = torch.full_like(tokens[:, :1], -1)
        before = torch.cat([blank, tokens[:, :-1]], 1)
        self.at = dict(zip(PLACES, (tokens, before, torch.cat([blank, before[:, :-1]], 1))))
        known = {int(t): piece(int(t)) for t in tokens.unique()}
        self.columns: dict[tuple[str, str], Tensor] = {}
        for kind, holds in KINDS.items():
            having = torch.tensor([t for t, s in known.items() if holds(s)], dtype=tokens.dtype)
            for place in ("here", "before"):
                self.columns[place, kind] = torch.isin(self.at[place], having).flatten()
        same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # [window, pos, earlier pos]
        seen = same.any(-1)
        shifted = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], 1)
        first = torch.zeros_like(seen)
        first[:, 0] = True
        for kind, column in zip(REPEATS, (seen, shifted, first)):
            self.columns["here", kind] = column.flatten()

    def holds(self, clause: Clause) -> Tensor:
        """[window * pos], bool."""
        if clause.kind:
            return self.columns[clause.place, clause.kind]
        return torch.isin(self.at[clause.place], torch.tensor(clause.tokens)).flatten()


def simulate(description: Description, questions: Questions) -> Tensor:
    """How active the description says the neuron is, [window * pos]."""
    out = torch.full(questions.at["here"].shape, description.floor).flatten()
    for clause in description.clauses:
        out = out + clause.weight * questions.holds(clause)
    return out


def propose(acts: Tensor, questions: Questions) -> list[Description]:
    """One description a column of `acts` [window * pos, neuron]."""
    floor = acts.mean(0)
    rest = acts - floor
    total = rest.square().sum(0).clamp_min(1e-12)
    found: list[list[Clause]] = [[] for _ in range(acts.shape[1])]
    going = torch.ones(acts.shape[1], dtype=torch.bool)
    lookups = {place: _Lookup(ids.flatten()) for place, ids in questions.at.items()}
    names = list(questions.columns)
    kinds = torch.stack([questions.columns[name] for name in names], 1).float()
    for _ in range(CLAUSES):
        which = going.nonzero()[:, 0]
        if not len(which):
            break
        part = rest[:, which]
        best = _best_kind(part, kinds, names)
        for place, lookup in lookups.items():
            best = [max(a, b, key=lambda pair: pair[0]) for a, b in zip(best, lookup.best(part, place))]
        for column, (gain, clause) in zip(which.tolist(), best):
            if clause is None or gain < WORTH * float(total[column]):
                going[column] = False
                continue
            holds = questions.holds(clause).float()
            share = holds.mean()
            rest[:, column] -= clause.weight * (holds - share)  # keeps the mean at zero
            floor[column] -= clause.weight * share
            found[column].append(clause)
    return [Description(tuple(c), float(f)) for c, f in zip(found, floor)]


Found = tuple[float, Clause | None]  # variance explained, and by what


def _best_kind(rest: Tensor, kinds: Tensor, names: Sequence[tuple[str, str]]) -> list[Found]:
    n = kinds.sum(0)
    usable = (n >= LEAST_SEEN) & (n <= len(kinds) - LEAST_SEEN)
    weight, gain = _split(kinds.T @ rest, n[:, None], len(kinds))
    gain[~usable] = 0
    top = gain.max(0)
    return [
        (float(g), Clause(float(weight[i, j]), names[i][0], kind=names[i][1]))
        for j, (g, i) in enumerate(zip(top.values.tolist(), top.indices.tolist()))
    ]


def _split(inside: Tensor, n: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Of a mean-zero column whose sum over a set of `n` tokens is `inside`: how much higher it is inside the set than
    outside, and the sum of squares that saying so explains."""
    out = (total - n).clamp_min(1)
    weight = inside / n.clamp_min(1) + inside / out
    return weight, inside.square() / n.clamp_min(1) + inside.square() / out


class _Lookup:
    """Sums of columns by token id, for the tokens seen often enough."""

    def __init__(self, ids: Tensor) -> None:
        self.ids, self.row, n = ids.unique(return_inverse=True, return_counts=True)
        self.usable = (n >= LEAST_SEEN) & (self.ids >= 0)
        self.n, self.total = n.float(), len(ids)

    def best(self, rest: Tensor, place: str) -> list[Found]:
        """For each column of `rest` the best set of at most MOST_TOKENS tokens, all high or all low."""
        sums = torch.zeros(len(self.n), rest.shape[1]).index_add_(0, self.row, rest)
        mean = sums / self.n[:, None]
        k = min(MOST_TOKENS, int(self.usable.sum()))
        if k == 0:
            return [(0.0, None)] * rest.shape[1]
        out: list[Found] = [(0.0, None)] * rest.shape[1]
        for sign in (1, -1):
            ranked = torch.where(self.usable[:, None], sign * mean, float("-inf")).topk(k, 0).indices  # [k, column]
            inside, n = sums.gather(0, ranked).cumsum(0), self.n[ranked].cumsum(0)
            weight, gain = _split(inside, n, self.total)
            size = gain.argmax(0)
            for j, s in enumerate(size.tolist()):
                if float(gain[s, j]) > out[j][0]:
                    chosen = tuple(self.ids[ranked[: s + 1, j]].tolist())
                    out[j] = (float(gain[s, j]), Clause(float(weight[s, j]), place, chosen))
        return out
