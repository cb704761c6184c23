"""Attribution graphs: edges add up exactly, agree with derivatives and with the model, and pruning keeps what it says."""

from types import SimpleNamespace

import pytest
import torch

from interp.describe.reading import text_for
from interp.features import Dictionary, Shape
from interp.graphs.attribute import attribute, bundle
from interp.graphs.check import predicted, turned_off
from interp.graphs.prune import prune, scores
from interp.graphs.view import around, checked, labels, picture
from lab import models
from lab.errors import LabError
from tests.interp_models import decoder, language_model


def made(model, kind: str = "topk", d_dict: int = 12, k: int = 3) -> list[Dictionary]:
    """Random transcoders: they imitate badly, and the errors have to make up for it."""
    out = []
    for layer in range(model.cfg.n_layers):
        d = Dictionary(Shape(kind, model.cfg.d_model, model.cfg.d_model, d_dict, k, layer, "transcoder", "random"))
        out.append(d.init_weights(torch.seed() % 2**31).requires_grad_(False))
        for p in (out[-1].b_enc, out[-1].b_dec):
            p.copy_(0.3 * torch.randn_like(p))
    return out


def whole(lm, tokens, dictionaries, features=10_000, **more):
    *_, (done, graph) = attribute(lm, tokens, dictionaries, features, **more)
    assert done == 1.0
    return graph


@pytest.mark.parametrize("more", [{}, {"qk_norm": True, "tied": False}, {"n_heads": 4, "n_kv_heads": 4}])
def test_what_flows_into_a_node_adds_up_to_it(tmp_path, more):
    lm = SimpleNamespace(**vars(language_model(tmp_path)) | {"model": (m := decoder(**more)), "config": m.cfg})
    graph = whole(lm, [1, 5, 7, 8, 9], made(m), dtype=torch.float64)
    rows = graph.find("feature") + graph.find("logit")
    assert graph.traced[rows].all() and 0 < len(graph.find("feature")) <= 3 * 5 * 3
    assert torch.allclose((graph.edges.sum(1) + graph.constant)[rows], graph.target[rows], atol=1e-10)
    logits = m(torch.tensor([[1, 5, 7, 8, 9]]))[0, -1]
    ids = [graph.nodes[i].index for i in graph.find("logit")]
    assert torch.allclose(graph.target[graph.find("logit")], (logits - logits.mean())[ids], atol=1e-10)


def test_edges_run_forward_and_back_in_time(tmp_path):
    lm = language_model(tmp_path)
    graph = whole(lm, [1, 5, 7, 8], made(lm.model), dtype=torch.float64)
    for target, source in graph.edges.nonzero().tolist():
        a, b = graph.nodes[source], graph.nodes[target]
        assert a.layer < b.layer and a.position <= b.position


def test_an_edge_is_the_derivative_with_the_rest_held(tmp_path):
    """One feature's write made larger by a little, patterns, norms and other MLPs held: a finite difference."""
    lm = language_model(tmp_path)
    dictionaries, tokens = made(lm.model), [1, 5, 7, 8]
    graph = whole(lm, tokens, dictionaries, dtype=torch.float64)
    kept: dict[str, torch.Tensor] = {}
    held = [n for n in lm.model.hook_names() if n.endswith(("hook_pattern", "hook_scale", "hook_mlp_out"))]
    lm.model(torch.tensor([tokens]), hooks=dict.fromkeys(held, lambda a, n: kept.update({n: a})))
    source = next(i for i in graph.find("feature") if graph.nodes[i].layer == 0)
    node = graph.nodes[source]

    def run(extra: float):
        hooks = {n: (lambda a, n: kept[n]) for n in held}

        def write(a, n):
            out = kept[n].clone()
            out[0, node.position] += extra * graph.value[source] * dictionaries[0].W_dec[node.index]
            return out

        hooks["blocks.0.hook_mlp_out"] = write
        seen = {}
        logits = lm.model(torch.tensor([tokens]), hooks=hooks | {"blocks.2.ln2.hook_normalized": lambda a, n: seen.update({n: a})})
        return seen["blocks.2.ln2.hook_normalized"][0], logits[0, -1]

    (x0, l0), (x1, l1) = run(0.0), run(1.0)
    for target in (i for i in graph.find("feature") if graph.nodes[i].layer == 2):
        t = graph.nodes[target]
        moved = (x1 - x0)[t.position] @ dictionaries[2].W_enc[:, t.index].double()
        assert graph.edges[target, source].item() == pytest.approx(moved.item(), abs=1e-7)
    change = (l1 - l1.mean()) - (l0 - l0.mean())
    for target in graph.find("logit"):
        assert graph.edges[target, source].item() == pytest.approx(change[graph.nodes[target].index].item(), abs=1e-7)


