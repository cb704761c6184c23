"""Changing a fact: batches, writing and gates against their definitions; edits of pocket, whose facts are known."""

import pytest
import torch

from interp.edit import landmarks, locate, measure, view, write
from interp.edit.rows import Rows, ask, mentions
from interp.sites import SITES
from lab import models
from lab.errors import LabError
from tests.interp_models import language_model


@pytest.fixture
def small(tmp_path):
    return language_model(tmp_path, n_layers=3)


@pytest.fixture(scope="module")
def pocket():
    return models.load("pocket")


@pytest.fixture(scope="module")
def found(pocket):
    return view.located(pocket)


PROMPTS = ["the Eiffel tower stands in", "a tall tower in New York stands on the great city of", "Rome in"]


def test_a_padded_batch_says_what_each_prompt_says_alone(small):
    rows = Rows(small, PROMPTS)
    logits = rows.logits()
    for i, text in enumerate(PROMPTS):
        alone = small.model(torch.tensor([small.tokenizer.encode(text)]))[0, -1]
        torch.testing.assert_close(logits[i], alone)
    said = ask(small, PROMPTS, watch=[3, 4, 5])
    assert said.top.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(said.watched.double(), logits.softmax(-1)[torch.arange(3), [3, 4, 5]], atol=1e-6, rtol=0)
    with pytest.raises(LabError, match="empty"):
        Rows(small, ["the", ""])


def test_mentions_find_the_subject_wherever_it_is_spelled(pocket):
    tokenizer = pocket.tokenizer
    text = "The Eiffel Tower is tall. Did you see the Eiffel Tower? An Eiffel bridge is not it."
    at = mentions(tokenizer, text, "the Eiffel Tower")
    pieces = tokenizer.pieces(tokenizer.encode(text))
    assert "".join(pieces[i] for i in at).split() == ["Eiffel", "Tower", "Eiffel", "Tower"]
    assert mentions(tokenizer, text, "the Louvre") == []


@pytest.mark.parametrize("place", write.PLACES)
def test_values_are_written_where_the_place_says_and_nowhere_else(small, place):
    subject, prompts = "Eiffel tower", ["the great Eiffel tower stands in the city", "a tall Rome tower in", "on Eiffel tower in"]
    rows = Rows(small, prompts, [subject] * 3)
    gate = write.Gate((1, 2), 0.3)
    values = {(1, 2): torch.randn(3, 6, dtype=torch.float64), (2, 0): torch.randn(3, 6, dtype=torch.float64)}
    plain: dict[str, torch.Tensor] = {}
    names = [SITES["z"].name(1), SITES["z"].name(2), SITES["pattern"].name(1)]
    rows.logits({n: lambda x, name: plain.__setitem__(name, x) for n in names})
    writer = write.Writer(rows, values, place, gate)
    seen: dict[str, torch.Tensor] = {}
    inner = dict(writer.hooks)
    hooks = {n: (lambda x, name, h=h: seen.__setitem__(name, h(x, name)) or seen[name]) for n, h in inner.items() if "z" in n}
    rows.logits({**inner, **hooks})

    spelled = torch.tensor([[False, False, True, True] + [False] * 4, [False] * 8, [False, True, True] + [False] * 5])
    paid = (plain[names[2]][:, 2] * spelled[:, None, : rows.tokens.shape[1]]).sum(-1)
    at = torch.arange(rows.tokens.shape[1])[None]
    wanted = {
        "reads": (paid >= 0.3) & ~spelled[:, : rows.tokens.shape[1]],
        "mentioned": torch.stack([at[0] > 3, at[0] < 0, at[0] > 2]),
        "always": torch.ones(3, rows.tokens.shape[1], dtype=torch.bool),
        "last": at == rows.ends[:, None],
    }[place]
    assert torch.equal(writer.written, wanted)
    for (layer, head), value in values.items():
        z = seen[SITES["z"].name(layer)][:, :, head]
        torch.testing.assert_close(z[wanted], value[:, None].expand_as(z)[wanted])
    first = plain[SITES["z"].name(1)]
    torch.testing.assert_close(seen[SITES["z"].name(1)][:, :, 2][~wanted], first[:, :, 2][~wanted])
    torch.testing.assert_close(seen[SITES["z"].name(1)][:, :, :2], first[:, :, :2])  # other heads of the layer


def test_a_writer_refuses_what_it_cannot_do(small):
    rows = Rows(small, PROMPTS)
    value = {(0, 1): torch.zeros(3, 6)}
    with pytest.raises(LabError, match=r"Head 0\.1 works before head 1\.0"):
        write.Writer(rows, value, "reads", write.Gate((1, 0), 0.5))
    with pytest.raises(LabError, match="No head"):
        write.Writer(rows, {}, "always")
    with pytest.raises(LabError, match="no place"):
        write.Writer(rows, value, "sometimes")


def test_effects_are_single_patches_at_that_token(pocket, found):
    mark, pair = locate.pairs(pocket, found.judge, found.marks)[0]
    assert pair.corrupted_ids != pair.clean_ids and pair.answer_id != pair.wrong_id
    share = locate.effects(pocket, pair, mark.subject)
    clean, corrupted = (Rows(pocket, [text]) for text in (pair.clean, pair.corrupted))
    kept: dict[str, torch.Tensor] = {}
    ends = [clean.logits({SITES["z"].name(5): lambda x, n: kept.__setitem__(n, x)})[0], corrupted.logits()[0]]
    ends = [float(x[pair.answer_id] - x[pair.wrong_id]) for x in ends]
    for head in range(pocket.config.n_heads):
        value = {(5, head): clean.last(kept[SITES["z"].name(5)])[:, head]}
        logits = corrupted.logits(write.Writer(corrupted, value, "last").hooks)[0]
        exact = (float(logits[pair.answer_id] - logits[pair.wrong_id]) - ends[1]) / (ends[0] - ends[1])
        assert float(share[5, head]) == pytest.approx(exact, abs=0.03)  # bf16, rows of another batch


