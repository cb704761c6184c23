"""Our decoder, TransformerLens's bridge and nnsight run the same model: activations, patches, analyses agree."""

import copy
import threading
from types import SimpleNamespace

import pytest
import torch
import transformers as hf

from interp import sweep as sweeping
from interp.attribution import attribute
from interp.backends import load, parity, wrap
from interp.baseline import baseline
from interp.lenses.logit import logit_lens
from interp.patching import attention_patterns, continuations, run_patched
from interp.sites import SITES, Intervention, Patch
from interp.sweep import grid, seconds_needed, sweep
from lab.errors import LabError
from tests.interp_models import VOCAB, decoder, pair_of, word_tokenizer

EQUAL = pair_of([1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9])
LONGER = pair_of([1, 5, 7, 8, 9], [1, 3, 6, 6, 7, 8, 9])
TOKENS = torch.tensor([[1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9]])
SHAPE = dict(
    vocab_size=VOCAB, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
    max_position_embeddings=32,
)  # fmt: skip
GROUPED = SHAPE | dict(num_key_value_heads=2, head_dim=6)
KINDS = {
    "llama": lambda: hf.LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "qwen3": lambda: hf.Qwen3Config(**GROUPED, tie_word_embeddings=False),
    "gpt2": lambda: hf.GPT2Config(vocab_size=VOCAB, n_embd=24, n_layer=3, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=0),
    "mistral": lambda: hf.MistralConfig(**GROUPED, sliding_window=3),
    "qwen2": lambda: hf.Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=3, max_window_layers=0),
    "neox": lambda: hf.GPTNeoXConfig(**SHAPE),
    "mamba": lambda: hf.MambaConfig(vocab_size=VOCAB, hidden_size=24, num_hidden_layers=3, state_size=4),
}  # fmt: skip
THREE = ("llama", "qwen3", "gpt2")
BACKENDS = ("bridge", "nnsight")
SAME = dict(rtol=0, atol=1e-5)


