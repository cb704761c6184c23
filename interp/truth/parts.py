"""The pieces a compiled program is made of: heads and neurons that read and write named directions.

The construction is that of Lindner et al. 2023 ("Tracr: compiled transformers as a laboratory for
interpretability"). A categorical sequence is a one-hot code, a direction a value; a numerical one is a number along
one direction; `one` is 1 everywhere. Position 0 holds BOS, which a head looks at when it selects nothing, and where
every sequence is to be zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from interp.truth.rasp import (
    CATEGORICAL,
    NUMERICAL,
    Aggregate,
    Expr,
    Linear,
    Map,
    Rule,
    SelectorWidth,
    SequenceMap,
    Value,
    indices,
    tokens,
)
from lab.errors import LabError

COLDNESS = 100.0  # score of a selected key, before the division by sqrt(d_head)
STEEPNESS = 100.0  # slope of the ramps a numerical map is cut into, at least
MOST_VALUES = 2000  # of one sequence


class Direction(NamedTuple):
    """A basis vector of the residual stream: a value of a categorical sequence, or a numerical one (no value)."""

    name: str
    value: Value = None

    @property
    def label(self) -> str:
        return self.name if self.value is None else f"{self.name}:{self.value}"


Row = dict[Direction, float]  # a vector, where it is not zero
ONE, BOS = Direction("one"), Direction("tokens", "BOS")


@dataclass(frozen=True)
class Neuron:
    """relu(reads · x), added along `writes`."""

    reads: Row
    writes: Row


@dataclass(frozen=True)
class Head:
    """Row i of `q` and of `k` makes number i of a query and a key, row i of `v` a value, written along row i of `o`.

    `to_bos` is the score of BOS over that of a selected key: 1/2 where it is the last resort, 1 where it always counts.
    `size` is the widest of the spaces it reads, BOS and `one` included: the paper's width of a head, which sets the
    scale of the scores.
    """

    expr: Aggregate | SelectorWidth
    to_bos: float
    q: list[Row]
    k: list[Row]
    v: list[Row]
    o: list[Row]
    size: int


def domain(program_vocab: Iterable[Value], length: int, exprs: Iterable[Expr]) -> dict[Expr, list[Value]]:
    """Every value each sequence can take. LabError for a program that cannot be compiled, with the reason."""
    values: dict[Expr, list[Value]] = {tokens: list(program_vocab), indices: list(range(length))}
    for expr in exprs:
        found = _values(expr, values, length)
        if len(found) > MOST_VALUES:
            raise LabError(f"{expr.name} can take {len(found):,} values, each a direction or a threshold; use shorter inputs.")
        values[expr] = found
    return values


def _values(expr: Expr, of: dict[Expr, list[Value]], length: int) -> list[Value]:
    if isinstance(expr, SelectorWidth):
        return list(range(length + 1))
    if isinstance(expr, Map):
        return _unlike(_tried(expr.rule.of, (x,)) for x in of[expr.inner])
    if isinstance(expr, SequenceMap):
        if {expr.encoding, expr.first.encoding, expr.second.encoding} != {CATEGORICAL}:
            raise LabError(f"{expr.name} maps two sequences by a rule, so all three must be categorical.")
        return _unlike(_tried(expr.rule.of, pair) for pair in itertools.product(of[expr.first], of[expr.second]))
    if isinstance(expr, Linear):
        if {expr.first.encoding, expr.second.encoding} != {NUMERICAL}:
            raise LabError(f"{expr.name} adds two sequences, so both must be numerical.")
        return _unlike(expr.a * x + expr.b * y for x, y in itertools.product(of[expr.first], of[expr.second]))  # type: ignore[operator]
    if isinstance(expr, Aggregate):
        if expr.encoding != expr.values.encoding:
            raise LabError(f"{expr.name} is {expr.encoding} and what it averages is {expr.values.encoding}; they must agree.")
        if expr.encoding == CATEGORICAL:
            return of[expr.values]
        if not set(of[expr.values]) <= {0, 1}:
            raise LabError(f"{expr.name} averages numbers other than 0 and 1, so its values cannot be listed.")
        return _unlike(k / n for n in range(1, length + 1) for k in range(n + 1))
    raise TypeError(f"{type(expr).__name__} is no expression of this language")


def _tried(rule: Callable[..., Value], arguments: tuple[Value, ...]) -> Value:
    try:
        return rule(*arguments)
    except ArithmeticError:  # a division by zero, say, for values that never meet
        return None


def _unlike(values: Iterable[Value]) -> list[Value]:
    """The different values, in order; numbers that differ by rounding alone are one."""
    found: list[Value] = []
    for value in sorted({v for v in values if v is not None}, key=lambda v: (str(type(v)), v) if isinstance(v, str) else ("", v)):
        near = found and isinstance(value, float) and isinstance(found[-1], int | float) and abs(value - found[-1]) < 1e-9
        if not near:
            found.append(value)
    return found


# ---- heads


def head(expr: Aggregate | SelectorWidth, space: Callable[[Expr], list[Direction]]) -> Head:
    """The head of a selection: number i of the key is key value i, so the query holds the values it selects."""
    for what, seen in (("keys", expr.select.keys), ("queries", expr.select.queries)):
        if seen.encoding != CATEGORICAL:
            raise LabError(f"The {what} of {expr.name} must be categorical; {seen.name} is numerical.")
    to_bos = 1.0 if isinstance(expr, SelectorWidth) else 0.5
    keys, queries = space(expr.select.keys), space(expr.select.queries)
    q = [{d: COLDNESS for d in queries if expr.select.holds(key.value, d.value)} for key in keys]
    k: list[Row] = [{key: 1.0} for key in keys]
    q.append({ONE: to_bos * COLDNESS})
    k.append({BOS: 1.0})
    read, written = ([BOS], [width_at(expr)]) if isinstance(expr, SelectorWidth) else (space(expr.values), space(expr))
    size = max(len(queries) + 2, len(keys) + 1, len(read) + 1)
    return Head(expr, to_bos, q, k, [{d: 1.0} for d in read], [{d: 1.0} for d in written], size)


def width_at(expr: SelectorWidth) -> Direction:
    """Where the head of a width writes the share of its attention that BOS gets: 1 / (width + 1)."""
    return Direction(f"{expr.name}_selector_width_attn_output")


# ---- neurons


def neurons(expr: Expr, space: Callable[[Expr], list[Direction]], values: dict[Expr, list[Value]]) -> list[Neuron]:
    """The MLP that makes a sequence at each position."""
    if isinstance(expr, SelectorWidth):
        aux = width_at(expr)
        steps = {1 / (width + 1): _write(expr, width) for width in range(len(values[expr]))}
        at_bos = {aux: -1.0} | {d: -w for d, w in steps[1.0].items()}
        return [*_staircase(aux, steps), Neuron({BOS: 1.0}, at_bos)]
    if isinstance(expr, Map) and expr.inner.encoding == NUMERICAL:
        (read,) = space(expr.inner)
        steps = {float(x): _write(expr, y) for x in values[expr.inner] if (y := _tried(expr.rule.of, (x,))) is not None}  # type: ignore[arg-type]
        at_bos = {d: -w for d, w in steps[min(steps, key=abs)].items() if w}  # numbers are 0 there
        return _staircase(read, steps) + ([Neuron({BOS: 1.0}, at_bos)] if at_bos else [])
    if isinstance(expr, Map):
        made = [(d, _tried(expr.rule.of, (d.value,))) for d in space(expr.inner)]
        return [Neuron({d: 1.0}, _write(expr, y)) for d, y in made if y is not None]
    if isinstance(expr, SequenceMap):
        if expr.first is expr.second:
            return neurons(Map(expr.name, _doubled(expr), expr.first, encoding=expr.encoding), space, values)
        pairs = itertools.product(space(expr.first), space(expr.second))
        of_pair = [(x, y, _tried(expr.rule.of, (x.value, y.value))) for x, y in pairs]
        return [Neuron({x: 1.0, y: 1.0, ONE: -1.0}, _write(expr, z)) for x, y, z in of_pair if z is not None]
    if isinstance(expr, Linear):
        (out,), (first,), (second,) = space(expr), space(expr.first), space(expr.second)
        factors = [(first, expr.a), (second, expr.b)]
        return [Neuron({d: sign}, {out: sign * factor}) for d, factor in factors for sign in (1.0, -1.0)]
    raise TypeError(f"{type(expr).__name__} needs no MLP")


def _doubled(expr: SequenceMap) -> Rule:
    return Rule(expr.rule.text, lambda x: expr.rule.of(x, x))


def _write(expr: Expr, value: Value) -> Row:
    """What puts this value into the stream."""
    return {Direction(expr.name): float(value)} if expr.encoding == NUMERICAL else {Direction(expr.name, value): 1.0}  # type: ignore[arg-type]


def _staircase(read: Direction, steps: dict[float, Row]) -> list[Neuron]:
    """Neurons that write `steps[x]` for a number x along `read`: two make a ramp of height one between neighbours."""
    xs = sorted(steps)
    gap = min((b - a for a, b in itertools.pairwise(xs)), default=1.0)
    slope = max(STEEPNESS, 4 / gap)  # the ramp ends well before the next value
    out = [Neuron({ONE: 1.0}, dict(steps[xs[0]]))]
    for a, b in itertools.pairwise(xs):
        rise = {d: steps[b].get(d, 0.0) - steps[a].get(d, 0.0) for d in steps[a] | steps[b]}
        rise = {d: w for d, w in rise.items() if w}
        if rise:
            foot = slope * (a + b) / 2
            out.append(Neuron({read: slope, ONE: 1 - foot}, rise))
            out.append(Neuron({read: slope, ONE: -foot}, {d: -w for d, w in rise.items()}))
    return out
