"""Circuits: replaced edges against the two runs and a pass by hand, path patching, estimates, discovery, faithfulness."""

import itertools

import pytest
import torch
from circuits_models import COPIER_CIRCUIT, batch, copier, copier_batch
from interp_models import decoder, word_tokenizer

from interp.circuits import protocol
from interp.circuits.attribution import attribute_edges, attribute_study
from interp.circuits.batch import Batch, behaviour, measure
from interp.circuits.discovery import acdc, node_scores, strongest, strongest_nodes
from interp.circuits.edges import KINDS, POSITIONS, Study, exact
from interp.circuits.faithfulness import bootstrap, curve, incompleteness, share
from interp.circuits.paths import direct_effects, named, path_patch
from interp.circuits.score import auroc, auroc_of, found
from interp.circuits.surgery import CutModel, cut_model, outcome, perplexity
from interp.metrics import METRICS
from lab import models
from lab.errors import LabError

SHAPES = {
    "llama": {},
    "grouped": {"n_kv_heads": 1},
    "gpt2": {"norm": "layer", "positions": "learned", "act": "gelu", "bias": True, "n_kv_heads": 4},
    "attention": {"act": "none", "d_mlp": 0, "norm": "none", "positions": "learned", "n_kv_heads": 4},
    "qwen": {"qk_norm": True, "window": 3},
}
each_shape = pytest.mark.parametrize("shape", SHAPES)


def model_of(shape, seed=1):
    return decoder(seed, **SHAPES[shape])


def last_logits(model, tokens, batch_):
    """Each prompt by itself, without padding."""
    rows = [model(t[None, : end + 1])[0, -1] for t, end in zip(tokens, batch_.ends)]
    return torch.stack(rows)


class ByHooks:
    """A model of which only the call is known, as other backends are."""

    def __init__(self, model):
        self.inner, self.cfg, self.device, self.dtype = model, model.cfg, model.device, model.dtype

    def __call__(self, tokens, hooks=None, last=False):
        return self.inner(tokens, hooks=hooks, last=last)


# ---- replaced edges


@each_shape
@pytest.mark.parametrize("wrap", [lambda m: m, ByHooks], ids=["ours", "hooks"])
def test_no_edges_is_the_clean_run_and_all_edges_the_other(shape, wrap):
    model, pairs = model_of(shape), batch()
    study = Study(wrap(model), pairs)
    g = study.graph
    none, every = study.logits(torch.stack([g.none(), g.all()]))
    assert torch.equal(none, study.clean_logits), "nothing replaced is the clean run, bit for bit"
    torch.testing.assert_close(none[:, 0], last_logits(model, pairs.clean, pairs), rtol=0, atol=1e-10)
    torch.testing.assert_close(every[:, 0], last_logits(model, pairs.corrupted, pairs), rtol=0, atol=1e-10)
    later = study.logits(g.all()[None], positions="changed")[0]
    torch.testing.assert_close(later, every, rtol=0, atol=1e-10)


