"""Indirect objects in GPT-2 small against what is known of it (Wang et al. 2022; the well-known exploratory analysis).

Only where LAB_GPT2_DIR points at its weights. Biases of values are moved into the output's bias first, which changes
nothing the model computes and is how the published numbers attribute.
"""

import copy
import os
from types import SimpleNamespace

import pytest
import torch

from interp.heads.knockout import loss_without
from interp.heads.patterns import detect, repeated
from interp.lenses.direct import direct
from interp.prompts import Pair, align
from interp.sweep import sweep
from lab import models

WHERE = os.environ.get("LAB_GPT2_DIR")
pytestmark = pytest.mark.skipif(not WHERE, reason="LAB_GPT2_DIR does not point at the weights of GPT-2 small")

# two names in the order the sentence has them; whoever of the two it says again gives, and the other one receives
SENTENCES = (
    ("When {} and {} went to the shops, {} gave the bag to", "John", "Mary"),
    ("When {} and {} went to the park, {} gave the ball to", "Tom", "James"),
    ("When {} and {} went to the shops, {} gave an apple to", "Dan", "Sid"),
    ("After {} and {} went to the park, {} gave a drink to", "Martin", "Amy"),
)


def without_value_biases(model):
    """The same function with every b_V carried through W_O into b_O: attention sums to one."""
    model = copy.deepcopy(model)
    for layer, block in enumerate(model.model.layers):
        weights, attention = model.head_weights(layer), block.self_attn
        with torch.no_grad():
            attention.o_proj.bias += torch.einsum("hd,hdm->m", weights.b_V, weights.W_O)
            attention.v_proj.bias.zero_()
    return model


def pairs_of(lm) -> list[Pair]:
    """Eight prompts, each with its own names swapped as the corrupted one; all begin with the start token."""
    start = lm.tokenizer.inner.token_to_id("<|endoftext|>")

    def ids(text: str) -> list[int]:
        return [start, *lm.tokenizer.encode(text)]

    found = []
    for sentence, one, two in SENTENCES:
        for giver, receiver in ((one, two), (two, one)):
            clean, corrupted = (ids(sentence.format(one, two, who)) for who in (giver, receiver))
            answer, wrong = (lm.tokenizer.single(f" {who}") for who in (receiver, giver))
            found.append(
                Pair("", "", "", "", clean, corrupted, [], [], answer, wrong, align(clean, corrupted))
            )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def gpt2():
    lm = models.load(WHERE, dtype=torch.float32)
    assert (lm.config.n_layers, lm.config.n_heads, lm.config.d_model) == (12, 12, 768)
    return SimpleNamespace(name=lm.name, model=without_value_biases(lm.model), tokenizer=lm.tokenizer, config=lm.config)


@pytest.fixture(scope="module")
def pairs(gpt2):
    found = pairs_of(gpt2)
    assert {len(pair.clean_ids) for pair in found} == {15}
    return found


def test_moving_the_biases_changes_nothing(gpt2, pairs):
    tokens = torch.tensor([pair.clean_ids for pair in pairs])
    with torch.no_grad():
        torch.testing.assert_close(gpt2.model(tokens), models.load(WHERE, dtype=torch.float32).model(tokens), rtol=0, atol=2e-3)


def test_what_each_head_writes(gpt2, pairs):
    tokens = torch.tensor([pair.clean_ids for pair in pairs])
    answers, wrongs = (torch.tensor([[getattr(pair, which)] for pair in pairs]) for which in ("answer_id", "wrong_id"))
    found = direct(gpt2.model, tokens, answers, wrongs, neurons=False)
    assert float(found.total.mean()) == pytest.approx(3.552, abs=2e-3) and found.error < 1e-2
    heads = found.heads[:, 0].mean(0)
    for (layer, head), expected in {(9, 9): 2.985, (10, 7): -1.899, (9, 6): 1.385, (11, 10): -0.970}.items():
        assert float(heads[layer, head]) == pytest.approx(expected, abs=2e-3)


def test_what_patching_each_head_restores(gpt2, pairs):
    results = [list(sweep(gpt2.model, pair, "z"))[-1] for pair in pairs]
    clean, corrupted = (sum(getattr(r.scale, end) for r in results) / len(results) for end in ("clean", "corrupted"))
    assert (clean, corrupted) == pytest.approx((3.552, -3.552), abs=2e-3)
    share = (torch.stack([r.value for r in results]).mean(0) - corrupted) / (clean - corrupted)
    for (layer, head), expected in {(10, 7): -0.480, (5, 5): 0.344, (8, 6): 0.319}.items():
        assert float(share[layer, head]) == pytest.approx(expected, abs=3e-3)


def test_without_the_strongest_name_mover(gpt2, pairs):
    left = []
    for pair in pairs:
        ids = torch.tensor(pair.clean_ids)
        logits = gpt2.model(ids[None], last=True)[0, 0]
        lost = loss_without(gpt2.model, ids, pair.answer_id, pair.wrong_id)[9, 9]
        left.append(float(logits[pair.answer_id] - logits[pair.wrong_id] - lost))
    assert sum(left) / len(left) == pytest.approx(2.92, abs=1e-2)  # others make up for most of it


def test_induction_heads(gpt2):
    scores = detect(gpt2.model, repeated(gpt2, length=50, rows=8), ("induction",))["induction"]
    for (layer, head), expected in {(5, 1): 0.931, (5, 5): 0.926, (6, 9): 0.926}.items():
        assert float(scores[layer, head]) == pytest.approx(expected, abs=0.03)  # of other random tokens
    assert set(scores.flatten().topk(3).indices.tolist()) == {5 * 12 + 1, 5 * 12 + 5, 6 * 12 + 9}
