"""The front page shows what it can of every run, whatever somebody did to its directory."""

import json

import pytest

from lab import front, runs

TOLD = {"kind": "train", "work": "x:y", "name": None, "created": 7.0, "spec": {"steps": 2}}
STATUS = {"state": "done", "error": None, "started": 7.0, "ended": 9.0}
METRICS = [{"step": 1, "time": 8.0, "loss": 2.0}, {"step": 2, "time": 9.0, "loss": 1.0}]


def directory(root, id, told=TOLD, status=STATUS):
    (root / id / "checkpoints").mkdir(parents=True)
    (root / id / "spec.json").write_text(json.dumps(told))
    (root / id / "status.json").write_text(json.dumps(status))
    (root / id / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in METRICS))
    return root / id


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    return tmp_path


def test_a_run_with_its_curve(root):
    directory(root, "train-good")
    (shown,) = front.recent_runs()
    assert (shown["state"], shown["station"], shown["steps"], shown["error"]) == ("done", "train", 2, None)
    assert (shown["points"], shown["value"], shown["step"]) == ([[1, 2.0], [2, 1.0]], 1.0, 2)


def test_a_run_without_a_loss_shows_its_share_and_never_the_clock(root):
    row = {"step": 1, "time": 1.8e9, "seen": 4, "right": 1, "share": 0.25}
    (directory(root, "eval-good") / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (directory(root, "eval-bare") / "metrics.jsonl").write_text('{"step": 1, "time": 1.8e9}\n')
    shown = {run["name"]: (run["metric"], run["value"]) for run in front.recent_runs()}
    assert shown == {"eval-good": ("share", 0.25), "eval-bare": (None, None)}


def test_damaged_metrics_are_a_sentence_and_the_others_stay(root):
    directory(root, "train-good")
    (directory(root, "train-bad") / "metrics.jsonl").write_text("oops\n")
    shown = {row["id"]: row for row in front.recent_runs()}
    assert "Line 1" in shown["train-bad"]["error"] and shown["train-bad"]["points"] == []
    assert shown["train-good"]["error"] is None and shown["train-good"]["value"] == 1.0


@pytest.mark.parametrize(
    "damage",
    [
        {"told": TOLD | {"spec": []}},
        {"told": TOLD | {"created": "yesterday"}},
        {"status": STATUS | {"state": 3}},
        {"status": STATUS | {"state": "running", "pid": "x", "process": "y"}},
        {"status": STATUS | {"state": "running", "started": "now"}},
    ],
)
def test_values_of_another_kind_are_a_sentence(root, damage):
    directory(root, "train-bad", **damage)
    (shown,) = front.recent_runs()
    assert shown["state"] == "failed" and "something else" in shown["error"]
    assert [run.id for run in runs.listed()] == ["train-bad"]
