"""Interventions of every kind against their definitions, in float64, on random models."""

import pytest
import torch

from interp.ablation import WRITES, Treatment, flipped, treat
from interp.attribution import attribute
from interp.baseline import baseline
from interp.headsweep import (
    by_position,
    bytes_needed,
    check_memory,
    every,
    preview,
    shape_by_position,
    strongest,
)
from interp.metrics import METRICS
from interp.patching import run_patched
from interp.prompts import align
from interp.sites import SITES, Intervention, Patch, keep, sites_of
from interp.sweep import grid, sweep
from lab.errors import LabError
from tests.interp_models import WORDS, decoder, language_model, pair_of

EQUAL = pair_of([1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9])
LONGER = pair_of([1, 5, 7, 8, 9], [1, 3, 6, 6, 7, 8, 9])
OTHERS = tuple(" ".join(WORDS[i] for i in ids) for ids in ([2, 10, 7, 8, 9], [4, 12, 13, 7, 8, 9], [1, 11, 5, 7, 8, 9]))


@pytest.fixture
def lm(tmp_path):
    return language_model(tmp_path)


def everything(config, pair, site):
    """Patches that together write one site whole, at every position with a value."""
    heads = SITES[site].n_heads(config)
    return [
        Patch(site, i, p, h)
        for i in range(config.n_layers)
        for p, s in enumerate(pair.alignment) if s is not None
        for h in (range(heads) if heads else (None,))
    ]  # fmt: skip


# ---- identities: everything is 1, nothing is 0, in both directions


@pytest.mark.parametrize("into", ["corrupted", "clean"])
@pytest.mark.parametrize("metric", METRICS)
def test_writing_everything_is_one_and_nothing_is_zero(lm, into, metric):
    runs, base = treat(lm, EQUAL, Treatment(into), ["resid_pre", "attn_out", "mlp_out"])
    outputs = [Patch(s, i) for i in range(3) for s in ("attn_out", "mlp_out")] + [Patch("resid_pre", 0)]
    for patches in (outputs, [Patch("resid_pre", 1)]):
        assert run_patched(lm, runs, patches, metric, 0, base).share == pytest.approx(1, abs=1e-9)
    assert run_patched(lm, runs, [Patch("resid_pre", 2, 0)], metric, 0, base).share == pytest.approx(0, abs=1e-9)


def test_noising_is_denoising_with_the_prompts_exchanged(lm):
    for pair in (EQUAL, LONGER):
        for site in ("resid_mid", "z", "neuron"):
            runs, base = treat(lm, pair, Treatment("clean"), [site])
            assert runs.corrupted_ids == pair.clean_ids
            *_, noised = sweep(lm.model, runs, site, base=base)
            *_, swapped = sweep(lm.model, flipped(pair), site)
            torch.testing.assert_close(noised.share, swapped.share, equal_nan=True)
            # the metric keeps its sign: it is the clean answer's
            torch.testing.assert_close(noised.value, -swapped.value, equal_nan=True)


def test_flipping_twice_is_the_same_pair():
    assert flipped(flipped(EQUAL)) == EQUAL
    twice = flipped(flipped(LONGER))
    assert twice.alignment == LONGER.alignment and twice.answer_id == LONGER.answer_id


# ---- what is written


def by_hand(model, ids, name, write):
    """Last-position logits when `write(activation [pos, ..])` changes one activation of one plain forward."""
    return model(torch.tensor([ids]), hooks={name: lambda x, _: write(x.clone()[0])[None]})[0, -1]


@pytest.mark.parametrize("site", [s for s in SITES if s != "pattern"])
@pytest.mark.parametrize("write", ["zero", "mean", "resample", "gaussian"])
def test_every_ablation_writes_what_it_says(lm, site, write):
    treatment = Treatment("clean", write, OTHERS, seed=3, sigmas=2.0)
    runs, base = treat(lm, EQUAL, treatment, [site])
    ids, layer, head = EQUAL.clean_ids, 1, 1 if SITES[site].heads else None
    name = SITES[site].name(layer)
    others = [lm.tokenizer.encode(text) for text in OTHERS]
    kept: dict = {}
    acts = []
    for other in others:
        lm.model(torch.tensor([other]), hooks=keep([name], kept))
        acts.append(SITES[site].view(kept[name])[0])
    for position in (2, 4):
        at = (position, head) if head is not None else position

        def value(old, at=at, position=position):
            if write == "zero":
                return torch.zeros_like(old)
            aligned = [(a, align(o, ids)[position]) for a, o in zip(acts, others)]
            found = [a[(s, head) if head is not None else s] for a, s in aligned if s is not None]
            if write == "mean":
                return torch.stack(found).mean(0)
            return base.clean[name] if write == "gaussian" else found

        run = run_patched(lm, runs, [Patch(site, layer, position, head)], new_tokens=0, base=base)
        wanted = base.clean[name] if write in ("gaussian", "resample") else None

        def write_in(x, at=at, wanted=wanted, value=value):
            view = SITES[site].view(x)
            view[at] = SITES[site].view(wanted)[at] if wanted is not None else value(view[at])
            return x

        logits = by_hand(lm.model, ids, name, write_in)
        assert run.value == pytest.approx(float(logits[5] - logits[6]), abs=1e-9)
        assert run.receipts[0].fired == 1 and run.receipts[0].changed > 0
        if write == "resample":
            view = SITES[site].view(base.clean[name])[at]
            assert any(torch.equal(view, one) for one in value(None))


