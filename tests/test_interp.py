"""Patches, sweeps, estimates and lenses against their definitions, in float64, and against TransformerLens."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import sweep as sweeping
from interp.attribution import agreement, attribute
from interp.baseline import baseline
from interp.lenses.logit import logit_lens
from interp.metrics import METRICS
from interp.patching import attention_patterns, continuations, generate, run_patched
from interp.prompts import align, prepare
from interp.sites import SITES, Intervention, Patch, chain, keep
from interp.sweep import grid, sweep
from lab.errors import LabError
from tests.interp_models import VOCAB, decoder, language_model, pair_of, word_tokenizer

EQUAL = pair_of([1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9])
LONGER = pair_of([1, 5, 7, 8, 9], [1, 3, 6, 6, 7, 8, 9])
SHORTER = pair_of([1, 3, 5, 5, 7, 8, 9], [1, 6, 7, 8, 9])
PAIRS = {"equal": EQUAL, "corrupted longer": LONGER, "corrupted shorter": SHORTER}


@pytest.fixture
def lm(tmp_path):
    return language_model(tmp_path)


def naive(model, pair, patches, base):
    """Logits [vocab] of one whole forward with these patches."""
    act = Intervention(patches, base.clean, pair.alignment)
    return model(torch.tensor([pair.corrupted_ids]), hooks=act.hooks)[0, -1], act.receipts()


# ---- the exact sweep


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_sweep_equals_one_forward_a_cell(site, pair, monkeypatch):
    if site == "pattern" and not pair.equal_length:
        with pytest.raises(LabError, match="equally many tokens"):
            grid(decoder().cfg, pair, site)
        return
    for seed, kind, tokens in ((0, {}, 1024), (1, {"qk_norm": True, "tied": False}, 9)):
        monkeypatch.setattr(sweeping, "TOKENS_PER_CHUNK", tokens)
        model = decoder(seed, **kind)
        base = baseline(model, pair, (site,))
        metric = list(METRICS)[seed]
        scale = base.scale(pair, metric)
        *_, result = sweep(model, pair, site, metric)
        assert result.fraction == 1
        cells = grid(model.cfg, pair, site)
        assert sorted(result.filled) == sorted((c.row, c.column) for c in cells)
        assert int((~result.share.isnan()).sum()) == len(cells)
        for c in cells:
            logits, (receipt,) = naive(model, pair, [c.patch], base)
            assert result.share[c.row, c.column] == pytest.approx(float(scale.share(scale.value(logits))), abs=1e-10)
            assert result.changed[c.row, c.column] == pytest.approx(receipt.changed, abs=1e-10)
            assert result.top_ids[c.row, c.column, 0] == logits.argmax()


def test_sweep_of_a_stream_before_a_layer_is_the_sweep_after_the_layer_below():
    model = decoder()
    *_, pre = sweep(model, EQUAL, "resid_pre")
    *_, post = sweep(model, EQUAL, "resid_post")
    torch.testing.assert_close(pre.share[1:], post.share[:-1])
    # after the last layer only the last position is read
    assert post.share[-1, :-1].abs().max() < 1e-12 and post.share[-1, -1] == pytest.approx(1)


def test_a_cancelled_sweep_keeps_what_it_measured(monkeypatch):
    monkeypatch.setattr(sweeping, "TOKENS_PER_CHUNK", 9)
    model = decoder()
    *_, whole = sweep(model, EQUAL)
    steps = sweep(model, EQUAL)
    seen = [next(steps).fraction for _ in range(8)]
    result = next(steps)
    steps.close()
    assert seen == sorted(seen) and 0 < result.fraction < 1
    measured = ~result.share.isnan()
    assert 0 < measured.sum() < measured.numel()
    torch.testing.assert_close(result.share[measured], whole.share[measured])


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    clean=st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=8),
    corrupted=st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=8),
    site=st.sampled_from(sorted(SITES)),
)
def test_any_cell_of_any_pair_of_prompts(data, clean, corrupted, site):
    pair = pair_of(clean, corrupted)
    if clean == corrupted or (site == "pattern" and len(clean) != len(corrupted)):
        return
    model = decoder(3)
    base = baseline(model, pair, (site,))
    try:
        scale = base.scale(pair, "logit_diff")
    except LabError:
        return
    cell = data.draw(st.sampled_from(grid(model.cfg, pair, site)))
    *_, result = sweep(model, pair, site, base=base)
    logits, _ = naive(model, pair, [cell.patch], base)
    assert float(result.value[cell.row, cell.column]) == pytest.approx(float(scale.value(logits)), abs=1e-9)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_alignment_rises_and_matches_both_ends(clean, corrupted):
    found = align(clean, corrupted)
    partners = [s for s in found if s is not None]
    assert len(found) == len(corrupted) and len(partners) == min(len(clean), len(corrupted))
    assert partners == sorted(set(partners)) and all(0 <= s < len(clean) for s in partners)
    if clean[-1] == corrupted[-1]:
        assert found[-1] == len(clean) - 1
    if len(clean) == len(corrupted):
        assert found == list(range(len(clean)))


# ---- chosen cells


@pytest.mark.parametrize("metric", METRICS)
def test_patching_everything_restores_everything(lm, metric):
    for site in ("resid_pre", "resid_mid", "resid_post"):
        for layer in range(lm.config.n_layers):
            cells = [Patch(site, layer, p) for p in range(6)]
            assert run_patched(lm, EQUAL, cells, metric, 0).share == pytest.approx(1, abs=1e-9)
    # all heads and both outputs of every layer, at every position, leave only the embedding corrupted
    outputs = [Patch(s, i) for i in range(3) for s in ("attn_out", "mlp_out")] + [Patch("resid_pre", 0)]
    assert run_patched(lm, EQUAL, outputs, metric, 0).share == pytest.approx(1, abs=1e-9)


def test_patching_what_is_the_same_restores_nothing(lm):
    run = run_patched(lm, EQUAL, [Patch("resid_pre", 2, 0), Patch("z", 0, 0, 1)], new_tokens=0)
    assert run.share == pytest.approx(0, abs=1e-12)
    assert [r.changed for r in run.receipts] == [0, 0] and [r.fired for r in run.receipts] == [1, 1]


def test_receipts_tell_what_was_written(lm):
    base = baseline(lm.model, EQUAL, ("mlp_out", "z"))
    run = run_patched(lm, EQUAL, [Patch("mlp_out", 1, 2), Patch("z", 2, None, 3)], new_tokens=0)
    one, two = run.receipts
    name = "blocks.1.hook_mlp_out"
    new, old = base.clean[name][2], base.corrupted[name][2]
    assert one.site == name and one.changed == pytest.approx(float((new - old).norm() / old.norm()))
    # the second patch acts on a stream the first has changed
    kept: dict = {}
    act = Intervention([Patch("mlp_out", 1, 2)], base.clean, EQUAL.alignment)
    lm.model(torch.tensor([EQUAL.corrupted_ids]), hooks=chain(act.hooks, keep(["blocks.2.attn.hook_z"], kept)))
    new, old = base.clean["blocks.2.attn.hook_z"][:, 3], kept["blocks.2.attn.hook_z"][0, :, 3]
    assert two.changed == pytest.approx(float((new - old).norm() / old.norm()))


def test_a_patch_that_never_fires_is_an_error(lm):
    base = baseline(lm.model, EQUAL)
    act = Intervention([Patch("resid_pre", 1, 2)], base.clean, EQUAL.alignment)
    lm.model(torch.tensor([EQUAL.corrupted_ids]))  # without the hooks
    with pytest.raises(LabError, match="never fired"):
        act.receipts()


def test_continuation_holds_the_patch(lm):
    patches = [Patch("resid_pre", 1, 2), Patch("v", 0, 1, 1)]
    run = run_patched(lm, EQUAL, patches, new_tokens=6)
    base = baseline(lm.model, EQUAL, ("v",))
    said = list(EQUAL.corrupted_ids)
    for token in run.answer.continuation:  # again without a cache, the patch applied to the whole text each time
        act = Intervention(patches, base.clean, EQUAL.alignment)
        logits = lm.model(torch.tensor([said]), hooks=act.hooks)[0, -1]
        assert token == logits.argmax()
        said.append(token)
    assert len(said) == 12
    alone = [run_patched(lm, EQUAL, [patch], new_tokens=6).answer.continuation for patch in patches]
    assert list(continuations(lm, EQUAL, patches, 6, rows=2)) == alone
    assert len(generate(lm, [EQUAL.corrupted_ids], 100)[1][0]) <= 32 - 6  # stops at the context


def test_hooks_leave_nothing_and_two_threads_do_not_meet(lm):
    tokens = torch.tensor([EQUAL.corrupted_ids])
    plain = lm.model(tokens)
    jobs = [[Patch("resid_pre", 1, p)] for p in (1, 2)] * 4
    alone = [run_patched(lm, EQUAL, job, new_tokens=4) for job in jobs]
    together: list = [None] * len(jobs)
    gate = threading.Barrier(len(jobs))

    def work(i: int) -> None:
        gate.wait()
        for _ in range(5):
            together[i] = run_patched(lm, EQUAL, jobs[i], new_tokens=4)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [t.value for t in together] == pytest.approx([a.value for a in alone], abs=1e-12)
    assert [t.answer.continuation for t in together] == [a.answer.continuation for a in alone]
    torch.testing.assert_close(lm.model(tokens), plain, rtol=0, atol=0)


# ---- estimates and lenses


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_attribution_is_the_slope_of_the_patch(pair):
    """Mixing a little of the clean activation in moves the metric by that much of the estimate."""
    model = decoder(2)
    for metric in METRICS:
        estimates = attribute(model, pair, metric)
        assert ("pattern" in estimates) == pair.equal_length
        for site, estimate in estimates.items():
            base = baseline(model, pair, (site,))
            scale = base.scale(pair, metric)
            cells = grid(model.cfg, pair, site)
            for cell in cells[:: max(1, len(cells) // 5)]:
                name = SITES[site].name(cell.row)
                act = Intervention([cell.patch], base.clean, pair.alignment)

                def part(step, name=name, act=act, scale=scale):
                    def mix(x, _):
                        return x + step * (act.hooks[name](x, name) - x)

                    return float(scale.value(model(torch.tensor([pair.corrupted_ids]), hooks={name: mix})[0, -1]))

                slope = (part(1e-5) - part(-1e-5)) / 2e-5 / (scale.clean - scale.corrupted)
                assert float(estimate[cell.row, cell.column]) == pytest.approx(slope, abs=1e-5)


def test_attribution_leaves_no_gradient_behind():
    model = decoder().requires_grad_(True)
    attribute(model, EQUAL, sites=("resid_pre",))
    assert all(p.grad is None for p in model.parameters())


def test_agreement():
    x = torch.tensor([[1.0, 2.0], [3.0, float("nan")]])
    assert agreement(2 * x + 1, x) == pytest.approx(1)
    assert agreement(-x, x) == pytest.approx(-1)
    assert agreement(x * 0, x) != agreement(x * 0, x)  # NaN


def test_logit_lens(lm):
    tokens = EQUAL.corrupted_ids
    result = logit_lens(lm, tokens, track=[5], k=3)
    assert result.rows == ["embed", "0", "1", "2"] and result.ids.shape == (4, 6, 3)
    probs = lm.model(torch.tensor([tokens]))[0].softmax(-1)
    torch.testing.assert_close(result.probs[-1], probs.topk(3).values)
    torch.testing.assert_close(result.tracked[5][-1], probs[:, 5])
    torch.testing.assert_close(result.entropy[-1], -(probs * probs.log()).sum(-1))
    first = lm.model.unembed(lm.model.embed_tokens(torch.tensor([tokens])))[0].softmax(-1)
    torch.testing.assert_close(result.tracked[5][0], first[:, 5])
    base = baseline(lm.model, EQUAL, ("resid_post",))
    act = Intervention([Patch("resid_post", 1, p) for p in range(6)], base.clean, EQUAL.alignment)
    patched, clean = logit_lens(lm, tokens, act.hooks, track=[5]), logit_lens(lm, EQUAL.clean_ids, track=[5])
    torch.testing.assert_close(patched.tracked[5][2:], clean.tracked[5][2:])  # from the patched row on
    torch.testing.assert_close(patched.tracked[5][:2], logit_lens(lm, tokens, track=[5]).tracked[5][:2])


def test_attention_patterns(lm):
    pattern = attention_patterns(lm, EQUAL.corrupted_ids, 1)
    assert pattern.shape == (4, 6, 6)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(4, 6, dtype=pattern.dtype))
    assert (pattern.triu(1) == 0).all()


# ---- against TransformerLens


def test_sweeps_equal_transformer_lens(tmp_path):
    import copy

    from transformer_lens import patching
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    from lab.models import save

    model = decoder(5, torch.float32)
    words = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(tmp_path).inner, pad_token="<s>")
    save(model, None, tmp_path / "m")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m", attn_implementation="eager", dtype=torch.float32)
    bridge = TransformerBridge.boot_transformers(str(tmp_path / "m"), hf_model=copy.deepcopy(theirs), tokenizer=words)
    clean, corrupted = (torch.tensor([x]) for x in (EQUAL.clean_ids, EQUAL.corrupted_ids))
    functions = {
        "resid_pre": patching.get_act_patch_resid_pre, "resid_mid": patching.get_act_patch_resid_mid,
        "attn_out": patching.get_act_patch_attn_out, "mlp_out": patching.get_act_patch_mlp_out,
        "z": patching.get_act_patch_attn_head_out_all_pos, "q": patching.get_act_patch_attn_head_q_all_pos,
        "k": patching.get_act_patch_attn_head_k_all_pos, "v": patching.get_act_patch_attn_head_v_all_pos,
        "pattern": patching.get_act_patch_attn_head_pattern_all_pos,
    }  # fmt: skip
    with torch.no_grad():
        _, cache = bridge.run_with_cache(clean)
        for site, function in functions.items():
            expected = function(bridge, corrupted, cache, lambda x: x[0, -1, 5] - x[0, -1, 6])
            *_, ours = sweep(model, EQUAL, site)
            torch.testing.assert_close(ours.value.float(), expected, rtol=1e-3, atol=1e-4, msg=site)


# ---- prompts and bad input


def test_prepare_aligns_and_warns(lm):
    pair = prepare(lm, "the Eiffel tower stands in", "a great Tokyo tower stands in", "Paris", " Rome")
    assert pair.alignment == [None, 0, 1, 2, 3, 4]
    assert [pair.differs(p) for p in range(6)] == [True, True, True, False, False, False]
    assert len(pair.warnings) == 1 and "5 and 6 tokens" in pair.warnings[0]
    assert not prepare(lm, "the Eiffel", "the Tokyo", "Paris", "Rome").warnings


@pytest.mark.parametrize(
    "change, sentence",
    [
        (dict(clean="  "), "clean prompt is empty"),
        (dict(corrupted="the " * 40), "40 tokens; random reads at most 32"),
        (dict(corrupted="the Eiffel tower"), "two prompts are the same"),
        (dict(answer="New York"), "'New York' is 2 tokens for this model \\('New' \\+ 'York'\\)"),
        (dict(answer=""), "answer is empty"),
        (dict(wrong="Paris"), "Both answers are the token"),
    ],
)  # fmt: skip
def test_bad_prompts_get_a_sentence(lm, change, sentence):
    good = dict(clean="the Eiffel tower", corrupted="the Tokyo tower", answer="Paris", wrong="Rome")
    with pytest.raises(LabError, match=sentence):
        prepare(lm, **good | change)


def test_the_first_token_of_a_long_answer_can_be_asked_for(lm):
    pair = prepare(lm, "the Eiffel tower", "the Tokyo tower", "New York", "Rome", first_token=True)
    assert lm.tokenizer.pieces([pair.answer_id]) == ["New"]


@pytest.mark.parametrize(
    "patches, sentence",
    [
        ([], "No cell is chosen"),
        ([Patch("resid", 0, 0)], "no site called 'resid'"),
        ([Patch("resid_pre", 3, 0)], "layers 0 to 2"),
        ([Patch("resid_pre", -1, 0)], "layers 0 to 2"),
        ([Patch("resid_pre", 0, 7)], "outside the corrupted prompt"),
        ([Patch("resid_pre", 0, 1)], "no partner"),
        ([Patch("z", 0, 0)], "needs a head from 0 to 3"),
        ([Patch("k", 0, 0, 2)], "needs a head from 0 to 1"),
        ([Patch("mlp_out", 0, 0, 1)], "no heads"),
        ([Patch("pattern", 0, None, 1)], "equally many tokens"),
    ],
)  # fmt: skip
def test_bad_patches_get_a_sentence(lm, patches, sentence):
    with pytest.raises(LabError, match=sentence):
        run_patched(lm, LONGER, patches, new_tokens=0)


def test_bad_metrics_and_sites_get_a_sentence(lm):
    with pytest.raises(LabError, match="no metric called 'loss'"):
        run_patched(lm, EQUAL, [Patch("resid_pre", 0, 1)], "loss")
    with pytest.raises(LabError, match="no site called"):
        next(sweep(lm.model, EQUAL, "logits"))
    with pytest.raises(LabError, match="no site called"):
        attribute(lm.model, EQUAL, sites=("logits",))
    same = pair_of([1, 2, 3], [1, 2, 3])
    with pytest.raises(LabError, match="same logit difference"):
        baseline(lm.model, same).scale(same, "logit_diff")
