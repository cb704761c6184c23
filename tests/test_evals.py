"""Evals: intervals against known values, graders, results on disk, and a whole small eval."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import jsonl
from lab.errors import LabError
from lab.evals import (
    GRADERS,
    Grade,
    Result,
    Sample,
    Step,
    compare,
    grader,
    mcnemar,
    normalise,
    read_results,
    wilson,
)

CAPITAL = Sample("c1", "The capital of France is", ("Paris",), ("Paris", "Rome", "Berlin"))


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_known_values(right, total, low, high):
    interval = wilson(right, total)
    assert interval.low == pytest.approx(low, abs=6e-5) and interval.high == pytest.approx(high, abs=6e-5)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_solves_its_equation(counts, confidence):
    right, total = counts
    interval = wilson(right, total, confidence)
    assert 0 <= interval.low <= interval.value + 1e-12 and interval.value - 1e-12 <= interval.high <= 1
    mirrored = wilson(total - right, total, confidence)
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-9)
    wider = wilson(right, total, min(0.9999, confidence + 0.0005))
    assert wider.low <= interval.low + 1e-12 and wider.high >= interval.high - 1e-12


def test_mcnemar_is_the_binomial_tail():
    assert mcnemar(0, 0) == 1
    assert mcnemar(5, 5) == 1
    assert mcnemar(0, 6) == pytest.approx(2 / 64)
    assert mcnemar(2, 10) == mcnemar(10, 2)
    n, k = 9, 2
    splits = [sum(bits) for bits in product((0, 1), repeat=n)]
    assert mcnemar(k, n - k) == pytest.approx(sum(s <= k or s >= n - k for s in splits) / 2**n)


def test_paired_difference():
    first, second = [True] * 30 + [False] * 10, [True] * 18 + [False] * 22
    found = compare(first, second)
    assert found == compare(first, second)  # the same seed, the same interval
    assert found.difference.value == pytest.approx(12 / 40) and (found.only_first, found.only_second) == (
        12,
        0,
    )
    # of the difference's sampling distribution: binomial with p = 0.3 over 40
    spread = math.sqrt(0.3 * 0.7 / 40)
    assert found.difference.low == pytest.approx(0.3 - 1.96 * spread, abs=0.03)
    assert found.difference.high == pytest.approx(0.3 + 1.96 * spread, abs=0.03)
    assert found.p_value == pytest.approx(2 / 2**12)
    with pytest.raises(ValueError, match="not pairs"):
        compare([True], [])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  The  São Paulo!", "sao paulo"),
        ("N'Djamena", "n djamena"),
        ("the", "the"),
        ("A", "a"),
        ("", ""),
        ("U.S.A.", "u s a"),
    ],
)
def test_normalise(text, plain):
    assert normalise(text) == plain


@given(st.text(max_size=30))
def test_normalise_twice_is_once(text):
    once = normalise(text)
    assert normalise(once) == once or once.split()[:1] in (["the"], ["a"], ["an"])


@pytest.mark.parametrize(
    ("name", "completion", "right", "failure"),
    [
        ("exact", " Paris ", True, None),
        ("exact", " paris", False, "too late"),
        ("starts", " Paris, which lies on the Seine", True, None),
        ("starts", " the PARIS", True, None),
        ("starts", " Parisian", False, "misspelt"),
        ("starts", " Rome", False, "another of its kind"),
        ("starts", " the city of Paris", False, "too late"),
        ("starts", " France", False, "echo"),
        ("starts", "", False, "no answer"),
        ("starts", " ...", False, "no answer"),
        ("starts", " a lovely place", False, "something else"),
        ("starts", " Pariz", False, "misspelt"),
    ],
)
def test_graders(name, completion, right, failure):
    grade = grader(name)(CAPITAL, completion, ())
    assert (grade.right, grade.failure) == (right, failure)
    assert "Paris" in grade.why or right


def test_choice_takes_the_likeliest_option():
    judge = GRADERS["choice"]
    assert judge(CAPITAL, "", [("Rome", -2.0), ("Paris", -1.5), ("Berlin", -3.0)]).right
    wrong = judge(CAPITAL, "", [("Rome", -1.0), ("Paris", -1.5)])
    assert not wrong.right and "Rome" in wrong.why and wrong.failure == "another of its kind"
    with pytest.raises(LabError, match="no options"):
        judge(CAPITAL, "", [])
    with pytest.raises(LabError, match="exact, starts, choice"):
        grader("vibes")


def some_result(i: int) -> Result:
    step = Step(" Pariß\n", 0.123456789, ((" Paris", 0.5), (" Rome", 1e-9)))
    first = Step("The", None)
    grade = Grade(False, "because", "echo")
    return Result(
        Sample(f"s{i}", "The", ("Paris",), ("Paris",), "g"),
        "m",
        " x",
        grade,
        (first,),
        (step,),
        (("Rome", -1.25),),
    )


def test_results_come_back_from_disk_without_a_torn_row(tmp_path):
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    appender = jsonl.Appender(path)
    for i in range(3):
        appender.append(some_result(i).to_row())
    appender.close()
    whole = read_results(path)
    assert [r.sample.id for r in whole] == ["s0", "s1", "s2"]
    assert whole[0].sample == some_result(0).sample and whole[0].steps[0].p == pytest.approx(
        0.123456789, rel=1e-4
    )
    path.write_bytes(path.read_bytes()[:-7])
    assert [r.sample.id for r in read_results(path)] == ["s0", "s1"]
    path.write_text('{"loss": 1}\n')
    with pytest.raises(LabError, match="not eval results"):
        read_results(path)
