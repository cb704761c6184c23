"""Steering against identities that hold exactly, and on pocket against random directions of the same length."""

import pytest
import torch

from interp.edit import contrasts, steering
from interp.edit.rows import Rows
from lab import models
from lab.errors import LabError
from tests.interp_models import language_model


@pytest.fixture
def small(tmp_path):
    return language_model(tmp_path)


@pytest.fixture(scope="module")
def pocket():
    return models.load("pocket")


@pytest.mark.parametrize("layer", [0, 2])
def test_the_whole_difference_turns_one_prompt_into_the_other(small, layer):
    plus, minus = "the Eiffel tower stands in", "a Tokyo city stands on"
    vector = steering.activation_addition(small, plus, minus, layer)
    steered, wanted = (
        Rows(small, [minus]).logits(steering.Steering(vector, 1.0).hooks), Rows(small, [plus]).logits(),
    )  # fmt: skip
    torch.testing.assert_close(steered, wanted, atol=1e-5, rtol=1e-5)
    still = Rows(small, [minus]).logits(steering.Steering(vector, 0.0).hooks)
    torch.testing.assert_close(still, Rows(small, [minus]).logits())


def test_the_mean_difference_is_the_mean_of_last_token_differences(small):
    pairs = [("the Eiffel tower", "a Tokyo tower in"), ("Rome city", "New York")]
    for vector in steering.mean_differences(small, pairs):
        each = []
        for sides in pairs:
            acts = [
                small.model.run_with_cache(torch.tensor([small.tokenizer.encode(t)]))[1][f"blocks.{vector.layer}.hook_resid_post"][0, -1]
                for t in sides
            ]
            each.append(acts[0] - acts[1])
        torch.testing.assert_close(vector.values.double(), torch.stack(each).mean(0), atol=1e-5, rtol=1e-5)
        noise = vector.random(3)
        assert noise.values.norm() == pytest.approx(float(vector.values.norm()), rel=1e-5)
        assert torch.equal(noise.values, vector.random(3).values)


def test_front_positions_are_steered_once_while_writing(small):
    vector = steering.Vector(1, torch.randn(2, 24))
    steered = steering.Steering(vector, 2.0)
    stream = torch.zeros(1, 4, 24)
    assert torch.equal(steered.hooks["blocks.1.hook_resid_post"](stream, "")[0, :2], 2 * vector.values)
    steered.start = 4
    assert steered.hooks["blocks.1.hook_resid_post"](stream[:, :1], "").abs().max() == 0


def test_pocket_turns_held_out_countries_to_the_other_continent(pocket):
    contrast = contrasts.continent("Asia", "Africa")
    used = {t for pair in contrast.pairs for t in pair}
    assert not used & set(contrast.prompts) and len(contrast.pairs) >= 15
    vectors = steering.mean_differences(pocket, contrast.pairs)
    texts = ["The opposite of hot is cold. A baby dog is called a puppy."]
    *_, swept = steering.sweep(pocket, contrast, vectors[4:7:2], [-1.0, 1.0, 2.0], texts)
    assert swept.fraction == 1
    assert (swept.shift[:, 1] > 1).all() and (swept.shift[:, 0] < -1).all()
    assert (swept.shift[:, 1:] > 3 * swept.random[:, 1:].abs()).all()
    african = list(contrast.prompts[12:])
    before = steering.leaning(pocket, contrast, african)
    after = steering.leaning(pocket, contrast, african, steering.Steering(vectors[6], 2.0).hooks)
    assert (before < 0).float().mean() > 0.9 and (after > 0).float().mean() > 0.9
    assert steering.written(pocket, african[0], vectors[6], 2.0, 3).strip().startswith("Asia")


def test_the_strongest_cell_keeps_the_perplexity_within_its_limit():
    shift = torch.tensor([[1.0, 9.0], [2.0, 3.0]])
    cost = torch.tensor([[1.0, 4.0], [1.2, 1.4]])
    swept = steering.Sweep([0, 1], [1, 2], shift, shift * 0, cost, 0.0, 4)
    assert swept.best(1.5) == (1, 1) and swept.best(5) == (0, 1) and swept.best(0.5) == (0, 0)


def test_what_cannot_be_steered_says_why(small):
    with pytest.raises(LabError, match="are the same"):
        steering.activation_addition(small, "the tower", "the tower", 0)
    with pytest.raises(LabError, match="empty"):
        steering.activation_addition(small, "the tower", "", 0)
    alike = contrasts.Contrast("", ("", ""), (), (), ("the",), ("the",), "")
    with pytest.raises(LabError, match="same first tokens"):
        steering.words(small, alike)
