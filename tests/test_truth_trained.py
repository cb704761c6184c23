"""Trained models of known mechanism: modular addition, superposition, induction."""

import time

import pytest
import torch

from interp.truth import fourier, grokking, induction, modular, superposition
from lab import models, runs
from lab.errors import LabError


@pytest.fixture(scope="module")
def copier():
    return models.load("induction", dtype=torch.float32)


def texts(seed: int, rows: int = 48, length: int = 17) -> torch.Tensor:
    return induction.repeated(rows, length, torch.Generator().manual_seed(seed))


# ---- induction


def test_texts_are_what_they_say() -> None:
    words = texts(3)
    assert (words[:, 0] == induction.BOS).all() and torch.equal(words[:, 1:18], words[:, 18:])
    assert all(len(set(row)) == 17 for row in words[:, 1:18].tolist())
    once = induction.segments(40, 20, torch.Generator().manual_seed(4))
    leads = once[:, :-1] < induction.PAIRS
    assert leads.any() and torch.equal(once[:, 1:][leads], once[:, :-1][leads] + induction.PAIRS)
    spec = induction.InductionSpec()
    drawn = induction.batch(spec, 7)
    assert drawn.shape == (spec.batch, spec.length + 1) and torch.equal(drawn, induction.batch(spec, 7))
    periods = [next(n for n in range(8, 25) if row[1 + n :] == row[1:-n]) for row in drawn.tolist()]
    assert len(set(periods)) > 5


def test_bundled_model_has_the_circuit(copier) -> None:
    model, length = copier.model, 17
    words = texts(seed=torch.seed() % 2**31)
    previous, found = induction.scores(induction.patterns(model, words), length)
    head = int(previous[0].argmax())
    assert previous[0, head] > 0.85 and previous[1].max() < 0.1
    assert found[1].max() > 0.7 and found[0].max() < 0.1
    assert int(induction.composition(model).mean(1).argmax()) == head  # the heads that compose are those that act
    with torch.no_grad():
        whole = induction.losses(model(words), words, length)
    assert whole["second_loss"] < 0.15 and whole["partner_loss"] < 0.3 and whole["first_loss"] > 3.3
    for other in range(model.cfg.n_heads):
        cut = induction.losses(induction.ablated(model, words, [(0, other)]), words, length)
        assert (cut["second_loss"] > 3) == (other == head)  # without it the copy is a guess among 40 words


def test_scores_by_hand() -> None:
    length, n = 5, 11
    pattern = torch.zeros(2, 1, 2, n, n)
    for query in range(1, n):
        pattern[0, 0, 0, query, query - 1] = 1
    for query in range(length + 1, n):
        pattern[1, 0, 1, query, query - length + 1] = 1
    previous, found = induction.scores(pattern, length)
    assert previous.tolist() == [[1, 0], [0, 0]] and found.tolist() == [[0, 0], [0, 1]]


def test_composition_of_weights_made_to_compose() -> None:
    spec = induction.InductionSpec(d_model=64, n_heads=4)
    model, _ = induction.start(spec)
    assert induction.composition(model).abs().max() < 0.05  # random weights: what random weights have, taken off
    with torch.no_grad():
        model.head_weights(1).W_K[2] = model.head_weights(0).W_O[1].T  # reads exactly what that head writes
        scores = induction.composition(model)
    assert divmod(int(scores.argmax()), 4) == (1, 2) and scores.max() > 0.1


def test_an_unknown_word_is_a_sentence(copier) -> None:
    with pytest.raises(LabError, match="does not know"):
        copier.tokens("hello")


# ---- modular addition


@pytest.fixture(scope="module")
def told():
    return grokking.story()


def test_pairs_of_the_paper() -> None:
    train, test = modular.split(modular.ModularSpec())
    assert (len(train), len(test)) == (3830, 8939)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(113**2))
    tokens, answers = modular.questions(113)
    assert tokens[train[:3]].tolist() == [[21, 31, 113], [30, 98, 113], [47, 10, 113]]
    assert answers[train[:3]].tolist() == [52, 15, 57]


