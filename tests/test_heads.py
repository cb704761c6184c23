"""Direct attribution, head detectors and circuits against float64, the model's own runs, and TransformerLens."""

import os
from types import SimpleNamespace

import pytest
import torch

from interp.bootstrap import mean_interval
from interp.heads import circuits, patterns, survey, view, weights
from interp.heads.knockout import loss_without
from interp.lenses import direct_view, families
from interp.lenses.direct import Asked, direct, over_prompts
from interp.sites import keep
from lab import models
from lab.errors import LabError
from tests.interp_models import VOCAB, decoder, language_model

LAYOUTS = {
    "llama": {},
    "untied": {"tied": False},
    "qwen3": {"qk_norm": True},
    "gpt2": {"norm": "layer", "positions": "learned", "act": "gelu", "bias": True, "n_kv_heads": 4},
    "attention only": {"norm": "none", "positions": "learned", "act": "none", "d_mlp": 0, "n_kv_heads": 4, "tied": False},
    "other outputs": {"norm": "none", "act": "relu", "tied": False, "out_vocab": 11},
    "window": {"window": 3},
}  # fmt: skip
each = pytest.mark.parametrize("layout", LAYOUTS)


def tokens(rows: int, length: int, seed: int = 0, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(seed))


# ---- direct logit attribution


@each
def test_parts_sum_to_the_logit_difference(layout):
    model = decoder(seed=3, **LAYOUTS[layout])
    x = tokens(3, 7, 1)
    answers, wrongs = tokens(3, 2, 2, 11), tokens(3, 2, 3, 11)
    found = direct(model, x, answers, wrongs, positions=(2, -1), sources=True)
    logits = model(x)[:, [2, 6]]
    expected = logits.gather(-1, answers[..., None])[..., 0] - logits.gather(-1, wrongs[..., None])[..., 0]
    assert torch.allclose(found.total, expected, atol=1e-12)
    assert found.error < 1e-11
    assert torch.allclose(found.sources.sum(-1), found.heads, atol=1e-12)
    assert torch.allclose(sum(v for _, v in found.steps()), expected, atol=1e-11)
    if model.cfg.act == "none":
        assert found.neurons is None
    else:
        assert torch.allclose(found.neurons.sum(-1) + found.mlp_bias, found.mlps, atol=1e-11)


@each
def test_a_head_is_what_it_writes_times_the_direction(layout):
    """The folded product against the naive one: the head's own write, normed by the frozen scale, unembedded."""
    model = decoder(seed=5, **LAYOUTS[layout])
    x, a = tokens(2, 6, 4), tokens(2, 1, 5, 11)
    found = direct(model, x, a)
    kept: dict = {}
    names = [n for n in ("blocks.1.attn.hook_result", "ln_final.hook_scale") if n in model.hook_names()]
    model(x, hooks=keep(names, kept))
    write = kept["blocks.1.attn.hook_result"][:, -1]  # [n, head, d_model]
    if model.cfg.norm == "layer":
        write = write - write.mean(-1, keepdim=True)
    if "ln_final.hook_scale" in kept:
        write = write / kept["ln_final.hook_scale"][:, -1:]
    logits = (write * model.norm_gain("ln_final")) @ model.W_U
    expected = logits.gather(-1, a[:, None].expand(-1, 4, -1))[..., 0] - logits.mean(-1)
    assert torch.allclose(found.heads[:, 0, 1], expected, atol=1e-12)


def test_sources_say_which_token_a_head_read():
    """A head's share by token is what it writes when all other weights of its pattern are set to zero."""
    model = decoder(seed=9, n_layers=1)
    x, a = tokens(1, 5, 4), tokens(1, 1, 5)
    found = direct(model, x, a, sources=True)

    def only(key: int):
        return {"blocks.0.attn.hook_pattern": lambda p, name: p * (torch.arange(5) == key)}

    for key in range(5):
        kept: dict = {}
        scale: dict = {}
        model(x, hooks=keep(["ln_final.hook_scale"], scale))
        model(x, hooks=only(key) | keep(["blocks.0.attn.hook_result"], kept))
        write = kept["blocks.0.attn.hook_result"][0, -1, 2] / scale["ln_final.hook_scale"][0, -1] * model.norm_gain("ln_final")
        logits = write @ model.W_U
        assert found.sources[0, 0, 0, 2, key].item() == pytest.approx((logits[a[0, 0]] - logits.mean()).item(), abs=1e-12)


