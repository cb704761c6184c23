"""Runs: separate processes that lose nothing when they are killed, cancelled, cut off or edited."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import front, models, runs
from lab.errors import LabError
from lab.runs import checkpoints, cli, kinds, process


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    for name in ("count", "deaf", "broken", "small_disk", "slow_to_go"):
        monkeypatch.setitem(kinds.KINDS, name, f"run_kinds:{name}")
    yield tmp_path / "runs"
    for run in runs.listed():
        try:
            row = run.status
        except LabError:
            continue
        if "pid" in row:
            process.kill(row["pid"], row["process"])


def until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)


def totals(run):
    return [row["total"] for row in run.metrics()]


def triangle(n):
    return [i * (i + 1) // 2 for i in range(1, n + 1)]


def test_a_run_works_in_its_own_process_and_leaves_a_directory():
    run = runs.start("count", {"steps": 25}, name="first")
    assert run.state in ("starting", "running")
    assert run.wait(20) == "done", run.log()
    assert totals(run) == triangle(25)
    assert [c.step for c in run.checkpoints()] == [10, 20]
    assert run.name == "first" and run.spec == {"steps": 25} and run.error is None
    assert run.status["pid"] != os.getpid()
    assert {"spec.json", "env.json", "status.json", "metrics.jsonl", "log.txt"} <= {
        p.name for p in run.path.iterdir()
    }
    assert runs.get(run.id) == run and runs.listed() == [run]
    assert run.metrics(after=20) == run.metrics()[20:]


def test_killed_at_random_moments_it_loses_no_row_and_resumes():
    """kill -9, several times over: every row seen before is there after, and the end is the right one."""
    steps = 300
    run = runs.start("count", {"steps": steps, "every": 7, "bytes": 300_000, "pause": 0.002})
    dice = random.Random()
    for _ in range(4):
        until(lambda: run.state != "starting")
        time.sleep(dice.uniform(0.02, 0.25))
        seen = totals(run)
        row = run.status
        if process.alive(row["pid"], row["process"]):
            os.kill(row["pid"], signal.SIGKILL)
        until(lambda: not run.live)
        if run.state == "done":
            break
        assert run.state == "lost" and "killed" in run.error
        assert totals(run)[: len(seen)] == seen
        for checkpoint in run.checkpoints():
            checkpoint.verify()
            state = json.loads((checkpoint.path / "state.json").read_text())
            assert state["total"] == triangle(checkpoint.step)[-1]
        run.resume()
    assert run.wait(30) == "done", run.log()
    assert totals(run) == triangle(steps)
    assert not [p for p in (run.path / "checkpoints").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("moment", ["fill", "seal", "put", "swap"])
def test_killed_inside_a_checkpoint_the_earlier_one_stands(tmp_path, moment):
    """The process ends at a chosen point of the write; what is left is the earlier checkpoint, or the new one."""
    code = f"""
import os, signal, pathlib
from lab.runs import checkpoints, files
folder = pathlib.Path({str(tmp_path)!r})
def write(step, text):
    with checkpoints.writing(folder, step) as d:
        (d / "w").write_text(text)
        if step == 2 and {moment!r} == "fill": os.kill(os.getpid(), signal.SIGKILL)
write(1, "old"); write(2, "old")
"""
    swap = f"""
import pathlib
real = pathlib.Path.rename
calls = []
def rename(self, to):
    calls.append(self)
    real(self, to)
    if {moment!r} == "swap" and len(calls) == 1: os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.rename = rename
sync = files.sync
def dying(path):
    sync(path)
    if {moment!r} == "seal" and path.name.startswith(".writing") or {moment!r} == "put" and path == folder:
        os.kill(os.getpid(), signal.SIGKILL)
