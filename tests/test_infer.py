"""Inference: sampling, streaming, exactness against plain greedy decoding and transformers, scores, costs."""

import threading
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from lab.errors import LabError
from lab.infer import (
    TextStream,
    complete,
    decode_one,
    generate,
    prefill,
    probabilities,
    sample,
    score,
    step_cost,
)
from lab.infer.measure import Plan, time_step
from lab.infer.score import batches
from lab.infer.view import Generation, Sweep, cache_rows, recorded
from lab.models import Decoder, KVCache, ModelConfig, load
from lab.profiling.hardware import Ceiling


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Models this small only wait for a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


logit_rows = st.integers(0, 2**31).map(
    lambda s: torch.randn(3, 50, generator=torch.Generator().manual_seed(s)) * 4
)


@given(logit_rows, st.floats(0.05, 1.0), st.floats(0.2, 3.0))
@settings(deadline=None, max_examples=60)
def test_top_p_keeps_the_smallest_set_with_the_mass(logits, top_p, temperature):
    full = probabilities(logits.double(), temperature)
    kept = probabilities(logits, temperature, top_p=top_p)
    assert torch.allclose(kept.sum(-1), torch.ones(3))
    for row, original in zip(kept, full):
        mass = original[row > 0].sum()
        least = original[row > 0].min()
        assert mass >= top_p - 1e-5
        assert mass - least < top_p + 1e-5  # without its least likely member the set would be too small
        assert original[row == 0].numel() == 0 or original[row == 0].max() <= least + 1e-6


@given(logit_rows, st.integers(1, 60), st.floats(0.01, 1.0))
@settings(deadline=None, max_examples=60)
def test_top_k_and_min_p(logits, top_k, min_p):
    kept = probabilities(logits, top_k=top_k)
    assert (kept > 0).sum(-1).tolist() == [min(top_k, 50)] * 3
    kept = probabilities(logits, min_p=min_p)
    full = probabilities(logits)
    for row, original in zip(kept, full):
        assert torch.equal(row > 0, original >= min_p * original.max())
        # what is kept keeps its proportions
        assert torch.allclose(row[row > 0] * original[row > 0].sum(), original[row > 0], atol=1e-6)


@given(logit_rows)
@settings(deadline=None, max_examples=30)
def test_temperature_towards_zero_is_argmax(logits):
    best = logits.argmax(-1)
    assert torch.equal(sample(logits, 0.0), best)
    assert torch.equal(probabilities(logits, 0.0).argmax(-1), best)
    assert torch.equal(sample(logits, 1e-7), best)
    assert torch.isfinite(probabilities(logits, 1e-30)).all()


def test_filters_agree_with_transformers():
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(8, 200) * 3
    theirs = logits
    for warper in (
        TemperatureLogitsWarper(0.7),
        TopKLogitsWarper(40),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.05),
    ):
        theirs = warper(torch.zeros(8, 1, dtype=torch.long), theirs)
    assert torch.allclose(probabilities(logits, 0.7, 40, 0.9, 0.05), theirs.softmax(-1), atol=1e-6)


def test_sampling_follows_the_distribution_and_the_seed():
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(20_000, 3)
    drawn = sample(logits, 1.0, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    assert torch.allclose(shares, logits[0].softmax(-1), atol=0.02)
    assert torch.equal(drawn, sample(logits, 1.0, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"temperature": -1}, "Temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0}, "top_p"),
        ({"min_p": 2}, "min_p"),
    ],
)
def test_settings_out_of_range_are_sentences(setting, word):
    with pytest.raises(LabError, match=word):
        probabilities(torch.zeros(1, 4), **setting)


class Bytes:
    """A tokenizer whose tokens are pieces of UTF-8, cut anywhere."""

    def __init__(self, table):
        self.table = table

    def decode(self, ids):
        return b"".join(self.table[i] for i in ids).decode("utf-8", errors="replace")


@given(st.text(min_size=1, max_size=40), st.lists(st.integers(1, 5), min_size=1), st.integers(0, 20))
@settings(deadline=None)
def test_streaming_gives_whole_characters_that_add_up(text, cuts, before):
    data = text.encode()
    table, at = [], 0
    while at < len(data):
        step = cuts[len(table) % len(cuts)]
        table.append(data[at : at + step])
        at += step
    tokenizer = Bytes(table)
    ids = list(range(len(table)))
    before = min(before, len(ids) - 1)
    while before and "\ufffd" in tokenizer.decode(ids[:before]):
        before -= 1  # a prompt is text: it ends with a whole character
    stream = TextStream(tokenizer, ids[:before])
    pieces = [stream.push(i) for i in ids[before:]]
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)
    assert tokenizer.decode(ids[:before]) + "".join(pieces) + stream.flush() == text