def by_hand(model, clean, other, replaced, graph):
    """The stream of a norm-first decoder in plain loops: every receiver sums the senders it is given."""
    cfg, inner = model.cfg, model.model
    length = len(clean)

    def senders(tokens, edges, others):
        wrote = {"embed": inner.embed_tokens(tokens)[None]}
        now = lambda name, receiver: others[name] if others and (name, receiver) in edges else wrote[name]  # noqa: E731
        total = lambda receiver: sum(now(name, receiver) for name in list(wrote))  # noqa: E731
        rope = model._rotation(0, length, None, wrote["embed"])
        for i, block in enumerate(inner.layers):
            attention, heads = block.self_attn, {}
            for h in range(cfg.n_heads):
                kv = h * cfg.n_kv_heads // cfg.n_heads
                shared = f"a{i}.kv{kv}" if cfg.n_kv_heads != cfg.n_heads else f"a{i}.h{h}"
                qkv = []
                for part, name, at in (("q", f"a{i}.h{h}", h), ("k", shared, kv), ("v", shared, kv)):
                    x = block.input_layernorm(total(f"{name}.{part}"))
                    rows = slice(at * cfg.d_head, (at + 1) * cfg.d_head)
                    y = x @ getattr(attention, f"{part}_proj").weight[rows].T
                    if part != "v":
                        cos, sin = (t.squeeze(1) for t in rope)
                        half = cfg.d_head // 2
                        y = y * cos + torch.cat([-y[..., half:], y[..., :half]], -1) * sin
                    qkv.append(y[0])
                q, k, v = qkv
                scores = (q @ k.T) / cfg.d_head**0.5
                scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
                out = attention.o_proj.weight[:, h * cfg.d_head : (h + 1) * cfg.d_head]
                heads[f"a{i}.h{h}"] = ((scores.softmax(-1) @ v) @ out.T)[None]
            wrote |= heads
            x = block.post_attention_layernorm(total(f"m{i}"))
            mlp = block.mlp
            wrote[f"m{i}"] = mlp.down_proj(torch.nn.functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))
        return wrote, model.lm_head(inner.norm(total("logits")))[0, -1]

    others, _ = senders(other, set(), None)
    return senders(clean, set(graph.named(replaced)), others)[1]


@pytest.mark.parametrize("kv", [4, 2])
def test_random_edge_sets_against_plain_loops(kv):
    model, pairs = decoder(2, n_kv_heads=kv), batch((6,), seed=4)
    study = Study(model, pairs)
    g = study.graph
    generator = torch.Generator().manual_seed(5)
    sets = torch.stack([torch.rand(g.n_edges, generator=generator) < p for p in (0.02, 0.3, 0.9)])
    late = g.none()
    late[[g.index(("m0", "a2.h3.q")), g.index(("a1.h0", "logits"))]] = True
    sets = torch.cat([sets, late[None]])
    got = study.logits(sets)[:, 0, 0]
    for replaced, logits in zip(sets, got):
        want = by_hand(model, pairs.clean[0], pairs.corrupted[0], replaced, g)
        torch.testing.assert_close(logits, want, rtol=0, atol=1e-10)
        one = study.logits(replaced[None])[0, 0, 0]
        torch.testing.assert_close(one, logits, rtol=0, atol=1e-12)


def test_zero_and_mean_and_positions():
    model, pairs = decoder(3), batch()
    study = Study(model, pairs)
    g = study.graph
    other = study.other("mean")
    assert other.shape == study.clean.shape and other[3, 0, 0].equal(other[3, 2, 4])
    real = torch.cat([torch.cat([study.clean[:, r, : e + 1], study.other("counterfactual")[:, r, : e + 1]], 1)
                      for r, e in enumerate(pairs.ends.tolist())], 1)  # fmt: skip
    torch.testing.assert_close(study.means, real.mean(1))
    # with every edge zero the logits read a stream of zeros
    zeros = study.logits(g.all()[None], "zero")[0]
    torch.testing.assert_close(zeros, torch.zeros_like(zeros))
    # at the last position alone, earlier keys and values stay what they were
    last = study.values(g.mask([("embed", "a0.kv0.v")])[None], positions="last")
    assert not torch.allclose(last, study.values(g.mask([("embed", "a0.kv0.v")])[None]))
    assert study.where("changed")[0].tolist() == [False, True, True, True, True, True, True]
    for bad in ({"kind": "median"}, {"positions": "first"}):
        with pytest.raises(LabError, match="choose one of"):
            study.value(g.all(), **bad)


def test_exact_is_one_edge_at_a_time():
    study = Study(decoder(4), batch())
    g = study.graph
    some = torch.randperm(g.n_edges, generator=torch.Generator().manual_seed(1))[:25]
    got = exact(study, edges=some)
    assert got.isnan().sum() == g.n_edges - 25
    clean = study.value(g.none())
    for i in some.tolist():
        one = g.none()
        one[i] = True
        assert got[i] == pytest.approx(clean - study.value(one), abs=1e-10)
    told = []
    partial = exact(study, edges=some, progress=lambda done, total: told.append((done, total)) or False)
    assert len(told) == 1 and int((~partial.isnan()).sum()) == told[0][0]


