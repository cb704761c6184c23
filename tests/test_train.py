"""The training loop: schedules, specs, exact resume, cancelling, checkpoints that load as models."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from lab import jsonl, models, paths, records
from lab.errors import LabError
from lab.models import Tokenizer
from lab.runs.context import Context
from lab.train import loop, pocket
from lab.train.optim import learning_rate
from lab.train.spec import SIZES, TrainSpec

SMALL = TrainSpec.sized(
    "tiny", steps=8, batch=4, context=32, warmup=2, generated_tokens=20_000, eval_every=8, eval_prompts=4, save_every=4
)


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


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def run(path: Path, spec: TrainSpec, after: int | None = None) -> list[dict]:
    ctx = Stops(path, after)
    loop.work(spec.to_dict(), ctx)
    ctx.close()
    return rows(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    return path, run(path, SMALL)


def test_a_run_learns_and_says_so(whole):
    _, log = whole
    losses = [r["loss"] for r in log if "loss" in r]
    assert len(losses) == SMALL.steps and losses[-1] < losses[0] - 0.3
    last = log[-1]
    assert {"val_facts", "val_ioi", "val_sums", "val_repeats", "facts", "ioi", "sums", "repeats", "sample"} <= set(last)
    assert all(r["tokens_per_s"] > 0 and r["mfu"] > 0 for r in log if "loss" in r)
    assert last["sample"].startswith(SMALL.sample)


def test_its_checkpoint_opens_as_a_model(whole):
    path, _ = whole
    lm = models.load(str(path / "checkpoints" / "step-00000008"))
    assert lm.config == SMALL.config(lm.tokenizer.vocab_size)
    assert torch.isfinite(lm.model(lm.tokens("The capital of France is"))).all()


@pytest.mark.parametrize("after", [3, 5])
def test_cancelled_and_resumed_equals_never_stopped(whole, tmp_path, after):
    straight, log = whole
    run(tmp_path, SMALL, after)
    assert max(r["step"] for r in rows(tmp_path)) == after  # stopped within the step
    resumed = run(tmp_path, SMALL)
    expected = {r["step"]: r["loss"] for r in log if "loss" in r}
    assert {r["step"]: r["loss"] for r in resumed if "loss" in r} == expected
    for name in ("model.safetensors", "train.safetensors"):
        a, b = (load_file(p / "checkpoints" / "step-00000008" / name) for p in (straight, tmp_path))
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), name


def test_a_text_of_ones_own(tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("The cat sat on the mat and looked at the moon. " * 200)
    log = run(tmp_path / "run", SMALL.changed(data=f"file:{text}", context=16))
    assert log[-1]["val_text"] < log[0]["val_text"] - 0.5
    assert "facts" not in log[-1]


def test_training_goes_on_from_a_checkpoint(whole, tmp_path):
    path, log = whole
    start = str(path / "checkpoints" / "step-00000008")
    again = run(tmp_path, SMALL.changed(start=start, steps=1, warmup=0))
    assert again[0]["val_facts"] == pytest.approx(log[-1]["val_facts"], abs=1e-4)


@pytest.mark.parametrize(
    "change, word",
    [
        ({"steps": 0}, "steps"),
        ({"lr": -1.0}, "learning rate"),
        ({"d_model": 65}, "heads"),
        ({"n_kv_heads": 3}, "key-value"),
        ({"data": "nothing"}, "training set"),
        ({"schedule": "square"}, "schedule"),
        ({"warmup": 8}, "warm-up"),
        ({"weights": {"facts": 0.0}}, "weights"),
        ({"beta2": 1.5}, "beta2"),
    ],
)
def test_bad_specs_say_what_is_wrong(change, word):
    with pytest.raises(LabError, match=word):
        TrainSpec.from_dict(SMALL.to_dict() | change)


def test_unknown_fields_and_missing_files(tmp_path):
    with pytest.raises(LabError, match="no field 'speed'"):
        TrainSpec.from_dict({"speed": 1})
    with pytest.raises(LabError, match="cannot be read"):
        run(tmp_path, SMALL.changed(data=f"file:{tmp_path}/absent.txt"))


def test_a_loss_that_explodes_is_an_error(tmp_path):
    with pytest.raises(LabError, match="lower the learning rate"):
        run(tmp_path, SMALL.changed(lr=10.0, clip=0.0, weight_decay=10.0, steps=60, warmup=0, eval_every=60, save_every=60))


@settings(deadline=None)
@given(st.integers(2, 500), st.floats(1e-5, 1.0), st.sampled_from(["cosine", "wsd", "constant"]), st.floats(0, 1))
def test_schedules_rise_then_never_rise_again(steps, peak, kind, share):
    warmup = int(share * (steps - 1))
    spec = SMALL.changed(steps=steps, lr=peak, schedule=kind, warmup=warmup)
    rates = [learning_rate(spec, i) for i in range(steps)]
    assert max(rates) == pytest.approx(peak)
    assert all(b >= a for a, b in itertools.pairwise(rates[:warmup]))
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(rates[warmup:]))
    if kind != "constant" and steps - warmup > 2:
        assert rates[-1] == pytest.approx(peak * spec.final_lr)


@pytest.mark.parametrize("size", SIZES)
def test_specs_survive_json(size):
    spec = TrainSpec.sized(size)
    assert TrainSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert spec.flops(4096) > 3 * 2 * spec.config(4096).matmul_params() * spec.tokens()


def test_a_step_that_broke_the_weights_is_never_saved(tmp_path, monkeypatch):
    def broken(spec, device):
        def loss(model, rows):
            weight = model.lm_head.weight  # the slope of a root at nought is not a number, the root itself is
            return loop.next_token_loss(model, rows) + (weight - weight.detach()).square().sum().sqrt()

        return loss

    monkeypatch.setattr(loop, "compiled", broken)
    with pytest.raises(LabError, match="gradient norm became nan at step 1:"):
        run(tmp_path, SMALL.changed(log_every=7, save_every=1, eval_every=100))
    assert not list((tmp_path / "checkpoints").glob("step-*"))


def test_a_start_that_reads_other_tokens_is_refused(monkeypatch):
    own, other = (Tokenizer(paths.MODELS / "pocket") for _ in range(2))
    other.inner.add_tokens(["another word"])
    monkeypatch.setattr(loop, "load", lambda *_, **__: SimpleNamespace(tokenizer=other))
    with pytest.raises(LabError, match="pocket reads other tokens"):
        loop.build(SMALL.changed(start="pocket"), own, torch.device("cpu"))


def test_the_recorded_speeds_of_the_bundled_models_come_from_their_curves(tmp_path, monkeypatch):
    stored = {id: records.read(id)["value"] for s in pocket.STAGES for id in (f"train.{k}.{s.replace('-', '_')}" for k in ("mfu", "tokens_per_s"))}
    monkeypatch.setattr(paths, "RECORDS", tmp_path)
    monkeypatch.setattr(pocket.hardware, "ceiling", lambda device: pocket.hardware.Ceiling("x", {"float32": 1e12}, 1e9, "x"))
    for stage in pocket.STAGES:
        pocket.record(stage, jsonl.read(pocket.SPECS / f"{stage}.metrics.jsonl"))
    assert {id: records.read(id)["value"] for id in stored} == stored
    assert "val_prose" in records.read("train.mfu.pocket")["detail"]["final"]
