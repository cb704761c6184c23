"""Causal traces against their definition, on random models and where the bundled model is known to look facts up."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from interp.sites import SITES
from interp.tracing import (
    KINDS,
    ROLES,
    Average,
    Corruption,
    Recall,
    embedding_std,
    interval,
    recall,
    recalled,
    subject_span,
    trace,
    windows,
)
from interp.tracing_view import LONG, ManyFacts, OneFact, partner, positions
from lab import models
from lab.errors import LabError
from tests.interp_models import WORDS, decoder, word_tokenizer

IDS = [1, 3, 5, 7, 8, 9]
NOISE = Corruption(2.0, samples=3, seed=4)


def fact(ids=IDS, first=1, last=2, answer=12) -> Recall:
    return Recall("", "", list(ids), [WORDS[i] for i in ids], first, last, answer, 0.5)


def by_hand(model, r: Recall, kind: str, layers, position: int, noise: Corruption) -> float:
    """Mean probability of the answer with the subject's embeddings spoiled and one position restored at these layers."""
    clean: dict = {}
    names = [SITES[KINDS[kind]].name(i) for i in layers]
    tokens = torch.tensor([r.ids])
    model(tokens, hooks={name: lambda x, n: clean.__setitem__(n, x) for name in names})
    total = 0.0
    generator = torch.Generator().manual_seed(noise.seed)
    draws = torch.randn(noise.samples, r.last + 1 - r.first, model.cfg.d_model, generator=generator) * noise.std
    for draw in draws:
        def spoil(x, _, draw=draw):
            x = x.clone()
            x[0, r.first : r.last + 1] += draw.to(x)
            return x

        def restore(x, name):
            x = x.clone()
            x[0, position] = clean[name][0, position]
            return x

        logits = model(tokens, hooks={"hook_embed": spoil, **dict.fromkeys(names, restore)})[0, -1]
        total += float(logits.softmax(-1)[r.answer_id])
    return total / noise.samples


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_trace_is_one_restored_run_a_cell(kind, window):
    model = decoder(7)
    *_, done = trace(model, fact(), kind, NOISE, window)
    assert done.fraction == 1 and done.fired > 0 and not done.restored.isnan().any()
    assert (done.indirect[:, :1] == 0).all()  # before the subject
    for layer in range(3):
        layers = [layer] if kind == "state" else windows(3, layer, window)
        for position in (1, 2, 4, 5):
            assert float(done.restored[layer, position]) == pytest.approx(by_hand(model, fact(), kind, layers, position, NOISE), abs=1e-10)


def test_the_last_state_of_the_last_token_restores_everything():
    *_, done = trace(decoder(8), fact(), "state", NOISE)
    assert float(done.restored[-1, -1]) == pytest.approx(done.clean, abs=1e-12)
    assert done.indirect[-1, 1:-1].abs().max() < 1e-12 and done.total_effect == pytest.approx(done.clean - done.corrupted)


def test_a_model_without_blocks_to_start_from_gives_the_same():
    model = decoder(9)
    class Whole:
        cfg, device = model.cfg, model.device

        def __call__(self, tokens, hooks=None, last=False):
            return model(tokens, hooks=hooks, last=last)

    assert not hasattr(Whole(), "run_block")
    for kind in KINDS:
        *_, one = trace(model, fact(), kind, NOISE, 2)
        *_, two = trace(Whole(), fact(), kind, NOISE, 2)
        torch.testing.assert_close(one.restored, two.restored)


def test_windows_are_those_of_the_paper():
    assert list(windows(48, 20, 10)) == list(range(15, 25))
    assert list(windows(48, 0, 10)) == list(range(0, 5)) and list(windows(48, 47, 10)) == list(range(42, 48))
    assert list(windows(8, 3, 1)) == [3] and list(windows(8, 3, 3)) == [2, 3, 4]


def test_roles_and_averages():
    r = fact([1, 2, 3, 4, 5, 6, 7, 8], first=1, last=4)
    assert [r.role(p) for p in range(8)] == [None, ROLES[0], ROLES[1], ROLES[1], ROLES[2], ROLES[3], ROLES[4], ROLES[5]]
    assert fact(first=2, last=2).role(2) == ROLES[2] and fact(first=3, last=4).role(5) == ROLES[5]
    model, average = decoder(7), Average("state")
    for ids in (IDS, [1, 4, 6, 7, 8, 9]):
        *_, done = trace(model, fact(ids), "state", NOISE)
        average.add(done)
    mean, half = average.indirect
    assert mean.shape == (6, 3) and mean[ROLES.index("middle subject tokens")].isnan().all()
    both = torch.stack([e[2] for e in average.effects])
    torch.testing.assert_close(mean[2], both.mean(0))
    torch.testing.assert_close(half[2], 1.96 * both.std(0) / 2**0.5)
    values = torch.tensor([[1.0, 2.0], [3.0, float("nan")], [5.0, float("nan")]], dtype=torch.float64)
    mean, half = interval(values)
    assert mean.tolist() == [3, 2] and half[0] == pytest.approx(1.96 * 2 / 3**0.5) and half[1].isnan()