@pytest.mark.parametrize("metric", METRICS)
def test_measures_are_those_of_single_prompts(metric):
    model, pairs = decoder(5), batch()
    study = Study(model, pairs, metric)
    clean, other = last_logits(model, pairs.clean, pairs), last_logits(model, pairs.corrupted, pairs)
    got = study.values(study.graph.all()[None])[0]
    for i in range(len(pairs)):
        reference = METRICS[metric].of(other[i], int(pairs.answer[i]), int(pairs.wrong[i]), clean[i].log_softmax(-1))
        assert got[i].item() == pytest.approx(float(reference), abs=1e-9)


def test_unequal_prompts_and_unknown_metrics_are_refused():
    with pytest.raises(LabError, match="5 and 4 tokens"):
        Batch.of([([1, 2, 3, 4, 5], [1, 2, 3, 4])], [1], [2])
    with pytest.raises(LabError, match="no pair"):
        Batch.of([], [], [])
    with pytest.raises(LabError, match="no metric"):
        measure(batch(), "accuracy", torch.zeros(3, 1, 19))
    with pytest.raises(LabError, match="padding"):
        Study(decoder(1, causal=False), batch())


# ---- path patching


def frozen(study, senders, receivers, through_mlps):
    """Wang's two passes spelled out head by head, with the model's own hooks alone."""
    model, pairs = study.model, study.batch
    runs = []
    for tokens in (pairs.clean, pairs.corrupted):
        _, acts = model.run_with_cache(tokens, names=lambda n: n.endswith(("hook_result", "hook_mlp_out", "hook_embed")))
        runs.append(acts)
    clean, other = runs

    def freeze(x, name):
        layer = int(name.split(".")[1]) if name.startswith("blocks") else None
        if name == "hook_embed":
            return (other if "embed" in senders else clean)[name]
        if name.endswith("mlp_out"):
            if f"m{layer}" in senders:
                return other[name]
            return None if through_mlps else clean[name]
        new = clean[name].clone()
        for h in range(new.shape[2]):
            if f"a{layer}.h{h}" in senders:
                new[:, :, h] = other[name][:, :, h]
        return new

    kept = {}
    points = {}
    for name in receivers:
        point, place = study.graph.receiver(name)
        points.setdefault(point.hook, []).append(place)
    watch = dict.fromkeys(points, lambda x, name: kept.__setitem__(name, x.clone()))
    hooks = dict.fromkeys(clean, freeze)
    model(pairs.clean, hooks={**hooks, **watch})

    def put(x, name):
        if x.dim() == 3:
            return kept[name]
        new = x.clone()
        for place in points[name]:
            new[:, :, place] = kept[name][:, :, place]
        return new

    logits = model(pairs.clean, hooks=dict.fromkeys(points, put))
    rows = torch.arange(len(pairs))
    return study.measure(logits[rows, pairs.ends][:, None])


@pytest.mark.parametrize("through", [False, True], ids=["frozen", "through MLPs"])
@pytest.mark.parametrize(
    ("senders", "receivers"),
    [
        (["a0.h1"], ["logits"]),
        (["embed", "m0"], ["a2.h1.q", "a2.h0.q", "a2.kv1.k"]),
        (["a0.h3", "a1.h0", "m1"], ["a1.h2.q", "m2", "logits"]),
    ],
)
def test_path_patching_is_the_frozen_recomputation(senders, receivers, through):
    study = Study(decoder(6), batch(seed=2))
    got = path_patch(study, named(study, senders), receivers, through_mlps=through)[0]
    torch.testing.assert_close(got, frozen(study, senders, receivers, through), rtol=0, atol=1e-10)


