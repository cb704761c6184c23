"""How sure a score is: Wilson's interval for one model, paired comparisons for two on the same samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True)
class Comparison:
    """Two models on the same samples."""

    difference: Interval
    """share right of the first minus the second, paired bootstrap"""
    only_first: int
    """samples that the first alone gets right"""
    only_second: int
    p_value: float
    """exact McNemar: the chance of a split this uneven if the models were equally good"""


def wilson(right: int, total: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval (1927) for a share; stays inside 0 and 1 and is not empty at either end."""
    if not 0 <= right <= total or total == 0:
        raise ValueError(f"{right} right out of {total}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p, z2 = right / total, z * z
    middle = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = z / (1 + z2 / total) * math.sqrt(p * (1 - p) / total + z2 / (4 * total * total))
    return Interval(p, max(0.0, middle - half), min(1.0, middle + half), confidence)


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided exact p-value of McNemar's test (1947): a binomial over the samples on which the models differ."""
    n, k = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return min(1.0, 2 * tail)


def compare(
    first: Sequence[bool], second: Sequence[bool], confidence: float = 0.95, draws: int = 4000, seed: int = 0
) -> Comparison:
    """Compare graded answers of two models to the same samples in the same order.

    The bootstrap draws samples with replacement, a pair at a time, so what is easy for both counts for both. A pair
    only ever contributes -1, 0 or +1, so drawing how many there are of each (multinomial) is drawing the samples.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"{len(first)} and {len(second)} grades are not pairs")
    n = len(first)
    plus = sum(a and not b for a, b in zip(first, second))
    minus = sum(b and not a for a, b in zip(first, second))
    counts = np.random.default_rng(seed).multinomial(
        n, [plus / n, minus / n, (n - plus - minus) / n], size=draws
    )
    edge = (1 - confidence) / 2
    low, high = np.quantile((counts[:, 0] - counts[:, 1]) / n, [edge, 1 - edge])
    interval = Interval((plus - minus) / n, float(low), float(high), confidence)
    return Comparison(interval, plus, minus, mcnemar(plus, minus))


def grouped(hits: Sequence[bool], groups: Sequence[str], confidence: float = 0.95, draws: int = 2000, seed: int = 0) -> Interval:
    """A share whose samples come in groups (prompts about one fact): the bootstrap draws whole groups."""
    if len(hits) != len(groups) or not hits:
        raise ValueError(f"{len(hits)} samples in {len(groups)} groups")
    names, place = np.unique(list(groups), return_inverse=True)
    right, total = (np.bincount(place, weights=w, minlength=len(names)) for w in (np.asarray(hits, float), None))
    picks = np.random.default_rng(seed).integers(len(names), size=(draws, len(names)))
    edge = (1 - confidence) / 2
    low, high = np.quantile(right[picks].sum(1) / total[picks].sum(1), [edge, 1 - edge])
    return Interval(float(right.sum() / total.sum()), float(low), float(high), confidence)