def test_noise_has_the_size_asked_for_and_a_seed(lm):
    long = pair_of([1, 2, 5] + [7] * 20, [1, 3, 6] + [7] * 20)
    one, two, again = (
        treat(lm, long, Treatment("clean", "gaussian", seed=s, sigmas=2.0), ["resid_mid"])[1] for s in (0, 1, 0)
    )
    name = "blocks.2.hook_resid_mid"
    assert torch.equal(one.clean[name], again.clean[name]) and not torch.equal(one.clean[name], two.clean[name])
    own = one.corrupted[name]
    ratio = (one.clean[name] - own) / own.std(-1, keepdim=True)
    assert ratio.std().item() == pytest.approx(2.0, rel=0.1) and ratio.mean().item() == pytest.approx(0, abs=0.3)


def test_a_pattern_is_zeroed_averaged_and_never_noised(lm):
    runs, base = treat(lm, EQUAL, Treatment("clean", "mean", OTHERS), ["pattern"])
    pattern = base.clean["blocks.1.attn.hook_pattern"]
    torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern.sum(-1)))
    *_, swept = sweep(lm.model, runs, "pattern", base=base)
    assert swept.fraction == 1 and not swept.share.isnan().any()
    with pytest.raises(LabError, match="no pattern any more"):
        treat(lm, EQUAL, Treatment("clean", "gaussian"), ["pattern"])
    with pytest.raises(LabError, match="equally many tokens"):
        treat(lm, LONGER, Treatment("clean", "mean", OTHERS), ["pattern"])


def test_zeroing_all_outputs_leaves_the_embedding_alone(lm):
    runs, base = treat(lm, EQUAL, Treatment("clean", "zero"), ["attn_out", "mlp_out"])
    run = run_patched(lm, runs, [Patch(s, i) for s in ("attn_out", "mlp_out") for i in range(3)], new_tokens=0, base=base)
    logits = lm.model.unembed(lm.model.embed_tokens(torch.tensor([EQUAL.clean_ids])))[0, -1]
    assert run.value == pytest.approx(float(logits[5] - logits[6]), abs=1e-9)
    assert all(r.changed == pytest.approx(1) for r in run.receipts)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("into", ["corrupted", "clean"])
def test_sweeps_and_estimates_under_every_intervention(lm, write, into):
    """A sweep's cell is one patched run; a tiny part of the written value moves the metric by that part of the estimate."""
    runs, base = treat(lm, EQUAL, Treatment(into, write, OTHERS), ["attn_out", "z"])
    for site in ("attn_out", "z"):
        estimate = attribute(lm.model, runs, sites=[site], base=base)[site]
        *_, swept = sweep(lm.model, runs, site, base=base)
        scale = base.scale(runs, "logit_diff")
        cell = grid(lm.config, runs, site)[-1]
        run = run_patched(lm, runs, [cell.patch], new_tokens=0, base=base)
        assert float(swept.share[cell.row, cell.column]) == pytest.approx(run.share, abs=1e-9)
        name = SITES[site].name(cell.layer)
        act = Intervention([cell.patch], base.clean, runs.alignment)

        def part(step, act=act, name=name, scale=scale):
            tokens = torch.tensor([runs.corrupted_ids])
            hooks = {name: lambda x, n: x + step * (act.hooks[name](x, n) - x)}
            return float(scale.share(scale.value(lm.model(tokens, hooks=hooks)[0, -1])))

        slope = (part(1e-5) - part(-1e-5)) / 2e-5
        assert float(estimate[cell.row, cell.column]) == pytest.approx(slope, abs=1e-5)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (dict(into="both"), "'corrupted' or 'clean'"),
        (dict(write="one"), "no intervention called 'one'"),
        (dict(write="gaussian", sigmas=0.0), "above zero"),
        (dict(write="mean"), "There are 0 other prompts"),
        (dict(write="mean", prompts=OTHERS[:1]), "There are 1 other prompts"),
        (dict(write="resample", prompts=("the a Eiffel tower stands in",)), "There are 0 other prompts"),
        (dict(write="mean", prompts=("the " * 40,)), "40 tokens; random reads at most 32"),
    ],
)  # fmt: skip
def test_bad_interventions_get_a_sentence(lm, change, sentence):
    with pytest.raises(LabError, match=sentence):
        treat(lm, EQUAL, Treatment(**{"into": "clean", **change}), ["resid_pre"])


