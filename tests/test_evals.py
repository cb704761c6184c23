"""Evals: intervals against known values, graders, results on disk, and a whole small eval."""

import json
import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import ClassVar

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
    Task,
    compare,
    evaluate,
    facts,
    grader,
    mcnemar,
    normalise,
    read_results,
    wilson,
    work,
)
from lab.evals.view import Board, ask
from lab.runs import Run

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
        0.123456789, rel=1e-2
    )
    path.write_bytes(path.read_bytes()[:-7])
    assert [r.sample.id for r in read_results(path)] == ["s0", "s1"]
    path.write_text('{"loss": 1}\n')
    with pytest.raises(LabError, match="not eval results"):
        read_results(path)


def letters_lm(answers):
    """A model of one token a character that goes on with the answer of the longest prompt that fits."""
    import torch

    class Model:
        device, dtype = torch.device("cpu"), torch.float32

        def __call__(self, tokens, cache=None, last=False):
            if not hasattr(cache, "seen"):
                cache.seen, cache.k = tokens, None
            else:
                cache.seen = torch.cat([cache.seen, tokens], 1)
            logits = torch.zeros(*tokens.shape, 200)
            for row, ids in enumerate(cache.seen.tolist()):
                text = "".join(map(chr, ids)).lstrip("\0")
                for prompt, answer in answers.items():
                    whole = prompt + answer + "\1"
                    if whole.startswith(text) and len(text) < len(whole) and text.startswith(prompt):
                        logits[row, -1, ord(whole[len(text)])] = 9.0
            return logits

    class Tokenizer:
        eos = 1

        def encode(self, text):
            return [ord(c) for c in text]

        def decode(self, ids):
            return "".join(map(chr, ids))

        def pieces(self, ids):
            return list(map(chr, ids))

    config = SimpleNamespace(
        context=200, n_layers=1, n_kv_heads=1, d_head=2, vocab_size=200, d_model=2, n_heads=1, d_mlp=2
    )
    return SimpleNamespace(name="letters", model=Model(), tokenizer=Tokenizer(), config=config)


def test_an_eval_from_prompt_to_grade():
    lm = letters_lm({"The capital of France is": " Paris", "The capital of Italy is": " Paris", "Say": ""})
    samples = (
        Sample("fr", "The capital of France is", ("Paris",), ("Paris", "Rome")),
        Sample("it", "The capital of Italy is", ("Rome",), ("Paris", "Rome")),
        Sample("no", "Say", ("nothing",)),
    )
    found = {r.sample.id: r for r in evaluate(lm, Task("t", samples, max_tokens=10))}
    assert found["fr"].grade.right and found["fr"].completion == " Paris"
    assert found["it"].grade.failure == "another of its kind"
    assert found["no"].grade.failure == "no answer"
    assert [s.text for s in found["fr"].steps] == [*" Paris", "\1"]
    assert all(s.p is not None and s.p > 0.9 and s.top[0][0] == s.text for s in found["fr"].steps)
    assert found["fr"].prompt_steps[0].p is None and len(found["fr"].prompt_steps) == len(
        "The capital of France is"
    )
    assert [r.sample.id for r in evaluate(lm, Task("t", samples), skip={"fr", "no"})] == ["it"]


def test_facts_task_is_fixed_and_answerable():
    task = facts.task(3)
    assert task == facts.task(3) and task != facts.task(3, seed=1)
    assert len({s.id for s in task.samples}) == len(task.samples)
    general = [s for s in task.samples if facts.is_general(s)]
    assert len(general) >= 75 and len(task.samples) - len(general) == 3 * len(facts.group_order()) - 3 * len(
        {s.group for s in general}
    )
    for s in task.samples:
        assert s.prompt.strip() == s.prompt and s.answers[0] in s.options and 2 <= len(set(s.options)) <= 8
        assert grader("starts")(s, f" {s.answers[0]}, and so on").right
        assert not grader("starts")(s, " zzz").right
    with pytest.raises(LabError, match="no samples"):
        facts.task(0, general=0)


def two_models():
    right = [True, False, True, True, False]
    first = [some_result(i) for i in range(5)]
    second = [
        replace(r, model="n", grade=Grade(ok, "because", None if ok else "echo"))
        for r, ok in zip(first, right)
    ]
    return {"m": first, "n": second}