def test_direct_effects_on_logits_add_up_without_a_norm():
    study = Study(decoder(7, norm="none"), batch())
    worth = direct_effects(study)
    both = study.values(torch.stack([study.graph.none(), study.graph.all()])).mean(-1)
    assert worth.sum().item() == pytest.approx(float(both[0] - both[1]), abs=1e-9)
    late = direct_effects(study, ["a1.h0.q"])
    at = study.graph.sender("a1.h0")
    assert late[at:].isnan().all() and not late[:at].isnan().any()
    with pytest.raises(LabError, match="No receiver"):
        path_patch(study, named(study, ["embed"]), [])
    with pytest.raises(LabError, match="no sender"):
        named(study, ["a0.h9"])


# ---- estimates


def test_eap_is_exact_where_the_model_is_linear():
    study = Study(copier(), copier_batch())
    estimate, truth = attribute_study(study), exact(study)
    torch.testing.assert_close(estimate, truth, rtol=0, atol=1e-12)
    assert estimate.abs().max() > 0.1


@each_shape
@pytest.mark.parametrize("kind", KINDS)
def test_eap_is_the_slope_of_the_exact_effect(shape, kind):
    """Against a numerical derivative: the other run moved close to the clean one, the effect scaled back."""
    study = Study(model_of(shape), batch())
    g, step = study.graph, 1e-5
    estimate = attribute_study(study, kind)
    study._others[kind] = study.clean + step * (study.other(kind) - study.clean)
    some = torch.randperm(g.n_edges, generator=torch.Generator().manual_seed(0))[:30]
    slope = exact(study, kind, edges=some)[some] / step
    torch.testing.assert_close(estimate[some], slope, rtol=2e-3, atol=2e-4)


def test_a_batch_in_parts_gives_the_same_estimate(monkeypatch):
    model, pairs = decoder(8), batch((5, 5, 7, 7, 7))
    for kind in KINDS:
        whole = attribute_study(Study(model, pairs), kind, steps=3)
        with monkeypatch.context() as small:
            small.setattr("interp.circuits.attribution.rows_at_once", lambda *_: 2)
            torch.testing.assert_close(attribute_edges(model, pairs, kind=kind, steps=3), whole, rtol=0, atol=1e-10)
            first = attribute_edges(model, pairs, progress=lambda done, total: False)
        torch.testing.assert_close(first, attribute_study(Study(model, pairs.rows(slice(0, 2)))), rtol=0, atol=1e-10)


def test_integrated_gradients_do_better_where_the_metric_saturates():
    study = Study(copier(), copier_batch(), "probability")
    saturated = Study(copier(), copier_batch(), measured=lambda logits: torch.tanh(4 * study_measure(logits)))

    def study_measure(logits):
        pairs = saturated_batch
        return (logits[..., 0, :].gather(-1, pairs.answer.expand(logits.shape[:-2])[..., None])
                - logits[..., 0, :].gather(-1, pairs.wrong.expand(logits.shape[:-2])[..., None]))[..., 0]  # fmt: skip

    saturated_batch = copier_batch()
    truth = exact(saturated)
    error = [(attribute_study(saturated, steps=n) - truth).abs().max().item() for n in (1, 10)]
    assert error[1] < 0.2 * error[0], error
    assert study.values(study.graph.none()[None]).mean() > study.values(study.graph.all()[None]).mean()


# ---- discovery


def test_the_hand_made_circuit_is_found():
    study = Study(copier(), copier_batch())
    g, truth = study.graph, study.graph.mask(COPIER_CIRCUIT)
    scores = attribute_study(study)
    assert auroc(scores, truth) == 1.0 == auroc_of(g, exact(study), COPIER_CIRCUIT)
    assert set(g.named(strongest(g, scores, 3))) == set(COPIER_CIRCUIT)
    *_, last = acdc(study, 0.01)
    assert set(g.named(last.kept)) == set(COPIER_CIRCUIT) and last.done == last.total == g.n_edges
    assert found(last.kept, truth) == (1.0, 1.0)
    measured = curve(study, [last.kept, g.none(), g.all()])
    assert measured.faithfulness == pytest.approx([1, 0, 1]) and measured.left_without == pytest.approx([0, 1, 0])
    assert incompleteness(study, last.kept) == pytest.approx(0, abs=1e-9)


