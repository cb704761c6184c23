"""Lenses: identities on random models, a trained lens against the logit lens on held-out text, its run."""

import numpy as np
import pytest
import torch

from interp.lenses import train, tuned, view
from interp.lenses.logit import logit_lens
from interp.lenses.patchscopes import PROMPTS, patchscope, placeholder
from interp.lenses.tuned import TunedLens
from interp.sites import keep
from lab import models, runs
from lab.errors import LabError
from tests.interp_models import VOCAB, decoder, language_model
from widgets.textgrid import TextGrid, View

LAYOUTS = {
    "llama": {},
    "gpt2": {"norm": "layer", "positions": "learned", "act": "gelu", "bias": True, "n_kv_heads": 4},
    "attention only": {"norm": "none", "act": "none", "d_mlp": 0},
}


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_last_row_is_the_model_and_kl_is_measured_from_it(tmp_path, layout):
    lm = language_model(tmp_path, **LAYOUTS[layout])
    ids = tokens(1, 6, 1)
    lens = TunedLens(3, 24, rank=4).double()
    torch.nn.init.normal_(lens.out)
    torch.nn.init.normal_(lens.bias)
    logprobs = lm.model(ids)[0].log_softmax(-1)
    for one in (None, lens):
        found = logit_lens(lm, ids[0].tolist(), lens=one, k=VOCAB, track=[3])
        assert torch.allclose(found.tracked[3][-1], logprobs[:, 3].exp(), atol=1e-12)
        assert found.kl[-1].abs().max() < 1e-12 and (found.kl[:-1] > 1e-4).all()
    kept: dict = {}
    lm.model(ids, hooks=keep(["blocks.0.hook_resid_post"], kept))
    stream = kept["blocks.0.hook_resid_post"][0]
    moved = stream + stream @ lens.into[1] @ lens.out[1] + lens.bias[1]
    expected = lm.model.unembed(moved[None])[0].log_softmax(-1)
    assert torch.allclose(found.tracked[3][1], expected[:, 3].exp(), atol=1e-12)
    assert torch.allclose(found.kl[1], (logprobs.exp() * (logprobs - expected)).sum(-1), atol=1e-12)
    end = logit_lens(lm, ids[0].tolist(), lens=lens, k=3, last=True)
    assert torch.allclose(end.kl[:, 0], found.kl[:, -1], atol=1e-12)


@pytest.mark.parametrize("rank", [None, 5])
def test_a_new_lens_is_the_logit_lens(rank):
    model, rows = decoder(), tokens(2, 8)
    lens = TunedLens(3, 24, rank).double()
    assert train.judged(model, rows, lens) == pytest.approx(train.judged(model, rows), abs=1e-12)
    assert lens(torch.ones(24), 3) is not None, "the row of the last layer passes"


@pytest.mark.parametrize("rank", [None, 24])
def test_training_finds_the_map_that_exists(rank):
    """Layers that only turn the stream: a linear translator can undo every one of them exactly."""
    model = decoder(seed=2, n_layers=2, norm="none", act="none", d_mlp=0, n_kv_heads=4)
    for block in model.model.layers:  # each position looks at itself alone
        block.self_attn.q_proj.weight.zero_()
    lens = TunedLens(2, 24, rank).double()
    optimiser = torch.optim.Adam(lens.parameters(), lr=0.02)
    rows = tokens(64, 1)
    before = train.judged(model, rows)
    for step in range(400):
        for group in optimiser.param_groups:
            group["lr"] = 0.02 * (1 - step / 400)
        train._step(model, lens, rows)
        optimiser.step()
    after = train.judged(model, rows, lens)
    assert all(a < 0.01 * b for a, b in zip(after, before))
    assert all(p.grad is None for p in model.parameters()), "the model's own weights are left alone"


