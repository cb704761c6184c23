"""Traces read into tables, hardware ceilings, a profiled step."""

import gzip
import json
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import paths
from lab.errors import LabError
from lab.models import Decoder, ModelConfig
from lab.profiling import hardware, step, trace
from widgets.timeline import Timeline

CFG = ModelConfig(
    vocab_size=300, d_model=32, n_layers=2, n_heads=2, n_kv_heads=1, d_head=16, d_mlp=64, context=64
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "step.json.gz"
    told = step.profile(Decoder(CFG).init_weights(random.randrange(1000)), 2, 32, path)
    return path, told, trace.read(path)


def test_a_step_holds_its_parts_and_its_flops(recorded):
    _, told, found = recorded
    assert told["seconds"] > 0 and told["tokens"] == 64
    names = set(found.events["name"])
    assert {"forward", "backward", "optimizer", "aten::mm"} <= names
    assert any("adamw" in name for name in names)
    # forward and backward: three times the products; attention counts the whole square, the formula its causal half
    least = 3 * 2 * 2 * CFG.matmul_params() * 32
    assert least <= found.events["flops"].sum() <= 1.3 * 3 * 2 * CFG.forward_flops(32)
    assert found.memory["bytes"].max() > CFG.n_params() * 4  # the gradients at least


def test_self_times_add_up(recorded):
    _, _, found = recorded
    for lane in range(len(found.lanes)):
        events = found.events.filter(pl.col("lane") == lane)
        top = events.filter(pl.col("depth") == 0)["duration"].sum()
        assert math.isclose(events["self"].sum(), top, rel_tol=1e-3)


def test_the_operator_table_is_torch_profilers():
    a, b = torch.randn(2, 64, 64, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        for _ in range(random.randrange(2, 6)):
            torch.softmax(a @ b, -1).sum().backward()
    found = trace.parse(_exported(prof)).operators()
    theirs = {row.key: row for row in prof.key_averages()}
    for row in found.iter_rows(named=True):
        other = theirs[row["name"]]
        assert row["calls"] == other.count
        assert math.isclose(row["self"], other.self_cpu_time_total, rel_tol=0.02, abs_tol=3), row["name"]


def _exported(prof) -> bytes:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        prof.export_chrome_trace(str(Path(folder) / "t.json"))
        return (Path(folder) / "t.json").read_bytes()


def test_a_difference_names_what_changed(recorded):
    _, _, found = recorded
    same = trace.difference(found, found)
    assert same.height == found.operators().height and (same["change"] == 0).all()
    slower = trace.Trace(
        found.events.with_columns(
            pl.when(pl.col("name") == "aten::mm")
            .then(pl.col("self") * 3)
            .otherwise(pl.col("self"))
            .alias("self")
        ).filter(pl.col("name") != "optimizer"),
        found.lanes,
        found.memory,
    )
    changed = trace.difference(found, slower).filter(pl.col("change") != 0)
    assert set(changed["name"]) == {"aten::mm", "optimizer"}
    mm = changed.filter(pl.col("name") == "aten::mm").row(0, named=True)
    assert math.isclose(mm["self_after"], 3 * mm["self"])
    assert {p["label"] for p in trace.points(found)} >= {"mm"}


def test_flops_are_those_of_torch():
    from torch.utils.flop_counter import FlopCounterMode

    m, k, n = random.randrange(1, 50), random.randrange(1, 50), random.randrange(1, 50)
    a, b = torch.randn(m, k), torch.randn(k, n)
    q = torch.randn(2, 3, 7, 8)
    with FlopCounterMode(display=False) as counter:
        _ = a @ b
    assert trace.flops("aten::mm", [[m, k], [k, n]]) == counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        torch.bmm(q[0], q[1].transpose(1, 2))
    assert trace.flops("aten::bmm", [[3, 7, 8], [3, 8, 7]]) == counter.get_total_flops()
    # q k and p v, for 2 x 3 heads of 7 x 7 scores
    assert (
        trace.flops("aten::_scaled_dot_product_flash_attention", [[2, 3, 7, 8]] * 3) == 2 * 2 * 6 * 7 * 7 * 8
    )
    assert trace.flops("aten::mm", []) == 0


def test_gpu_lanes_and_launched_time():
    def span(name, cat, ts, dur, tid, pid=1, **args):
        return {
            "ph": "X",
            "name": name,
            "cat": cat,
            "ts": ts,
            "dur": dur,
            "pid": pid,
            "tid": tid,
            "args": args,
        }

    rows = [
        span("aten::mm", "cpu_op", 10, 5, 100, **{"External id": 7}),
        span("cudaLaunchKernel", "cuda_runtime", 12, 2, 100, **{"External id": 7}),
        span("sm90_gemm", "kernel", 20, 30, 7, pid=0, **{"External id": 7}),
        span("autograd::engine::evaluate_function: MmBackward0", "cpu_op", 30, 5, 200),
    ]
    cards = [{"id": 0, "name": "NVIDIA H200"}]
    found = trace.parse(json.dumps({"traceEvents": rows, "deviceProperties": cards}).encode())
    assert hardware.data_sheet(found.card).bandwidth == 4.8e12
    assert found.lanes == ["CPU thread 1", "CPU thread 2, backward", "GPU stream 7"]
    mm = found.operators().filter(pl.col("name") == "aten::mm").row(0, named=True)
    assert (mm["device"], mm["self"], mm["total"]) == (30, 3, 5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1000), st.floats(0, 200), st.sampled_from("abc"), st.integers(1, 2)),
        min_size=1,
        max_size=30,
    )
)
def test_any_spans_give_a_table_that_counts_them(spans):
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": n, "ts": ts, "dur": dur, "pid": 1, "tid": tid}
        for ts, dur, n, tid in spans
    ]
    found = trace.parse(json.dumps({"traceEvents": rows}).encode())
    assert (
        found.events.height == len(spans) and found.operators()["calls"].sum() == found.events["outer"].sum()
    )
    assert (found.events["self"] >= 0).all() and (found.events["start"] >= 0).all()
    Timeline(**trace.timeline(found))