def test_long_prompts_are_traced_at_chosen_positions():
    ids = [1, 3, 5] + [7] * (LONG + 20)
    r = fact(ids, 1, 2)
    chosen = positions(r)
    assert positions(fact()) is None and {1, 2, 3, len(ids) - 1} <= set(chosen) and len(chosen) < 40
    *_, done = trace(decoder(1, context=128), r, "mlp", NOISE, positions=chosen)
    assert (~done.restored[0].isnan()).nonzero().flatten().tolist() == sorted({0, *chosen})


def test_the_subject_is_found_in_the_prompt(tmp_path):
    tok = word_tokenizer(tmp_path)
    assert subject_span(tok, "the great Eiffel tower stands in", "Eiffel tower") == (2, 3)
    for text, subject in (("the tower", "Rome"), ("the tower", " ")):
        with pytest.raises(LabError, match="does not contain the subject"):
            subject_span(tok, text, subject)
    lm = SimpleNamespace(name="r", model=(model := decoder()), config=model.cfg, tokenizer=tok)
    r = recall(lm, "the Eiffel tower stands in", "eiffel Tower")
    probs = model(torch.tensor([r.ids]))[0, -1].softmax(-1)
    assert (r.first, r.last) == (1, 2) and r.answer_id == int(probs.argmax()) and r.p == pytest.approx(float(probs.max()))
    expected = model.model.embed_tokens.weight[[5, 7]].std()
    assert embedding_std(model, [r]) == pytest.approx(float(expected))


@pytest.mark.parametrize("change", [dict(kind="heads"), dict(window=0), dict(corruption=Corruption(1.0, 0))])
def test_bad_traces_get_a_sentence(change):
    with pytest.raises(LabError):
        next(trace(decoder(), fact(), **{"kind": "state", "corruption": NOISE, **change}))


# ---- ground truth: the bundled model


@pytest.fixture(scope="module")
def pocket():
    return models.load("pocket")


def test_pocket_looks_capitals_up_early_at_the_last_subject_token_and_says_them_late(pocket):
    recalls = recalled(pocket, "capital", 1, limit=8)
    assert len(recalls) == 8 and all(r.p > 0.3 for r in recalls)
    noise = Corruption(3 * embedding_std(pocket.model, recalls), samples=3)
    many = ManyFacts(pocket, noise, 3)
    many.run(recalls)
    total, _ = many.averages["state"].total
    assert total > 0.8  # the noise makes it forget
    at = {role: i for i, role in enumerate(ROLES)}
    state, mlp, attn = (many.averages[k].indirect[0] / total for k in ("state", "mlp", "attn"))
    subject, last = at["last subject token"], at["last token"]
    assert state[subject, 1] > 0.6 and state[subject, 7] < 0.05
    assert state[last, 1] < 0.05 and state[last, 7] > 0.95
    assert mlp[subject, :2].max() > 0.5 and mlp[subject, 5:].max() < 0.1  # early MLPs at the subject
    assert attn[subject].max() < 0.1 and attn[last, 3:7].max() > 0.7  # attention brings it to the end
    assert many.curves.values.shape == (2, 3, 6, 8) and "8 facts" in many.curves.note
    assert len(many.table.rows) >= 9


def test_one_fact_can_be_stopped_and_compared(pocket):
    recalls = recalled(pocket, "capital", 1, limit=12)
    one = OneFact(pocket, recalls[0], Corruption(0.25, 2), 3)
    turns = iter(range(100))
    one.run(stopped=lambda: next(turns) > 4)
    state = one.maps["state"].values
    assert 0 < np.isnan(state).sum() < state.size and np.isnan(one.maps["attn"].values).all()
    one.run()
    assert not any(np.isnan(heat.values).any() for heat in one.maps.values())
    other = partner(recalls[0], recalls)
    lines = one.beside_patching(other).values[0]
    assert lines[1, :, -1] == pytest.approx([1, 1], abs=0.02) and lines[0, 1, 0] > 0.8
    with pytest.raises(LabError, match="nothing to patch from"):
        partner(recalls[0], recalls[:1])
