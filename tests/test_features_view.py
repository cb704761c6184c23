"""What is shown of features: where they fire, what they do to the model, excerpts, a page's text."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from interp.features import dashboard, effects, store, text, view
from interp.features.activations import at_sites
from interp.features.dictionary import Dictionary, Shape
from interp.features.firings import Firings, collect
from lab import models
from lab.errors import LabError
from tests.interp_models import decoder
from widgets.excerpts import Excerpts

LAYER, WIDTH = 1, 128  # of pocket-draft


@pytest.fixture(scope="module")
def lm():
    return models.load("pocket-draft", dtype=torch.float32)


@pytest.fixture(scope="module")
def read(lm):
    return text.text(lm, 1_500, context=32)


def dictionary(target: str = "resid_post", layer: int = LAYER) -> Dictionary:
    made = Dictionary(Shape("topk", WIDTH, WIDTH, 200, 6, layer, target, "pocket-draft")).init_weights(3)
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def firings(lm, read) -> Firings:
    *_, last = collect(lm, dictionary(), read)
    return last


# ---- where they fire


def test_firings_are_all_of_them_strongest_first(lm, read, firings):
    d = dictionary()
    x = at_sites(lm.model, read.tokens[:, :-1], [d.site_in])[d.site_in]
    acts = d.encode(x).flatten(0, 1)
    assert firings.positions == len(acts) and len(firings.at) == int((acts > 0).sum())
    assert torch.allclose(firings.density(), (acts > 0).float().mean(0))
    assert torch.allclose(firings.most(), acts.amax(0), atol=1e-5)
    assert torch.allclose(firings.mean(), acts.sum(0) / (acts > 0).sum(0).clamp_min(1), atol=1e-5)
    for feature in (0, 17, 199):
        at, value = firings.of(feature)
        assert (value.diff() <= 0).all()
        assert torch.allclose(acts[at.long(), feature], value, atol=1e-5)
        assert len(at) == int((acts[:, feature] > 0).sum())
    assert torch.equal(firings.token()[:50], read.tokens[:, :-1].reshape(-1)[firings.at[:50]])


def test_partial_results_come_while_text_is_read(lm):
    long = text.text(lm, 12_000, context=32)
    some = list(collect(lm, dictionary(), long))
    assert len(some) >= 2 and some[-1].fraction == 1
    assert [f.positions for f in some] == sorted(f.positions for f in some)
    part, whole = some[0], some[-1]
    inside = whole.at < part.positions
    assert torch.equal(part.at.sort().values, whole.at[inside].sort().values)


def test_a_dictionary_of_another_width_is_refused(read):
    other = models.load("pocket")
    with pytest.raises(LabError, match="pocket has 8 layers 320 wide"):
        next(collect(other, dictionary(), read))


def test_excerpts_show_the_strongest_places(lm, firings):
    feature = int(firings.offsets.diff().argmax())
    entry = dashboard.excerpts(lm, firings, feature, each=5)
    rows = entry["groups"][0]["rows"]
    assert len({row["row"] for row in rows}) == len(rows) == 5
    assert rows[0]["values"][rows[0]["peak"]] == pytest.approx(entry["vmax"], abs=1e-3)
    for row in rows:
        assert max(row["values"]) <= entry["vmax"] + 1e-3
        ids = firings.text.tokens[row["row"]].tolist()
        assert row["pieces"][row["peak"]] == lm.tokenizer.pieces([ids[row["at"]]])[0]
    for group, (_, low, high) in zip(entry["groups"][1:], dashboard.BANDS[1:]):
        peaks = [row["values"][row["peak"]] for row in group["rows"]]
        assert peaks and all(low * entry["vmax"] - 1e-3 <= p <= high * entry["vmax"] + 1e-3 for p in peaks)
    counts, edges = dashboard.histogram(firings, feature)
    assert counts.sum() == len(firings.of(feature)[0]) and edges[0] == 0


def test_the_table_names_features_by_what_they_fire_on(lm, firings):
    rows = dashboard.rows(lm, dictionary(), firings)
    assert len(rows) == int((firings.offsets.diff() > 0).sum())
    row = rows[5]
    at, _ = firings.of(row["feature"])
    tokens = firings.text.tokens[:, :-1].reshape(-1)[at[: dashboard.TOP].long()].tolist()
    commonest = max(tokens.count(t) for t in tokens)
    assert row["purity"] == pytest.approx(commonest / len(tokens))
    assert row["density"] == pytest.approx(100 * len(at) / firings.positions)


def test_features_of_a_sentence_stand_in_the_order_of_the_text(lm, firings):
    d = dictionary()
    tokens = text.rows_of(lm, "The capital of France is Paris")
    found = dashboard.sentence(lm, d, tokens, firings, k=8)
    acts = d.encode(at_sites(lm.model, tokens, [d.site_in])[d.site_in])[0]
    assert torch.allclose(found.acts, acts[:, found.features].T)
    places = found.acts[:, 1:].argmax(1).tolist()
    assert places == sorted(places) and len(found.pieces) == tokens.shape[1]
    assert all(firings.density()[f] <= 0.2 for f in found.features)
    with pytest.raises(LabError, match="empty"):
        text.rows_of(lm, "  ")


# ---- what they do


def test_logit_effects_are_the_direct_path(lm):
    """With the final norm's scale held, adding a feature's direction at the end moves the logits by its effect."""
    last = lm.config.n_layers - 1
    d, tokens = dictionary(layer=last), torch.randint(1, 4000, (1, 7))
    hold = {"ln_final.hook_scale": lambda s, name: torch.ones_like(s)}
    before = lm.model(tokens, hooks=hold)
    after = lm.model(tokens, hooks={**hold, **effects.addition(d, 11, 2.0)})
    moved = (after - before)[0, -1]
    assert torch.allclose(moved - moved.mean(), 2.0 * effects.logit_effects(lm, d, [11])[0], atol=1e-3)


def test_a_layer_norm_hides_what_a_feature_adds_to_all_dimensions_alike():
    model = decoder(norm="layer", positions="learned", act="gelu", bias=True, n_kv_heads=4, dtype=torch.float32)
    torch.nn.init.normal_(model.norm_gain("ln_final"), 1.0, 0.3)
    d = Dictionary(Shape("topk", 24, 24, 30, 3, 1)).init_weights(0).requires_grad_(False)
    foreign = SimpleNamespace(model=model, config=model.cfg, name="random")
    before = effects.logit_effects(foreign, d)
    d.W_dec += 5.0
    assert before.abs().max() > 0.01 and torch.allclose(effects.logit_effects(foreign, d), before, atol=1e-4)


@pytest.mark.parametrize("target", ["resid_post", "transcoder"])
def test_removing_a_feature_takes_its_write_and_nothing_else(lm, target):
    d, tokens = dictionary(target), torch.randint(1, 4000, (2, 9))
    kept = at_sites(lm.model, tokens, [d.site_in, d.site_out])
    acts = d.encode(kept[d.site_in])
    feature = int((acts > 0).sum((0, 1)).argmax())
    after = {"resid_post": f"blocks.{LAYER + 1}.hook_resid_pre", "transcoder": f"blocks.{LAYER}.hook_resid_post"}[target]
    plain = at_sites(lm.model, tokens, [after])[after]
    cut = at_sites(lm.model, tokens, [after], effects.removal(d, feature))[after]
    assert torch.allclose(plain - cut, acts[..., feature, None] * d.W_dec[feature], atol=1e-3)
    silent = int((acts.sum((0, 1)) == 0).nonzero()[0])
    assert torch.equal(lm.model(tokens, hooks=effects.removal(d, silent)), lm.model(tokens))


def test_ablation_tells_the_rise_of_the_loss(lm, read):
    d, rows = dictionary(), read.tokens[:3]
    hooks = effects.removal(d, 5)
    found = effects.ablate(lm, d, 5, rows, [4, 20, 31])
    for hooked, probs in ((None, found.before), (hooks, found.after)):
        logits = lm.model(rows[:, :-1], hooks=hooked)
        assert torch.allclose(probs[1], logits[1, 20].softmax(-1), atol=1e-5)
    losses = [
        F.cross_entropy(lm.model(rows[:, :-1], hooks=h).flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(3, -1)
        for h in (hooks, None)
    ]
    assert torch.allclose(found.rise, losses[0] - losses[1], atol=1e-4)


def test_steering_is_held_through_every_token(lm):
    d, prompt = dictionary(), "The capital of France is"
    plain, first = effects.generate(lm, prompt, 6)
    same, _ = effects.generate(lm, prompt, 6, effects.addition(d, 7, 0.0))
    assert plain == same and 1 <= len(plain) <= 6
    hooks = effects.addition(d, 7, 40.0)
    pushed, pushed_first = effects.generate(lm, prompt, 6, hooks)
    ids = lm.tokens(prompt)[0].tolist()
    for token in pushed:  # without a cache, the whole text again for every token
        logits = lm.model(torch.tensor([ids]), hooks=hooks)[0, -1]
        assert int(logits.argmax()) == token
        ids.append(token)
    assert not torch.allclose(first, pushed_first, atol=1e-3)


def test_nearest_features_are_those_of_largest_cosine():
    d = dictionary()
    w = d.W_dec / d.W_dec.norm(dim=1, keepdim=True)
    expected = sorted(((float(w[i] @ w[9]), i) for i in range(200) if i != 9), reverse=True)[:4]
    assert [f for f, _ in effects.nearest(d, 9, 4)] == [i for _, i in expected]


# ---- the page's text, widget and explorer


def test_the_text_is_fixed_mixed_and_not_what_was_trained_on(lm):
    one, two = text.text(lm, 6_000, context=64), text.text(lm, 6_000, context=64)
    assert torch.equal(one.tokens, two.tokens) and one.domains == two.domains
    share = {d: one.domains.count(d) / len(one.domains) for d in text.WEIGHTS}
    assert all(abs(share[d] - w) < 0.05 for d, w in text.WEIGHTS.items())
    assert abs(one.positions - 6_000) < 600
    from lab.data import templated

    trained = {next(templated.pages("facts", seed)) for seed in (0, 1)}
    assert next(templated.pages("facts", text.SEED)) not in trained


def test_excerpts_refuse_rows_that_do_not_fit():
    with pytest.raises(ValueError, match="2 tokens and 1 values"):
        Excerpts([{"title": "x", "groups": [{"title": "a", "rows": [{"pieces": ["a", "b"], "values": [1.0]}]}]}])


def test_an_explorer_reads_more_and_stops_when_told(lm, tmp_path):
    store.save(dictionary(), tmp_path)
    explorer = view.Explorer(str(tmp_path), positions=1_000)
    explorer.show(3, 4)
    assert [entry["title"] for entry in explorer.excerpts.entries] == ["Feature 3", "Feature 4"]
    before = explorer.firings.positions
    explorer.read(20_000, stopped=lambda: True)
    assert explorer.firings.positions >= before
    explorer.show(3)
    explorer.read(2_000)
    assert explorer.firings.positions > before and explorer.firings.fraction == 1
    assert f"{explorer.firings.positions:,} tokens read" in explorer.excerpts.value_title
    assert len(explorer.table.rows) == int((explorer.firings.offsets.diff() > 0).sum())