def test_prompts_of_any_length_come_back_in_their_order():
    model = decoder(seed=1)
    asked = [Asked(tokens(1, n, n)[0].tolist(), n % VOCAB, (n + 3) % VOCAB) for n in (5, 9, 5, 3, 9, 5)]
    together = over_prompts(model, asked, neurons=True, rows=2)
    for i, one in enumerate(asked):
        alone = direct(model, torch.tensor([one.ids]), torch.tensor([[one.answer]]), torch.tensor([[one.wrong]]))
        assert torch.allclose(together.heads[i], alone.heads[0], atol=1e-12)
        assert torch.allclose(together.neurons[i], alone.neurons[0], atol=1e-12)
    with pytest.raises(LabError, match="give it to all"):
        over_prompts(model, [asked[0], Asked([1, 2], 3)])
    with pytest.raises(LabError, match="at least one"):
        over_prompts(model, [])


def test_interval_covers_the_mean():
    """Of 200 samples of 24 draws, the 95 % interval holds the true mean in most; it narrows with the sample."""
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(24, 200, generator=generator, dtype=torch.float64) + 3
    mean, low, high = mean_interval(values)
    assert 0.85 < ((low < 3) & (high > 3)).double().mean() < 0.99
    _, few_low, few_high = mean_interval(values[:6])
    assert (high - low).mean() < (few_high - few_low).mean()
    assert torch.allclose(mean, values.mean(0))


def test_half_precision_is_summed_in_single():
    model = decoder(seed=3).to(torch.bfloat16)
    found = direct(model, tokens(1, 7, 1), tokens(1, 1, 2))
    assert found.error < 0.05 * float(found.heads.abs().max() + found.mlps.abs().max())


def test_a_position_outside_the_prompt_and_a_backend_without_weights_are_sentences():
    model = decoder()
    with pytest.raises(LabError, match="7 tokens"):
        direct(model, tokens(1, 7), tokens(1, 1), positions=(7,))
    with pytest.raises(LabError, match="backend"):
        direct(torch.nn.Identity(), tokens(1, 7), tokens(1, 1))


# ---- heads by where they look


def test_scores_are_those_of_transformer_lens():
    """Their score divides by all queries, ours by those that have a target: the same sum."""
    from transformer_lens import head_detector as theirs

    model = decoder(seed=2, dtype=torch.float32)
    half = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(4))[:8]
    x = torch.cat([half, half])[None]
    ours = patterns.detect(model, x, ["previous", "duplicate", "induction"])
    _, acts = model.run_with_cache(x, names=lambda n: n.endswith("hook_pattern"))
    for kind in ours:
        target = getattr(theirs, f"get_{kind}_{'' if kind == 'induction' else 'token_'}head_detection_pattern")(x)
        asked = (target.sum(-1) > 0).sum()
        for layer in range(3):
            for head in range(4):
                score = theirs.compute_head_attention_similarity_score(
                    acts[f"blocks.{layer}.attn.hook_pattern"][0, head], detection_pattern=target, exclude_bos=False,
                    exclude_current_token=False, error_measure="mul",
                )  # fmt: skip
                assert ours[kind][layer, head].item() * asked / x.shape[1] == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("kind", list(patterns.KINDS))
def test_a_perfect_head_scores_one_and_a_blind_one_nothing(kind):
    model = decoder(n_layers=1)
    half = torch.randperm(VOCAB)[:7]
    x = torch.cat([half, half])[None]
    target = patterns.KINDS[kind][1](x).double()

    def staged(p, name):
        out = torch.zeros_like(p)
        out[:, 0] = target / target.sum(-1, keepdim=True).clamp_min(1)
        out[:, 1, :, 0] = 1 if kind != "first" else 0
        return out

    seen: dict = {}

    class Staged:
        cfg = model.cfg

        def __call__(self, tokens, hooks, last):
            return model(tokens, hooks={n: (lambda p, name, f=f: f(staged(p, name), name)) for n, f in hooks.items()})

    seen = patterns.detect(Staged(), x, [kind])
    assert seen[kind][0, 0] == pytest.approx(1.0)
    assert seen[kind][0, 2] == 0