def transformer(kind: str, seed: int = 0) -> torch.nn.Module:
    """A random transformers model with weights large enough that a patch matters."""
    torch.manual_seed(seed)
    model = hf.AutoModelForCausalLM.from_config(KINDS[kind](), attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.15 * torch.randn_like(p))
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with a model of each layout and the word tokenizer."""
    found = {}
    for kind in (*THREE, "mistral"):
        found[kind] = tmp_path_factory.mktemp(kind)
        transformer(kind).save_pretrained(found[kind])
        word_tokenizer(found[kind])
    return found


@pytest.fixture(scope="module")
def wrapped():
    """Models of the other architectures behind both libraries, made once."""
    made = {}

    def get(kind: str, backend: str):
        if (kind, backend) not in made:
            made[kind, backend] = wrap(transformer(kind), backend)
        return made[kind, backend]

    return get


# ---- parity


@pytest.mark.parametrize("kind", THREE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_activations_and_patched_logits_agree_with_ours(saved, kind, backend):
    own, other = (load(str(saved[kind]), b, torch.float32).model for b in ("own", backend))
    rows = parity.activations(parity.observe(own, TOKENS), parity.observe(other, TOKENS))
    assert max(row.max_abs for row in rows) < 1e-5, max(rows, key=lambda r: r.max_abs)
    points = {row.point for row in rows}
    assert points >= {
        "hook_embed", "hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out",
        "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "attn.hook_pattern", "mlp.hook_pre", "mlp.hook_post",
        "logits",
    }  # fmt: skip
    for pair in (EQUAL, LONGER):
        rows = parity.patched(parity.patch(own, pair), parity.patch(other, pair))
        assert len(rows) == len(SITES) - (pair is LONGER)
        assert max(row.max_abs for row in rows) < 1e-5, max(rows, key=lambda r: r.max_abs)


def test_shapes_are_read_from_any_config(wrapped):
    seen = {kind: wrapped(kind, "nnsight").cfg for kind in ("gpt2", "qwen2", "neox", "mamba")}
    assert (seen["gpt2"].d_mlp, seen["qwen2"].d_mlp, seen["neox"].d_mlp) == (96, 40, 40)
    assert (seen["qwen2"].n_kv_heads, seen["gpt2"].n_kv_heads, seen["mamba"].n_heads) == (2, 4, 0)
    assert {(c.d_model, c.n_layers, c.vocab_size) for c in seen.values()} == {(24, 3, VOCAB)}


@pytest.mark.parametrize("kind", ("mistral", "qwen2", "neox", "mamba"))
def test_other_architectures_agree_between_the_libraries(wrapped, kind):
    one, other = wrapped(kind, "bridge"), wrapped(kind, "nnsight")
    assert max(row.max_abs for row in parity.compare(*(parity.see(m, TOKENS, EQUAL) for m in (one, other)))) < 1e-5
    torch.testing.assert_close(other(TOKENS), transformer(kind)(TOKENS).logits, **SAME)


def test_a_sliding_window_is_the_same_in_our_decoder(saved):
    own = load(str(saved["mistral"]), "own", torch.float32).model
    assert own.cfg.window == 3
    for backend in BACKENDS:
        other = load(str(saved["mistral"]), backend, torch.float32).model
        assert max(row.max_abs for row in parity.compare(*(parity.see(m, TOKENS, EQUAL) for m in (own, other)))) < 1e-5
    pattern = own.run_with_cache(TOKENS, lambda n: n.endswith("0.attn.hook_pattern"))[1].popitem()[1]
    assert (pattern.tril(-3) == 0).all() and (pattern.tril(-2) > 0).any()


def test_parity_sees_a_difference(saved):
    own = load(str(saved["llama"]), "own", torch.float32).model
    changed = copy.deepcopy(own)
    changed.model.layers[1].mlp.down_proj.weight[0, 0] += 0.1
    rows = {row.point: row for row in parity.activations(*(parity.observe(m, TOKENS) for m in (own, changed)))}
    assert rows["hook_resid_mid"].layer == 2 and rows["hook_mlp_out"].layer == 1
    assert rows["hook_embed"].max_abs == 0 < rows["logits"].max_abs
    smaller = decoder(dtype=torch.float32, d_head=4)
    with pytest.raises(LabError, match="not the same model"):
        parity.activations(*(parity.observe(m, TOKENS) for m in (own, smaller)))


# ---- hooks are arguments


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_left_behind(wrapped, backend):
    model = wrapped("llama" if backend == "nnsight" else "neox", backend)
    before = model(TOKENS)
    name = "blocks.1.hook_resid_pre"
    assert (model(TOKENS, hooks={name: lambda x, _: x * 0}) - before).abs().max() > 0.01

    def fails(x, _):
        raise LabError("a hook that fails")

    with pytest.raises(LabError, match="a hook that fails"):
        model(TOKENS, hooks={name: fails})
    assert torch.equal(model(TOKENS), before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrapping_leaves_the_module_as_it_was(backend):
    module = transformer("gpt2")
    before = {name: p.clone() for name, p in module.state_dict().items()}
    model = wrap(module, backend)
    model(TOKENS, hooks={"blocks.0.hook_mlp_out": lambda x, _: x * 0})
    assert module.state_dict().keys() == before.keys() and all(torch.equal(module.state_dict()[n], p) for n, p in before.items())
    assert not any("forward" in vars(m) for m in module.modules())
    torch.testing.assert_close(model(TOKENS), module(TOKENS).logits, **SAME)


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_do_not_see_each_others_hooks(wrapped, backend):
    model = wrapped("qwen2", backend)
    plain, zeroed, wrong = model(TOKENS), None, []
    hooks = {"blocks.0.hook_mlp_out": lambda x, _: x * 0}
    zeroed = model(TOKENS, hooks=hooks)

    def work(given, expected):
        wrong.extend(i for i in range(5) if not torch.equal(model(TOKENS, hooks=given), expected))

    threads = [threading.Thread(target=work, args=a) for a in ((None, plain), (hooks, zeroed)) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_that_does_not_fire_is_an_error(wrapped, backend, monkeypatch):
    model = wrapped("llama", backend)
    with pytest.raises(LabError, match=r"no hook point 'blocks.9.hook_resid_pre'"):
        model(TOKENS, hooks={"blocks.9.hook_resid_pre": lambda x, _: None})
    monkeypatch.setattr(model, "_forward", lambda tokens, hooks: torch.zeros(*tokens.shape, VOCAB))
    with pytest.raises(LabError, match=r"blocks.0.hook_resid_pre never fired"):
        model(TOKENS, hooks={"blocks.0.hook_resid_pre": lambda x, _: None})


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_input_gets_a_sentence(wrapped, backend):
    model = wrapped("llama", backend)
    with pytest.raises(LabError, match="prompt is empty"):
        model(torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(LabError, match="40 tokens long and this model reads 32"):
        model(torch.zeros(1, 40, dtype=torch.long))


# ---- the analyses


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ("llama", "gpt2"))
def test_sweeps_give_the_same_numbers(saved, kind, backend, monkeypatch):
    own, other = (load(str(saved[kind]), b, torch.float32).model for b in ("own", backend))
    monkeypatch.setattr(sweeping, "TOKENS_PER_CHUNK", 40)
    for site in SITES:
        for pair in (EQUAL,) if site == "pattern" else (EQUAL, LONGER):
            *_, ours = sweep(own, pair, site)
            *_, theirs = sweep(other, pair, site)
            assert theirs.fraction == 1 and sorted(theirs.filled) == sorted(ours.filled)
            torch.testing.assert_close(theirs.value, ours.value, rtol=0, atol=3e-5, equal_nan=True)
            torch.testing.assert_close(theirs.changed, ours.changed, rtol=1e-3, atol=1e-5, equal_nan=True)
    assert seconds_needed(other, EQUAL, "z") > 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", THREE)
def test_gradients_flow_through_a_backend(saved, kind, backend):
    own, other = (load(str(saved[kind]), b, torch.float32).model for b in ("own", backend))
    ours, theirs = attribute(own, EQUAL), attribute(other, EQUAL)
    assert ours.keys() == theirs.keys() == SITES.keys()
    for site in ours:
        torch.testing.assert_close(theirs[site], ours[site], rtol=1e-3, atol=1e-4, msg=site)


@pytest.mark.parametrize("backend", BACKENDS)
def test_patches_lenses_and_continuations_on_a_backend(saved, backend):
    own, other = (load(str(saved["gpt2"]), b, torch.float32) for b in ("own", backend))
    cells = [Patch("resid_pre", 1, 2), Patch("z", 2, None, 1), Patch("pattern", 1, None, 0)]
    apart = [Patch("resid_pre", 1, 5), cells[1]]
    ours, theirs = (run_patched(lm, EQUAL, cells, new_tokens=5) for lm in (own, other))
    assert theirs.answer.continuation == ours.answer.continuation and len(ours.answer.continuation) == 5
    assert theirs.value == pytest.approx(ours.value, abs=1e-5)
    assert [r.changed for r in theirs.receipts] == pytest.approx([r.changed for r in ours.receipts], abs=1e-5)
    assert list(continuations(own, LONGER, apart, 4)) == list(continuations(other, LONGER, apart, 4))
    one, two = (logit_lens(lm, EQUAL.clean_ids, track=[5]) for lm in (own, other))
    torch.testing.assert_close(one.probs, two.probs, **SAME)
    torch.testing.assert_close(*(attention_patterns(lm, EQUAL.clean_ids, 1) for lm in (own, other)), **SAME)


# ---- what a backend cannot do


def test_what_a_backend_cannot_do_is_said(saved):
    for kind in THREE:
        for backend in BACKENDS:
            model = load(str(saved[kind]), backend, torch.float32).model
            have = set(model.hook_names())
            lacking = [n for n in load(str(saved[kind]), "own", torch.float32).model.hook_names() if n not in have]
            assert all(model.why_not(name) for name in lacking), [n for n in lacking if not model.why_not(n)]
            for name in lacking[:1]:
                with pytest.raises(LabError, match=f"{name} cannot be reached: "):
                    model(TOKENS, hooks={name: lambda x, _: None})
    assert not load(str(saved["llama"]), "bridge", torch.float32).model.cannot.keys() - {"hook_pos_embed"}


@pytest.mark.parametrize("kind", THREE)
def test_a_hook_may_leave_the_positions_to_be_read(saved, kind):
    own, *others = (load(str(saved[kind]), b, torch.float32).model for b in ("own", *BACKENDS))
    pick = {"blocks.2.hook_resid_post": lambda x, _: x[:, [3]]}
    expected = own(TOKENS, hooks=pick)
    assert expected.shape == (2, 1, VOCAB)
    for other in others:
        torch.testing.assert_close(other(TOKENS, hooks=pick), expected, **SAME)


def test_edges_of_a_circuit_through_a_backend(saved):
    from interp.circuits.attribution import attribute_study
    from interp.circuits.edges import Study
    from tests.circuits_models import batch

    own, bridge, nnsight = (load(str(saved["gpt2"]), b, torch.float32).model for b in ("own", *BACKENDS))
    ours, theirs = Study(own, batch()), Study(bridge, batch())
    torch.testing.assert_close(attribute_study(theirs), attribute_study(ours), rtol=1e-3, atol=1e-5)
    some = torch.zeros(1, ours.graph.n_edges, dtype=torch.bool)
    some[0, ::3] = True
    torch.testing.assert_close(theirs.values(some), ours.values(some), rtol=0, atol=1e-5)
    with pytest.raises(LabError, match=r"attn.hook_result cannot be reached: one product writes all heads"):
        Study(nnsight, batch())


def test_what_only_our_decoder_has_is_a_sentence(wrapped):
    for backend in BACKENDS:
        model = wrapped("llama", backend)
        assert not hasattr(model, "run_block") and not hasattr(model, "W_U") and not hasattr(model, "nonsense")
        with pytest.raises(LabError, match="needs matrices of heads by name, which"):
            model.head_weights(0)
        with pytest.raises(LabError, match="needs a key-value cache, which"):
            model(TOKENS, cache=object())


def test_layouts_nobody_reads_get_a_sentence(tmp_path):
    from lab.models import save

    save(decoder(dtype=torch.float32, act="relu", norm="none", positions="none"), None, tmp_path / "m")
    word_tokenizer(tmp_path / "m")
    with pytest.raises(LabError, match="take the backend 'own'"):
        load(str(tmp_path / "m"), "nnsight")
    with pytest.raises(LabError, match="no backend called 'jax'"):
        load("pocket", "jax")
    with pytest.raises(LabError, match="take nnsight"):
        wrap(torch.nn.Linear(3, 3), "bridge")


class Bag(torch.nn.Module):
    """No transformer at all: a mean of embeddings through a layer that returns a tuple."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = torch.nn.Embedding(VOCAB, 8), torch.nn.GRU(8, 8, batch_first=True), torch.nn.Linear(8, VOCAB)

    def forward(self, tokens):
        return self.out(self.mix(self.embed(tokens))[0])


