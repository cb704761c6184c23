"""Probes on planted directions, where the truth is known, and on pocket, whose facts are."""

import pytest
import torch

from interp.edit.rows import Rows
from interp.probes import linear, tasks, use
from lab import models
from lab.errors import LabError
from tests.interp_models import language_model

N, D = 240, 48


def planted(classes=3, noise=0.5, seed=0, wordings=2):
    """Examples of N / wordings entities whose class is one of a few orthogonal directions in noise."""
    g = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(D, classes, generator=g))[0]
    examples, rows = [], []
    for i in range(N // wordings):
        label, own = i % classes, torch.randn(D, generator=g)
        for w in range(wordings):
            examples.append(tasks.Example("", str(i), w, label))
            rows.append(4 * directions[:, label] + noise * own + 0.1 * torch.randn(D, generator=g))
    return tasks.Task("planted", tuple("abc"[:classes]), tuple(examples)), torch.stack(rows), directions


@pytest.fixture(scope="module")
def pocket():
    return models.load("pocket")


@pytest.mark.parametrize("method", linear.METHODS)
def test_a_probe_recovers_the_planted_directions(method):
    task, x, directions = planted()
    y = torch.tensor([e.label for e in task.examples])
    probe = linear.fit(x, y, 3, method)
    basis = probe.basis()
    assert basis.shape == (D, 2)
    torch.testing.assert_close(basis.T @ basis, torch.eye(2), atol=1e-5, rtol=0)
    between = directions - directions.mean(1, keepdim=True)  # what tells the classes apart
    truth = torch.linalg.svd(between)[0][:, :2]
    assert torch.linalg.svdvals(basis.T @ truth).min() > 0.85
    assert linear.cross_validated(x, y, [e.entity for e in task.examples], 3, method).float().mean() > 0.97
    gone = use.erase(basis, x.mean(0))(x)
    left = linear.fit(x, y, 3, method).scores(gone).argmax(-1)
    assert (left == y).float().mean() < 0.45
    assert (gone - x).norm() < x.norm()
    torch.testing.assert_close(use.erase(basis, x.mean(0))(gone), gone, atol=1e-4, rtol=1e-4)  # once is enough


@pytest.mark.parametrize("method", linear.METHODS)
def test_controls_stay_at_chance_and_the_control_task_is_only_remembered(method):
    task, x, _ = planted(noise=1.0)
    *_, found = linear.curves(task, torch.stack([torch.randn(N, D), x], 1), method, torch.randn(N, 2, D))
    assert found.fraction == 1 and found.layers == ["embed", "0"]
    assert found.real[1].value > 0.95 and found.best() == 1
    for chance in (found.real[0], found.shuffled[1], found.random_model[1]):
        assert chance.value < 0.5 and chance.low <= chance.value <= chance.high
    assert found.seen[1].value > 0.95
    assert found.selectivity[1] == pytest.approx(found.seen[1].value - found.control[1].value)
    assert found.selectivity[1] > 0.1


def test_ridge_is_the_closed_form_in_both_shapes():
    g = torch.Generator().manual_seed(1)
    for n in (20, 120):  # fewer and more examples than features
        x, y = torch.randn(n, D, generator=g), torch.randint(0, 3, (n,), generator=g)
        probe = linear.fit(x, y, 3, "ridge", strength=0.1)
        z = ((x - x.mean(0)) / probe.scale).double()
        target = torch.nn.functional.one_hot(y, 3).double()
        target = target - target.mean(0)
        exact = torch.linalg.inv(z.T @ z + 0.1 * n * torch.eye(D)) @ z.T @ target
        torch.testing.assert_close(probe.weight.double(), exact, atol=1e-4, rtol=1e-3)


def test_entities_never_stand_on_both_sides():
    groups = [str(i // 3) for i in range(90)]
    fold = linear.folds(groups)
    for g in set(groups):
        assert len({int(fold[i]) for i, name in enumerate(groups) if name == g}) == 1
    assert fold.bincount().tolist() == [18] * 5


@pytest.mark.parametrize("title", tasks.TASKS)
def test_tasks_have_enough_of_every_class(title):
    task = tasks.task(title, 60)
    labels = [e.label for e in task.examples]
    assert set(labels) == set(range(len(task.classes))) and 0.1 < task.majority < 0.9
    assert all((e.subject is None) == (task.examples[0].subject is None) for e in task.examples)
    for e in task.examples:
        assert e.subject is None or e.subject.removeprefix("the ") in e.text
    with pytest.raises(LabError, match="no probing task"):
        tasks.task("colour")


def test_pocket_holds_the_continent_of_a_country_and_uses_it(pocket):
    task = tasks.continent(120)
    acts = linear.activations(pocket, task)
    alone = pocket.model.run_with_cache(torch.tensor([pocket.tokenizer.encode(task.examples[5].text)]))[1]
    stream = alone["blocks.3.hook_resid_post"][0].float()
    assert (stream - acts[5, 4]).norm(dim=-1).min() < 0.05 * acts[5, 4].norm()  # some token of it, the subject's last
    y = torch.tensor([e.label for e in task.examples])
    entities = [e.entity for e in task.examples]
    best = max(linear.cross_validated(acts[:, i], y, entities, len(task.classes), "ridge").float().mean() for i in (3, 5))
    noise = linear.activations(linear.untrained(pocket), task)[:, 5]
    chance = linear.cross_validated(noise, y, entities, len(task.classes), "ridge").float().mean()
    assert best > task.majority + 0.25 and best > chance + 0.2
    (last,), (subject,) = (use.used(pocket, task, [7], where) for where in ("last", "subject"))
    assert last.right.value > 0.9 and last.random.value > 0.9
    assert last.erased.value < last.random.value - 0.15 and last.moved.value > last.moved_random.value + 0.5
    assert last.probe_after < last.probe_before - 0.3
    assert subject.erased.value > 0.9 and subject.moved.value < 0.1  # by then nobody reads it at the subject


def test_what_cannot_be_probed_says_why(pocket):
    with pytest.raises(LabError, match="no probe 'svm'"):
        linear.fit(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]), 2, "svm")
    with pytest.raises(LabError, match="no question"):
        next(use.used(pocket, tasks.receiver(20), [2]))


def test_a_subject_is_read_at_its_last_token_even_where_it_is_the_first_of_all(tmp_path):
    prompts = ["Paris stands in", "a tall tower in New York stands on the", "Rome in"]
    rows = Rows(language_model(tmp_path), prompts, ["Paris", "New York", "Rome"])
    ids = [rows.lm.tokenizer.pieces(row) for row in rows.tokens.tolist()]
    at = linear.read_at(rows, True).tolist()
    assert [pieces[i].strip() for pieces, i in zip(ids, at)] == ["Paris", "York", "Rome"] and at[0] == at[2] == 0
    assert linear.read_at(rows, False).tolist() == rows.ends.tolist()