files.sync = dying
write(2, "new")
"""
    done = subprocess.run([sys.executable, "-c", code + ("" if moment == "fill" else swap)])
    assert done.returncode == -signal.SIGKILL
    checkpoints.sweep(tmp_path)
    found = {c.step: (c.verify().path / "w").read_text() for c in checkpoints.listed(tmp_path)}
    expected = {"fill": {1: "old"}, "put": {1: "old", 2: "new"}}
    assert found == expected.get(moment, {1: "old", 2: "old"})


def test_a_checkpoint_cut_short_or_altered_is_never_taken(tmp_path):
    for step in (1, 2, 3):
        with checkpoints.writing(tmp_path, step) as directory:
            (directory / "w.bin").write_bytes(os.urandom(5000))
    cut = tmp_path / "step-00000003" / "w.bin"
    cut.write_bytes(cut.read_bytes()[:4000])
    assert [c.step for c in checkpoints.listed(tmp_path)] == [1, 2]
    changed = tmp_path / "step-00000002" / "w.bin"
    changed.write_bytes(b"\0" + changed.read_bytes()[1:])
    with pytest.raises(LabError, match=r"w\.bin is not what was written"):
        checkpoints.listed(tmp_path)[-1].verify()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for path in tmp_path.glob("step-*"):
        path.rename(tmp_path / "run" / "checkpoints" / path.name)
    assert runs.Context(tmp_path / "run").latest().step == 1


def test_cancel_keeps_what_was_written_and_resume_goes_on():
    run = runs.start("count", {"steps": 400, "pause": 0.005})
    until(lambda: len(run.metrics()) > 30)
    run.cancel()
    assert run.wait(10) == "cancelled" and run.error is None
    kept = totals(run)
    assert kept == triangle(len(kept)) and len(kept) < 400
    run.resume()
    assert run.wait(30) == "done"
    assert totals(run) == triangle(400)
    with pytest.raises(LabError, match="is done"):
        run.resume()


def test_resumed_while_the_old_process_still_leaves():
    run = runs.start("slow_to_go", {})
    until(lambda: run.state == "running")
    run.cancel()
    assert run.wait(10) == "cancelled"
    assert process.mark(run.status["pid"])
    run.resume()
    until(lambda: run.state == "running")
    assert run.status["attempt"] == 2
    run.cancel(wait=10)


def test_a_run_that_does_not_listen_is_ended(monkeypatch):
    monkeypatch.setenv("LAB_GRACE", "0.2")
    run = runs.start("deaf", {})
    until(lambda: run.metrics())
    run.cancel()
    assert run.wait(10) == "cancelled"
    monkeypatch.setenv("LAB_GRACE", "60")
    run = runs.start("deaf", {})
    until(lambda: run.metrics())
    pid = run.status["pid"]
    run.cancel(wait=0.3)
    assert run.state == "cancelled" and process.mark(pid) is None


def test_a_recycled_pid_is_not_the_run():
    run = runs.start("count", {"steps": 3})
    run.wait(20)
    row = run.status | {"state": "running", "pid": os.getpid()}  # this process lives, and is another one
    (run.path / "status.json").write_text(json.dumps(row))
    assert run.state == "lost"


def test_a_zombie_is_dead():
    child = subprocess.Popen(["true"])
    until(lambda: Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
    assert process.mark(child.pid) is None
    child.wait()


def test_failure_is_a_sentence_and_the_log_has_the_traceback():
    run = runs.start("broken", {})
    assert run.wait(20) == "failed"
    assert run.error.startswith("RuntimeError: the work went wrong")
    assert "Traceback" in run.log() and run.metrics()[0]["loss"] != run.metrics()[0]["loss"]


@pytest.mark.parametrize("safetensors", [False, True])
def test_a_full_disk_during_a_checkpoint(safetensors):
    run = runs.start("small_disk", {"safetensors": safetensors})
    assert run.wait(60) == "failed"
    assert run.error.startswith(
        "The disk is full: the checkpoint at step 2 was not written, the one at step 1"
    )
    assert [c.verify().step for c in run.checkpoints()] == [1]
    assert len(run.metrics()) == 2


@pytest.fixture
def full_disk(tmp_path):
    """A real file system of 256 KiB; only root may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_is_really_full(full_disk, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(full_disk))
    run = runs.start("count", {"steps": 1000, "every": 5, "bytes": 60_000})
    assert run.wait(30) == "failed"
    assert "disk is full" in run.error
    for checkpoint in run.checkpoints():
        checkpoint.verify()
    assert totals(run) == triangle(len(totals(run)))
    with pytest.raises(OSError), (full_disk / "rest.bin").open("ab") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    with pytest.raises(LabError, match="could not be started"):
        runs.start("count", {"steps": 1})
    assert runs.listed() == [run]


def test_two_runs_started_together_are_two_runs():
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda n: runs.start("count", {"steps": 5, "n": n}), range(4)))
    assert len({run.id for run in started}) == 4
    for n, run in enumerate(started):
        assert run.wait(30) == "done" and run.spec["n"] == n and totals(run) == triangle(5)