def test_any_torch_module_works_by_its_paths():
    torch.manual_seed(0)
    module = Bag()
    model = wrap(module, "nnsight")
    assert model.hook_names() == ["embed.input", "embed.output", "mix.input", "mix.output", "out.input", "out.output"]
    assert "blocks.*" in model.cannot
    shift = {"mix.output": lambda x, _: x + 1}
    expected = module.out(module.mix(module.embed(TOKENS))[0] + 1)
    torch.testing.assert_close(model(TOKENS, hooks=shift), expected.detach(), **SAME)
    with pytest.raises(LabError, match=r"blocks.0.hook_resid_pre cannot be reached"):
        model(TOKENS, hooks={"blocks.0.hook_resid_pre": lambda x, _: None})
    with pytest.raises(LabError, match="no final norm and unembedding"):
        model.unembed(torch.zeros(1, 1, 8))
    with pytest.raises(LabError, match="does not run on token ids alone"):
        wrap(torch.nn.Linear(3, 3), "nnsight")


def test_modules_of_a_known_architecture_are_reached_too(wrapped):
    model = wrapped("llama", "nnsight")
    kept = {}
    model(TOKENS, hooks={"model.layers.1.mlp.act_fn.output": lambda x, n: kept.__setitem__(n, x), "blocks.1.mlp.hook_pre": lambda x, n: kept.__setitem__(n, x)})
    torch.testing.assert_close(kept["model.layers.1.mlp.act_fn.output"], torch.nn.functional.silu(kept["blocks.1.mlp.hook_pre"]))


