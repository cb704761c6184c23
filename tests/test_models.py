"""The decoder against transformers, its hooks, its cache, its files."""

import copy
import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from lab import paths
from lab.errors import LabError
from lab.models import Decoder, KVCache, ModelConfig, io, load, save
from lab.models.tokenizer import Tokenizer

SHAPES = {
    "multi-head": dict(n_heads=4, n_kv_heads=4, d_head=8, tied=True),
    "grouped": dict(n_heads=6, n_kv_heads=2, d_head=8, tied=False),
    "multi-query": dict(n_heads=4, n_kv_heads=1, d_head=12, tied=True),
    "qwen3": dict(n_heads=4, n_kv_heads=2, d_head=16, tied=False, qk_norm=True),
    "sliding": dict(n_heads=4, n_kv_heads=2, d_head=12, tied=False, window=7),
}
GPT2 = dict(n_heads=4, n_kv_heads=4, d_head=12, norm="layer", positions="learned", act="gelu", bias=True)
#: shapes that transformers has no layout for
OTHERS = {
    "attention only": dict(n_heads=4, n_kv_heads=4, d_head=12, norm="layer", positions="learned", act="none", d_mlp=0, tied=False),
    "compiled": dict(n_heads=3, n_kv_heads=3, d_head=5, norm="none", positions="learned", act="relu", causal=False, bias=True, tied=False, out_vocab=11),
    "bare": dict(n_heads=4, n_kv_heads=2, d_head=12, norm="none", positions="none", act="relu", tied=False),
}
ALL = SHAPES | {"gpt2": GPT2} | OTHERS


def config(shape: str, **more) -> ModelConfig:
    return ModelConfig(**dict(vocab_size=97, d_model=48, n_layers=3, d_mlp=56, context=64) | ALL[shape] | more)


def decoder(shape: str = "grouped", dtype=torch.float32, **more) -> Decoder:
    model = Decoder(config(shape, **more)).init_weights(torch.seed() % 2**31).to(dtype).requires_grad_(False)
    for p in model.parameters():  # norms away from one and weights large enough to matter
        p.mul_(3) if p.dim() > 1 else p.add_(0.3 * torch.randn_like(p))
    return model


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 97, (batch, length))


