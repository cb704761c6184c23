"""Integrated gradients are complete and equal a finely divided sum; traces equal their definition."""

import numpy as np
import pytest
import torch

from interp.integrated import difference, integrate, log_probability, of_site, of_tokens, widened
from interp.patching import run_patched
from interp.quadrature import nodes
from interp.sites import SITES, Patch
from lab.errors import LabError
from tests.interp_models import decoder, language_model, pair_of

EQUAL = pair_of([1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9])
LONGER = pair_of([1, 5, 7, 8, 9], [1, 3, 6, 6, 7, 8, 9])
METRIC = difference(5, 6)


def test_quadrature_is_exact_for_polynomials():
    rng = np.random.default_rng()
    c = rng.normal(size=8)
    integral = sum(c[k] / (k + 1) for k in range(8))

    def total(steps, rule):
        return sum(w * float(np.polyval(c[::-1], a)) for a, w in nodes(steps, rule))

    assert total(4, "gauss") == pytest.approx(integral, abs=1e-12)
    assert total(4096, "midpoint") == pytest.approx(integral, abs=1e-5)
    assert total(4096, "left") == pytest.approx(integral, abs=1e-2)
    for rule in ("gauss", "midpoint", "left"):
        assert sum(w for _, w in nodes(7, rule)) == pytest.approx(1)
    for bad in (lambda: nodes(3, "simpson"), lambda: nodes(0)):
        with pytest.raises(LabError):
            bad()


@pytest.mark.parametrize("baseline", ["mean", "corrupted"])
@pytest.mark.parametrize("metric", [METRIC, log_probability(5)], ids=["difference", "log probability"])
def test_input_attributions_sum_to_the_difference(baseline, metric):
    for seed in (0, 1):
        model = decoder(seed)
        found = of_tokens(model, EQUAL.clean_ids, metric, baseline=baseline, steps=256, corrupted=EQUAL.corrupted_ids)
        assert found.error < 1e-3 and found.tokens.sum().item() == pytest.approx(found.total)
        logits = model(torch.tensor([EQUAL.clean_ids, EQUAL.corrupted_ids]))[:, -1]
        if baseline == "corrupted":
            assert found.difference == pytest.approx(float(metric(logits)[0] - metric(logits)[1]))
            assert found.tokens[[0, 3, 4, 5]].abs().max() < 1e-12  # the same token in both: nothing to attribute
        coarse = of_tokens(model, EQUAL.clean_ids, metric, baseline=baseline, steps=2, corrupted=EQUAL.corrupted_ids)
        assert coarse.error > found.error


def test_integrated_gradients_equal_their_definition():
    """One token and feature by hand: the mean of numeric derivatives along the line, times the difference."""
    model = decoder(3)
    e = model.embed_tokens(torch.tensor([EQUAL.clean_ids, EQUAL.corrupted_ids]))
    found = integrate(model, EQUAL.clean_ids, "hook_embed", e[1], e[0], METRIC, 64)

    def f(x):
        return float(METRIC(model(torch.tensor([EQUAL.clean_ids]), hooks={"hook_embed": lambda *_: x[None]})[:, -1])[0])

    for p, i in ((1, 4), (2, 11)):
        nudge = torch.zeros_like(e[0])
        nudge[p, i] = 1e-5
        slopes = [w * (f(x + nudge) - f(x - nudge)) / 2e-5 for a, w in nodes(64) for x in [e[1] + a * (e[0] - e[1])]]
        assert float(found.values[p, i]) == pytest.approx(sum(slopes) * float(e[0, p, i] - e[1, p, i]), abs=1e-6)


@pytest.mark.parametrize("site", SITES)
def test_activation_attributions_sum_to_the_patch_of_them_all(tmp_path, site):
    lm = language_model(tmp_path)
    found = of_site(lm.model, EQUAL, site, 1, METRIC, steps=64)
    assert found.error < 1e-3
    heads = SITES[site].n_heads(lm.config)
    patches = [Patch(site, 1, None, h) for h in range(heads)] if heads else [Patch(site, 1)]
    run = run_patched(lm, EQUAL, patches, new_tokens=0)
    unpatched = METRIC(lm.model(torch.tensor([EQUAL.corrupted_ids]))[:, -1])
    assert found.difference == pytest.approx(run.value - float(unpatched), abs=1e-9)
    assert found.values.shape[0] == 6


def test_streams_are_complete_at_every_layer_and_unequal_prompts_keep_their_rest():
    model = decoder(1)
    ends = METRIC(model(torch.tensor([EQUAL.clean_ids, EQUAL.corrupted_ids]))[:, -1])
    for layer in range(3):
        found = of_site(model, EQUAL, "resid_pre", layer, METRIC, steps=128)
        assert found.difference == pytest.approx(float(ends[0] - ends[1])) and found.error < 1e-3
    found = of_site(model, LONGER, "resid_mid", 1, METRIC, steps=64)
    assert found.error < 1e-3
    assert all((found.tokens[p] == 0) == (s is None or (p, s) == (0, 0)) for p, s in enumerate(LONGER.alignment))
    with pytest.raises(LabError, match="equally many tokens"):
        of_site(model, LONGER, "pattern", 1, METRIC)


def test_gradient_times_input_is_the_slope_of_scaling_the_input():
    model = decoder(2)
    found = of_tokens(model, EQUAL.clean_ids, METRIC, method="gradient")
    e = model.embed_tokens(torch.tensor([EQUAL.clean_ids]))

    def f(scale):
        return float(METRIC(model(torch.tensor([EQUAL.clean_ids]), hooks={"hook_embed": lambda *_: scale * e})[:, -1])[0])

    assert found.total == pytest.approx((f(1 + 1e-5) - f(1 - 1e-5)) / 2e-5, abs=1e-5)


def test_a_model_is_widened_once():
    model = decoder(0, torch.bfloat16)
    wide = widened(model, torch.float64)
    assert wide.dtype == torch.float64 and widened(model, torch.float64) is wide and model.dtype == torch.bfloat16
    assert widened(wide, torch.float64) is wide


@pytest.mark.parametrize(
    "more, sentence",
    [
        (dict(method="magic"), "no method called 'magic'"),
        (dict(baseline="one"), "no baseline called 'one'"),
        (dict(baseline="corrupted"), "equally many tokens"),
        (dict(steps=0), "at least one step"),
    ],
)  # fmt: skip
def test_bad_choices_get_a_sentence(more, sentence):
    with pytest.raises(LabError, match=sentence):
        of_tokens(decoder(), EQUAL.clean_ids, METRIC, **more)