def test_a_text_without_repeats_has_no_induction():
    with pytest.raises(LabError, match="repeated"):
        patterns.detect(decoder(), torch.arange(6)[None], ["induction"])


# ---- heads by their weights


@each
def test_copying_is_the_share_of_positive_eigenvalues(layout):
    model = decoder(seed=6, **LAYOUTS[layout])
    if model.cfg.out_vocab:
        with pytest.raises(LabError, match="another vocabulary"):
            weights.copying(model)
        return
    found = weights.copying(model)
    cfg, eye = model.cfg, torch.eye(model.cfg.d_model, dtype=torch.float64)
    centre = eye - 1 / cfg.d_model if cfg.norm == "layer" else eye
    E = model.W_E @ centre
    if cfg.norm != "none":
        E = E / (E.square().mean(-1, keepdim=True) + cfg.norm_eps).sqrt()
    for layer, head in ((0, 0), (2, 3)):
        w, kv = model.head_weights(layer), head * cfg.n_kv_heads // cfg.n_heads
        whole = E * model.norm_gain(f"blocks.{layer}.ln1") @ w.W_V[kv] @ w.W_O[head] @ centre * model.norm_gain("ln_final") @ model.W_U
        values = torch.linalg.eigvals(whole)
        assert found[layer, head].item() == pytest.approx((values.real.sum() / values.abs().sum()).item(), abs=1e-4)


def test_a_head_that_copies_and_one_that_forbids():
    model = decoder(norm="none", act="none", d_mlp=0, d_model=24, n_heads=4, n_kv_heads=4, d_head=6)
    attention = model.model.layers[1].self_attn
    attention.o_proj.weight.copy_(attention.v_proj.weight.T)  # W_O = W_V^T, and the unembedding is the embedding's
    attention.o_proj.weight[:, 6:12] *= -1
    scores = weights.copying(model)[1]
    assert scores[0] == pytest.approx(1.0) and scores[1] == pytest.approx(-1.0)


@pytest.mark.parametrize("kind", weights.COMPOSITIONS)
@pytest.mark.parametrize("layout", ["llama", "gpt2"])
def test_composition_is_the_norm_of_the_product(kind, layout):
    model = decoder(seed=8, **LAYOUTS[layout])
    cfg = model.cfg
    found = weights.composition(model, kind)
    assert found[0].isnan().all() and found[1, :, 1:].isnan().all() and not found[2, :, :2].isnan().any()

    def matrices(layer: int, head: int):
        w, kv = model.head_weights(layer), head * cfg.n_kv_heads // cfg.n_heads
        gain = torch.diag(model.norm_gain(f"blocks.{layer}.ln1"))
        if cfg.norm == "layer":
            gain = (torch.eye(cfg.d_model, dtype=torch.float64) - 1 / cfg.d_model) @ gain
        return gain @ w.W_Q[head] @ (gain @ w.W_K[kv]).T, gain @ w.W_V[kv] @ w.W_O[head]

    for receiver, sender in (((1, 0), (0, 3)), ((2, 2), (1, 1)), ((2, 1), (0, 0))):
        QK, OV = matrices(*receiver)
        side = {"q": QK, "k": QK.T, "v": OV}[kind]
        _, write = matrices(*sender)
        expected = (write @ side).norm() / (write.norm() * side.norm())
        assert found[receiver + sender].item() == pytest.approx(expected.item(), rel=1e-9)


def test_unrelated_heads_compose_by_chance():
    model = decoder(d_model=128, n_heads=4, n_kv_heads=4, d_head=8, norm="none")
    assert weights.composition(model, "k").nanmean().item() == pytest.approx(weights.chance(model), rel=0.1)


# ---- QK and OV circuits


@pytest.mark.parametrize("layout", ["llama", "qwen3", "untied"])
def test_qk_of_the_first_layer_is_what_the_model_computes(layout):
    """Two tokens at any distance: the score the model gives in its first layer, which reads bare embeddings."""
    model = decoder(seed=4, **LAYOUTS[layout])
    x = tokens(1, 9, 6)
    _, acts = model.run_with_cache(x, names=lambda n: n == "blocks.0.attn.hook_attn_scores")
    stream = circuits.alone(model, x[0].tolist())
    for head in range(4):
        for distance in (0, 1, 4):
            scores = circuits.qk(model, 0, head, stream, distance)
            for query in range(distance, 9):
                theirs = acts["blocks.0.attn.hook_attn_scores"][0, head, query, query - distance]
                assert scores[query, query - distance].item() == pytest.approx(theirs.item(), abs=1e-6)  # angles are in float32