def test_it_memorised_and_then_understood(told) -> None:
    epochs, curve = torch.tensor(told.epochs), told.curves
    early = epochs <= 1000
    assert ((curve["train_loss"] < 1e-4) & (curve["test_loss"] > 20))[early].any()
    assert told.at("train_loss", 1000) < 1e-4 and told.at("test_loss", 1000) > 20
    assert curve["test_loss"][(epochs >= 10_000) & (epochs <= 25_000)].max() < 1e-3
    final = told.spectra["embedding"][-1].square()
    assert fourier.share_of_largest(final) > 0.97 and fourier.share_of_largest(told.spectra["embedding"][0].square()) < 0.15
    assert 3 <= len(told.keys) <= 6
    # restricted loss falls long before the test loss does, and the key frequencies become needed
    first = {name: int(epochs[curve[name] < 1].min()) for name in ("restricted_loss", "test_loss")}
    assert first["restricted_loss"] + 1000 < first["test_loss"]
    assert told.at("excluded_loss", 1000) < 0.01 and told.at("excluded_loss", 25_000) > 4


@pytest.mark.parametrize("epoch", (0, 1000, 7000, 10_000, 30_000))
def test_kept_weights_tell_the_same_story(told, epoch: int) -> None:
    train, test = modular.split(told.spec)
    measured = fourier.progress(told.model(epoch), train, test, told.keys)
    for name in ("train_loss", "test_loss", "restricted_loss", "excluded_loss"):
        assert float(measured[name]) == pytest.approx(told.at(name, epoch), rel=0.05), name
    assert float(measured["test_right"]) == pytest.approx(told.at("test_right", epoch), abs=0.01)


def test_the_mechanism_is_the_one_that_is_known(told) -> None:
    model = models.load("grokking", dtype=torch.float32).model
    logits = fourier.all_logits(model)
    assert fourier.key_frequencies(logits) == told.keys
    waves = fourier.waves_of_answer(logits)
    assert fourier.explained(logits, waves) > 0.95
    answers = modular.questions(113)[1]
    by_formula = fourier.formula(waves, 113).reshape(-1, 113)
    assert (by_formula.argmax(-1) == answers).all()
    fits, share = fourier.neuron_fits(fourier.look(model).neurons)
    assert set(fits.tolist()) <= set(told.keys) and share.median() > 0.9


