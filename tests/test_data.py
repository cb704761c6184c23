"""Facts, generated tasks, packed streams and the mixture: nothing held out is ever told, steps repeat exactly."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import paths
from lab.data import corpora, extract, facts, ioi, packed, presets, repeats, sums, templated
from lab.data.mixture import Mixture
from lab.errors import LabError
from lab.models import Tokenizer

TOKENIZER = Tokenizer(paths.MODELS / "pocket")
MARK = TOKENIZER.eos
assert MARK is not None
settings.register_profile("data", deadline=None)  # a busy machine is no failure
settings.load_profile("data")


@given(st.sampled_from(facts.every_fact()))
def test_every_fact_is_trained_and_scored_in_different_phrasings(fact):
    held, trained = set(facts.held_out(fact)), set(facts.trained(fact))
    assert len(held) == facts.HELD_OUT and not held & trained
    assert len(held | trained) == len(facts.PHRASINGS[fact.relation])


def test_training_pages_never_tell_what_is_held_out():
    for page in itertools.islice(templated.pages("sums", 3), 2_000):
        assert not sums.mentions_held_out(page), page
    rng = random.Random(0)
    for _ in range(2_000):
        item = ioi.draw(rng, held=False)
        assert not ioi.is_held_out(item.template, item.first, item.second)


def test_corpora_that_tell_a_held_out_fact_are_noticed():
    told = corpora.leaks({"Paris is the capital of France", "The symbol for gold is Au"})
    assert told("It is known that paris is the\ncapital of France, and more.")
    assert not told("It is known that Paris is the capital of Texas.")


def test_sentences_of_facts_come_only_from_trained_phrasings():
    held = facts.held_out_sentences()
    assert len(held) > 15_000
    assert not any(s in held for s in itertools.islice(facts.sentences(random.Random(5)), 5_000))


@pytest.mark.parametrize(
    "relation, subject, answer",
    [
        ("capital", "France", "Paris"),
        ("landmark", "the Eiffel Tower", "Paris"),
        ("currency", "Japan", "yen"),
        ("city", "Lyon", "France"),
        ("symbol", "gold", "Au"),
        ("number", "oxygen", "8"),
        ("language", "Brazil", "Portuguese"),
        ("occupation", "Galileo Galilei", "astronomer"),
    ],
)
def test_tables_say_what_is_known(relation, subject, answer):
    assert facts.Fact(relation, subject, answer) in facts.facts(relation)


def test_prompts_begin_with_a_capital_and_pairs_differ():
    prompt = facts.prompt(facts.Fact("landmark", "the Eiffel Tower", "Paris"), 0)
    assert (prompt.text, prompt.answer) == ("The Eiffel Tower is located in the city of", " Paris")
    pairs = facts.pairs("landmark")
    assert pairs == facts.pairs("landmark") and all(a.answer != b.answer for a, b in pairs)
    with pytest.raises(LabError, match="no relation"):
        facts.facts("colour")


@given(st.integers(0, 99), st.integers(0, 99))
def test_sums_are_right_and_held_out_in_both_orders(a, b):
    assert sums.is_held_out(a, b) == sums.is_held_out(b, a)
    for template in sums.TEMPLATES:
        shown, answer = sums.prompt(a, b, template)
        assert shown + answer == sums.sentence(a, b, template) and answer.strip() == str(a + b)
        assert sums.mentions_held_out(f"and so {a} + {b} = {a + b}, as we saw") == sums.is_held_out(a, b)


def test_an_eighth_of_the_sums_is_held_out():
    assert 0.10 < len(sums.pairs(True)) / 10_000 < 0.15


@given(st.integers(0, 10_000))
def test_indirect_objects_name_the_other_person(seed):
    item = ioi.draw(random.Random(seed), held=bool(seed % 2))
    assert ioi.is_held_out(item.template, item.first, item.second) == bool(seed % 2)
    assert {item.subject, item.receiver} == {item.first, item.second}
    assert item.swapped.answer == f" {item.subject}" and item.swapped.swapped == item


def test_lists_ask_for_the_word_that_followed():
    for prompt, answer in repeats.prompts(200):
        words = prompt.split()
        assert words[words.index(words[-1]) + 1] == answer.strip()


def test_demonstrated_answers_are_one_token_and_digits_stand_alone():
    for fact in facts.facts("landmark"):
        if " " not in fact.answer and fact.answer.isalpha():
            TOKENIZER.single(f" {fact.answer}")
    for name in ioi.NAMES:
        TOKENIZER.single(f" {name}")
    assert TOKENIZER.pieces(TOKENIZER.encode("12 + 345"))[-3:] == ["3", "4", "5"]
    assert TOKENIZER.vocab_size == 4096


@settings(max_examples=30)
@given(st.text(max_size=200))
def test_the_tokenizer_loses_nothing(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_streams_survive_the_disk_and_notice_damage(tmp_path):
    stream = packed.tokenise(TOKENIZER.inner, templated.pages("ioi", 0), MARK, 5_000)
    assert len(stream) == 5_000 and (stream.tokens[stream.starts] == MARK).all()
    path = tmp_path / "a.npy"
    stream.save(path)
    assert np.array_equal(packed.Stream.load(path, MARK).tokens, stream.tokens)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(LabError, match="damaged"):
        packed.Stream.load(path, MARK)


@settings(max_examples=20)
@given(st.integers(0, 1_000), st.integers(1, 40), st.integers(0, 5))
def test_a_step_sees_the_same_rows_whenever_it_is_drawn(step, rows, seed):
    streams = {k: packed.Stream(np.arange(600, dtype=np.int32) % 7 + i * 10, i * 10) for i, k in enumerate("ab")}
    mixture = Mixture(streams, {"a": 3.0, "b": 1.0}, context=16, seed=seed)
    batch = mixture.batch(step, rows)
    assert batch.shape == (rows, 17)
    assert (Mixture(streams, {"a": 3.0, "b": 1.0}, 16, seed).batch(step, rows) == batch).all()
    assert ((batch < 7).all(1) | (batch >= 10).all(1)).all()  # a row never crosses from one domain into another


def test_generated_pages_start_their_windows():
    held, _ = presets.streams("mixed", TOKENIZER.inner, MARK, 40_000, 0)
    mixture = Mixture(held, {"facts": 1.0}, context=32, seed=0)
    stream = held["facts"]
    starts = set(stream.starts) | {s + 1 for s in stream.starts}
    assert set(mixture.rows(3, 64)) <= starts


def test_mixture_and_presets_say_what_is_wrong(tmp_path):
    short = {"a": packed.Stream(np.zeros(20, np.int32), 0)}
    with pytest.raises(LabError, match="too few"):
        Mixture(short, {"a": 1.0}, 16, 0)
    with pytest.raises(LabError, match="empty"):
        Mixture(short, {"a": 0.0}, 16, 0)
    with pytest.raises(LabError, match="no training set"):
        presets.weights("everything")
    (tmp_path / "t.txt").write_text("short")
    with pytest.raises(LabError, match="at least 2,000"):
        presets.streams(f"file:{tmp_path}/t.txt", TOKENIZER.inner, MARK, 1_000, 0)


def test_missing_corpora_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    with pytest.raises(LabError, match="prose corpus"):
        next(corpora.load("prose"))


def test_cleaning_and_reading(tmp_path):
    assert corpora.clean("x" * 10) == "" and corpora.clean("é" * 100) == ""
    a, b = sums.pairs(True)[500]
    assert corpora.clean(f"A long enough sentence that says {a} + {b} = {a + b} to everyone.") == ""
    assert corpora.clean("A line  \r\nthat ends\n\n\n\nin blanks, and is long enough") == (
        "A line\nthat ends\n\nin blanks, and is long enough"
    )
    assert extract.unwrap("one\ntwo\n\n  code\n  more") == "one two\n\n  code\n  more"
    (tmp_path / "p.html").write_text("<html><head>no</head><body><p>Yes &amp; <b>no</b></p><p>two</p></body></html>")
    assert list(extract.html("*.html")(tmp_path)) == ["Yes & no\ntwo"]