@given(
    st.text("ab\n", min_size=1, max_size=30), st.lists(st.text("ab\n", min_size=1, max_size=3), max_size=3)
)
@settings(deadline=None)
def test_a_stop_string_is_never_given_out(text, stops):
    tokenizer = Bytes([bytes([c]) for c in range(128)])
    stream = TextStream(tokenizer, (), stops)
    given_out = ""
    for c in text.encode():
        given_out += stream.push(c)
        if stream.stopped is not None:
            break
    given_out += stream.flush()
    ends = [text.find(stop) for stop in stops if stop in text]
    # the first stop string to be complete ends the text
    if not ends:
        assert given_out == text
    else:
        first = min(text.find(stop) + len(stop) for stop in stops if stop in text)
        assert not any(stop in given_out for stop in stops)
        assert text.startswith(given_out) and len(given_out) < first


def small(**changes) -> ModelConfig:
    shape = dict(
        vocab_size=97, d_model=32, n_layers=3, n_heads=4, n_kv_heads=2, d_head=8, d_mlp=48, context=64
    )
    return ModelConfig(**(shape | changes))


class Letters:
    """One token a character, token 0 ends the text."""

    eos = 0

    def encode(self, text):
        return [1 + ord(c) % 96 for c in text]

    def decode(self, ids):
        return "".join(chr(32 + i) for i in ids)

    def pieces(self, ids):
        return [self.decode([i]) for i in ids]


def letters_model(seed=0, **changes):
    model = Decoder(small(**changes)).init_weights(seed).eval()
    with torch.no_grad():  # spread the logits, so that greedy choices are not ties and 0 is never chosen
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(8)
    return SimpleNamespace(name="letters", model=model, tokenizer=Letters(), config=model.cfg)


def plain_greedy(model, ids, count):
    """Greedy decoding that reads everything again for every token."""
    ids = list(ids)
    for _ in range(count):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[-count:]


@pytest.mark.parametrize(
    "changes", [{}, {"qk_norm": True}, {"n_kv_heads": 4, "tied": False}, {"n_kv_heads": 1}]
)
def test_cached_generation_is_plain_greedy_token_for_token(changes):
    lm = letters_model(**changes)
    lm.tokenizer.eos = None
    ids = lm.tokenizer.encode("the quick brown fox")
    made = list(generate(lm, "the quick brown fox", 30))
    assert [t.id for t in made] == plain_greedy(lm.model, ids, 30)
    assert made[0].phase == "prefill" and {t.phase for t in made[1:]} == {"decode"}
    assert [t.context for t in made] == list(range(len(ids), len(ids) + 30))
    assert made[-1].finish == "length" and all(t.finish is None for t in made[:-1])
    assert "".join(t.text for t in made) == lm.tokenizer.decode([t.id for t in made])
    with torch.inference_mode():
        whole = lm.model(torch.tensor([ids + [t.id for t in made]])).log_softmax(-1)[0]
    for i, token in enumerate(made):
        assert token.logprob == pytest.approx(float(whole[len(ids) - 1 + i, token.id]), abs=1e-4)
        assert token.top[0] == (token.id, pytest.approx(torch.tensor(token.logprob).exp().item()))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_generation_is_transformers_greedy(kind, tmp_path):
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config_class, model_class = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    }[kind]
    theirs = model_class(
        config_class(
            vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            intermediate_size=48, max_position_embeddings=64, initializer_range=0.2, eos_token_id=None,
            bos_token_id=None, pad_token_id=None,
        )
    ).eval()  # fmt: skip
    theirs.save_pretrained(tmp_path)
    ours = Decoder(ModelConfig.from_hf(theirs.config.to_dict())).eval()
    ours.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    prompt = torch.randint(1, 97, (1, 12))
    wanted = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False, pad_token_id=0
    )[0, 12:]
    tokenizer = Letters()
    tokenizer.eos = None
    lm = SimpleNamespace(name=kind, model=ours, tokenizer=tokenizer, config=ours.cfg)
    assert [t.id for t in generate(lm, prompt[0].tolist(), 20)] == wanted.tolist()