@pytest.mark.parametrize("layout", ["llama", "attention only"])
def test_ov_is_what_looking_at_a_token_writes(layout):
    """In a model of one layer, whose head is made to look at the first token alone."""
    model = decoder(seed=4, **LAYOUTS[layout] | {"n_layers": 1, "positions": "none"})
    x = tokens(1, 5, 2)
    kept: dict = {}

    def look(p, name):
        return torch.zeros_like(p).index_fill(3, torch.tensor([0]), 1.0)

    names = [n for n in ("blocks.0.attn.hook_result", "ln_final.hook_scale") if n in model.hook_names()]
    model(x, hooks={"blocks.0.attn.hook_pattern": look} | keep(names, kept))
    scale = kept["ln_final.hook_scale"][0, -1].item() if "ln_final.hook_scale" in kept else 1.0
    for head in range(4):
        logits = kept["blocks.0.attn.hook_result"][0, -1, head] * model.norm_gain("ln_final") / scale @ model.W_U
        found = circuits.ov(model, 0, head, circuits.alone(model, [int(x[0, 0])]), scale)
        assert torch.allclose(found[0], logits - logits.mean(), atol=1e-12)


def test_circuits_say_what_is_not_there():
    model = decoder()
    stream = circuits.alone(model, [1, 2], layers=2)
    assert torch.allclose(stream[1], model.run_with_cache(torch.tensor([[2]]))[1]["blocks.1.hook_resid_post"][0, 0])
    with pytest.raises(LabError, match=r"no head 3\.0"):
        circuits.qk(model, 3, 0, stream)
    with pytest.raises(LabError, match="apart"):
        circuits.qk(model, 1, 0, stream, distance=32)


# ---- the bundled model


def test_pocket_has_the_heads_that_its_training_needs():
    """It continues repeated lists and finishes indirect-object sentences: heads for both must be there."""
    from interp.heads import names

    lm = models.load("pocket")
    scores = patterns.detect(lm.model, patterns.repeated(lm, rows=4))
    assert scores["induction"].max() > 0.5 and scores["previous"].max() > 0.5
    found = names.name_heads(lm, names.sentences(lm, 8))
    assert found.mover.max() > 0.3
    layer, head = divmod(int(found.mover.argmax()), lm.config.n_heads)
    assert found.direct[layer, head] > 0, "a name mover writes the name it reads"
    assert layer > 0 and found.io[layer, head] > found.s1[layer, head]


def test_attribution_never_makes_what_heads_and_neurons_write():
    """The largest tensor stays that of the model itself, at a shape where the naive way needs 20 times as much."""
    from lab.bench.interp_heads import largest, naive

    model = decoder(dtype=torch.float32, norm="layer", positions="learned", act="gelu", bias=True, n_kv_heads=4,
                    d_model=24, d_mlp=96)  # fmt: skip
    x, answers, wrongs = tokens(2, 8, 1), tokens(2, 8, 2), tokens(2, 8, 3)
    ours, small = largest(model, lambda: direct(model, x, answers, wrongs, range(8)))
    (heads, neurons), large = largest(model, lambda: naive(model, x, answers, wrongs))
    assert torch.allclose(ours.heads, heads.double(), atol=1e-5) and torch.allclose(ours.neurons, neurons, atol=1e-5)
    assert large.bytes >= 20 * small.bytes, (large.shape, small.shape)
    _, plain = largest(model, lambda: model(x))
    assert small.bytes <= max(plain.bytes, ours.neurons.nbytes)


# ---- cutting heads


@pytest.mark.parametrize("layout", ["llama", "gpt2", "attention only"])
def test_a_cut_head_is_one_forward_without_it(layout):
    model = decoder(seed=7, **LAYOUTS[layout])
    x = tokens(1, 6, 9)[0]
    found = loss_without(model, x, 3, 5)
    whole = model(x[None])[0, -1]
    for layer, head in ((0, 1), (2, 3)):

        def cut(z, name, head=head):
            return z.index_fill(2, torch.tensor([head]), 0.0)

        logits = model(x[None], hooks={f"blocks.{layer}.attn.hook_z": cut})[0, -1]
        expected = (whole[3] - whole[5]) - (logits[3] - logits[5])
        assert found[layer, head].item() == pytest.approx(expected.item(), abs=1e-11)


