"""First run: the training view, the lens table and the notebook, over a run that really trained."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp.lenses.table import lens_table
from lab import models, paths, runs
from lab.errors import LabError
from lab.train import view
from lab.train.spec import SIZES, TrainSpec

TINY = {"data": "first", "context": 32, "batch": 4, "generated_tokens": 20_000, "eval_prompts": 8}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Forty steps of the smallest model, once for all tests here."""
    patch = pytest.MonkeyPatch()
    patch.setenv("LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
    spec = TrainSpec.sized("tiny", steps=40, eval_every=20, save_every=20, **TINY)
    run = runs.start("train", spec.to_dict())
    assert run.wait(120) == "done", run.log()
    yield run
    patch.undo()


def test_a_run_really_learns_and_leaves_models(trained):
    rows = trained.metrics()
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0] - 1
    assert {"grad_norm", "lr", "tokens_per_s", "mfu"} <= rows[-3].keys() | rows[-2].keys()
    assert [c.step for c in trained.checkpoints()] == [20, 40]
    first, last = (models.load(f"run:{trained.id}@{step}") for step in (20, 40))
    assert not first.model.lm_head.weight.equal(last.model.lm_head.weight)


def test_killed_while_training_it_resumes_to_the_same_weights(trained):
    """The twin of the finished run is killed after its first checkpoint and resumed: bit for bit the same end."""
    import os
    import signal
    import time

    twin = runs.start("train", trained.spec)
    until = time.monotonic() + 90
    while not twin.checkpoints() and time.monotonic() < until:
        time.sleep(0.005)
    row = twin.status
    os.kill(row["pid"], signal.SIGKILL)
    seen = len(twin.metrics())
    assert twin.wait(5) in ("lost", "done")
    if twin.state == "lost":
        assert len(twin.metrics()) >= seen
        twin.resume()
    assert twin.wait(90) == "done", twin.log()
    same, other = (models.load(f"run:{run.id}@40").model.state_dict() for run in (trained, twin))
    assert all(same[name].equal(other[name]) for name in same)
    losses = [[row["loss"] for row in run.metrics() if "loss" in row] for run in (trained, twin)]
    assert losses[0] == losses[1]
    twin.delete()


def test_names_panels_and_lines(trained):
    assert view.training_runs() == [trained]
    assert view.label(trained).startswith("tiny, first, lr ")
    row = view.line(trained)
    assert row["state"] == "done" and row["step"] == 40 and 0 <= row["recall"] <= 1
    logged = {key for row in trained.metrics() for key in row}
    spec = TrainSpec.from_dict(trained.spec)
    assert {panel["key"] for panel in view.panels([spec])} <= logged, "a panel without numbers stays empty"
    assert "same settings" in view.differences([trained, trained])


def test_a_damaged_run_is_left_out(trained, monkeypatch, tmp_path):
    broken = paths.runs() / "train-broken"
    broken.mkdir()
    (broken / "spec.json").write_text("{")
    assert view.training_runs() == [trained]
    runs.get("train-broken").delete()


@given(st.sampled_from(sorted(SIZES)), st.sampled_from(["first", "mixed", "pocket"]))
def test_every_size_and_training_set_has_panels(size, data):
    keys = [panel["key"] for panel in view.panels([TrainSpec.sized(size, data=data)])]
    assert len(keys) == len(set(keys)) and keys[0] == "loss"


def test_the_estimate_grows_with_the_steps():
    short, long = (TrainSpec.sized("tiny", steps=n, **TINY) for n in (40, 120))
    assert view.seconds(long, 4096) == pytest.approx(3 * view.seconds(short, 4096))


def test_lens_table_says_what_the_model_says(trained):
    lm = models.load(f"run:{trained.id}")
    table = lens_table(lm, "The capital of France is", "Paris").text
    logits = lm.model(lm.tokens("The capital of France is"))[0, -1].float().softmax(-1)
    wanted = lm.tokenizer.single(" Paris")
    assert f"<b>{logits[wanted]:.3f}</b>" in table
    assert table.count("<tr>") == 1 + 1 + lm.config.n_layers
    top = lm.tokenizer.pieces([int(logits.argmax())])[0]
    assert f"{logits.max():.3f}  {top.removeprefix(' ')}" in table.replace("&lt;", "<")
    with pytest.raises(LabError):
        lens_table(lm, "", "Paris")
    with pytest.raises(LabError, match="token"):
        lens_table(lm, "The capital of France is", "Ouagadougou and Paris")


def test_the_notebook_shows_the_run(trained, monkeypatch):
    monkeypatch.syspath_prepend(str(paths.NOTEBOOKS / "train"))
    sys.modules.pop("first_run", None)
    import first_run

    _, names = first_run.app.run()
    assert [run.id for run in names["shown"]] == [trained.id]
    assert names["monitor_widget"].state == "done" and names["monitor_widget"].step == 40
    assert names["curves"].data[:, 1].max() == 40
    assert names["name"] == f"run:{trained.id}@40"


def test_the_notebook_without_runs_shows_the_recorded_curves(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    monkeypatch.syspath_prepend(str(paths.NOTEBOOKS / "train"))
    sys.modules.pop("first_run", None)
    import first_run

    _, names = first_run.app.run()
    assert names["shown"] == [] and names["name"] == "pocket"
    assert len(names["curves"].data) > 100