def test_gradients_are_those_of_the_mean_divergence():
    model, rows = decoder(seed=5), tokens(2, 5)
    lens = TunedLens(3, 24, 4).double()
    torch.nn.init.normal_(lens.out, std=0.1)
    train._step(model, lens, rows)
    step = 1e-6
    with torch.no_grad():
        lens.out[1, 2, 3] += step
        up = sum(train.judged(model, rows, lens))
        lens.out[1, 2, 3] -= 2 * step
        down = sum(train.judged(model, rows, lens))
    assert lens.out.grad[1, 2, 3].item() == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_a_run_trains_streams_resumes_and_is_found(tmp_path):
    spec = train.LensSpec(model="pocket-draft", steps=12, batch=4, context=32, eval_every=6, save_every=6, eval_rows=4,
                          generated_tokens=20_000, lr=1e-2)  # fmt: skip
    run = runs.start("tuned_lens", spec.to_dict())
    assert run.wait(120) == "done", run.error
    rows = run.metrics()
    held = [row for row in rows if "held" in row]
    assert [row["step"] for row in held] == [0, 6, 12] and [r["step"] for r in rows if "loss" in r] == list(range(1, 13))
    assert held[0]["held"] == pytest.approx(held[0]["logit_lens"], rel=1e-5) and held[-1]["held"] < held[0]["held"]
    lm = models.load("pocket-draft")
    name = tuned.found(lm)[f"{run.id}, step 12"]
    half, whole = (tuned.load(n, lm.model) for n in (f"{name}@6", name))
    assert not torch.equal(half.out, whole.out)
    _, rows_held = train.texts(lm, spec.data, spec.generated_tokens, spec.context, spec.seed)
    kl = train.judged(lm.model, rows_held[:4], whole)
    assert sum(kl) / len(kl) == pytest.approx(held[-1]["held"], rel=0.05), "bf16 on disk"
    with pytest.raises(LabError, match="no such checkpoint"):
        tuned.load(f"{name}@7", lm.model)
    with pytest.raises(LabError, match="choose the lens trained on it"):
        tuned.load(name, models.load("pocket").model)
    resumed = _continued(spec, run.checkpoints()[0].path, tmp_path)
    for p, q in zip(resumed.parameters(), whole.parameters()):
        assert torch.allclose(p, q, atol=0.02 * float(q.abs().max()))
    run.delete()


def _continued(spec, checkpoint, tmp_path) -> TunedLens:
    """The lens of a run that was stopped at this checkpoint and goes on."""
    import shutil

    from lab.runs.context import Context

    shutil.copytree(checkpoint, tmp_path / "checkpoints" / checkpoint.name)
    ctx = Context(tmp_path)
    train.work(spec.to_dict(), ctx)
    ctx.close()
    return tuned.read(tmp_path / "checkpoints" / "step-00000012", models.load(spec.model).model)


@pytest.mark.parametrize(
    "wrong", [{"rank": 0}, {"steps": 0}, {"lr": 2.0}, {"layers": 3}, {"data": "nothing"}, {"context": 100_000}]
)
def test_wrong_settings_are_sentences(wrong, tmp_path):
    from lab.runs.context import Context

    with pytest.raises(LabError):
        train.work({"model": "pocket-draft", **wrong}, Context(tmp_path))


def test_a_damaged_lens_is_a_sentence(tmp_path):
    TunedLens(3, 24, 4).save(tmp_path)
    assert tuned.read(tmp_path, decoder()).rank == 4
    (tmp_path / "lens.safetensors").write_bytes(b"short")
    with pytest.raises(LabError, match="train it again"):
        tuned.read(tmp_path, decoder())
    with pytest.raises(LabError, match="no tuned lens"):
        tuned.load("nothing", decoder())


# ---- patchscopes


def test_a_patchscope_is_one_patched_forward_a_cell(tmp_path):
    lm = language_model(tmp_path)
    source, target, place = [1, 5, 7, 8], [2, 3, 4, 9, 10], 3
    found = patchscope(lm, source, 2, target, place, new_tokens=2, track=[6], k=3, rows=5)
    kept: dict = {}
    points = [f"blocks.{i}.hook_resid_pre" for i in range(3)] + ["blocks.2.hook_resid_post"]
    lm.model(torch.tensor([source]), hooks=keep(points, kept))
    assert found.sources == ["embed", "0", "1", "2"] and found.targets == ["0", "1", "2"]
    for s, name in enumerate(points):
        for t in range(3):

            def put(stream, at, state=kept[name][0, 2]):
                out = stream.clone()
                out[0, place] = state
                return out

            hooks = {f"blocks.{t}.hook_resid_pre": put}
            p = lm.model(torch.tensor([target]), hooks=hooks)[0, -1].softmax(-1)
            assert found.tracked[6][s, t].item() == pytest.approx(p[6].item(), abs=1e-6)
            first = int(p.argmax())
            second = int(lm.model(torch.tensor([[*target, first]]), hooks=hooks)[0, -1].argmax())
            assert found.ids[s, t, 0] == first and found.said[s][t] == [first, second][: len(found.said[s][t])]