def one_at_a_time(study, threshold):
    """ACDC as the paper writes it."""
    g = study.graph
    ends = [study.value(g.none()), study.value(g.all())]
    lost_by = lambda gone: (ends[0] - study.value(gone)) / (ends[0] - ends[1])  # noqa: E731
    gone, lost = g.none(), 0.0
    for point in reversed(g.points):
        for i, receiver in reversed(list(enumerate(point.receivers))):
            live = receiver == "logits" or any((~gone)[g.of_senders() == g.sender(o)].any() for o in g.owners(receiver))
            for s in reversed(range(point.senders)):
                edge = point.start + i * point.senders + s
                trial = gone.clone()
                trial[edge] = True
                if not live:
                    gone = trial
                elif (now := lost_by(trial)) - lost < threshold:
                    gone, lost = trial, now
    return g.prune(~gone)


@pytest.mark.parametrize("threshold", [0.003, 0.05])
def test_acdc_in_batches_decides_as_one_at_a_time(threshold):
    study = Study(decoder(9, n_layers=2), batch(seed=6))
    *_, last = acdc(study, threshold)
    assert last.kept.equal(one_at_a_time(study, threshold))
    assert last.forwards < 2 * study.graph.n_edges


def test_nodes():
    study = Study(decoder(10), batch())
    g, scores = study.graph, torch.randn(study.graph.n_edges, dtype=torch.float64)
    worth = node_scores(g, scores)
    assert worth[g.sender("m2")] == scores[g.index(("m2", "logits"))]
    kept = strongest_nodes(g, scores, 3)
    best = worth.abs().argsort(descending=True).tolist()
    wanted = {"embed", *[g.senders[i] for i in best if i != 0][:2]}
    assert kept.equal(g.from_nodes(wanted))


# ---- faithfulness, protocol, score


def test_faithfulness_and_areas():
    study = Study(decoder(11), batch())
    g = study.graph
    measured = curve(study, [g.none(), g.all()])
    assert measured.faithfulness == pytest.approx([0, 1]) and measured.left_without == pytest.approx([1, 0])
    assert measured.cpr == pytest.approx(0.5) and measured.cmd == pytest.approx(0.5), "a straight line from 0 to 1"


def test_bootstrap_covers_the_share():
    g = torch.Generator().manual_seed(0)
    covered = 0
    for trial in range(100):
        clean = 5 + torch.randn(40, generator=g, dtype=torch.float64)
        other = -5 + torch.randn(40, generator=g, dtype=torch.float64)
        values = 3 + 2 * torch.randn(40, generator=g, dtype=torch.float64)  # the true share is 0.8
        told = bootstrap(values, clean, other, seed=trial)
        assert told.value == share(values, clean, other) and told.low <= told.value <= told.high
        covered += told.low <= 0.8 <= told.high
    assert 86 <= covered <= 100