# ---- prompts of a kind


@pytest.mark.parametrize("kind", list(families.FAMILIES))
def test_families_give_prompts_that_pocket_answers(kind):
    lm = models.load("pocket")
    prompts = families.asked(lm, kind, 6)
    assert len(prompts) == 6
    assert (over_prompts(lm.model, prompts).total > 0).double().mean() >= 0.8


def test_the_picture_of_an_attribution_holds_its_numbers():
    lm = models.load("pocket")
    ids = lm.tokens("The capital of France is")
    right, wrong = (torch.tensor([[lm.tokenizer.single(x)]]) for x in (" Paris", " Rome"))
    found = direct(lm.model, ids, right, wrong, sources=True)
    bars = direct_view.waterfall(found, 0, {"pos": "#000", "neg": "#111", "faint": "#222"}, "").data[0]
    assert sum(bars.y[:-1]) == pytest.approx(float(found.total), abs=0.1)
    sources = direct_view.source_map(found, 0, lm.tokenizer.pieces(ids[0].tolist()))
    layer, head = map(int, sources.row_labels[-1].split("."))
    assert sources.values[-1].sum() == pytest.approx(float(found.heads[0, 0, layer, head]), abs=0.01)
    rows = direct_view.neuron_table(lm, found, 0, 5).rows
    layer, neuron = map(int, rows[0]["neuron"].split("."))
    assert rows[0]["value"] == pytest.approx(float(found.neurons.abs().max() * found.neurons[0, 0, layer, neuron].sign()))
    up, down = direct_view.promotes(lm, layer, neuron, 3)
    logits = lm.model.mlp_weights(layer).W_out[neuron].float() * lm.model.norm_gain("ln_final").float() @ lm.model.W_U.float()
    assert logits[up].min() > logits.mean() > logits[down].max()


# ---- where the answer is known, and the page's parts


def test_the_induction_model_is_read_right():
    """Trained to repeat: a previous-token head below, induction heads above that read it by their keys."""
    lm = models.load("induction")
    scores = patterns.detect(lm.model, patterns.repeated(lm, length=16), ["previous", "induction"])
    first = int(scores["previous"][0].argmax())
    assert scores["previous"][0, first] > 0.8 and scores["previous"][1].max() < 0.3
    assert scores["induction"][1].max() > 0.6 and scores["induction"][0].max() < 0.2
    keys = weights.composition(lm.model, "k")[1, :, 0]
    best = int(scores["induction"][1].argmax())
    assert int(keys[best].argmax()) == first and keys[best, first] > 1.5 * weights.chance(lm.model)
    copies = weights.copying(lm.model)
    assert copies[1, best] > 0.5, "an induction head writes what it reads"


def test_the_survey_of_pocket_and_of_a_model_that_reads_no_names(tmp_path):
    lm = models.load("pocket")
    found = survey.survey(lm, rows=2, sentences=4)
    assert list(found.scores) == list(survey.SCORES) and not found.missing
    rows = found.rows()
    assert len(rows) == 40 and rows[32]["head"] == "6.2"
    assert rows[32]["induction"] == pytest.approx(float(found.scores["induction"][6, 2]))
    other = survey.survey(language_model(tmp_path, out_vocab=11, tied=False), rows=2)
    assert set(other.missing) == {"copying", "mover"} and "induction" in other.scores


def test_the_newest_choice_counts():
    newest = view.Newest((6, 2))
    assert newest.of([[6, 2]], ["6.2"]) == (6, 2)
    assert newest.of([[1, 3]], ["6.2"]) == (1, 3)
    assert newest.of([[1, 3]], ["6.2", "4.1"]) == (4, 1)
    assert newest.of([], ["6.2", "4.1"]) == (4, 1) and newest.of([[6, 2]], []) == (6, 2)