def rel(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_transformers(shape, tmp_path):
    from transformers import AutoModelForCausalLM

    ours = decoder(shape)
    save(ours, None, tmp_path / "m")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    x = tokens(3, 40)
    with torch.no_grad():
        assert rel(ours(x), theirs(x).logits) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_checkpoint_reloads_bit_for_bit_in_transformers_and_here(shape, dtype, tmp_path):
    from transformers import AutoModelForCausalLM

    ours = decoder(shape, dtype)
    save(ours, None, tmp_path / "m")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m").state_dict()
    back = io.read(tmp_path / "m").state_dict()
    for name, p in ours.state_dict().items():
        assert p.dtype == dtype
        assert torch.equal(p, theirs[name]) and torch.equal(p, back[name]), name


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_reads_what_transformers_writes(kind, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    shape |= dict(intermediate_size=48, max_position_embeddings=64, head_dim=8)
    theirs = LlamaForCausalLM(LlamaConfig(**shape)) if kind == "llama" else Qwen3ForCausalLM(Qwen3Config(**shape))
    theirs.save_pretrained(tmp_path / "m")
    x = tokens(2, 17)
    with torch.no_grad():
        assert rel(io.read(tmp_path / "m")(x), theirs(x).logits) < 1e-5


@pytest.mark.smollm2
def test_smollm2_logits_equal_transformers():
    from transformers import AutoModelForCausalLM

    lm = load("smollm2-135m", dtype=torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(lm.path, dtype=torch.float32)
    x = torch.randint(0, lm.config.vocab_size, (2, 48))
    with torch.no_grad():
        assert rel(lm.model(x), theirs(x).logits) < 1e-5
    assert lm.config.n_params() == sum(p.numel() for p in lm.model.parameters())


@pytest.mark.smollm2
def test_smollm2_tokenizer_equals_transformers():
    from transformers import AutoTokenizer

    lm = load("smollm2-135m")
    theirs = AutoTokenizer.from_pretrained(lm.path)
    for text in ["The Eiffel Tower", "naïve café 漢字 🙂\n\tdef f(x): return x**2", "", "  two  spaces "]:
        ids = lm.tokenizer.encode(text)
        assert ids == theirs(text)["input_ids"]
        assert b"".join(lm.tokenizer.token_bytes(i) for i in ids).decode() == text
    talk = [{"role": "user", "content": "Where is the Colosseum?"}]
    assert lm.tokenizer.chat(talk) == theirs.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert lm.tokenizer.pieces([lm.tokenizer.single(" Paris")]) == [" Paris"]
    with pytest.raises(LabError, match="is 6 tokens"):
        lm.tokenizer.single(" Ouagadougou")


# ---- hooks


SPLIT = ("hook_q_input", "hook_k_input", "hook_v_input")


@pytest.mark.parametrize("shape", ALL)
def test_every_hook_point_fires_in_order_and_changes_nothing(shape):
    model, x, seen = decoder(shape, torch.float64), tokens(2, 9), []
    plain = model(x)
    hooked = model(x, hooks={name: lambda a, n: seen.append(n) for name in model.hook_names()})
    assert list(dict.fromkeys(seen)) == model.hook_names()
    assert {n for n in seen if seen.count(n) > 1} == {n for n in model.hook_names() if ".ln1." in n}  # once for q, k, v
    assert rel(hooked, plain) < 1e-12
    seen.clear()
    whole = [name for name in model.hook_names() if not name.endswith(SPLIT)]
    assert rel(model(x, hooks={name: lambda a, n: seen.append(n) for name in whole}), plain) < 1e-12
    assert seen == whole


@pytest.mark.parametrize("shape", ALL)
def test_heads_read_and_write_what_their_weights_say(shape):
    model, x = decoder(shape, torch.float64), tokens(2, 6)
    names = ("hook_result", "hook_attn_out", "hook_z", "hook_q", "hook_k", "hook_v", "hook_mlp_out", "hook_post", *SPLIT)
    _, acts = model.run_with_cache(x, lambda n: n.endswith(names))
    group = model.cfg.n_heads // model.cfg.n_kv_heads
    for i in range(3):
        at, w = f"blocks.{i}", model.head_weights(i)
        result = torch.einsum("bphe,hed->bphd", acts[f"{at}.attn.hook_z"], w.W_O)
        assert rel(acts[f"{at}.attn.hook_result"], result) < 1e-12
        out = result.sum(2) if w.b_O is None else result.sum(2) + w.b_O
        assert rel(acts[f"{at}.hook_attn_out"], out) < 1e-12
        for name, W, b in (("q", w.W_Q, w.b_Q), ("k", w.W_K, w.b_K), ("v", w.W_V, w.b_V)):
            normal = model.model.layers[i].input_layernorm(acts[f"{at}.hook_{name}_input"])
            made = torch.einsum("bphd,hde->bphe", normal, W)
            assert rel(acts[f"{at}.attn.hook_{name}"], made if b is None else made + b) < 1e-12
        assert w.W_K.shape[0] * group == w.W_Q.shape[0]
        if model.cfg.act == "none":
            with pytest.raises(LabError, match="attention alone"):
                model.mlp_weights(i)
        else:
            m = model.mlp_weights(i)
            written = acts[f"{at}.mlp.hook_post"] @ m.W_out
            assert rel(acts[f"{at}.hook_mlp_out"], written if m.b_out is None else written + m.b_out) < 1e-12
    assert model.W_U.shape == (48, model.cfg.width_out) and model.norm_gain("blocks.1.ln1").shape == (48,)


def test_one_head_can_be_given_another_input():
    model, x = decoder("grouped", torch.float64), tokens(1, 6)
    noise = torch.randn(1, 6, 48, dtype=torch.float64)
    kept: dict[str, torch.Tensor] = {}

    def only_head_2(a, name):
        out = a.clone()
        out[:, :, 2] += noise
        return out

    def store(a, name):
        kept[name] = a

    model(x, hooks={"blocks.1.attn.hook_q": store})
    plain = kept["blocks.1.attn.hook_q"]
    model(x, hooks={"blocks.1.hook_q_input": only_head_2, "blocks.1.attn.hook_q": store})
    changed = (kept["blocks.1.attn.hook_q"] - plain).abs().amax((0, 1, 3)) > 1e-9
    assert changed.tolist() == [False, False, True, False, False, False]


def test_gpt2_reads_and_equals_transformers(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_embd=48, n_layer=3, n_head=4, n_positions=64)).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))
    theirs.save_pretrained(tmp_path / "m")
    ours, x = io.read(tmp_path / "m"), tokens(2, 33)
    with torch.no_grad():
        assert rel(ours(x), theirs(x).logits) < 1e-5
    assert ours.cfg == config("gpt2", d_mlp=192)
    assert ours.cfg.n_params() == theirs.num_parameters()
    cache = KVCache(ours.cfg, 2, 33, torch.float32)
    stepped = torch.cat([ours(x[:, a:b], cache=cache) for a, b in ((0, 12), (12, 13), (13, 33))], 1)
    assert rel(stepped, ours(x)) < 1e-5


