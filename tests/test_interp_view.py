"""A patching session's widgets hold what the library computes; presets are pairs the model really gets right."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from interp import presets as asking
from interp.patching import run_patched
from interp.presets import CURATED, Preset, fitting, known, presets
from interp.prompts import prepare
from interp.sites import SITES, Patch
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