def test_a_model_that_looks_both_ways_through_nnsight():
    torch.manual_seed(0)
    config = hf.BertConfig(**SHAPE)
    bert = hf.BertForMaskedLM(config).eval()
    with pytest.warns(UserWarning, match="output"):
        model = wrap(bert, "nnsight")
    assert {f"blocks.{i}.hook_resid_{w}" for i in range(3) for w in ("pre", "post")} <= set(model.hook_names())
    assert model.why_not("blocks.0.hook_mlp_out")
    pair = pair_of([1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9])
    *_, result = sweep(model, pair, "resid_pre")
    assert result.fraction == 1 and not result.share.isnan().any()


# ---- shapes that a sweep's shortcuts must mind


@pytest.mark.parametrize(
    "kind",
    [
        dict(window=2), dict(causal=False), dict(positions="learned", norm="layer", act="gelu", bias=True),
        dict(positions="none", qk_norm=True), dict(tied=False, n_kv_heads=1, act="relu", bias=False),
    ],
    ids=lambda kind: ",".join(kind),
)  # fmt: skip
@pytest.mark.parametrize("pair", (EQUAL, LONGER), ids=("equal", "longer"))
def test_sweeps_of_every_shape_equal_one_forward_a_cell(kind, pair, monkeypatch):
    monkeypatch.setattr(sweeping, "TOKENS_PER_CHUNK", 20)
    model = decoder(2, **kind)
    for site in ("resid_pre", "mlp_out", "k", "z"):
        base = baseline(model, pair, (site,))
        scale = base.scale(pair, "logit_diff")
        *_, result = sweep(model, pair, site)
        for c in grid(model.cfg, pair, site):
            act = Intervention([c.patch], base.clean, pair.alignment)
            logits = model(torch.tensor([pair.corrupted_ids]), hooks=act.hooks)[0, -1]
            assert float(result.value[c.row, c.column]) == pytest.approx(float(scale.value(logits)), abs=1e-10)


