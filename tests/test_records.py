"""Records: what is written is what is read, the worst case stands for its cases, bench makes them again."""

import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import bench, jsonl, paths, records
from lab.__main__ import COMMANDS
from lab.errors import LabError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    return tmp_path / "records"


def test_write_read_and_newest():
    records.write("a.time_s", 2.0, "s", bar=1.0, command="x")
    records.write("a.time_s", 0.5, "s", bar=1.0, command="x", compared="torch", detail={"n": 3})
    row = records.read("a.time_s")
    assert row["value"] == 0.5 and row["holds"] is True and row["detail"] == {"n": 3}
    assert row["hardware"] and row["versions"]["python"] and row["date"].endswith("+00:00")
    assert [r["id"] for r in records.newest()] == ["a.time_s"]


def test_a_bar_may_be_a_floor():
    assert records.write("a.recall", 0.9, "", bar=0.97, better="higher", command="x")["holds"] is False
    assert records.write("a.recall", 0.97, "", bar=0.97, better="higher", command="x")["holds"] is True
    assert records.write("a.count", 3, "", command="x")["holds"] is None


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.floats(-1e6, 1e6), min_size=1, max_size=6
    ),
    st.sampled_from(["lower", "higher"]),
)
def test_the_plain_id_holds_the_worst_case(tmp_path_factory, cases, better):
    paths.RECORDS = tmp_path_factory.mktemp("records")
    records.write_cases("f.g", cases, "s", bar=1.0, better=better, command="x")
    worst = max(cases.values()) if better == "lower" else min(cases.values())
    assert records.read("f.g")["value"] == worst
    for case, value in cases.items():
        assert records.read(f"f.g.{case}")["value"] == value


def test_with_its_own_bar_the_worst_is_the_furthest_beyond():
    records.write_cases(
        "f", {"pocket": 0.4, "smollm2": 2.0}, "s", bar={"pocket": 0.3, "smollm2": 4.0}, command="x"
    )
    row = records.read("f")
    assert row["value"] == 0.4 and row["bar"] == 0.3 and row["holds"] is False


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_is_not_a_record(value):
    with pytest.raises(ValueError, match="not a measurement"):
        records.write("a", value, "s", command="x")


def test_a_record_needs_a_command():
    with pytest.raises(ValueError, match="command"):
        records.write("a", 1, "s")


def test_unknown_record_is_a_sentence():
    with pytest.raises(LabError, match="no record 'nope'"):
        records.read("nope")


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.floats() | st.integers() | st.booleans(), max_size=4)),
    st.data(),
)
def test_rows_survive_a_cut_anywhere(tmp_path_factory, rows, data):
    """Whatever byte a kill stops at, every row before it is read back and the file can be appended to."""
    path = tmp_path_factory.mktemp("rows") / "m.jsonl"
    whole = b"".join(jsonl.dump(row) for row in rows)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    same(jsonl.read(path), rows[:kept])
    appender = jsonl.Appender(path)
    appender.append({"step": 1})
    appender.close()
    same(jsonl.read(path), [*rows[:kept], {"step": 1}])
    for line in path.read_bytes().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def same(found, expected):
    assert repr(found) == repr(expected)  # repr: NaN equals itself


def test_tail_gives_each_row_once(tmp_path):
    path = tmp_path / "m.jsonl"
    tail = jsonl.Tail(path)
    assert tail.rows() == []
    path.write_bytes(b'{"a": 1}\n{"a"')
    assert tail.rows() == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert tail.rows() == [{"a": 2}] and tail.rows() == []


def test_a_row_edited_by_hand_is_named(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"a": 1}\noops\n{"a": 2}\n')
    with pytest.raises(LabError, match=r"Line 2 of .*m\.jsonl is not a JSON object"):
        jsonl.read(path)
    tail = jsonl.Tail(path)
    for _ in range(2):  # asked again, the same line is named
        with pytest.raises(LabError, match="Line 2"):
            tail.rows()


@pytest.mark.parametrize("change", [{"value": "fast"}, {"value": None}, {"bar": "x"}, {"date": 5}, {"unit": None}])
def test_a_row_that_is_no_record_is_named(folder, change):
    row = records.write("tiny.time_s", 0.1, "s", bar=1.0, command="x")
    with (folder / "tiny.time_s.jsonl").open("a") as file:
        file.write(json.dumps(row | change) + "\n{}\n")
    with pytest.raises(LabError, match=r"Row 2 of .*tiny\.time_s\.jsonl is not a record"):
        records.main([])


def test_bench_says_how_to_make_the_record_again(monkeypatch):
    monkeypatch.setattr(bench, "REGISTRY", {})

    @bench.bench("tiny")
    def tiny():
        records.write("tiny.time_s", 0.1, "s")

    @bench.bench("tiny", gpu=True)
    def tiny_gpu():
        raise AssertionError("no GPU was asked for")

    rows = bench.measure("tiny", gpu=False)
    assert [(r["id"], r["command"]) for r in rows] == [("tiny.time_s", "python -m lab bench tiny")]


def lab(*args, **env):
    return subprocess.run(
        [sys.executable, "-m", "lab", *args], capture_output=True, text=True, env={**os.environ, **env}
    )


def test_the_command_line_is_quick_and_speaks_in_sentences():
    assert "records" in lab("--help").stdout
    assert lab("nonsense").returncode == 2
    unknown = lab("bench", "nonsense")
    assert unknown.returncode == 1 and "no benchmark family 'nonsense'" in unknown.stderr
    assert "Traceback" not in unknown.stderr


def test_the_command_line_imports_nothing_heavy():
    code = "import sys, lab.__main__, lab.records, lab.exhibits; print('torch' in sys.modules, 'marimo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_records_as_json():
    rows = json.loads(lab("records", "--json").stdout)
    keys = {"id", "value", "unit", "bar", "holds", "hardware", "versions", "date", "command"}
    assert all(keys <= set(row) for row in rows)
    assert len({row["id"] for row in rows}) == len(rows)


def test_fetch_of_what_is_no_model_is_a_sentence():
    done = lab("fetch", "nonsense")
    assert done.returncode == 1 and "no model 'nonsense'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_its_module(command):
    done = lab(command, "--help")
    assert done.returncode == 0 and "usage: python -m lab" in done.stdout