def test_influence_is_the_sum_over_all_paths(tmp_path):
    lm = language_model(tmp_path)
    graph = whole(lm, [1, 5, 7], made(lm.model), dtype=torch.float64)
    shares = graph.shares()
    paths = torch.linalg.inv(torch.eye(len(shares), dtype=torch.float64) - shares)
    assert torch.allclose(graph.influence(), graph.weight @ paths, atol=1e-12)
    begins = [i for kind in ("token", "error") for i in graph.find(kind)]
    assert graph.influence()[begins].sum().item() == pytest.approx(graph.weight.sum().item())
    told = scores(graph)
    assert 0 < told.replacement < 1 and 0 < told.completeness < 1 and told.traced == pytest.approx(1)


def test_pruning_keeps_the_share_it_says_and_only_what_leads_somewhere(tmp_path):
    lm = language_model(tmp_path)
    graph = whole(lm, [1, 5, 7, 8, 9], made(lm.model, d_dict=30, k=6), dtype=torch.float64)
    small, large = prune(graph, 0.5, 0.6), prune(graph, 0.9, 0.95)
    assert set(small.nodes) < set(large.nodes) and len(small.edges) < len(large.edges)
    inner = graph.find("feature") + graph.find("error")
    flow = graph.influence()
    assert flow[[i for i in inner if i in set(prune(graph, 0.9, 1.0).nodes)]].sum() >= 0.89 * flow[inner].sum()
    sources = {s for s, *_ in small.edges}
    assert all(t in sources or graph.nodes[t].kind == "logit" for _, t, *_ in small.edges)


def test_turning_a_feature_off_is_foretold_where_nothing_reacts(tmp_path):
    """In the last layer there is only the final norm between a feature and the logits."""
    lm = language_model(tmp_path)
    dictionaries = made(lm.model, d_dict=40, k=12)
    graph = whole(lm, [1, 5, 7, 8], dictionaries, dtype=torch.float64)
    last = [i for i in graph.find("feature") if graph.nodes[i].layer == 2 and graph.nodes[i].position == 3]
    for d in dictionaries:
        d.double()
    seen = torch.cat(list(turned_off(lm, graph, dictionaries, last)))
    said = predicted(graph, last)
    assert torch.allclose(said, -graph.edges[graph.find("logit")][:, last].T, atol=1e-12)
    assert torch.corrcoef(torch.stack([seen.flatten(), said.flatten()]))[0, 1] > 0.9


def test_pockets_graph_foretells_what_its_features_do():
    lm = models.load("pocket")
    dictionaries = bundle(lm)
    graph = whole(lm, lm.tokens("The Eiffel Tower is located in the city of")[0].tolist(), dictionaries, 64)
    _, r = checked(lm, graph, dictionaries)
    assert r > 0.6
    pruned = prune(graph, 0.5, 0.6)
    words = labels(lm, graph, pruned.nodes, dictionaries, text_for(lm, 20, 32, False))
    assert set(words) == {i for i in pruned.nodes if graph.nodes[i].kind == "feature"}
    drawn = picture(lm, graph, pruned, words)
    assert len(drawn.nodes) == len(pruned.nodes) and any("Paris" in n["label"] for n in drawn.nodes)
    assert around(lm, graph, pruned.edges[0][1], words)


def test_a_model_without_transcoders_is_told_of():
    with pytest.raises(LabError, match="transcoder"):
        bundle(models.load("pocket-draft"))


@pytest.mark.parametrize("more", [{"bias": True}, {"positions": "learned"}])
def test_streams_with_other_writers_are_refused(more):
    """Their biases or positions would be missing from every sum."""
    model = decoder(**more)
    with pytest.raises(LabError, match="no node of this graph"):
        next(attribute(SimpleNamespace(name="random", model=model, config=model.cfg), [1, 5], made(model)))