def test_generation_ends_where_it_should():
    lm = letters_model()
    free = [t.id for t in generate(lm, "hello there", 12)]
    lm.tokenizer.eos = free[5]
    made = list(generate(lm, "hello there", 12))
    assert len(made) == free.index(free[5]) + 1 and made[-1].finish == "end of text" and made[-1].text == ""
    lm.tokenizer.eos = None
    stop = lm.tokenizer.decode(free[3:5])
    made = list(generate(lm, "hello there", 12, stops=[stop]))
    whole = lm.tokenizer.decode(free)
    assert made[-1].finish == "stop string" and "".join(t.text for t in made) == whole[: whole.index(stop)]
    made = list(generate(lm, "x" * 60, 50))
    assert len(made) == 4 and made[-1].finish == "context"


def test_cancel_ends_before_the_next_step():
    cancel = threading.Event()
    made = []
    for token in generate(letters_model(), "hello", 30, cancel=cancel):
        made.append(token)
        if len(made) == 3:
            cancel.set()
    assert len(made) == 3 and made[-1].finish is None


def test_a_model_that_answers_nan_is_a_sentence():
    lm = letters_model()
    torch.nn.init.constant_(lm.model.model.norm.weight, float("nan"))
    for temperature in (0.0, 1.0):
        with pytest.raises(LabError, match="answers with NaN"):
            list(generate(lm, "hello", 3, temperature=temperature))


def test_the_smallest_temperature_is_still_a_distribution():
    assert probabilities(torch.tensor([[0.0, 2.0, 1.0]]), temperature=1e-300).tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("ids", [[], [-1], [10**9]])
def test_token_ids_that_are_none_are_sentences(ids):
    with pytest.raises(LabError, match="vocabulary"):
        list(generate(letters_model(), ids, 3))


def test_half_a_character_is_a_sentence():
    with pytest.raises(LabError, match="half a character"):
        list(generate(load("pocket-draft"), "The \ud800", 3))