def test_the_same_id_twice_is_not_given(monkeypatch):
    monkeypatch.setattr(runs.time, "strftime", lambda *_: "20260101-000000")
    tokens = iter(["aa", "x1", "aa", "x2", "bb", "x3"])
    monkeypatch.setattr(runs.secrets, "token_hex", lambda n: next(tokens))
    first, second = (runs.start("count", {"steps": 1}) for _ in range(2))
    assert (first.id, second.id) == ("count-20260101-000000-aa", "count-20260101-000000-bb")


def test_two_tabs_resuming_the_same_run_start_one_process():
    run = runs.start("count", {"steps": 2000, "pause": 0.01})
    until(lambda: len(run.metrics()) > 2)
    run.cancel(wait=10)

    def resume(_):
        try:
            return bool(run.resume())
        except LabError:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(resume, range(4))) == 1
    until(lambda: run.state == "running")
    run.cancel(wait=10)


def test_a_second_process_leaves_a_live_run_alone():
    run = runs.start("count", {"steps": 500, "pause": 0.01})
    until(lambda: run.metrics())
    before = run.status
    done = subprocess.run(
        [sys.executable, "-m", "lab.runs.child", str(run.path)], capture_output=True, text=True
    )
    assert done.returncode == 1 and "another process" in done.stdout
    assert run.status == before and run.live


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "count"}', None])
@pytest.mark.parametrize("file", ["spec.json", "status.json"])
def test_a_directory_edited_by_hand_is_a_sentence(file, text):
    good, bad = runs.start("count", {"steps": 2}), runs.start("count", {"steps": 2})
    good.wait(20), bad.wait(20)
    (bad.path / file).unlink() if text is None else (bad.path / file).write_text(text)
    assert bad.state == "failed" and file in bad.error and bad.error.count("\n") == 0
    assert {run.id: run.state for run in runs.listed()} == {good.id: "done", bad.id: "failed"}
    with pytest.raises(LabError, match=file):
        bad.resume()
    bad.delete()
    assert [run.id for run in runs.listed()] == [good.id]


DEEP = "[" * 100_000
WRONG = [
    ("spec.json", DEEP),
    ("spec.json", '{"kind": [], "work": "x", "name": null, "created": 1, "spec": {}}'),
    ("spec.json", '{"kind": "count", "work": "x", "name": {}, "created": 1, "spec": {}}'),
    ("spec.json", '{"kind": "count", "work": "x", "name": "a", "created": 1e999, "spec": {}}'),
    ("status.json", DEEP),
    ("status.json", '{"state": "running", "error": null}'),
    ("status.json", '{"state": "what", "error": null, "started": 1}'),
    ("status.json", '{"state": "done", "error": ["x"], "started": 1}'),
    ("status.json", '{"state": "starting", "error": null, "started": NaN}'),
    ("status.json", '{"state": "done", "error": null, "started": 1, "ended": "x"}'),
    ("metrics.jsonl", DEEP + "\n"),
    ("metrics.jsonl", '{"step": [1], "loss": 1}\n'),
    ("metrics.jsonl", '{"step": 1, "time": "noon"}\n'),
]


@pytest.mark.parametrize(("file", "text"), WRONG)
def test_a_directory_that_is_json_and_no_run_breaks_no_list(file, text, capsys):
    run = runs.start("count", {"steps": 1})
    assert run.wait(20) == "done"
    (run.path / file).write_text(text)
    (shown,) = front.recent_runs()
    assert shown["id"] == run.id and shown["error"]
    assert [r.id for r in runs.listed()] == [run.id]
    for argv in (["list"], ["list", "--json"], ["show", run.id], ["show", run.id, "--json"]):
        cli.main(argv)
    assert run.id in capsys.readouterr().out
    run.delete()


def test_a_diverged_run_is_still_json(capsys):
    run = runs.start("broken", {})
    assert run.wait(20) == "failed"
    for argv in (["list", "--json"], ["show", run.id, "--json"], ["compare", run.id, run.id, "--json"]):
        cli.main(argv)
        strict = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert "NaN" in json.dumps(strict)


def test_a_run_whose_directory_is_deleted_by_hand_ends_and_leaves_nothing():
    run = runs.start("count", {"steps": 10**6, "every": 1, "pause": 0.01})
    until(lambda: run.checkpoints())
    row = run.status
    run.path.rename(run.path.with_name(".gone"))
    until(lambda: not process.alive(row["pid"], row["process"]), 5)
    assert not run.path.exists() and runs.listed() == []