def test_a_long_prompt_stays_within_its_memory(monkeypatch):
    """500 tokens and a vocabulary of 49,152: rows, keys and logits of a chunk stay bounded."""
    model = decoder(0, torch.float32, vocab_size=49_152, n_layers=1, d_model=8, n_heads=2, n_kv_heads=2, d_head=4, d_mlp=8, context=512)
    clean = torch.randint(1, 49_152, (500,), generator=torch.Generator().manual_seed(0)).tolist()
    corrupted = [clean[0], 7, *clean[2:]]
    pair = SimpleNamespace(
        clean_ids=clean, corrupted_ids=corrupted, answer_id=5, wrong_id=6, alignment=list(range(500)), equal_length=True,
        differs=lambda p: p == 1,
    )  # fmt: skip
    most = {"keys": 0, "logits": 0}
    unembed, block = model.unembed, model.run_block

    def watched(resid, *more):
        most["logits"] = max(most["logits"], len(resid) * 49_152)
        return unembed(resid, *more)

    def run(layer, resid, hooks=None, cache=None):
        most["keys"] = max(most["keys"], len(resid) * 500)
        assert len(resid) * resid.shape[1] <= max(500, sweeping.TOKENS_PER_CHUNK)
        return block(layer, resid, hooks, cache)

    base = baseline(model, pair, ("resid_post",))
    monkeypatch.setattr(model, "unembed", watched)
    monkeypatch.setattr(model, "run_block", run)
    *_, result = sweep(model, pair, "resid_post", base=base)
    assert result.fraction == 1 and int((~result.share.isnan()).sum()) == 500
    assert 0 < most["keys"] <= sweeping.KEYS_PER_CHUNK and 0 < most["logits"] <= sweeping.LOGITS_AT_ONCE