@pytest.mark.parametrize(
    ("text", "word"),
    [(b"{", "not JSON"), (b"[]", "no timed"), (b'{"a": 1}', "no traceEvents"), (b"3", "no traceEvents"),
     (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1}, 5]}', "no timed"), (b"\xff\x00", "not JSON")],
)  # fmt: skip
def test_what_is_no_trace_is_a_sentence(text, word, tmp_path):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(LabError, match=word):
        trace.read(tmp_path / "x.json")


EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 2.0, "pid": 1, "tid": 1, "args": {}}


@pytest.mark.parametrize(
    "change",
    [{"cat": ["x"]}, {"args": [1]}, {"args": {"Input Dims": 5}},
     {"args": {"External id": ["x"]}}, {"ts": 10**400}, {"name": "[memory]", "args": {"Total Allocated": "x"}}],
)  # fmt: skip
def test_an_event_no_profiler_writes_is_a_sentence(change, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps([EVENT, EVENT | change]))
    with pytest.raises(LabError, match="does not write"):
        trace.read(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(LabError, match="not JSON"):
        trace.read(tmp_path / "x.json")


def test_cut_and_huge_traces_are_sentences(recorded, tmp_path, monkeypatch):
    whole = recorded[0].read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabError, match="cut short"):
        trace.read(tmp_path / "cut.json.gz")
    with pytest.raises(LabError, match="There is no trace"):
        trace.read(tmp_path / "none.json")
    monkeypatch.setattr(trace, "LIMIT", 1000)
    with gzip.open(tmp_path / "big.json.gz", "wb") as file:
        file.write(b" " * 2000)
    with pytest.raises(LabError, match="profile fewer steps"):
        trace.read(tmp_path / "big.json.gz")


def test_ceilings_are_measured_once_and_sane(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    hardware._ceiling.cache_clear()
    first = hardware.ceiling("cpu")
    assert 1e8 < first.flops_per_s(torch.float32) < 1e14 and 1e8 < first.bandwidth < 2e12
    hardware._ceiling.cache_clear()
    monkeypatch.setattr(hardware, "measure", lambda *a: pytest.fail("measured again"))
    assert hardware.ceiling("cpu") == first
    hardware._ceiling.cache_clear()
    assert first.ridge(torch.float32) == first.flops["float32"] / first.bandwidth
    assert first.flops_per_s("float64") == first.flops["float32"]


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA H200; AMD EPYC, 16 cores", 4.8),
        ("NVIDIA A100-SXM4-80GB", 2.039),
        ("NVIDIA A100-SXM4-40GB", 1.555),
        ("NVIDIA H100 80GB HBM3", 3.35),
        ("NVIDIA H100 NVL", 3.9),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA GB200", None),
    ],
)
def test_a_card_has_its_own_data_sheet_or_none(name, bandwidth):
    sheet = hardware.data_sheet(name)
    assert (sheet and sheet.bandwidth / 1e12) == (bandwidth and pytest.approx(bandwidth))


def test_tabs_that_ask_at_once_measure_once_and_a_damaged_cache_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    (tmp_path / "ceilings.json").write_text("{")
    calls = []

    def measure(device, name):
        calls.append(device)
        time.sleep(0.05)
        return hardware.Ceiling(name, {"float32": 1e9}, 1e9, "test")

    monkeypatch.setattr(hardware, "measure", measure)
    hardware._ceiling.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(hardware.ceiling, ["cpu"] * 4))
    finally:
        hardware._ceiling.cache_clear()
    assert calls == ["cpu"] and found[0] == found[3]


def test_a_timeline_refuses_columns_that_do_not_fit():
    good = {
        key: np.zeros(3)
        for key in ("start", "duration", "self_time", "flops", "bytes", "device", "name", "lane", "depth")
    }
    names = [{"name": "a", "kind": "operator", "group": "element-wise", "shapes": None}]
    Timeline(names=names, lanes=["CPU"], **good)
    with pytest.raises(ValueError, match="one length"):
        Timeline(names=names, lanes=["CPU"], **good | {"start": np.zeros(2)})
    with pytest.raises(ValueError, match="sorted"):
        Timeline(names=names, lanes=["CPU"], **good | {"start": np.array([2.0, 1.0, 3.0])})
    with pytest.raises(TypeError, match="no column"):
        Timeline(names=names, lanes=["CPU"], **good, colour=np.zeros(3))


def test_a_profile_is_a_run(tmp_path, monkeypatch):
    from dataclasses import replace

    from lab import models, runs
    from lab.models import Tokenizer

    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    tokenizer = Tokenizer(paths.MODELS / "pocket")
    cfg = replace(CFG, vocab_size=tokenizer.vocab_size)
    models.save(Decoder(cfg).init_weights(0), tokenizer, tmp_path / "model")
    run = runs.start("profile", {"model": str(tmp_path / "model"), "batch": 1, "length": 16})
    assert run.wait(120) == "done", run.error
    assert trace.read(run.path / "traces" / "step.json.gz").events.height > 100
    assert run.metrics()[-1]["tokens"] == 16
