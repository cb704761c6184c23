"""Live views: what a run writes reaches the widgets, and damage is a sentence."""

import json

import numpy as np
import pytest

from lab import jsonl, runs
from lab.page.watch import View, _safely, action
from lab.runs import Run
from widgets.curves import Curves
from widgets.run_monitor import RunMonitor
from widgets.scrubber import Scrubber

FIGURES = [{"key": "loss", "label": "loss"}]


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "train-1"
    (path / "checkpoints").mkdir(parents=True)
    told = {
        "kind": "train",
        "work": "x:y",
        "name": None,
        "created": 0,
        "spec": {"steps": 9, "sample": "The capital of France is"},
    }
    (path / "spec.json").write_text(json.dumps(told))
    status = {"state": "done", "error": None, "started": 100.0, "ended": 160.0}
    (path / "status.json").write_text(json.dumps(status))
    return Run(path)


def view(run):
    return View(
        run, Curves(series=[{"id": run.id, "label": run.id}]), RunMonitor(FIGURES, steps=9), Scrubber([])
    )


def test_rows_reach_the_curves_and_the_monitor_once(run):
    shown = view(run)
    log = jsonl.Appender(run.path / "metrics.jsonl")
    log.append({"step": 1, "time": 101.0, "loss": 2.0})
    assert shown.update() is False
    log.append({"step": 2, "time": 102.0, "loss": 1.0})
    log.append({"step": 2, "time": 102.0, "sample": "The capital of France is Paris"})
    shown.update()
    shown.update()
    data = shown.curves.data
    assert np.array_equal(data[~np.isnan(data[:, 2])][:, 1:], [[1, 2.0], [2, 1.0]])
    monitor = shown.monitor
    assert (monitor.state, monitor.step, monitor.seconds) == ("done", 2, 60.0)
    assert monitor.values["loss"] == 1.0
    assert monitor.samples == [{"step": 2, "prompt": "The capital of France is", "text": " Paris"}]


def test_the_scrubber_gets_new_checkpoints(run):
    from lab.runs import checkpoints

    shown = view(run)
    for step in (5, 10):
        with checkpoints.writing(run.path / "checkpoints", step) as directory:
            (directory / "w").write_text("x")
        shown.update()
    assert shown.scrubber.steps == [5, 10]


def test_a_damaged_file_is_the_monitors_sentence(run):
    (run.path / "metrics.jsonl").write_text("oops\n")
    shown = view(run)
    assert _safely(shown.update, shown.monitor) is False
    assert "Line 1" in shown.monitor.message


def test_a_button_that_cannot_says_so(run):
    shown = RunMonitor(FIGURES, act=action(lambda: run))
    shown._asked({"do": "resume"}, action(lambda: run))
    assert "nothing to resume" in shown.message
    shown._asked({"do": "format the disk"}, action(lambda: run))
    assert "nothing to resume" in shown.message  # anything else is ignored


def test_a_button_for_a_run_that_is_gone_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    assert "There is no run" in action(lambda: runs.get("train-1"))("resume")