def test_a_state_put_where_it_came_from_changes_nothing(tmp_path):
    lm = language_model(tmp_path)
    ids = [1, 5, 7, 8, 9]
    found = patchscope(lm, ids, 2, ids, 2, new_tokens=1, track=[3])
    plain = lm.model(torch.tensor([ids]))[0, -1].softmax(-1)[3].item()
    for layer in range(3):
        assert found.tracked[3][layer, layer].item() == pytest.approx(plain, abs=1e-6)


def test_pocket_reads_a_word_out_of_an_early_state():
    """The list prompt asks for the word again: with its embedding in the place of the "?", pocket says it."""
    lm = models.load("pocket")
    target, place = placeholder(lm, PROMPTS["what is it? (list)"])
    right = 0
    for word in ("moon", "horse", "gold", "table", "wind", "fish", "bread", "snow"):
        token = lm.tokenizer.single(f" {word}")
        found = patchscope(lm, [token], 0, target, place, [1], [1, 2], new_tokens=0, k=1)
        right += bool((found.ids == token).any())
    assert right >= 6


def test_a_prompt_without_a_place_is_a_sentence(tmp_path):
    lm = models.load("pocket-draft")
    with pytest.raises(LabError, match="end it with"):
        placeholder(lm, "cat cat; hello")
    with pytest.raises(LabError, match="4 tokens"):
        patchscope(language_model(tmp_path), [1, 2, 3, 4], 4, [1, 2], 1)


def test_the_bundled_lens_is_closer_to_the_model_at_every_layer():
    lm = models.load("pocket")
    held = train.held_out(lm, rows=3)
    lens = tuned.load(tuned.found(lm)["bundled"], lm.model)
    plain, better = train.judged(lm.model, held), train.judged(lm.model, held, lens)
    assert all(b < 0.6 * p for b, p in zip(better, plain)), (better, plain)
    assert sum((tuned.BUNDLED / "pocket" / name).stat().st_size for name in ("lens.json", "lens.safetensors")) < 0.4 * 2**20


# ---- the grid of words


def test_the_grid_carries_every_lens_and_its_numbers():
    lm = models.load("pocket")
    ids = lm.tokens("The capital of France is")[0].tolist()
    lens = tuned.load("bundled:pocket", lm.model)
    grid = view.lens_grid(lm, ids, lens)
    found = [logit_lens(lm, ids, k=view.TOP, lens=one) for one in (None, lens)]
    words = np.frombuffer(grid.words, "<u4").reshape(2, 9, len(ids), view.TOP)
    values = np.frombuffer(grid.values, "<f4").reshape(2, 3, 9, len(ids))
    for v, one in enumerate(found):
        assert [grid.table[i] for i in words[v, 8, -1]] == lm.tokenizer.pieces(one.ids[8, -1].tolist())
        for s, shade in enumerate((one.probs[..., 0], one.entropy, one.kl)):
            assert np.allclose(values[v, s], shade, atol=1e-6)
    assert grid.views == ["logit lens", "tuned lens"] and grid.view == 1
    assert grid.table[words[0, 8, -1, 0]] == " Paris"


def test_the_grid_refuses_what_does_not_fit():
    cells = [[["a"], ["b"]]]
    shade = [{"key": "p", "title": "p"}]
    TextGrid([View("x", cells, np.ones((1, 2, 1)), {"p": np.ones((1, 2))})], shade, ["0"], ["a", "b"])
    with pytest.raises(ValueError, match="cells"):
        TextGrid([View("x", cells, np.ones((1, 2, 1)), {"p": np.ones((1, 2))})], shade, ["0", "1"], ["a", "b"])
    with pytest.raises(ValueError, match="shading"):
        TextGrid([View("x", cells, np.ones((1, 2, 1)), {"p": np.ones((2, 2))})], shade, ["0"], ["a", "b"])


def test_a_patchscope_grid_tells_what_the_model_goes_on_to_say():
    lm = models.load("pocket-draft")
    target, place = placeholder(lm, PROMPTS["in which city is it?"])
    found = patchscope(lm, [5, 6, 7], 1, target, place, [0, 1], [0, 2], track=[9])
    grid = view.patchscope_grid(lm, found, 9, "a")
    texts = np.frombuffer(grid.texts, "<u4").reshape(2, 2)
    assert grid.table[texts[1, 0]] == lm.tokenizer.decode(found.said[1][0])
    assert np.allclose(np.frombuffer(grid.values, "<f4").reshape(2, 2, 2)[0], found.tracked[9])