def test_seeds_repeat():
    lm = letters_model()
    runs = [[t.id for t in generate(lm, "hello", 15, temperature=1.5, seed=s)] for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(
    ("prompt", "word"),
    [("", "empty"), ("  \n", "empty"), ("x" * 64, "64 tokens long"), ("x" * 500, "shorten")],
)
def test_bad_prompts_are_sentences(prompt, word):
    lm = letters_model()
    with pytest.raises(LabError, match=word):
        list(generate(lm, prompt))
    with pytest.raises(LabError, match=word):
        list(complete(lm, ["fine", prompt]))


@given(st.lists(st.text("abcdefgh ", min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=9))
@settings(deadline=None, max_examples=8)
def test_batched_completions_are_single_ones(prompts):
    lm = letters_model()
    lm.tokenizer.eos = 5
    found = dict(complete(lm, prompts, 6, stops=["q"]))
    assert sorted(found) == list(range(len(prompts)))
    for i, prompt in enumerate(prompts):
        alone = list(generate(lm, prompt, 6, stops=["q"]))
        assert found[i].ids == tuple(t.id for t in alone)
        assert found[i].text == "".join(t.text for t in alone)
        assert found[i].logprobs == pytest.approx([t.logprob for t in alone], abs=1e-4)
        assert found[i].prompt_ids == tuple(lm.tokenizer.encode(prompt))
        assert len(found[i].prompt_logprobs) == len(found[i].prompt_top) == len(found[i].prompt_ids)


def test_batched_completions_fill_the_context_like_single_ones():
    lm = letters_model()
    lm.tokenizer.eos = None
    prompts = ["x" * 62, "y" * 50, "z" * 58]
    for i, completion in complete(lm, prompts, 10):
        assert completion.ids == tuple(t.id for t in generate(lm, prompts[i], 10))


@given(st.lists(st.integers(1, 300), max_size=60))
def test_batches_hold_everything_once(lengths):
    found = list(batches(lengths))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    assert all(len(b) <= 16 and (len(b) == 1 or len(b) * max(lengths[i] for i in b) <= 1024) for b in found)


def test_scores_are_the_log_likelihood_of_the_option():
    lm = letters_model()
    prompts, options = ["the cat sat", "a"], [[" on", " under it"], ["b", "cde", "f"]]
    for prompt, choices, found in zip(prompts, options, score(lm, prompts, options)):
        for option, got in zip(choices, found):
            ids = torch.tensor([lm.tokenizer.encode(prompt + option)])
            with torch.inference_mode():
                logprobs = lm.model(ids).double().log_softmax(-1)[0]
            start = len(prompt)
            wanted = [float(logprobs[i - 1, ids[0, i]]) for i in range(start, ids.shape[1])]
            assert got.logprobs == pytest.approx(wanted, abs=1e-4)
            assert got.mean == pytest.approx(sum(wanted) / len(wanted), abs=1e-4)
    with pytest.raises(LabError, match="adds no token"):
        score(lm, ["abc"], [[""]])


shapes = st.builds(
    small,
    n_layers=st.integers(1, 3),
    n_kv_heads=st.sampled_from([1, 2, 4]),
    d_mlp=st.sampled_from([16, 40]),
    tied=st.booleans(),
    qk_norm=st.booleans(),
)


@given(shapes, st.integers(1, 12), st.integers(0, 12), st.integers(1, 3))
@settings(deadline=None, max_examples=12)
def test_counted_flops_and_bytes_are_those_of_the_forward(cfg, new, past, batch):
    model = Decoder(cfg).init_weights(0)
    cache = KVCache(cfg, batch, 30, torch.float32)
    if past:
        prefill(model, torch.ones(batch, past, dtype=torch.long), cache)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(torch.ones(batch, new, dtype=torch.long), cache=cache, last=True)
    cost = step_cost(cfg, new, past, batch, torch.float32)
    counted = counter.get_flop_counts()["Global"]
    linear = sum(n for op, n in counted.items() if "attention" not in str(op) and "bmm" not in str(op))
    assert cost.linear_flops == linear
    read = sum(p.numel() for p in model.parameters()) - (0 if cfg.tied else cfg.vocab_size * cfg.d_model)
    assert cost.weights == 4 * (read + batch * new * cfg.d_model)
    assert cost.kv_read + cost.kv_write == cache.nbytes()
    assert cost.kv_read == batch * past * cfg.kv_bytes_per_token(torch.float32)
    assert cost.bytes == cost.weights + cost.kv_read + cost.kv_write + cost.activations


def test_prefill_computes_and_decode_moves():
    cfg = small(d_model=256, d_head=64, d_mlp=1024, vocab_size=4096, context=2048)
    assert step_cost(cfg, 1, 100).intensity < 2 < 50 < step_cost(cfg, 512).intensity
    # a batch shares the weights, not the cache
    assert step_cost(cfg, 1, 100, batch=64).intensity > 10 * step_cost(cfg, 1, 100).intensity
    one = step_cost(cfg, 1, 100)
    assert one.roof_seconds(1e30, 1e9) == pytest.approx(one.bytes / 1e9)
    assert one.roof_seconds(1e9, 1e30) == pytest.approx(one.flops / 1e9)


def test_chunked_prefill_is_whole_prefill():
    model = letters_model().model
    tokens = torch.randint(1, 97, (2, 20))
    whole = KVCache(model.cfg, 2, 32, torch.float32)
    expected = prefill(model, tokens, whole)
    parts = KVCache(model.cfg, 2, 32, torch.float32)
    prefill(model, tokens[:, :7], parts)
    prefill(model, tokens[:, 7:19], parts)
    assert torch.allclose(decode_one(model, tokens[:, 19], parts), expected, atol=1e-5)


CEILING = Ceiling("a made-up GPU", {"float32": 1e12, "bfloat16": 2e12}, 1e11, "a test")


def test_a_step_is_timed_and_put_beside_its_floor():
    lm = letters_model()
    found = time_step(lm.model, 1, past=20, batch=3, goes=3)
    assert (found.phase, found.new, found.past, found.batch) == ("decode", 1, 20, 3)
    assert found.cost == step_cost(lm.config, 1, 20, 3, torch.float32)
    assert found.tokens_per_s == pytest.approx(3 / found.seconds)
    assert found.predicted(CEILING, torch.float32) == max(found.cost.flops / 1e12, found.cost.bytes / 1e11)
    assert found.bound(CEILING, torch.float32) == "memory"
    with pytest.raises(LabError, match="holds 64"):
        time_step(lm.model, 60, past=20)


def test_what_the_page_shows_of_a_generation():
    lm = letters_model()
    lm.tokenizer.eos = None
    shown = Generation(lm, CEILING)
    shown.run("hello there", lambda: False, max_tokens=12)
    prompt, made = shown.strip.rows
    assert "".join(prompt["pieces"]) == lm.tokenizer.decode(lm.tokenizer.encode("hello there"))
    assert len(made["pieces"]) == 12 and "as long as asked; 12 tokens" in made["note"]
    assert made["values"] == pytest.approx([torch.tensor(t.logprob).exp().item() for t in shown.made])
    assert [row["step"] for row in shown.table.rows] == ["prefill", "decode, median"]
    assert [p["group"] for p in shown.roofline.points] == ["prefill", "decode"]
    assert len(shown.curves.data) == 2 * 11  # measured and roofline, every decode step
    shown.colour("time")
    assert shown.strip.value_title == "ms"
    assert shown.strip.rows[1]["values"] == pytest.approx([t.seconds * 1e3 for t in shown.made])
    calls = iter(range(100))
    shown.run("hello there", lambda: next(calls) >= 2, max_tokens=12)
    assert len(shown.made) == 3 and "cancelled" in shown.strip.rows[1]["note"]
    with pytest.raises(LabError, match="empty"):
        shown.run(" ", lambda: False)


def test_what_the_page_shows_of_a_sweep():
    model = letters_model().model
    plan = Plan((1, 16), (1, 4), context=8, goes=1)
    assert plan.floor_s(model, CEILING) > 0
    shown = Sweep(CEILING, torch.float32, "here")
    shown.run(plan.measure(model), lambda: False)
    assert [r["step"] for r in shown.table.rows] == ["prefill 1", "prefill 16", "decode x1", "decode x4"]
    intensity = [p["intensity"] for p in shown.roofline.points]
    assert intensity[1] > 2 * intensity[0] and intensity[3] > 2 * intensity[2]
    shown.run(plan.measure(model), lambda: True)
    assert len(shown.points) == 1


def test_fewer_heads_make_a_smaller_cache():
    rows = cache_rows(small(n_kv_heads=2), 2, 1000, 10, torch.bfloat16, torch.bfloat16, 1e9)
    assert [(r["heads"], r["kind"]) for r in rows] == [
        (4, "multi-head"),
        (2, "grouped, this model"),
        (1, "multi-query"),
    ]
    assert [r["cache"] for r in rows] == pytest.approx([rows[2]["cache"] * n for n in (4, 2, 1)])
    assert rows[0]["token"] == pytest.approx(2 * 3 * 4 * 8 * 2 / 1e3)
    assert rows[0]["ms"] > rows[1]["ms"] > rows[2]["ms"]


def test_a_record_becomes_a_roofline():
    point = {"batch": 2, "new": 1, "past": 9, "seconds": 1e-3, "intensity": 2.0, "flops_per_s": 1e9}
    detail = {
        "points": {"decode": point, "prefill": {**point, "new": 9}},
        "ceiling": {"name": "X", "flops_per_s": 1e12, "bytes_per_s": 1e11},
        "dtype": "bfloat16",
    }
    id = "infer.gpu.decode.bandwidth_fraction.smollm2_1.7b"
    shown = recorded({"id": id, "detail": detail, "date": "2026-01-02T03:04:05"})
    assert [p["group"] for p in shown.points] == ["prefill", "decode"]
    assert shown.ceilings[0]["name"] == "X, bfloat16" and shown.title == "smollm2_1.7b, recorded on X, 2026-01-02"


@pytest.mark.smollm2
def test_smollm2_generates_what_transformers_does():
    from transformers import AutoModelForCausalLM

    from lab import models

    lm = models.load("smollm2-135m", dtype=torch.float32, device="cpu")
    prompts = ["The Eiffel Tower is located in the city of", "def fibonacci(n):\n"]
    theirs = AutoModelForCausalLM.from_pretrained(lm.path, dtype=torch.float32).eval()
    for prompt in prompts:
        ids = torch.tensor([lm.tokenizer.encode(prompt)])
        wanted = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False)
        made = list(generate(lm, prompt, 10))
        assert [t.id for t in made] == wanted[0, ids.shape[1] :].tolist()
        assert "".join(t.text for t in made) == lm.tokenizer.decode(
            [t.id for t in made if t.id != lm.tokenizer.eos]
        )