@pytest.mark.parametrize("shape", ALL)
def test_every_shape_is_written_and_read_again(shape, tmp_path):
    ours, x = decoder(shape), tokens(2, 9)
    save(ours, None, tmp_path / "m")
    back = io.read(tmp_path / "m")
    assert back.cfg == ours.cfg
    assert torch.equal(back(x), ours(x))
    assert ours.cfg.n_params() == sum(p.numel() for p in ours.parameters())


def test_what_sees_everything_cannot_be_cached():
    model = decoder("compiled")
    with pytest.raises(LabError, match="every position at once"):
        model(tokens(1, 4), cache=KVCache(model.cfg, 1, 8, torch.float32))
    changed = tokens(1, 6)
    other = changed.clone()
    other[0, -1] = (other[0, -1] + 1) % 97
    assert not torch.allclose(model(changed)[:, 0], model(other)[:, 0])  # the first position sees the last


def test_replacing_any_activation_changes_the_answer():
    model, x = decoder("qwen3", torch.float64), tokens(1, 6)
    plain = model(x)
    for name in model.hook_names():
        if name.endswith("hook_attn_scores"):
            changed = model(x, hooks={name: lambda a, n: a * 2})  # a softmax ignores what is added to every key
        else:
            changed = model(x, hooks={name: lambda a, n: a + torch.randn_like(a)})
        assert not torch.allclose(changed, plain), name


def test_hooks_leave_nothing_behind():
    model, x = decoder(), tokens(2, 5)
    plain, before = model(x), copy.deepcopy(model.state_dict())
    model(x, hooks={"blocks.1.hook_mlp_out": lambda a, n: torch.zeros_like(a)})
    assert torch.equal(model(x), plain)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values()))


def test_generating_first_does_not_stop_gradients_later():
    model, x = decoder(), tokens(1, 9)
    with torch.inference_mode():
        model(x)
    resid = model.embed_tokens(x).detach().requires_grad_()
    model.run_block(0, resid).sum().backward()
    assert resid.grad is not None and resid.grad.abs().sum() > 0


def test_recorded_activations_rebuild_the_stream():
    model, x = decoder("grouped", torch.float64), tokens(2, 7)
    logits, acts = model.run_with_cache(x)
    resid = acts["hook_embed"]
    for i in range(3):
        assert torch.equal(resid, acts[f"blocks.{i}.hook_resid_pre"])
        assert acts[f"blocks.{i}.attn.hook_pattern"].shape == (2, 6, 7, 7)
        assert torch.allclose(acts[f"blocks.{i}.attn.hook_pattern"].sum(-1), torch.ones(2, 6, 7, dtype=torch.float64))
        resid = resid + acts[f"blocks.{i}.hook_attn_out"] + acts[f"blocks.{i}.hook_mlp_out"]
        assert rel(resid, acts[f"blocks.{i}.hook_resid_post"]) < 1e-12
    assert rel(model.unembed(resid), logits) < 1e-12


def test_a_hook_point_that_does_not_exist_is_refused():
    with pytest.raises(LabError, match=r"no hook point 'blocks\.9\.hook_resid_pre'"):
        decoder()(tokens(1, 3), hooks={"blocks.9.hook_resid_pre": lambda a, n: a})


# ---- cache


