"""The pages on circuits: boards and maps filled, and what a person presses in a real browser."""

import pytest
import torch
from browser import notebook
from interp_models import decoder

from interp.circuits.batch import BEHAVIOURS, behaviour, right, suited
from interp.circuits.graph import Graph
from interp.circuits.paths import direct_effects
from interp.circuits.picture import drawn, nodes
from interp.circuits.view import Board
from interp.circuits.walk import Walk, told
from interp.truth import induction
from lab import models
from lab.errors import LabError


@pytest.fixture(scope="module")
def small():
    """The bundled attention-only model: two layers, edges by the hundred."""
    return models.load(str(induction.HOME), dtype=torch.float32)


@pytest.fixture(scope="module")
def pocket():
    return models.load("pocket", dtype=torch.float32)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_behaviours_are_answered_on_both_sides(pocket, small, name):
    lm = small if name == "induction" else pocket
    pairs = behaviour(lm, name, 6)
    assert len(pairs) == 6
    for clean, other, end, answer, wrong in zip(pairs.clean, pairs.corrupted, pairs.ends, pairs.answer, pairs.wrong):
        sides = [(clean[: end + 1].tolist(), int(answer)), (other[: end + 1].tolist(), int(wrong))]
        assert right(lm.model, sides) == [True, True] and answer != wrong and not clean.equal(other)


def test_a_model_that_shows_nothing_is_told_so(small):
    assert suited(small) == "induction"
    with pytest.raises(LabError, match="does not know"):
        behaviour(small, "ioi")
    with pytest.raises(LabError, match="choose one of"):
        behaviour(small, "poetry")


def test_a_board_fills_its_widgets(small):
    board = Board(small, "induction", "counterfactual", "logit_diff", rows=4)
    with pytest.raises(LabError, match="not scored yet"):
        board.measure()
    with pytest.raises(LabError, match="ACDC has not finished"):
        board.circuit("acdc", 10)
    board.score()
    g = board.graph
    assert {n["id"] for n in nodes(g)} == set(g.nodes)
    weights = {(e["from"], e["to"], e.get("port")): e["weight"] for e in board.picture.edges}
    assert weights["embed", "a1.h0", "v"] == pytest.approx(float(board.scores[g.index(("embed", "a1.h0.v"))]))
    assert [abs(w) for w in weights.values()] == sorted((abs(w) for w in weights.values()), reverse=True)
    board.measure()
    assert len(board.faithful.rows) == 14 and "CPR" in board.faithful.title
    board.compare(every=True)
    points = torch.from_numpy(board.scatter.points)
    assert len(points) == g.n_edges and float(torch.corrcoef(points.T)[0, 1]) > 0.9
    board.discover(0.05)
    assert board.search.title.startswith("ACDC kept") and board.greedy.equal(board.circuit("acdc", 0))
    board.ask(board.greedy, ["counterfactual"], ["all", "last"], ["edges"], ["logit_diff", "kl"])
    assert len(board.protocol.rows) == 4 and "as it was found" in board.protocol.title


def test_stopping_keeps_what_is_there(small, monkeypatch):
    monkeypatch.setattr("interp.circuits.edges.TOKENS", 200)  # a few sets a forward, so that there is something to stop
    board = Board(small, "induction", "zero", "probability", "eap", rows=4)
    board.score()
    board.measure(lambda: True)
    assert len(board.faithful.rows) == 2
    board.compare(every=True, stopped=lambda: True)
    measured = torch.from_numpy(board.scatter.points)[:, 0]
    assert 0 < int((~measured.isnan()).sum()) < len(measured)
    board.discover(0.01, lambda: True)
    assert board.search.title.startswith("ACDC stopped at")


def test_edges_into_shared_keys_are_drawn_into_every_head():
    graph = Graph(decoder(1).cfg)
    scores = torch.zeros(graph.n_edges)
    scores[graph.index(("embed", "a1.kv1.k"))] = -2.0
    assert drawn(graph, scores) == [
        {"from": "embed", "to": "a1.h2", "weight": -2.0, "port": "k"},
        {"from": "embed", "to": "a1.h3", "weight": -2.0, "port": "k"},
    ]


def test_a_map_is_the_direct_effect(small):
    walk = Walk(small, "induction", rows=4)
    heat = walk.heat(["logits"], "logits")
    walk.fill(heat, ["logits"])
    want = direct_effects(walk.study) / walk.span
    torch.testing.assert_close(torch.from_numpy(heat.values.copy()), walk.grid(want).float())
    assert walk.strongest(heat)[0] == 1, "the heads that copy are in the second layer"
    assert walk.receivers(1, 2, ["q", "v"]) == ["a1.h2.q", "a1.h2.v"] and told(["a1.h2.q", "a1.h2.v"]) == "queries and values of a1.h2"
    with pytest.raises(LabError, match="Nothing of the head"):
        walk.receivers(1, 2, [])
    into = walk.heat(["a1.h2.k"], "k")
    walk.fill(into, ["a1.h2.k"], through_mlps=True)
    assert torch.from_numpy(into.values.copy())[1].isnan().all(), "nothing of its own layer reaches a head"


@pytest.mark.browser
def test_a_circuit_is_found_and_broken(browser):
    """On pocket: the picture is there at once; a head chosen on Paths gets its readers."""
    with notebook("notebooks/interp/paths.py") as url:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        maps = page.locator(".lw-heatmap")
        maps.nth(1).wait_for(timeout=60_000)
        page.get_by_text("Into queries of", exact=False).first.wait_for(timeout=30_000)
        page.locator(".lw-heatmap .map").first.focus()
        for key in ("ArrowRight", "Enter"):
            page.keyboard.press(key)
        page.get_by_text("Into queries of a6.h3", exact=False).wait_for(timeout=30_000)
        assert errors == []
        page.close()