# ---- heads at positions, neurons, cost


@pytest.mark.parametrize("site", ["z", "q", "k", "v", "pattern", "neuron"])
@pytest.mark.parametrize("pair", [EQUAL, LONGER], ids=["equal", "longer"])
def test_heads_by_position_equal_one_forward_a_cell(site, pair):
    model = decoder(4)
    if site == "pattern" and not pair.equal_length:
        with pytest.raises(LabError, match="equally many tokens"):
            by_position(model.cfg, pair, site)
        return
    cells = by_position(model.cfg, pair, site)
    base = baseline(model, pair, (site,))
    scale = base.scale(pair, "logit_diff")
    *_, swept = sweep(model, pair, site, base=base, cells=cells, shape=shape_by_position(model.cfg, pair, site))
    assert swept.fraction == 1 and len(swept.filled) == len(cells)
    for c in cells[:: max(1, len(cells) // 40)]:
        act = Intervention([c.patch], base.clean, pair.alignment)
        logits = model(torch.tensor([pair.corrupted_ids]), hooks=act.hooks)[0, -1]
        (receipt,) = act.receipts()
        assert swept.share[c.row, c.column] == pytest.approx(float(scale.share(scale.value(logits))), abs=1e-10)
        assert swept.changed[c.row, c.column] == pytest.approx(receipt.changed, abs=1e-10)


def test_estimates_by_position_sum_to_those_of_heads():
    model = decoder(2)
    for pair in (EQUAL, LONGER):
        whole, fine = (attribute(model, pair, by_position=kept) for kept in ((), list(SITES)))
        for site, estimate in whole.items():
            if SITES[site].heads:
                assert fine[site].shape == (3, SITES[site].n_heads(model.cfg), len(pair.alignment))
                torch.testing.assert_close(fine[site].nansum(-1), estimate)
            else:
                torch.testing.assert_close(fine[site], estimate, equal_nan=True)


def test_the_gradient_along_the_path_is_exact_for_what_enters_linearly():
    """Summed over positions, the estimate of the embedding is the whole effect once the line is finely divided."""
    model = decoder(6)
    one, many = (attribute(model, EQUAL, sites=["resid_pre"], steps=n)["resid_pre"][0].sum() for n in (1, 256))
    assert float(many) == pytest.approx(1, abs=1e-3) and abs(float(one) - 1) > 0.01
    with pytest.raises(LabError, match="equally many tokens"):
        attribute(model, LONGER, steps=4)


def test_the_strongest_neurons_and_every_few_layers():
    model = decoder(2)
    cells = grid(model.cfg, EQUAL, "neuron")
    estimate = attribute(model, EQUAL, sites=["neuron"])["neuron"]
    top = strongest(cells, estimate, 5)
    assert {(c.row, c.column) for c in top} == {divmod(int(i), 40) for i in estimate.abs().flatten().topk(5).indices}
    assert {c.layer for c in every(grid(model.cfg, EQUAL, "resid_pre"), 2, 3)} == {0, 2}
    with pytest.raises(LabError, match="0-th"):
        every(cells, 0, 3)


def test_a_cost_is_told_before_and_memory_is_not_overrun():
    model = decoder(2, torch.float32)
    cells = by_position(model.cfg, EQUAL, "z")
    cost = preview(model, EQUAL, "z", cells)
    assert cost.forwards == 3 * 4 * 6 and cost.bytes > 0 and cost.seconds > 0
    assert bytes_needed(model, EQUAL, "pattern", cells) > bytes_needed(model, EQUAL, "z", cells)
    check_memory(model.device, cost.bytes, "this sweep")
    with pytest.raises(LabError, match=r"this sweep needs about 1e\+06|this sweep needs about 1000000"):
        check_memory(model.device, 10**15, "this sweep")


def test_a_model_without_mlps_has_no_sites_of_theirs():
    class Bare:
        def hook_names(self):
            return ["blocks.0.hook_resid_pre", "blocks.0.attn.hook_z"]

    assert sites_of(Bare()) == ["resid_pre", "z"]
    assert sites_of(decoder()) == list(SITES)
