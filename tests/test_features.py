"""Dictionaries of features: their functions, gradients, training, measures and files, against known truth."""

import json
import math
from pathlib import Path

import pytest
import torch
from interp_models import VOCAB, decoder

from interp import features
from interp.features import loss, metrics, plots, store, toy, train
from interp.features.activations import Pool, Scale, at_sites
from interp.features.dictionary import KINDS, Dictionary, Shape
from interp.features.runs import point
from interp.features.spec import FeatureSpec
from interp.features.straight_through import JumpReLU, Step
from interp.features.trainer import Trainer
from interp.sites import keep
from lab.data.mixture import Mixture
from lab.data.packed import Stream
from lab.errors import LabError
from lab.runs.context import Context


def dictionary(kind: str, d_in: int = 12, d_dict: int = 40, k: int = 5, target: str = "resid_post", d_out: int | None = None) -> Dictionary:
    """Random weights everywhere, thresholds and gates included."""
    made = Dictionary(Shape(kind, d_in, d_out or d_in, d_dict, k, layer=1, target=target)).init_weights(0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.dim() == 1:
                p.copy_(0.3 * torch.randn(p.shape, generator=generator))
            if name == "log_threshold":
                p.copy_(torch.log(0.2 + torch.rand(p.shape, generator=generator)))
    return made.requires_grad_(False)


# ---- what the kinds compute


def test_topk_keeps_exactly_the_k_largest():
    d, x = dictionary("topk", k=5), torch.randn(200, 12)
    acts, pre = d.encode(x), x @ d.W_enc + d.b_enc
    order = pre.argsort(1, descending=True)
    for row in range(200):
        kept = {int(i) for i in acts[row].nonzero()}
        assert kept == {int(i) for i in order[row, :5] if pre[row, i] > 0}
        assert torch.equal(acts[row, order[row, :5]], pre[row, order[row, :5]].relu())
    assert ((acts > 0).sum(1) == 5).float().mean() > 0.95  # at most k, and k wherever as many are positive


def test_jumprelu_is_the_formula():
    d, x = dictionary("jumprelu"), torch.randn(50, 12)
    pre = x @ d.W_enc + d.b_enc
    assert torch.equal(d.encode(x), torch.where(pre > d.threshold, pre, torch.zeros(())).relu())


def test_a_gated_dictionary_is_a_jumprelu_with_shared_directions():
    """Rajamanoharan et al. 2024a, section 3.3: magnitude above b_mag - exp(r) b_gate."""
    d, x = dictionary("gated"), torch.randn(400, 12)
    magnitude = d.r_mag.exp() * (x @ d.W_enc) + d.b_mag
    threshold = d.b_mag - d.r_mag.exp() * d.b_enc
    expected = (magnitude * (magnitude > threshold)).relu()
    clear = (magnitude - threshold).abs() > 1e-4  # rounding decides the others
    assert torch.allclose(d.encode(x)[clear], expected[clear], atol=1e-5)
    assert (expected > 0).any()


# ---- straight-through gradients


@pytest.mark.parametrize("function", [JumpReLU, Step])
def test_straight_through_gradients_are_the_papers(function):
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(3000, 7, generator=generator, dtype=torch.float64).requires_grad_()
    theta = (0.2 + torch.rand(7, generator=generator, dtype=torch.float64)).requires_grad_()
    weight, width = torch.randn(3000, 7, generator=generator, dtype=torch.float64), 0.1
    (function.apply(z, theta, width) * weight).sum().backward()
    expected = torch.zeros(7, dtype=torch.float64)
    for i in range(7):
        for n in range(3000):
            if abs((z[n, i] - theta[i]) / width) < 0.5:
                expected[i] -= weight[n, i] / width * (theta[i] if function is JumpReLU else 1.0)
    assert torch.allclose(theta.grad, expected.detach(), rtol=1e-10)
    through = weight * (z > theta) if function is JumpReLU else torch.zeros_like(weight)
    assert torch.equal(z.grad, through)


def test_the_threshold_gradient_estimates_that_of_the_expected_loss():
    """d/dθ E[(z_jump - y)² + λ 1(z > θ)] by finite differences over many samples."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(4_000_000, 1, generator=generator, dtype=torch.float64)
    y, sparsity, at = 0.7 * z.abs(), 0.3, 0.8

    def expected(value: float) -> float:
        on = z > value
        return float(((z * on - y).square() + sparsity * on).mean())

    slope = (expected(at + 0.02) - expected(at - 0.02)) / 0.04
    theta = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    out = JumpReLU.apply(z, theta, 0.05)
    ((out - y).square() + sparsity * Step.apply(z, theta, 0.05)).mean().backward()
    assert float(theta.grad) == pytest.approx(slope, rel=0.03)
    assert abs(slope) > 0.01


# ---- known directions


@pytest.mark.parametrize(("kind", "k", "steps"), [("topk", 4, 600), ("jumprelu", 3, 1600), ("gated", 3, 1400)])
def test_superposed_features_are_recovered(kind, k, steps):
    truth = toy.Superposition(features=64, width=24, density=0.04)
    spec = FeatureSpec(
        kind=kind, d_dict=80, k=k, steps=steps, batch=512, lr=3e-3, log_every=steps, dead_after=20_000, width=0.05
    )
    *_, (_, found) = toy.recover(truth, spec)
    assert toy.mean_max_cosine(found, truth.directions()) >= 0.95
    untrained = Dictionary(spec.shape(24, 24)).init_weights(0)
    assert toy.mean_max_cosine(untrained, truth.directions()) < 0.75
    values, x = truth.batch(10**6, 2000)
    cosine = toy.cosines(found, truth.directions())
    best = cosine.argmax(0)[cosine.amax(0) > 0.95]
    true = values[:, cosine.amax(0) > 0.95]
    together = torch.corrcoef(torch.cat([found.encode(x)[:, best], true], 1).T)[: len(best), len(best) :].diagonal()
    assert together.mean() > 0.85  # not only the directions: each fires when its feature is there


# ---- in the model


def test_activations_are_those_of_the_whole_model():
    model, tokens = decoder(), torch.randint(VOCAB, (2, 9))
    names = ["blocks.1.ln2.hook_normalized", "blocks.1.hook_mlp_out"]
    _, cached = model.run_with_cache(tokens, lambda n: n in names)
    kept: dict = {}
    model(tokens, hooks=keep(names, kept))
    for name, x in at_sites(model, tokens, names).items():
        assert torch.equal(x, cached[name]) and torch.equal(x, kept[name])


def test_a_perfect_dictionary_recovers_all_of_the_loss_and_zeros_none():
    model = decoder()
    rows = torch.randint(VOCAB, (6, 20), generator=torch.Generator().manual_seed(2))
    perfect = Dictionary(Shape("topk", 24, 24, 48, 24, layer=1)).double()
    with torch.no_grad():
        perfect.W_dec.copy_(torch.cat([torch.eye(24), -torch.eye(24)]))
        perfect.W_enc.copy_(perfect.W_dec.T)
    mean = torch.zeros(24, dtype=torch.float64)
    q = metrics.quality(model, perfect, [rows], mean)
    assert q.recovered == pytest.approx(1, abs=1e-9) and q.explained == pytest.approx(1)
    assert q.l0 == pytest.approx(24) and q.positions == 6 * 19
    nothing = Dictionary(Shape("topk", 24, 24, 48, 24, layer=1)).double()
    q = metrics.quality(model, nothing, [rows], mean)
    assert q.recovered == pytest.approx(0, abs=1e-9) and q.recovered_from_mean == pytest.approx(0, abs=1e-9)
    assert q.l0 == 0 and q.dead == 1


def test_an_mlp_in_its_own_place_changes_nothing_and_another_does():
    model, tokens = decoder(), torch.randint(VOCAB, (2, 9))
    block = model.model.layers[1]
    d = dictionary("topk", 24, 40, 5, "transcoder").double()

    def own(x: torch.Tensor) -> torch.Tensor:
        return block.mlp(block.post_attention_layernorm.weight * x, 1, None)

    hooks = metrics.splice(d.site_in, d.site_out, own)
    assert torch.allclose(model(tokens, hooks=hooks), model(tokens), atol=1e-12)
    assert not torch.allclose(model(tokens, hooks=metrics.splice(d.site_in, d.site_out, d)), model(tokens), atol=1e-2)


def test_quality_counts_what_the_dictionary_does():
    model, d = decoder(dtype=torch.float32), dictionary("jumprelu", 24, 64)
    rows = torch.randint(VOCAB, (5, 12), generator=torch.Generator().manual_seed(5))
    mean = torch.randn(24)
    q = metrics.quality(model, d, rows.split(2), mean)
    x = at_sites(model, rows[:, :-1], [d.site_in])[d.site_in]
    acts = d.encode(x)
    assert q.l0 == pytest.approx(float((acts > 0).sum(-1).float().mean()), rel=1e-6)
    assert q.dead == pytest.approx(float(((acts > 0).sum((0, 1)) == 0).float().mean()))
    inner, error = x[:, 1:], (d(x) - x)[:, 1:]
    assert q.explained == pytest.approx(float(1 - error.square().sum() / (inner - inner.mean((0, 1))).square().sum()), rel=1e-4)
    logits = model(rows[:, :-1], hooks={d.site_out: lambda x, name: mean.expand_as(x)})
    assert q.mean == pytest.approx(float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())), rel=1e-5)


# ---- training


@pytest.mark.parametrize("kind", KINDS)
def test_the_dictionary_handed_out_reads_raw_activations(kind):
    spec = FeatureSpec(kind=kind, d_dict=40, k=6, steps=6, batch=64, pool=1, warmup=0, target="transcoder")
    generator = torch.Generator().manual_seed(0)
    x = 3 + 5 * torch.randn(64, 12, generator=generator)
    y = x @ torch.randn(12, 8, generator=generator) - 2
    trainer = Trainer(spec, Scale.of(x), Scale.of(y))
    for _ in range(6):
        trainer.step(x, y)
    inner = trainer.dictionary
    scaled = inner.encode(trainer.read.apply(x))
    raw = trainer.folded()
    near = (inner.pre(trainer.read.apply(x)).abs() < 1e-5).any(1)  # rounding may decide these gates
    assert torch.allclose(raw.encode(x)[~near], (scaled * trainer.written.size)[~near], atol=1e-4)
    out = inner.decode(scaled) * trainer.written.size + trainer.written.mean
    assert torch.allclose(raw(x)[~near], out[~near], atol=1e-3)
    assert torch.allclose(raw.W_dec.norm(dim=1), torch.ones(40))


def test_dead_features_learn_from_what_the_others_miss():
    d = dictionary("topk", k=3).requires_grad_()
    with torch.no_grad():
        d.b_enc[:10] -= 4  # these do not win any more
    x = torch.randn(300, 12, generator=torch.Generator().manual_seed(0))
    dead = (d.encode(x) > 0).sum(0) == 0
    assert dead[:10].any() and not dead.all()

    def gradients(aux: float) -> torch.Tensor:
        d.zero_grad()
        loss.topk(d, x, x, 0.0, aux, dead).total.backward()
        return d.W_dec.grad.clone()

    without, with_aux = gradients(0.0), gradients(1 / 32)
    assert (without[dead] == 0).all()
    pre, out = d.pre(x), d(x)
    best = pre.masked_fill(~dead, -torch.inf).topk(min(6, int(dead.sum())), -1)
    revived = torch.zeros_like(pre).scatter(-1, best.indices, best.values.relu())
    missed = (revived @ d.W_dec - (x - out)).detach()
    expected = 2 / 300 / 32 * revived.detach().T @ missed
    assert torch.allclose(with_aux[dead], expected[dead], atol=1e-7) and (with_aux[dead] != 0).any()
    assert torch.allclose(with_aux[~dead], without[~dead])  # the residual is a target, not something to be changed


def test_features_that_do_not_fire_are_called_dead():
    spec = FeatureSpec(kind="topk", d_dict=40, k=2, steps=100, batch=64, pool=1, warmup=0, dead_after=64 * 15)
    trainer = Trainer(spec, Scale(torch.zeros(12), 1.0), Scale(torch.zeros(12), 1.0))
    with torch.no_grad():
        trainer.dictionary.b_enc[:10] = -50
    shares = [float(trainer.step(x, x)["dead"]) for x in torch.randn(20, 64, 12)]
    assert shares[14] == 0 and 0.25 <= shares[19] < 0.5


def test_the_number_of_active_features_is_steered():
    truth = toy.Superposition(features=64, width=24, density=0.04)
    spec = FeatureSpec(kind="gated", d_dict=80, k=6, steps=1200, batch=256, lr=3e-3, log_every=1200, width=0.05)
    *_, (_, found) = toy.recover(truth, spec)
    l0 = float((found.encode(truth.batch(10**6, 2000)[1]) > 0).sum(1).float().mean())
    assert 3 < l0 < 12  # 80 features, half of them active at the start


def small(**changes) -> FeatureSpec:
    made = FeatureSpec(
        model="pocket-draft", layer=1, d_dict=96, k=8, context=32, pool=8, batch=64, steps=8, warmup=2,
        generated_tokens=20_000, eval_every=8, eval_windows=4, save_every=4, log_every=1,
    )  # fmt: skip
    return made.changed(**changes)


class Stops(Context):
    """A context that is cancelled once a number of steps are logged."""

    def __init__(self, path: Path, after: int | None = None) -> None:
        path.mkdir(parents=True, exist_ok=True)
        super().__init__(path)
        self.after, self.steps = after, 0

    def log(self, step: int, **values) -> None:
        self.steps = step
        super().log(step, **values)

    @property
    def cancelled(self) -> bool:
        return self.after is not None and self.steps >= self.after


def run(path: Path, spec: FeatureSpec, after: int | None = None) -> list[dict]:
    ctx = Stops(path, after)
    train.work(spec.to_dict(), ctx)
    ctx.close()
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("changes", [{}, {"kind": "jumprelu", "target": "transcoder"}])
def test_a_cancelled_run_goes_on_exactly(tmp_path, changes):
    spec = small(**changes)
    whole = run(tmp_path / "whole", spec)
    run(tmp_path / "cut", spec, after=5)
    again = run(tmp_path / "cut", spec)
    end = [tmp_path / name / "checkpoints" / "step-00000008" for name in ("whole", "cut")]
    one, two = (store.read(path) for path in end)
    assert all(torch.equal(p, q) for p, q in zip(one.state_dict().values(), two.state_dict().values()))
    assert [row["step"] for row in again if "error" in row] == list(range(1, 9))
    last = whole[-1]
    assert 0 <= last["val_dead"] < 1 and math.isfinite(last["val_loss_recovered"])
    errors = [row["error"] for row in whole if "error" in row]
    assert errors[-1] < errors[0]


def test_a_run_of_the_lab_is_listed_and_opens(monkeypatch, tmp_path):
    from lab import runs

    run = runs.start("sae", small(steps=4).to_dict())
    assert run.wait(120) == "done", run.log()
    names = [info.name for info in features.available("pocket-draft")]
    assert f"run:{run.id}" in names
    made = features.load(f"run:{run.id}@4")
    assert made.layer == 1 and made.d_dict == 96 and made.site_in == "blocks.1.hook_resid_post"
    # its notes lack what the bundled ones tell: it is no point of theirs
    figure = plots.frontier(plots.sweep(), [point(run)])
    assert {"bundled", "your runs"} <= {trace.name for trace in figure.data}
    run.delete()


def test_a_pool_gives_every_position_once_and_the_same_again():
    model = decoder(dtype=torch.float32)
    text = Stream(torch.randint(VOCAB, (4000,), generator=torch.Generator().manual_seed(0)).numpy(), 0)
    name = "blocks.1.hook_resid_post"

    def pool() -> Pool:
        return Pool(model, Mixture({"x": text}, {"x": 1.0}, 16, 0), [name], rows=8, batch=32)

    one, two = pool(), pool()
    drawn = [one.batch(step)[name] for step in range(4)]
    expected = at_sites(model, Mixture({"x": text}, {"x": 1.0}, 16, 0).batch(0, 8)[:, :-1], [name])[name].flatten(0, 1)
    assert torch.equal(torch.cat(drawn).sort(0).values, expected.sort(0).values)
    assert not torch.equal(torch.cat(drawn), expected)
    assert torch.equal(two.batch(6)[name], one.batch(6)[name]) and torch.equal(two.batch(2)[name], drawn[2])


# ---- files


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("format", "most"), [("float32", 0.0), ("bfloat16", 0.005), ("int8", 0.005)])
def test_files_give_back_what_was_saved(tmp_path, kind, format, most):
    made = dictionary(kind, 64, 200, 9)
    store.save(made, tmp_path, format, {"loss_recovered": 0.9})
    again = features.load(tmp_path)
    assert again.shape == made.shape and store.config(tmp_path)[1] == {"loss_recovered": 0.9}
    for (name, p), q in zip(made.state_dict().items(), again.state_dict().values()):
        assert (p - q).abs().max() <= most * (p.abs().max() if name.startswith("W") else 0) + 1e-12, name


def test_what_is_no_dictionary_is_said(tmp_path):
    with pytest.raises(LabError, match="no dictionary 'nowhere'"):
        features.load("nowhere")
    store.save(dictionary("topk"), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(LabError, match="cannot be read"):
        features.load(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(LabError, match="holds no dictionary"):
        features.load(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "vanilla"}, "no dictionary of kind"),
        ({"target": "logits"}, "no target"),
        ({"k": 2000}, "2000 active features of 1024"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"batch": 10_000}, "enlarge the pool"),
        ({"lamda": 1}, "no field 'lamda'"),
        ({"data": "nothing"}, "no training set"),
    ],
)
def test_specs_refuse_what_cannot_be_with_a_sentence(given, said):
    with pytest.raises(LabError, match=said):
        FeatureSpec.from_dict(given)


def test_a_layer_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(LabError, match="Layer 7 does not exist"):
        run(tmp_path, small(layer=7))
