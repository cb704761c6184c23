"""A patching session's widgets hold what the library computes; presets are pairs the model really gets right."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from interp import presets as asking
from interp.ablation import WRITES, Treatment, treat
from interp.jobs import Jobs
from interp.patching import attention_patterns, run_patched
from interp.presets import CURATED, Preset, fitting, known, presets
from interp.prompts import prepare
from interp.sites import SITES, Intervention, Patch
from interp.sweep import sweep
from interp.view import Board
from lab.errors import LabError
from tests.interp_models import decoder, language_model, word_tokenizer
from widgets.patched import Patched, key

PROMPTS = ("the Eiffel tower stands in", "the Tokyo tower stands in", "Paris", "Rome")


@pytest.fixture
def lm(tmp_path):
    return language_model(tmp_path)


@pytest.fixture
def board(lm):
    return Board(lm, prepare(lm, *PROMPTS))


def test_the_first_map_is_the_estimate_and_then_the_sweep(board, lm):
    heat = board.map("resid_pre")
    np.testing.assert_allclose(heat.values, board.estimates["resid_pre"].numpy(), rtol=1e-6)
    assert heat.col_labels == ["the", "Eiffel", "tower", "stands", "in"] and heat.col_labels2[1] == "Tokyo"
    board.sweep("resid_pre")
    *_, exact = sweep(lm.model, board.pair)
    np.testing.assert_allclose(heat.values, exact.share.numpy(), atol=1e-6)
    assert "exact" in heat.value_title and "correlates" in heat.value_title
    one = board.panel.cells["resid_pre:2,1"]
    run = run_patched(lm, board.pair, [Patch("resid_pre", 2, 1)], new_tokens=0)
    assert [p for _, p in one["bars"]] == pytest.approx(run.answer.probs, abs=1e-6)
    assert f"{run.share:.0%}" in one["text"] and len(board.panel.cells) == 15


def test_a_cell_that_is_the_same_in_both_runs_is_not_said_to_have_fired(board):
    board.sweep("resid_pre")
    assert "bit for bit" in board.panel.cells["resid_pre:1,0"]["text"]  # before the first difference
    assert "fired once" in board.panel.cells["resid_pre:1,1"]["text"]


@pytest.mark.parametrize("site", SITES)
def test_every_site_patches_and_sweeps(board, lm, site):
    board.sweep(site)
    cell = board.first_cell(site)
    board.patch(site, [cell])
    shown, known_alone = board.panel.shown, board.panel.cells[key(site, [cell])]
    assert shown["key"] == key(site, [cell]) and shown["title"] == known_alone["title"]
    assert shown["text"] == known_alone["text"]
    assert shown["lens"]["tops"][1][-1][0] == shown["bars"][0][0] and len(shown["lens"]["tops"][0]) == 4
    assert len(shown["lens"]["after"]) == 2 and len(shown["lens"]["rows"]) == lm.config.n_layers + 1
    assert shown["lens"]["after"][0][-1] == pytest.approx(dict(shown["bars"]).get("Paris", shown["lens"]["after"][0][-1]))


def test_a_saved_page_knows_the_continuations(board, lm):
    board.sweep("resid_pre")
    board.write_out("resid_pre")
    written = {k: c for k, c in board.panel.cells.items() if "said" in c}
    assert written
    for name, cell in written.items():
        row, column = map(int, name.split(":")[1].split(","))
        run = run_patched(lm, board.pair, [Patch("resid_pre", row, column)], new_tokens=8)
        assert cell["said"] == lm.tokenizer.decode(run.answer.continuation)


def test_a_stopped_sweep_says_so_and_keeps_its_cells(board, monkeypatch):
    monkeypatch.setattr("interp.sweep.TOKENS_PER_CHUNK", 6)
    turns = iter(range(10**6))
    board.sweep("mlp_out", stopped=lambda: next(turns) > 8)
    heat = board.map("mlp_out")
    assert "cancelled at" in heat.value_title
    assert 0 < np.isnan(heat.values).sum() < heat.values.size
    assert len(board.panel.cells) == int((~np.isnan(heat.values)).sum())


def test_served_choices_are_answered_and_only_the_newest_counts(lm):
    board = Board(lm, prepare(lm, *PROMPTS), live=True)
    heat = board.map("resid_pre")
    for cells in ([[0, 1]], [[1, 1]], [[1, 1], [2, 1]]):
        heat.selected = cells
    ended = threading.Event()
    thread = threading.Thread(target=board.serve, args=(ended.is_set,))
    thread.start()
    wanted, until = key("resid_pre", [[1, 1], [2, 1]]), time.monotonic() + 20
    while board.panel.shown.get("key") != wanted or "lens" not in board.panel.shown:
        assert time.monotonic() < until
        time.sleep(0.01)
    ended.set()
    thread.join()
    assert len(board.panel.shown["receipts"]) == 2


def test_a_cell_without_a_partner_gets_a_sentence(lm):
    board = Board(lm, prepare(lm, "the Eiffel tower stands in", "the great Tokyo tower stands in", "Paris", "Rome"))
    board.patch("resid_pre", [[0, 1]])
    assert "no partner" in board.panel.shown["text"]
    with pytest.raises(LabError, match="equally many tokens"):
        board.map("pattern")


def test_patched_widget_is_plain_json():
    panel = Patched(["a"], {"bars": [(" x", np.float32(0.5))], "said": "y"})
    panel.show({"key": "a:0,1", "bars": [(" x", float("nan"))]})
    panel.know({"a:0,1": {"text": "t"}})
    panel.know({"a:0,2": {"text": "u"}})
    assert panel.before["bars"] == [[" x", 0.5]] and panel.shown["bars"] == [[" x", None]]
    assert set(panel.cells) == {"a:0,1", "a:0,2"}
    assert key("a", [[2, 0], [1, 3]]) == "a:1,3 a:2,0"


# ---- presets


def test_only_pairs_the_model_ranks_first_are_presets(lm):
    tok = lm.tokenizer

    def says(prompt: str) -> str:
        return tok.pieces([int(lm.model(torch.tensor([tok.encode(prompt)]))[0, -1].argmax())])[0]

    texts = ["the Eiffel tower stands in", "the Tokyo tower stands in", "a great Tokyo tower by", "the Rome", "on the Paris city ."]
    right = [Preset(f"{a}|{b}", a, b, says(a), says(b)) for a in texts for b in texts if says(a) != says(b)]
    wrong = [Preset("wrong", p.clean, p.corrupted, p.wrong, p.answer) for p in right]
    long = [Preset("long", texts[0], texts[1], "New York", "Paris")]
    found = known(lm, [*wrong, *right, *long])
    assert right and {p for p, _ in found} == set(right)
    equal = [pair.equal_length for _, pair in found]
    assert equal == sorted(equal, reverse=True)


def test_of_one_title_the_equally_long_wording_is_taken(lm):
    pairs = [("the Rome", "the great tall Paris"), ("the tall Rome", "the great Paris"), ("a tall Rome", "a tall Paris")]
    candidates = [Preset("one", a, b, "in", "by") for a, b in pairs] + [Preset("two", "the", "a great", "in", "by")]
    assert fitting(lm, candidates) == [candidates[1], candidates[3]]


def test_a_model_that_knows_nothing_has_no_presets(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "CURATED", CURATED[:2])
    monkeypatch.setattr(asking, "tabled", lambda: iter(CURATED[2:4]))
    model = decoder()
    assert presets(SimpleNamespace(name="r", model=model, config=model.cfg, tokenizer=word_tokenizer(tmp_path))) == []


@pytest.mark.smollm2
def test_smollm2_gets_every_curated_pair_right():
    from lab import models

    lm = models.load("smollm2-135m")
    found = presets(lm)
    assert {preset.title for preset in found} == {preset.title for preset in CURATED}
    assert found[0].title == "Eiffel Tower moves to Tokyo" and found[0].corrupted.startswith("The Eiffel Tower is")
    pair = prepare(lm, found[0].clean, found[0].corrupted, found[0].answer, found[0].wrong)
    assert pair.equal_length
    # one activation in the middle of the model moves the Eiffel Tower
    run = run_patched(lm, pair, [Patch("resid_pre", 12, 2)])
    assert lm.tokenizer.decode(run.answer.continuation).startswith(" Tokyo, Japan") and run.share > 0.9


# ---- other interventions, finer maps


OTHERS = ("a great Rome stands in", "the tall Paris tower stands in", "a Eiffel city on")


@pytest.mark.parametrize("into", ["corrupted", "clean"])
@pytest.mark.parametrize("write", WRITES)
def test_a_board_of_every_intervention_shows_what_it_computes(lm, into, write):
    given = prepare(lm, *PROMPTS)
    treatment = Treatment(into, write, OTHERS)
    board = Board(lm, given, treatment=treatment)
    for name in ("mlp_out", "z", "z@"):
        board.sweep(name)
        cell = board.first_cell(name)
        board.patch(name, [cell])
        assert board.panel.shown["text"] == board.panel.cells[key(name, [cell])]["text"]
        assert ("returns" in board.panel.shown["text"]) == (into == "corrupted")
        runs, base = treat(lm, given, treatment, [name.removesuffix("@")])
        run = run_patched(lm, runs, board.patches(name, [cell]), new_tokens=0, base=base)
        assert board.maps[name].values[cell[0], cell[1]] == pytest.approx(run.share, abs=1e-6)
    usual = into == "corrupted" and write == "copy"
    assert (WRITES[write] in board.map("z").value_title) != usual
    notes = [row["note"] for row in board.strips().rows]
    assert ["this run is patched" in note for note in notes] == [into == "clean", not usual and into == "corrupted"]
    assert ("pattern" in board.maps) == (write in ("copy", "zero"))


def test_heads_at_every_position_are_named_and_found(board, lm):
    heat = board.map("z@")
    assert heat.shape == [12, 5] and heat.row_labels[5] == "1.1" and board.title("z@", [[5, 2]]).startswith("Patched: layer 1, head 1, position 2")
    assert board.patches("z@", [[5, 2]]) == [Patch("z", 1, 2, 1)] and board.cost("z@").forwards == 60
    assert board.patches("k@", [[5, 2]]) == [Patch("k", 2, 2, 1)]
    np.testing.assert_allclose(heat.values.reshape(3, 4, 5).sum(2), board.map("z").values, atol=1e-5)


def test_neurons_are_swept_where_the_estimate_is_largest(board, monkeypatch):
    monkeypatch.setattr("interp.setting.NEURONS", 7)
    board.sweep("neuron")
    heat = board.map("neuron")
    found = {(r, c) for r, c in np.argwhere(~np.isnan(heat.values)).tolist()}
    strongest = board.estimates["neuron"].abs().flatten().topk(7).indices.tolist()
    assert found == {divmod(i, 40) for i in strongest} and "7 strongest neurons" in heat.value_title
    assert board.title("neuron", [[1, 17]]) == "Patched: layer 1, neuron 17"


def test_the_attention_of_the_patched_run_follows_the_choice(board):
    widget = board.attention(2, "patched", 1)
    before = widget.data
    board.patch("q", [[2, 1]])
    run = Intervention(board.patches("q", [[2, 1]]), board.base.clean, board.pair.alignment)
    expected = attention_patterns(board.lm, board.pair.corrupted_ids, 2, run.hooks)
    assert widget.data != before and widget.data == expected.numpy().astype("<f2").tobytes()
    still = board.attention(2, "clean", 1)
    board.patch("q", [[2, 0]])
    assert still.data == attention_patterns(board.lm, board.given.clean_ids, 2).numpy().astype("<f2").tobytes()


def test_a_long_prompt_is_sampled_and_told_apart_by_head_alone(tmp_path):
    lm = language_model(tmp_path, context=512, n_layers=6)
    words = " ".join(["the great tower stands in"] * 99)
    pair = prepare(lm, f"Eiffel {words}", f"Tokyo {words}", "Paris", "Rome")
    assert len(pair.alignment) == 496
    board = Board(lm, pair, step=4)
    assert "z@" not in board.maps and "pattern" not in board.maps and board.cost("resid_pre").forwards == 2 * 496
    board.step = 5
    turns = iter(range(100))
    board.sweep("resid_pre", stopped=lambda: next(turns) > 2)
    assert np.isnan(board.map("resid_pre").values[1:5]).all()
    for name, sentence in (("z@", "position by position up to 64"), ("pattern", "no estimate of this site")):
        with pytest.raises(LabError, match=sentence):
            board.map(name)


def test_memory_is_asked_for_before_it_is_taken(lm, monkeypatch):
    monkeypatch.setattr("interp.headsweep.free_bytes", lambda device: 1000)
    with pytest.raises(LabError, match="Keeping every activation of these prompts needs about"):
        Board(lm, prepare(lm, *PROMPTS))


def test_jobs_run_once_one_after_another_and_stop_when_told():
    ran, ended = [], threading.Event()

    def run(name, stopped):
        ran.append(name)
        while name == "slow" and not stopped():
            time.sleep(0.005)

    jobs = Jobs(run)
    for name in ("slow", "slow", "b", "c"):
        jobs.ask(name)
    jobs.cancel("b")
    thread = threading.Thread(target=jobs.work, args=(ended.is_set,))
    thread.start()
    until = time.monotonic() + 10
    while ran != ["slow"] and time.monotonic() < until:
        time.sleep(0.005)
    jobs.cancel("slow")
    jobs.ask("c")
    jobs.ask("b", again=True)
    while ran != ["slow", "c", "b"] and time.monotonic() < until:
        time.sleep(0.005)
    ended.set()
    thread.join()
    assert ran == ["slow", "c", "b"]
