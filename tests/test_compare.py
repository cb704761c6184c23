"""Two models beside each other, and one along its checkpoints."""

import math
import time
from types import SimpleNamespace

import pytest
import torch

from interp.baseline import baseline
from interp.compare.difference import difference, opened, rounded
from interp.compare.measures import MEASURES, asked, measured, questions
from interp.patching import run_patched
from interp.presets import Preset
from interp.sites import Patch
from lab import models, runs
from lab.errors import LabError
from lab.train.spec import TrainSpec
from tests.interp_models import decoder, language_model

CANDIDATES = [
    Preset("", f"the {a} tower stands {w}", f"the {b} tower stands {w}", "Paris", "Rome")
    for a, b in (("Eiffel", "Tokyo"), ("Tokyo", "Eiffel"), ("great", "tall"))
    for w in ("in", "on", "by")
]


@pytest.fixture
def lms(tmp_path):
    first = language_model(tmp_path)
    return [first, SimpleNamespace(**vars(first) | {"model": decoder(seed=1)})]


def run(lms, pairs, key):
    *_, grids = measured(lms, pairs, MEASURES[key])
    return grids


@pytest.mark.parametrize("key", MEASURES)
def test_a_model_does_not_differ_from_itself(lms, key):
    pairs = asked([lms[0], lms[0]], CANDIDATES)
    a, b = run([lms[0], lms[0]], pairs, key)
    d = difference(a, b)
    assert a.shape == (9, 3, len(MEASURES[key].columns(lms[0].config)))
    assert not d.mean.any() and not d.clear.any()
    c, e = run(lms, asked(lms, CANDIDATES), key)
    assert torch.equal(a, c) and not torch.allclose(c, e)


def test_effects_are_in_logits():
    """Of pocket's heads: estimated effects against the logits that exact patches bring back."""
    lm = models.load("pocket")
    pairs = asked([lm], questions(lm, 8))
    (grid,) = run([lm], pairs, "heads")
    cells = [(i, h) for i in range(lm.config.n_layers) for h in range(lm.config.n_heads)]
    agreed = []
    for (pair,), found in zip(pairs, grid):
        base = baseline(lm.model, pair).scale(pair, "logit_diff").corrupted
        exact = [run_patched(lm, pair, [Patch("z", i, head=h)], new_tokens=0).value - base for i, h in cells]
        true = torch.tensor(exact, dtype=torch.float64)
        agreed.append(torch.corrcoef(torch.stack([found.flatten(), true]))[0, 1])
        assert 0.4 < found.norm() / true.norm() < 2.5
    assert torch.stack(agreed).median() > 0.7  # first order fails a pair now and then


def test_intervals_hold_the_true_difference_as_often_as_they_say():
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    truth = torch.randn(30, 40, generator=generator, dtype=torch.float64)
    first = torch.randn(40, 30, 40, generator=generator, dtype=torch.float64) * 3
    second = first + truth + torch.randn(40, 30, 40, generator=generator, dtype=torch.float64)
    d = difference(first, second)
    held = ((d.low <= truth) & (truth <= d.high)).double().mean().item()
    assert 0.9 < held < 0.975  # 1,200 cells; the percentile bootstrap of 40 runs a little short of 0.95
    assert (d.high - d.low).mean() < 4 * 1.96 / math.sqrt(40)  # paired: the spread of `first` does not enter


def test_rounding_keeps_what_bits_allow():
    model = decoder(dtype=torch.float32)
    before = {name: p.clone() for name, p in model.named_parameters()}
    for bits in (8, 4):
        small = rounded(model, bits)
        for name, p in small.named_parameters():
            if p.dim() < 2:
                assert torch.equal(p, before[name])
                continue
            step = before[name].abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            assert ((p - before[name]).abs() <= step / 2 * 1.001).all()
            assert all(len(row.unique()) <= 2**bits - 1 for row in p)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_models_of_another_shape_are_refused(lms, tmp_path):
    deep = SimpleNamespace(**vars(lms[0]) | {"model": (m := decoder(n_layers=4)), "config": m.cfg})
    with pytest.raises(LabError, match="models of one shape"):
        run([lms[0], deep], asked([lms[0], deep], CANDIDATES), "heads")
    with pytest.raises(LabError, match="Fewer than four"):
        asked(lms, CANDIDATES[:3])


def test_fewer_bits_cost_pocket_more_of_its_answers():
    pocket = models.load("pocket")
    candidates = questions(pocket, 8)
    lms = [pocket, opened("pocket", "8 bits"), opened("pocket", "3 bits")]
    grids = run(lms, asked(lms, candidates), "lens")
    final = [g[:, -1, 0].mean() for g in grids]
    assert abs(final[1] - final[0]) < 0.1 * final[0] and final[2] < 0.9 * final[0]
    assert lms[1].name == "pocket in 8 bits"


def test_a_run_is_filmed_checkpoint_by_checkpoint():
    """Untrained first, taught last: what a head does for the answer grows along the run."""
    from interp.compare.view import Reel

    spec = TrainSpec.sized("tiny", data="first", generated_tokens=60_000, context=48, batch=16, steps=60, lr=5e-3, eval_prompts=8, save_every=20)
    run = runs.start("train", spec.to_dict())
    deadline = time.monotonic() + 120
    while run.state in runs.LIVE and time.monotonic() < deadline:
        time.sleep(0.2)
    assert run.state == "done", run.error
    lm = models.load(f"run:{run.id}")
    reel = Reel(run, lm.config, questions(models.load("pocket"), 8), MEASURES["lens"])
    while reel.catch_up():
        pass
    assert reel.scrubber.steps == reel.film.steps == [20, 40, 60] and reel.heat.steps == [20, 40, 60]
    pairs = asked([lm], reel.candidates)
    *_, (grid,) = measured([lm], pairs, MEASURES["lens"])
    assert torch.allclose(reel.film.frames[-1], grid.mean(0)) and not torch.allclose(reel.film.frames[0], grid.mean(0))
    assert len(reel.curves.data) == 6 or len(reel.curves.data) == 3 * reel.heat.shape[0] * reel.heat.shape[1]
    run.delete()