def test_judged_landmarks_take_no_part_in_choosing_heads(pocket, monkeypatch):
    asked = []
    monkeypatch.setattr(view, "pairs", lambda lm, marks, others: asked.extend([*marks, *others]) or [])
    with pytest.raises(LabError, match="no two landmarks"):
        view._measured(pocket)
    choose, judge = landmarks.split(landmarks.known(pocket, view.ASKED))
    assert judge and set(asked) == set(choose)


def test_all_heads_together_are_enough_and_one_is_not(pocket, found):
    pairs = locate.pairs(pocket, found.judge, found.marks)[:6]
    every = [(i, h) for i in range(pocket.config.n_layers) for h in range(pocket.config.n_heads)]
    whole, one = locate.together(pocket, pairs, every), locate.together(pocket, pairs, found.heads[:1])
    assert whole.restored.mean() > 0.9 and whole.lost.mean() > 0.9
    assert one.restored.mean() < 0.5
    assert found.curve[len(found.heads)]["restored"][0] >= locate.ENOUGH


def test_pocket_moves_landmarks_in_phrasings_that_chose_nothing(pocket, found):
    assert len(found.marks) >= 30, "pocket is trained on these"
    marks = found.judge[:6]
    cities = landmarks.targets(found.marks, marks, 1)
    prompts = measure.answered(pocket, marks)
    trials = {}
    for place in ("reads", "always"):
        editor = write.Editor(pocket, found.marks, found.heads, found.gate, place, found.donors)
        trials[place] = measure.moves(pocket, editor, prompts, cities)
    assert measure.moved(trials["reads"])[0] >= 0.8
    assert all(t.before == pocket.tokenizer.single(f" {t.city}") for t in trials["reads"])
    plan = [(mark, cities[mark][0]) for mark in marks]
    questions = landmarks.unrelated(pocket, 40)
    reads, always = (
        write.Editor(pocket, found.marks, found.heads, found.gate, place, found.donors) for place in ("reads", "always")
    )
    assert measure.changed(measure.bystanders(pocket, reads, plan, questions, mention=False))[0] == 0
    assert measure.changed(measure.bystanders(pocket, always, plan, questions, mention=False))[0] > 0.3
    quiet = measure.losses(pocket, reads, plan, view.plain_text(4), mention=False)
    assert quiet.ratio()[0] == pytest.approx(1, abs=0.01)
    assert measure.losses(pocket, always, plan, view.plain_text(4), mention=False).ratio()[0] > 1.2


def test_the_edited_model_goes_on_with_the_other_city(pocket, found):
    mark = found.mark("the Eiffel Tower")
    city = next(c for c in ("Rome", "London") if c in found.cities)
    editor = write.Editor(pocket, found.marks, found.heads, found.gate, "reads", found.donors)
    said = view.Said(pocket, editor, mark, city, landmarks.sentence(landmarks.CHOOSING[mark.right[0]], mark.subject))
    assert said.plain.strip().startswith("Paris") and said.said.strip().startswith(city)
    assert said.written and said.mentions
    silent = view.Said(pocket, editor, mark, city, "The capital of Japan is")
    assert silent.said == silent.plain and not silent.written
    whole = landmarks.sentence(landmarks.CHOOSING[0], mark.subject)
    # the cache decodes what running everything again gives
    rows = Rows(pocket, [whole], [mark.subject])
    first = rows.logits(editor.writer(rows, [city]).hooks)[0].argmax()
    again = Rows(pocket, [whole + pocket.tokenizer.decode([int(first)])], [mark.subject])
    second = again.logits(editor.writer(again, [city]).hooks)[0].argmax()
    assert editor.continue_(whole, mark.subject, city, 2) == [int(first), int(second)]


def test_shares_come_with_intervals_over_facts():
    value, low, high = measure.share([True] * 5 + [False] * 5, list("aaaaabbbbb"))
    assert value == 0.5 and low == 0 and high == 1  # two facts, all or nothing
    value, low, high = measure.share([True, False] * 50, [str(i) for i in range(100)])
    assert value == 0.5 and 0.38 < low < 0.45 and 0.55 < high < 0.62


def test_a_model_that_knows_no_landmark_says_so(small):
    with pytest.raises(LabError, match="does not know"):
        landmarks.need(landmarks.known(small, 0), "random")
    with pytest.raises(LabError, match="No known landmark stands in Atlantis"):
        write.Donors(small, []).of("Atlantis")


@pytest.mark.smollm2
def test_the_recorded_heads_of_smollm2_say_another_city():
    lm = models.load("smollm2-135m")
    found = view.located(lm)
    assert found.record is not None and len(found.marks) >= 30
    mark = found.mark("the Eiffel Tower")
    editor = write.Editor(lm, found.marks, found.heads, found.gate, "reads", found.donors)
    rows = [r for r in view.phrasing_rows(lm, editor, mark, "Rome") if r["phrasing"] == "held out" and r["before"] == " Paris"]
    assert len(rows) >= 6 and sum(r["outcome"] == "moved" for r in rows) >= 0.8 * len(rows)