@settings(max_examples=25, deadline=None)
@given(shape=st.sampled_from(list(SHAPES)), cuts=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_cached_steps_equal_one_pass(shape, cuts):
    model = decoder(shape, torch.float64)
    x = tokens(2, sum(cuts))
    cache = KVCache(model.cfg, 2, x.shape[1], torch.float64)
    steps = torch.cat([model(part, cache=cache) for part in x.split(cuts, dim=1)], dim=1)
    assert rel(steps, model(x)) < 1e-10
    assert cache.nbytes() == 2 * x.shape[1] * model.cfg.kv_bytes_per_token(torch.float64)


def test_left_padded_rows_equal_each_row_alone():
    model = decoder("grouped", torch.float64)
    rows = [torch.randint(0, 97, (n,)) for n in (3, 8, 5)]
    width = max(map(len, rows))
    pad = torch.tensor([width - len(r) for r in rows])
    batch = torch.stack([torch.cat([torch.zeros(width - len(r), dtype=torch.long), r]) for r in rows])
    cache = KVCache(model.cfg, 3, width + 2, torch.float64, pad=pad)
    first = model(batch, cache=cache, last=True)[:, 0]
    new = tokens(3, 1)
    second = model(new, cache=cache)[:, 0]
    for i, row in enumerate(rows):
        assert rel(first[i], model(row[None])[0, -1]) < 1e-10
        assert rel(second[i], model(torch.cat([row, new[i]])[None])[0, -1]) < 1e-10


def test_bad_prompts_get_a_sentence():
    model = decoder()
    with pytest.raises(LabError, match="prompt is empty"):
        model(torch.empty(1, 0, dtype=torch.long))
    with pytest.raises(LabError, match="65 tokens long and this model reads 64"):
        model(tokens(1, 65))
    cache = KVCache(model.cfg, 1, 4, torch.float32)
    with pytest.raises(LabError, match="cache holds 4 tokens and 5 are wanted"):
        model(tokens(1, 5), cache=cache)


# ---- costs


def test_flops_equal_what_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    model = decoder("multi-head")
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        model(tokens(1, 32))
    cfg = model.cfg
    masked = 4 * cfg.n_layers * cfg.n_heads * cfg.d_head * (32 * 32 - 32 * 33 // 2)  # torch counts the masked half too
    assert counter.get_total_flops() == cfg.forward_flops(32) + masked


# ---- damaged files


def test_damaged_checkpoints_get_a_sentence(tmp_path):
    good = tmp_path / "good"
    save(decoder(), None, good)
    with pytest.raises(LabError, match="exists already"):
        save(decoder(), None, good)

    def broken(name):
        return shutil.copytree(good, tmp_path / name)

    short = broken("short") / "model.safetensors"
    short.write_bytes(short.read_bytes()[:-100])
    with pytest.raises(LabError, match="cut short or damaged"):
        io.read(short.parent)
    (broken("noise") / "model.safetensors").write_bytes(b"\xff" * 5000)
    with pytest.raises(LabError, match="cut short or damaged"):
        io.read(tmp_path / "noise")
    (broken("json") / "config.json").write_text("{")
    with pytest.raises(LabError, match="not readable JSON"):
        io.read(tmp_path / "json")
    settings_ = json.loads((good / "config.json").read_text())
    (broken("shape") / "config.json").write_text(json.dumps(settings_ | {"intermediate_size": 60}))
    with pytest.raises(LabError, match="do not belong together"):
        io.read(tmp_path / "shape")
    (broken("layers") / "config.json").write_text(json.dumps(settings_ | {"num_hidden_layers": 4}))
    with pytest.raises(LabError, match=r"lacks model\.layers\.3"):
        io.read(tmp_path / "layers")
    (broken("kind") / "config.json").write_text(json.dumps(settings_ | {"model_type": "bloom"}))
    with pytest.raises(LabError, match="type 'bloom' are not read"):
        io.read(tmp_path / "kind")
    (broken("heads") / "config.json").write_text(json.dumps(settings_ | {"num_attention_heads": 0, "head_dim": None}))
    (broken("theta") / "config.json").write_text(json.dumps(settings_ | {"rope_parameters": {"rope_theta": "large"}}))
    for name in ("heads", "theta"):
        with pytest.raises(LabError, match="does not describe"):
            io.read(tmp_path / name)
    biased = broken("biased") / "model.safetensors"
    save_file({**load_file(biased), "model.layers.0.self_attn.q_proj.bias": torch.ones(1)}, biased)
    with pytest.raises(LabError, match=r"holds model\.layers\.0\.self_attn\.q_proj\.bias"):
        io.read(biased.parent)
    pickled = broken("pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(LabError, match="pickled weights are never opened"):
        io.read(pickled)
    with pytest.raises(LabError, match=r"no tokenizer\.json"):
        Tokenizer(good)


WRONG = ["x", -1, 1.5, [1], True, 10**9, 10**30, float("inf")]
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings")


@pytest.mark.parametrize("key", [*SIZES, "head_dim", "num_key_value_heads"])
def test_a_size_that_is_none_gets_a_sentence(key, tmp_path):
    save(decoder(), None, tmp_path / "m")
    good = json.loads((tmp_path / "m/config.json").read_text())
    for value in WRONG:
        (tmp_path / "m/config.json").write_text(json.dumps(good | {key: value}))
        with pytest.raises(LabError):
            io.read(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": "x"}, {"rope_parameters": [1]}, {"rms_norm_eps": "x"}, {"rms_norm_eps": None},
        {"rms_norm_eps": -1}, {"rms_norm_eps": float("nan")}, {"rope_parameters": {"rope_theta": -1}},
        {"rope_parameters": {"rope_theta": float("nan")}}, {"num_hidden_layers": 10**6},
    ],
)  # fmt: skip
def test_a_setting_that_would_compute_nonsense_gets_a_sentence(change, tmp_path):
    save(decoder(), None, tmp_path / "m")
    file = tmp_path / "m/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(LabError):
        io.read(tmp_path / "m")


DEEP = "[" * 100_000
FILES = [
    ("config.json", DEEP), ("config.json", None), ("model.safetensors", None), ("tokenizer_config.json", "[]"),
    *(("model.safetensors.index.json", text) for text in (DEEP, b"\xff", '{"weight_map": {"a": 3}}',
      '{"weight_map": {"a": null}}', '{"weight_map": {"a": "../../x"}}', '{"weight_map": {"a": "%s"}}' % ("x" * 5000))),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text"), FILES)
def test_a_stranger_in_the_directory_gets_a_sentence(file, text, tmp_path):
    directory = shutil.copytree(paths.MODELS / "pocket-draft", tmp_path / "m")
    (directory / file).unlink(missing_ok=True)
    if text is None:  # a link to itself
        (directory / file).symlink_to(file)
    else:
        (directory / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LabError):
        load(str(directory))


def test_odd_tokenizer_settings(tmp_path):
    directory = shutil.copytree(paths.MODELS / "pocket-draft", tmp_path / "m")
    for odd in ({"eos_token": [1]}, {"eos_token": {"content": 3}}):
        (directory / "tokenizer_config.json").write_text(json.dumps(odd))
        assert Tokenizer(directory).eos is None
    for template in (5, "{{", "{% for i in range(10**9) %}{% endfor %}", "{{ 1 / 0 }}"):
        (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        with pytest.raises(LabError, match="chat template"):
            Tokenizer(directory).chat([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize("name", ["x" * 5000, "x/" * 3000, "~nobody-of-this-name", "run:" + "x" * 5000, "run:../../etc", "a\0b"])
def test_names_no_disk_takes_get_a_short_sentence(name):
    with pytest.raises(LabError) as said:
        load(name)
    assert len(str(said.value)) < 400


def test_unknown_names_get_a_sentence():
    with pytest.raises(LabError, match="no model 'smollm3'; known are smollm2-135m, pocket"):
        load("smollm3")
    with pytest.raises(LabError, match="No model is named"):
        load("  ")


def test_two_names_of_one_checkpoint_share_it_and_keep_their_names(tmp_path):
    directory = save(decoder(), None, tmp_path / "one")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(paths.MODELS / "pocket" / name, directory)
    other = f"{directory}/../one"
    first, second = load(str(directory)), load(other)
    assert first.model is second.model and (first.name, second.name) == (str(directory), other)
    assert load(str(directory)) is first


@pytest.mark.smollm2
def test_a_chat_template_that_refuses_gets_a_sentence():
    tok = Tokenizer(load("smollm2-135m").path)
    tok.settings = tok.settings | {"chat_template": "{{ raise_exception('roles must alternate') }}"}
    with pytest.raises(LabError, match="refuses the conversation: roles must alternate"):
        tok.chat([{"role": "user", "content": "hello"}])
