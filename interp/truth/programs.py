"""Programs worth compiling, each a few lines of RASP (Weiss et al. 2021; Lindner et al. 2023)."""

from __future__ import annotations

from interp.truth.rasp import (
    ALWAYS,
    EQUAL,
    NUMERICAL,
    SMALLER,
    UP_TO,
    Aggregate,
    Expr,
    Linear,
    Map,
    Program,
    Rule,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    indices,
    tokens,
)


def reverse() -> Program:
    length = _length()
    opposite = SequenceMap("opp_idx", Rule("x - y", lambda x, y: x - y), length, indices)
    target = Map("target", Rule("x - 1", lambda x: x - 1), opposite)
    output = Aggregate("reverse", Select(indices, target, EQUAL), tokens)
    return Program("reverse", "Reverse", output, (1, 2, 3), 5, (1, 2, 3))


def x_proportion() -> Program:
    output = _share_so_far("frac_prevs", _is("is_x", "x"))
    return Program("x_proportion", "Fraction of previous x", output, ("w", "x", "y", "z"), 5, ("x", "w", "x", "y", "z"))


def histogram() -> Program:
    output = SelectorWidth("hist", Select(tokens, tokens, EQUAL))
    return Program("histogram", "Histogram", output, ("a", "b", "c"), 5, ("a", "b", "a", "c"))


def sort() -> Program:
    length = 5
    # equal tokens keep their order: the key of each is unlike all others
    key = SequenceMap("key", Rule(f"{length} * x + y", lambda x, y: length * x + y), tokens, indices)
    place = SelectorWidth("place", Select(key, key, SMALLER))
    output = Aggregate("sort", Select(place, indices, EQUAL), tokens)
    return Program("sort", "Sort", output, (1, 2, 3, 4), length, (3, 1, 4, 1))


def pair_balance() -> Program:
    return Program("pair_balance", "Balance of brackets so far", _balance(), ("(", ")", "a"), 5, ("(", "(", ")", "a", ")"))


def balanced() -> Program:
    balance = _balance()
    negative = Map("negative", Rule("x < 0", lambda x: float(x < 0)), balance, encoding=NUMERICAL)
    ever = Aggregate("ever_negative", Select(indices, indices, ALWAYS), negative, encoding=NUMERICAL)
    never = Map("never_negative", Rule("x == 0", lambda x: x == 0), ever)
    zero = Map("zero", Rule("x == 0", lambda x: x == 0), balance)
    last = Map("last", Rule("x - 1", lambda x: x - 1), _length())
    closed = Aggregate("closed", Select(indices, last, EQUAL), zero)
    output = SequenceMap("balanced", Rule("x and y", lambda x, y: x and y), closed, never)
    return Program("balanced", "Brackets balanced?", output, ("(", ")"), 6, ("(", "(", ")", ")"))


def _length() -> Expr:
    return SelectorWidth("length", Select(tokens, tokens, ALWAYS))


def _is(name: str, token: Value) -> Expr:
    return Map(name, Rule(f"x == {token!r}", lambda x: float(x == token)), tokens, encoding=NUMERICAL)


def _share_so_far(name: str, of: Expr) -> Expr:
    return Aggregate(name, Select(indices, indices, UP_TO), of, encoding=NUMERICAL)


def _balance() -> Expr:
    opens, closes = _share_so_far("opens", _is("is_open", "(")), _share_so_far("closes", _is("is_close", ")"))
    return Linear("balance", 1, opens, -1, closes)


PROGRAMS: dict[str, Program] = {
    program.key: program for program in (reverse(), x_proportion(), histogram(), sort(), pair_balance(), balanced())
}