@pytest.mark.parametrize("file", ["spec.json", "status.json", "metrics.jsonl", "log.txt", "checkpoints"])
def test_what_the_disk_does_not_give_is_a_sentence(file, capsys):
    run = runs.start("count", {"steps": 1})
    run.wait(20)
    (run.path / file).rename(run.path / "aside")
    (run.path / file).symlink_to(file)  # a link to itself: denied to root too, who runs some test machines
    front.recent_runs(), models.available(), cli.main(["list"])
    asked = {"metrics.jsonl": run.metrics, "log.txt": run.log, "checkpoints": run.checkpoints}.get(file, run.resume)
    with pytest.raises(LabError, match="cannot be read"):
        asked()


def test_a_folder_that_takes_nothing_is_a_sentence(monkeypatch):
    run = runs.start("count", {"steps": 10**6, "pause": 0.01})
    until(lambda: run.state == "running")

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "touch", denied)
        with pytest.raises(LabError, match="cannot be told to stop"):
            run.cancel()
    run.cancel(wait=10)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", denied)
        with pytest.raises(LabError, match="cannot be written"):
            run.resume()
    monkeypatch.setattr(Path, "rename", denied)
    with pytest.raises(LabError, match="cannot be deleted"):
        run.delete()


def test_deleting_what_another_tab_deleted_is_a_sentence():
    run = runs.start("count", {"steps": 1})
    run.wait(20)
    run.delete()
    with pytest.raises(LabError, match="deleted already"):
        run.delete()


def test_delete_is_refused_while_it_runs():
    run = runs.start("count", {"steps": 1000, "pause": 0.01})
    with pytest.raises(LabError, match="cancel it before"):
        run.delete()
    until(lambda: run.metrics())
    run.cancel(wait=10)
    run.delete()
    with pytest.raises(LabError, match="no run"):
        runs.get(run.id)


@pytest.mark.parametrize("id", ["../etc", ".hidden", "", "nope", "a/b"])
def test_an_id_that_is_none(id):
    with pytest.raises(LabError, match="There is no run"):
        runs.get(id)


def test_unknown_kind():
    with pytest.raises(LabError, match="no kind of run 'dance'"):
        runs.start("dance", {})


def test_it_outlives_the_process_that_started_it(place):
    code = "from lab import runs; from lab.runs import kinds; kinds.KINDS['count'] = 'run_kinds:count'; "
    code += "print(runs.start('count', {'steps': 60, 'pause': 0.01}).id)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True
    )
    run = runs.get(done.stdout.strip())
    assert run.wait(20) == "done" and totals(run) == triangle(60)


def lab(*args):
    return subprocess.run([sys.executable, "-m", "lab", "runs", *args], capture_output=True, text=True)


def test_the_command_line():
    assert "No runs yet" in lab().stdout
    run = runs.start("count", {"steps": 30, "every": 10})
    other = runs.start("count", {"steps": 2000, "pause": 0.01})
    run.wait(20)
    until(lambda: other.metrics())
    rows = json.loads(lab("list", "--json").stdout)
    assert [(r["id"], r["state"]) for r in rows] == [(other.id, "running"), (run.id, "done")]
    assert rows[1]["last"] == {"total": 465} and rows[1]["step"] == 30
    assert run.id in lab().stdout
    shown = lab("show", run.id)
    assert "10, 20, 30" in shown.stdout and "465" in shown.stdout
    refused = lab("delete", other.id)
    assert refused.returncode == 1 and "cancel it before" in refused.stderr
    assert lab("cancel", other.id).stdout.strip() == f"{other.id} cancelled"
    parts = json.loads(lab("compare", run.id, "last", "--json").stdout)
    assert parts["settings"]["steps"] == [30, 2000] and parts["ids"] == [run.id, other.id]
    assert "steps" in lab("compare", run.id, other.id).stdout
    assert "goes on from" in lab("resume", "last").stdout
    lab("cancel", "last")
    assert lab("delete", other.id, run.id).returncode == 0 and runs.listed() == []
    assert "no run 'nope'" in lab("show", "nope").stderr


def test_a_directory_from_a_stranger_does_not_choose_the_code(monkeypatch):
    """What spec.json names is imported only for the lab's own kinds, unless the user says otherwise."""
    assert kinds.trusted("train", "os:system") == kinds.KINDS["train"]
    monkeypatch.delenv("LAB_FOREIGN_KINDS")
    with pytest.raises(LabError, match="not the lab's own"):
        kinds.trusted("surprise", "runpy:run_path")
