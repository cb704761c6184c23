"""RASP, a language whose programs are transformers (Weiss et al. 2021, "Thinking like transformers").

A program is an expression over sequences. `tokens` and `indices` are given; `Map`, `SequenceMap` and `Linear` work
at each position, as an MLP does; `Aggregate` and `SelectorWidth` look at other positions through a `Select`, as an
attention head does. Every sequence is categorical (one of finitely many values, a direction each) or numerical (a
number along one direction). `evaluate` says what a program means; `interp.truth.compile` turns it into weights.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.errors import LabError

Value = int | float | str | bool | None
CATEGORICAL, NUMERICAL = "categorical", "numerical"


@dataclass(frozen=True)
class Rule:
    """A function with the text that says what it does."""

    text: str
    of: Callable[..., Value]


EQUAL = Rule("key == query", lambda key, query: key == query)
SMALLER = Rule("key < query", lambda key, query: key < query)
UP_TO = Rule("key <= query", lambda key, query: key <= query)
ALWAYS = Rule("true", lambda key, query: True)


@dataclass(frozen=True, eq=False)
class Expr:
    """A sequence. Two expressions are the same only when they are one object."""

    name: str
    encoding: str = field(default=CATEGORICAL, kw_only=True)

    @property
    def inputs(self) -> tuple[Expr, ...]:
        return ()

    @property
    def text(self) -> str:
        """The right-hand side of its line."""
        return self.name


@dataclass(frozen=True, eq=False)
class Map(Expr):
    """`rule(x)` at each position."""

    rule: Rule
    inner: Expr

    @property
    def inputs(self) -> tuple[Expr, ...]:
        return (self.inner,)

    @property
    def text(self) -> str:
        return f"map({self.rule.text}, {self.inner.name})"


@dataclass(frozen=True, eq=False)
class SequenceMap(Expr):
    """`rule(x, y)` at each position, all three categorical."""

    rule: Rule
    first: Expr
    second: Expr

    @property
    def inputs(self) -> tuple[Expr, ...]:
        return (self.first, self.second)

    @property
    def text(self) -> str:
        return f"sequence_map({self.rule.text}, {self.first.name}, {self.second.name})"


@dataclass(frozen=True, eq=False)
class Linear(Expr):
    """`a * x + b * y` at each position, all three numerical."""

    a: float
    first: Expr
    b: float
    second: Expr
    encoding: str = field(default=NUMERICAL, kw_only=True)

    @property
    def inputs(self) -> tuple[Expr, ...]:
        return (self.first, self.second)

    @property
    def text(self) -> str:
        return f"linear({self.a:g} * {self.first.name} {'-' if self.b < 0 else '+'} {abs(self.b):g} * {self.second.name})"


@dataclass(frozen=True, eq=False)
class Select:
    """Which keys each query looks at: where `rule(key, query)`. Both sequences are categorical."""

    keys: Expr
    queries: Expr
    rule: Rule

    @property
    def text(self) -> str:
        return f"select({self.keys.name}, {self.queries.name}, {self.rule.text})"

    def holds(self, key: Value, query: Value) -> bool:
        return key is not None and query is not None and bool(self.rule.of(key, query))


@dataclass(frozen=True, eq=False)
class Aggregate(Expr):
    """The mean of `values` over what is selected; over nothing, 0 (numerical) or no value (categorical)."""

    select: Select
    values: Expr

    @property
    def inputs(self) -> tuple[Expr, ...]:
        return (self.select.keys, self.select.queries, self.values)

    @property
    def text(self) -> str:
        return f"aggregate({self.select.text}, {self.values.name})"


@dataclass(frozen=True, eq=False)
class SelectorWidth(Expr):
    """How many keys each query selects."""

    select: Select

    @property
    def inputs(self) -> tuple[Expr, ...]:
        return (self.select.keys, self.select.queries)

    @property
    def text(self) -> str:
        return f"selector_width({self.select.text})"


tokens, indices = Expr("tokens"), Expr("indices")


@dataclass(frozen=True)
class Program:
    """An expression with the inputs it is meant for: sequences of 1 to `length` tokens of `vocab`."""

    key: str
    title: str
    output: Expr
    vocab: tuple[Value, ...]
    length: int
    example: tuple[Value, ...]

    def steps(self) -> list[Expr]:
        """Its expressions, each after those it reads; `tokens` and `indices` are left out. LabError for two of one
        name."""
        found: list[Expr] = []

        def visit(expr: Expr) -> None:
            for inner in expr.inputs:
                visit(inner)
            if expr not in (*found, tokens, indices):
                found.append(expr)

        visit(self.output)
        names = [expr.name for expr in found]
        if twice := {name for name in names if names.count(name) > 1 or name in ("tokens", "indices", "one")}:
            raise LabError(f"Several sequences are called {min(twice)!r}; give each its own name.")
        return found

    def lines(self) -> list[tuple[str, str]]:
        """The program as it is read: (name, right-hand side)."""
        return [(expr.name, expr.text) for expr in self.steps()]

    def check(self, xs: Sequence[Value]) -> None:
        """Raise LabError for an input it is not meant for."""
        if not xs:
            raise LabError("The input is empty; give at least one token.")
        if len(xs) > self.length:
            raise LabError(f"The input has {len(xs)} tokens and this program reads {self.length}; shorten it.")
        if unknown := [x for x in xs if x not in self.vocab]:
            raise LabError(f"{unknown[0]!r} is not a token of this program; use {', '.join(map(str, self.vocab))}.")

    def parse(self, text: str) -> list[Value]:
        """Tokens from what a person types, apart by spaces or commas or not at all; LabError as `check`."""
        known = {str(value): value for value in self.vocab}
        apart = text.replace(",", " ").split()
        words = list(apart[0]) if len(apart) == 1 and apart[0] not in known else apart
        xs = [known.get(word, word) for word in words]
        self.check(xs)
        return xs

    def run(self, xs: Sequence[Value]) -> list[Value]:
        """What the program means for this input."""
        self.check(xs)
        return evaluate(self.output, xs)

    def inputs(self, limit: int = 2000, seed: int = 0) -> Iterator[tuple[Value, ...]]:
        """Every input, or `limit` random ones where there are more."""
        if sum(len(self.vocab) ** n for n in range(1, self.length + 1)) <= limit:
            for n in range(1, self.length + 1):
                yield from itertools.product(self.vocab, repeat=n)
            return
        draw = random.Random(seed)
        for _ in range(limit):
            yield tuple(draw.choices(self.vocab, k=draw.randint(1, self.length)))


def evaluate(expr: Expr, xs: Sequence[Value], known: dict[Expr, list[Value]] | None = None) -> list[Value]:
    """The sequence that `expr` is for the input `xs`. `known` keeps every sequence met on the way."""
    known = {} if known is None else known
    if expr not in known:
        known[expr] = _evaluate(expr, xs, known)
    return known[expr]


def _evaluate(expr: Expr, xs: Sequence[Value], known: dict[Expr, list[Value]]) -> list[Value]:
    def of(inner: Expr) -> list[Value]:
        return evaluate(inner, xs, known)

    if expr is tokens:
        return list(xs)
    if expr is indices:
        return list(range(len(xs)))
    if isinstance(expr, Map):
        return [None if x is None else expr.rule.of(x) for x in of(expr.inner)]
    if isinstance(expr, SequenceMap):
        return [None if x is None or y is None else expr.rule.of(x, y) for x, y in zip(of(expr.first), of(expr.second))]
    if isinstance(expr, Linear):
        return [expr.a * x + expr.b * y for x, y in zip(of(expr.first), of(expr.second))]  # type: ignore[operator]
    if isinstance(expr, SelectorWidth):
        return [sum(row) for row in selected(expr.select, xs, known)]
    if isinstance(expr, Aggregate):
        values = of(expr.values)
        return [_mean(expr, [v for v, on in zip(values, row) if on]) for row in selected(expr.select, xs, known)]
    raise TypeError(f"{type(expr).__name__} is no expression of this language")


def selected(select: Select, xs: Sequence[Value], known: dict[Expr, list[Value]] | None = None) -> list[list[bool]]:
    """[query][key] for the input `xs`."""
    keys, queries = evaluate(select.keys, xs, known), evaluate(select.queries, xs, known)
    return [[select.holds(key, query) for key in keys] for query in queries]


def _mean(expr: Aggregate, values: list[Value]) -> Value:
    if expr.encoding == NUMERICAL:
        return sum(values) / len(values) if values else 0.0  # type: ignore[arg-type]
    if len(set(values)) > 1:
        raise LabError(f"{expr.name} would average several categorical values; select one, or make it numerical.")
    return values[0] if values else None