def test_circuit_maps_hold_what_the_circuits_say():
    lm = models.load("pocket")
    ids = view.words_of(lm, " river moon moon lamp")
    assert len(ids) == 3
    qk, ov, table = view.circuit_maps(lm, 6, 2, ids, 4, 1)
    stream = circuits.alone(lm.model, ids, 1)
    scores = circuits.qk(lm.model, 6, 2, stream, 4)
    assert qk.values[-1] == pytest.approx((scores - scores.mean(-1, keepdim=True))[0].numpy(), abs=1e-4)
    assert (ov.values[::-1].argmax(1) == torch.arange(3).numpy()).all(), "the induction head copies"
    assert [row["token"] for row in table.rows] == ["river", "moon", "lamp"] and table.rows[0]["rank"] == 1


# ---- GPT-2 small, whose numbers the field knows

GPT2 = os.environ.get("LAB_GPT2_DIR")
needs_gpt2 = pytest.mark.skipif(not GPT2, reason="LAB_GPT2_DIR does not name a directory with GPT-2 small")
STORIES = (
    ("When John and Mary went to the shops,{} gave the bag to", " Mary", " John"),
    ("When Tom and James went to the park,{} gave the ball to", " Tom", " James"),
    ("When Dan and Sid went to the shops,{} gave an apple to", " Sid", " Dan"),
    ("After Martin and Amy went to the park,{} gave a drink to", " Amy", " Martin"),
)


@needs_gpt2
def test_gpt2_says_the_name_by_the_heads_everybody_finds():
    lm = models.load(GPT2, dtype=torch.float32)
    single = lm.tokenizer.single
    asked = []
    for template, one, two in STORIES:
        for right, wrong in ((one, two), (two, one)):
            ids = [lm.tokenizer.eos, *lm.tokenizer.encode(template.format(wrong))]
            asked.append(Asked(ids, single(right), single(wrong)))
    found = over_prompts(lm.model, asked)
    assert float(found.total.mean()) == pytest.approx(3.552, abs=0.005)
    heads = found.heads[:, 0].mean(0)
    for (layer, head), value in {(9, 9): 2.985, (10, 7): -1.899, (9, 6): 1.385, (11, 10): -0.970}.items():
        assert heads[layer, head].item() == pytest.approx(value, abs=0.01)


@needs_gpt2
def test_gpt2_repeats_by_the_heads_everybody_finds():
    lm = models.load(GPT2, dtype=torch.float32)
    scores = patterns.detect(lm.model, patterns.repeated(lm, length=50, rows=10), ["induction"])["induction"]
    for (layer, head), value in {(5, 1): 0.931, (5, 5): 0.926, (6, 9): 0.926}.items():
        assert scores[layer, head].item() == pytest.approx(value, abs=0.03)


def test_a_backend_without_weights_still_tells_what_heads_look_at():
    lm = models.load("pocket")

    class Hooked:
        """What every backend gives: a call with hooks, and no matrices."""

        cfg, device = lm.model.cfg, lm.model.device

        def __call__(self, tokens, hooks=None, last=False):
            return lm.model(tokens, hooks=hooks, last=last)

    bare = SimpleNamespace(name="bare", model=Hooked(), config=lm.config, tokenizer=lm.tokenizer)
    found = survey.survey(bare, rows=2)
    assert list(found.scores) == list(patterns.KINDS)
    assert all("backend" in why for why in found.missing.values()) and set(found.missing) == {"copying", "mover"}
    assert torch.equal(found.scores["induction"], survey.survey(lm, rows=2, sentences=2).scores["induction"])


def test_models_of_made_up_words_are_asked_in_their_own():
    for name in ("induction", "grokking"):
        lm = models.load(name)
        (text,) = families.readable(lm, {"a fact": "The Eiffel Tower is located in the city of"}).values()
        assert 2 <= lm.tokens(text).shape[1] <= lm.config.context
        with pytest.raises(LabError, match="choose another kind"):
            families.asked(lm, "ioi", 4)
    assert families.readable(models.load("pocket"), {"x": "The capital", "y": ""}) == {"x": "The capital"}


def test_the_next_token_map_adds_up_at_every_position():
    model = decoder(seed=2)
    x = tokens(1, 6, 3)
    shown = direct_view.next_token_map(model, x, list("abcdef"))
    logits = model(x)[0, :-1]
    expected = logits.gather(-1, x[0, 1:, None])[:, 0] - logits.mean(-1)
    assert shown.values.sum(0) == pytest.approx(expected.numpy(), abs=1e-4)
    assert shown.col_labels2 == list("bcdef")
    with pytest.raises(LabError, match="longer text"):
        direct_view.next_token_map(model, x[:, :1], ["a"])