def test_protocol_covers_every_combination():
    study = Study(decoder(12), batch())
    g = study.graph
    circuit = strongest(g, attribute_study(study), g.n_edges // 3)
    told = list(protocol.claims(study, circuit))
    keys = {(c.kind, c.positions, c.level, c.metric) for c in told}
    assert keys == set(itertools.product(KINDS, POSITIONS, protocol.LEVELS, METRICS))
    one = next(c for c in told if (c.kind, c.positions, c.level, c.metric) == ("mean", "all", "edges", "kl"))
    kl = Study(study.model, study.batch, "kl")
    assert one.faithfulness.value == pytest.approx(curve(kl, [circuit], "mean").faithfulness[0], abs=1e-9)
    whole = list(protocol.claims(study, g.all(), kinds=("zero",), positions=("all",), metrics=("logit_diff",)))
    assert [c.faithfulness.value for c in whole] == pytest.approx([1, 1])


def test_auroc_counts_pairs():
    g = torch.Generator().manual_seed(0)
    scores = torch.randint(-4, 5, (60,), generator=g).double()
    truth = torch.rand(60, generator=g) < 0.3
    scores[5] = float("nan")
    ok = ~scores.isnan()
    inside, outside = scores[ok & truth].abs(), scores[ok & ~truth].abs()
    pairs = (inside[:, None] > outside).double() + 0.5 * (inside[:, None] == outside)
    assert auroc(scores, truth) == pytest.approx(float(pairs.mean()))
    with pytest.raises(LabError, match="all edges or none"):
        auroc(scores, truth | True)


# ---- explain, then break


@each_shape
def test_a_cut_model_reads_constants(shape):
    """With a cache, without one, and against the study's own mean ablation."""
    from lab.models import KVCache

    model = model_of(shape)
    study = Study(model, batch((6, 6)))
    g = study.graph
    replaced = torch.rand(g.n_edges, generator=torch.Generator().manual_seed(3)) < 0.4
    cut = CutModel(model, replaced, study.means)
    tokens = study.batch.clean
    logits = cut(tokens)
    torch.testing.assert_close(logits[:, -1], study.logits(replaced[None], "mean")[0, :, 0], rtol=0, atol=1e-10)
    cache = KVCache(model.cfg, 2, 6, model.dtype, model.device)
    stepped = torch.cat([cut(tokens[:, :2], cache=cache), *(cut(tokens[:, i : i + 1], cache=cache) for i in range(2, 6))], 1)
    torch.testing.assert_close(stepped, logits, rtol=0, atol=1e-10)
    assert torch.equal(CutModel(model, g.none(), study.means)(tokens), model(tokens))


def test_perplexity_is_that_of_the_tokens(tmp_path):
    from types import SimpleNamespace

    model = decoder(13)
    lm = SimpleNamespace(name="r", model=model, config=model.cfg, tokenizer=word_tokenizer(tmp_path), path=None, source="")
    text = "the great tower stands in the city of Paris"
    ids = torch.tensor([lm.tokenizer.encode(text)])
    logprobs = model(ids)[0].log_softmax(-1)
    want = torch.stack([-logprobs[i, ids[0, i + 1]] for i in range(ids.shape[1] - 1)]).mean().exp()
    assert perplexity(lm, [text]) == pytest.approx(float(want))
    study = Study(model, batch())
    whole = cut_model(lm, study, study.graph.none(), name="whole")
    assert perplexity(whole, [text]) == pytest.approx(float(want))
    broken = cut_model(lm, study, study.graph.all(), "zero")
    assert perplexity(broken, [text]) == pytest.approx(model.cfg.vocab_size), "nothing read, nothing known"
    assert next(outcome(whole, "the great tower")).said


def test_a_search_may_start_from_fewer_edges():
    study = Study(copier(), copier_batch())
    g, truth = study.graph, study.graph.mask(COPIER_CIRCUIT)
    start = truth.clone()
    start[torch.randperm(g.n_edges, generator=torch.Generator().manual_seed(0))[:20]] = True
    *_, last = acdc(study, 0.01, start=start)
    assert last.kept.equal(truth) and last.done == last.total == int(start.sum())


def test_the_induction_circuit_is_found():
    """In the bundled attention-only model: the previous-token head feeds the keys of the heads that look for a repeat,
    which read the embedding as values and write to the logits (Olsson et al. 2022), and nothing else."""
    from interp.truth import induction

    lm = models.load(str(induction.HOME), dtype=torch.float32)
    study = Study(lm.model, behaviour(lm, "induction", 16))
    previous, repeat = induction.scores(induction.patterns(lm.model, induction.probe()), 16)
    before = int(previous[0].argmax())
    heads = [h for h in range(lm.config.n_heads) if repeat[1, h] > 0.25]
    assert heads and previous[0, before] > 0.8
    known = {("embed", f"a0.h{before}.v")}
    for h in heads:
        known |= {(f"a0.h{before}", f"a1.h{h}.k"), ("embed", f"a1.h{h}.v"), (f"a1.h{h}", "logits")}
    scores = attribute_study(study, steps=5)
    assert auroc_of(study.graph, scores, known) > 0.97
    *_, last = acdc(study, 0.05)
    assert set(study.graph.named(last.kept)) == known