# ---- the page


def test_a_comparison_measures_every_backend(saved):
    from interp.backends.view import FLOOR, Comparison, Maps, reference

    lm = reference(str(saved["gpt2"]))
    comparison = Comparison(lm, EQUAL)
    maps = Maps(comparison, "z")
    assert comparison.small and comparison.seconds("z") > 0 and "pattern" in comparison.sites()
    comparison.run(maps)
    assert {key: row.state for key, row in comparison.rows.items()} == dict.fromkeys(("own", FLOOR, *BACKENDS), "done")
    for backend in BACKENDS:
        assert 0 < comparison.worst(backend) < 1e-5 and comparison.rows[backend].apart < 1e-4
        assert maps.maps[backend].value_title.endswith(" s")
    lines = {(row["point"], row["kind"]): row for row in comparison.parity.rows}
    assert lines["attn.hook_result", "activation"]["bridge"] < 1e-5 and "nnsight" not in lines["attn.hook_result", "activation"]
    assert any("hook_result" in row["point"] for row in comparison.cannot.rows)
    part = maps.maps["nnsight"].values.copy()
    part[0, 0] = float("nan")
    maps.maps["nnsight"].update(part)
    assert maps.apart("nnsight", "own") is None, "a map with a hole is not compared"


def test_a_comparison_says_who_cannot_open_a_model(tmp_path):
    from interp.backends.view import Comparison, Maps, reference
    from lab.models import save

    save(decoder(dtype=torch.float32, act="relu", bias=True), None, tmp_path / "m")
    word_tokenizer(tmp_path / "m")
    comparison = Comparison(reference(str(tmp_path / "m")), EQUAL)
    maps = Maps(comparison, "resid_pre")
    comparison.run(maps)
    for backend in BACKENDS:
        assert "take the backend 'own'" in comparison.rows[backend].state == maps.maps[backend].value_title.partition(": ")[2]
    assert comparison.rows["own"].sweep_s is not None


def test_what_ours_does_not_read_opens_through_nnsight(tmp_path):
    from interp.backends.view import Comparison, Maps, reference

    transformer("neox").save_pretrained(tmp_path)
    word_tokenizer(tmp_path)
    comparison = Comparison(reference(str(tmp_path)), EQUAL)
    comparison.run(Maps(comparison, "z"))
    assert comparison.first == "nnsight" and comparison.worst("bridge") < 1e-5
    assert "not read here" in comparison.rows["own"].state


def test_pickled_weights_are_never_opened(tmp_path):
    transformer("llama").save_pretrained(tmp_path)
    word_tokenizer(tmp_path)
    torch.save(transformer("llama").state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(LabError, match="safetensors"):
        load(str(tmp_path), "nnsight")