def test_fourier_identities() -> None:
    p = 13
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    waves = fourier.basis(p)
    assert torch.allclose(waves @ waves.T, torch.eye(p, dtype=torch.float64), atol=1e-12)
    logits = torch.randn(p, p, p, dtype=torch.float64, generator=generator)
    rows = torch.randn(p, 7, dtype=torch.float64, generator=generator)
    constant = rows.mean(0).square().sum() * p
    assert float(fourier.spectrum(rows).sum() + constant) == pytest.approx(float(rows.square().sum()))
    # what is kept and what is taken out make up the whole, and each direction is the one it is called
    keys = [2, 5]
    whole = fourier.restricted(logits, keys) - logits.mean((0, 1)) + fourier.excluded(logits, keys)
    assert torch.allclose(whole, logits)
    s = torch.arange(p)[:, None] + torch.arange(p)[None]
    out = logits.reshape(p * p, p)
    for k in keys:
        angle = 2 * torch.pi * k * s.double() / p
        for wave in (angle.cos().flatten(), angle.sin().flatten()):
            wave = wave / wave.norm()
            out = out - wave[:, None] * (wave @ out)
    assert torch.allclose(out.reshape(p, p, p), fourier.excluded(logits, keys))
    coefficients = torch.randn(p // 2, dtype=torch.float64, generator=generator)
    given = fourier.formula(coefficients, p)
    assert torch.allclose(fourier.waves_of_answer(given), coefficients)
    assert fourier.explained(given, coefficients) == pytest.approx(1)
    assert torch.allclose(fourier.waves_of_answer(logits + given), fourier.waves_of_answer(logits) + coefficients)


def test_neurons_made_of_one_frequency_are_found() -> None:
    p, x = 13, torch.arange(13, dtype=torch.float64)
    turn = 2 * torch.pi / p * x
    product = (4 * turn).cos()[:, None] * (4 * turn + 0.3).sin()[None] + (4 * turn).sin()[:, None]
    mixed = product + (2 * turn).cos()[:, None]
    best, share = fourier.neuron_fits(torch.stack([product + 3, mixed], -1))
    assert best.tolist() == [4, 4] and float(share[0]) == pytest.approx(1)
    # variances: product of two waves 1/4, a wave 1/2, the other frequency 1/2
    assert float(share[1]) == pytest.approx(0.75 / 1.25)
    assert fourier.gini(torch.ones(9)) == pytest.approx(0) and fourier.gini(torch.eye(10)[0]) == pytest.approx(0.9)
    energy = fourier.plane(mixed[..., None] + 1)
    found = {(i, j) for i, j in (energy > 1e-9).nonzero().tolist()}
    assert found == {(0, 0), (4, 4), (4, 0), (2, 0)}
    assert float(energy.sum()) == pytest.approx(float((mixed + 1).square().sum()))
    around = fourier.circle(torch.stack([(3 * turn).cos() * 2, (3 * turn).sin() * 2, turn * 0 + 5], 1), 3)
    assert torch.allclose(around.norm(dim=1), torch.full((13,), 2.0, dtype=torch.float64))


SMALL = modular.ModularSpec(
    p=23, train_share=0.7, d_model=48, d_mlp=128, lr=4e-3, steps=600, log_every=25, save_every=100
)


def test_reduced_training_groks() -> None:
    training = modular.Training(SMALL, torch.device("cpu"))
    rows = []
    for step in range(SMALL.steps):
        training.step()
        if step % 25 == 0:
            rows.append(training.evaluate())
    assert any(row["train_right"] == 1 and row["test_right"] < 0.75 for row in rows)
    assert training.evaluate()["test_right"] > 0.98


def test_grokking_run_cancels_and_resumes_to_the_same_weights(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    spec = modular.ModularSpec(
        p=11, train_share=0.5, d_model=16, d_mlp=16, steps=400, log_every=25, save_every=25
    )
    run = runs.start("grokking", spec.to_dict())
    until = time.monotonic() + 60
    while len(run.checkpoints()) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    run.cancel()
    assert run.wait(30) == "cancelled"
    stopped = run.checkpoints()[-1].step
    assert 50 <= stopped < 400
    assert run.resume().wait(60) == "done", run.error
    straight = modular.Training(spec, torch.device("cpu"))
    while straight.done < spec.steps:
        straight.step()
    lm = models.load(f"run:{run.id}@400")
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(lm.model.parameters(), straight.model.parameters()))
    assert lm.tokens("3 4 =").tolist() == [[3, 4, 11]]
    assert [row["step"] for row in run.metrics()] == list(range(0, 401, 25))


def test_bad_settings_are_sentences(tmp_path, told) -> None:
    for wrong in ({"p": 8}, {"train_share": 1.5}, {"d_model": 10, "n_heads": 3}, {"steps": 0}, {"colour": 3}):
        with pytest.raises(LabError):
            modular.ModularSpec.from_dict(wrong)
    for wrong in ({"shortest": 30}, {"batch": 0}, {"colour": 3}):
        with pytest.raises(LabError):
            induction.InductionSpec.from_dict(wrong)
    with pytest.raises(LabError, match="not kept"):
        told.model(1234)
    with pytest.raises(LabError, match="restore"):
        grokking.story(tmp_path)


# ---- superposition


@pytest.mark.parametrize("shape", superposition.SHAPES, ids=lambda s: s.title)
def test_shape_is_reached_by_training(shape) -> None:
    found = superposition.dimensionality(superposition.settle(shape))
    assert (found - shape.dimensionality).abs().max() < 0.02


def test_dimensionality_by_geometry() -> None:
    turn = 2 * torch.pi * torch.arange(5) / 5
    pentagon = torch.stack([turn.cos(), turn.sin()]) * 1.7
    assert torch.allclose(superposition.dimensionality(pentagon), torch.full((5,), 0.4, dtype=torch.float64), atol=1e-6)
    assert superposition.dimensionality(torch.tensor([[1.0, -1.0, 0.0]]))[:2].tolist() == [0.5, 0.5]
    assert superposition.dimensionality(torch.eye(4)).tolist() == [1.0] * 4
    assert float(superposition.per_feature(torch.eye(4))) == 1.0


def test_exact_expectation_is_that_of_drawn_vectors() -> None:
    chance = torch.tensor([0.3, 0.8])
    x, share = superposition.patterns(chance, 3)
    assert torch.allclose(share.sum(1), torch.ones(2, 1)) and x.shape == (1, 8, 3)
    drawn = superposition.sample(chance, 40_000, 3, torch.Generator().manual_seed(1), least=1.0)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    for row in x[0]:
        often = (drawn == row).all(-1).float().mean(1)
        assert torch.allclose(often, share[:, (x[0] == row).all(-1)].flatten(), atol=0.01)
    low = superposition.sample(chance, 40_000, 2, torch.Generator().manual_seed(2), least=0.25)
    there = low[0][low[0] > 0]
    assert there.min() >= 0.25 and there.max() <= 1 and there.mean() == pytest.approx(0.625, abs=0.01)


def test_a_wrong_toy_is_a_sentence() -> None:
    for wrong in ({"hidden": 9}, {"densities": []}, {"densities": [0.0]}, {"importance": 0}, {"least": 2}):
        with pytest.raises(LabError):
            superposition.train(**{"features": 5, "hidden": 2, "densities": [0.5], **wrong})