def test_what_the_page_shows():
    results = two_models()
    board = Board(["m", "n"])
    board.show(results)
    assert [r["note"] for r in board.scores.rows if r["label"] == "all"] == ["0 of 5", "3 of 5"]
    assert board.difference.rows[0]["value"] == pytest.approx(-0.6)
    assert "right alone 0 and 3" in board.difference.rows[0]["note"]
    assert {row["failure"]: (row["m"], row["n"]) for row in board.failures.rows}["echo"] == (5, 2)
    assert board.groups.rows == [{"about": "g", "samples": 5, "m": 0.0, "n": 60.0}]
    assert [s["id"] for s in board.reader.samples] == [f"s{i}" for i in range(5)]
    assert board.reader.samples[0]["results"]["n"]["right"] and board.reader.selected == "s0"
    board.reader.selected = "s3"
    board.show({"m": results["m"]})
    assert board.reader.selected == "s3" and board.reader.samples[0]["results"]["n"] is None


@pytest.fixture
def eval_run(tmp_path):
    told = {"kind": "eval", "work": "x:y", "name": "m, n", "created": 0.0, "spec": {"models": ["m", "n"]}}
    (tmp_path / "spec.json").write_text(json.dumps(told))
    (tmp_path / "status.json").write_text(json.dumps({"state": "running", "error": None, "started": 1.0, "process": "none", "pid": 2**22 + 1}))
    appender = jsonl.Appender(tmp_path / work.RESULTS)
    appender.append(some_result(0).to_row())
    appender.close()
    return Run(tmp_path)


def test_a_run_killed_before_its_first_row_of_metrics_is_shown(eval_run):
    board = Board(["m", "n"])
    board.follow(eval_run, lambda: True)
    assert (board.monitor.step, board.monitor.steps, board.monitor.state) == (1, 0, "lost")
    metrics = jsonl.Appender(eval_run.path / "metrics.jsonl")
    metrics.append({"step": 1, "total": 10})
    metrics.close()
    board.follow(eval_run, lambda: True)
    assert board.monitor.steps == 10


@pytest.mark.parametrize("file", [work.RESULTS, "metrics.jsonl", "status.json"])
def test_a_damaged_eval_is_the_monitors_sentence(eval_run, file):
    (eval_run.path / file).write_text("oops\n")
    board = Board(["m", "n"])
    board.follow(eval_run, lambda: True)
    assert file in board.monitor.message


def test_a_button_that_cannot_says_so(eval_run):
    board = Board(["m", "n"])
    for run, sentence in ((None, "No run is shown"), (eval_run, "is not running")):
        board.run = run
        board.monitor._handle_custom_msg({"do": "cancel"}, [])
        assert sentence in board.monitor.message


def test_an_empty_answer_is_a_sentence():
    with pytest.raises(LabError, match="answer is empty"):
        ask(["pocket"], "The capital of France is", " or ")


def test_an_eval_run_resumes_where_it_stopped(tmp_path, monkeypatch):
    class Ctx:
        path = tmp_path
        cancelled = False
        rows: ClassVar[list] = []

        def log(self, step, **values):
            self.rows.append({"step": step, **values})
            self.cancelled = step == 2

        def note(self, text):
            pass

    task = Task("facts", tuple(Sample(f"s{i}", f"Say {i}:", (f"{i}",)) for i in range(5)))
    monkeypatch.setattr(work.facts, "task", lambda **shape: task)
    monkeypatch.setattr(
        work.models, "load", lambda name: letters_lm({f"Say {i}:": f" {i}" for i in range(4)})
    )
    work.work({"models": ["letters"]}, Ctx())
    assert len(read_results(tmp_path / work.RESULTS)) == 2
    ctx = Ctx()
    ctx.rows.clear()
    work.work({"models": ["letters"]}, ctx)
    found = read_results(tmp_path / work.RESULTS)
    assert [r.sample.id for r in found] == [f"s{i}" for i in range(5)]
    assert ctx.rows[-1] == {"step": 5, "model": "letters", "seen": 5, "right": 4, "share": 0.8, "total": 5}
    with pytest.raises(LabError, match="names no model"):
        work.work({}, ctx)
