"""Trained models of known mechanism: modular addition, superposition, induction."""

import pytest
import torch

from interp.truth import induction
from lab import models
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
        cut = induction.losses(induction.ablated(model, words, 0, other), words, length)
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
