"""A model as a graph, and the picture of it."""

from types import SimpleNamespace

import pytest
import torch
from test_widgets_browser import alone

from interp.circuits.graph import Graph
from lab.errors import LabError
from widgets.graph import Graph as Picture


def shape(n_layers=3, n_heads=4, n_kv_heads=4, d_mlp=8):
    return Graph(SimpleNamespace(n_layers=n_layers, n_heads=n_heads, n_kv_heads=n_kv_heads, d_mlp=d_mlp))


def expected_edges(n_layers, n_heads, n_kv_heads, mlp):
    total, senders = 0, 1
    for _ in range(n_layers):
        total += (n_heads + 2 * n_kv_heads) * senders
        senders += n_heads
        total += senders if mlp else 0
        senders += 1 if mlp else 0
    return total + senders


@pytest.mark.parametrize("sizes", [(8, 5, 5, 1), (30, 9, 3, 1), (2, 8, 8, 0), (1, 1, 1, 0)])
def test_counts_and_names(sizes):
    g = shape(*sizes)
    assert g.n_edges == expected_edges(*sizes)
    every = list(g.edges())
    assert len(every) == len(set(every)) == g.n_edges
    for i in torch.randint(g.n_edges, (50,)).tolist():
        assert g.edge(i) == every[i] and g.index(every[i]) == i
    assert set(g.named(g.mask(every[:7]))) == set(every[:7])
    assert g.prune(g.all()).all(), "every edge of the whole model lies on a path"


def test_slices_are_matrices_of_receivers_and_senders():
    g = shape()
    values = torch.arange(g.n_edges)
    for point in g.points:
        part = point.of(values)
        for i, receiver in enumerate(point.receivers):
            for s in range(point.senders):
                assert part[i, s] == g.index((g.senders[s], receiver))
    senders = g.of_senders()
    assert all(g.senders[senders[i]] == edge[0] for i, edge in enumerate(g.edges()))


def test_dead_ends_are_pruned():
    g = shape()
    path = [("embed", "a0.h1.v"), ("a0.h1", "m1"), ("m1", "logits")]
    dead = [("embed", "a0.h2.q"), ("a1.h0", "logits"), ("m0", "a2.h3.k")]
    assert set(g.named(g.prune(g.mask([*path, *dead])))) == set(path)
    assert g.touched(g.mask(path)) == ["embed", "a0.h1", "m1", "logits"]
    assert not g.prune(g.mask(path[:2])).any()


def test_groups_that_share_keys_belong_to_all_their_heads():
    g = shape(n_heads=4, n_kv_heads=2)
    assert g.owners("a1.kv1.k") == ("a1.h2", "a1.h3") and g.owners("a1.h2.q") == ("a1.h2",)
    path = [("embed", "a1.kv1.v"), ("a1.h3", "logits")]
    assert set(g.named(g.prune(g.mask(path)))) == set(path)


def test_nodes_as_edges():
    g = shape()
    kept = g.from_nodes({"embed", "m1"})
    assert {s for s, _ in g.named(kept)} == {"embed", "m1"}
    assert kept.sum() == sum(s in ("embed", "m1") for s, _ in g.edges())


@pytest.mark.parametrize("edge", [("m2", "a1.h0.q"), ("a9.h0", "logits"), ("embed", "a0.h0"), ("logits", "m0")])
def test_edges_that_are_none(edge):
    with pytest.raises(LabError):
        shape().index(edge)


# ---- the picture

NODES = [{"id": "embed", "layer": 0, "column": 1}, {"id": "a", "layer": 1, "column": 0}, {"id": "b", "layer": 1, "column": 2},
         {"id": "logits", "layer": 2, "column": 1}]  # fmt: skip
EDGES = [{"from": "embed", "to": "a", "port": "q", "weight": 0.5}, {"from": "embed", "to": "a", "port": "k", "weight": -2.0},
         {"from": "a", "to": "logits", "weight": 1.0}, {"from": "b", "to": "logits", "weight": float("nan")},
         {"from": "embed", "to": "logits", "weight": 0.01}]  # fmt: skip


def test_picture_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="downwards"):
        Picture(NODES, [{"from": "logits", "to": "a", "weight": 1.0}])
    with pytest.raises(ValueError, match="not among"):
        Picture(NODES, [{"from": "c", "to": "a", "weight": 1.0}])
    with pytest.raises(ValueError, match="same id"):
        Picture([*NODES, NODES[0]], [])
    assert Picture(NODES, EDGES).edges[3]["weight"] is None, "no NaN in a JSON trait"


@pytest.mark.browser
def test_picture_explores_without_python(browser):
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_content(alone(Picture(NODES, EDGES, shown=2, unit="logits"), "graph"))
    page.wait_for_selector(".lw-graph .aside button")
    cut = page.locator(".lw-graph .cut b")
    assert cut.inner_text().startswith("2 of 4, |weight| ≥ 1 "), "NaN is no edge, the strongest come first"
    page.locator(".map").focus()
    page.keyboard.press("+")
    assert cut.inner_text().startswith("3 of 4, |weight| ≥ 0.5 ")
    for key in ("ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("state.selected") == ["a"], "b has no edge and is passed over"
    assert "embed to k" in page.locator(".aside").inner_text() and "−2" in page.locator(".aside").inner_text()
    page.locator(".aside button", has_text="embed to k").click()
    assert page.evaluate("state.selected") == ["embed", "a", "k"]
    page.locator(".map").focus()
    page.keyboard.press("Escape")
    assert page.evaluate("state.selected") == []
    page.locator("input[type=range]").evaluate("x => { x.value = 0; x.dispatchEvent(new Event('input')) }")
    assert page.evaluate("state.shown") == 1 and errors == []
    page.close()
