"""Exhibits: the plan, what notebooks declare, and an honest status for each row."""

import json
import subprocess
import sys

import pytest

from lab import exhibits, paths, records

NOTEBOOK = '"""A question.\n\nexhibits: R9, R9b\nrecords: interp.a,\n    interp.b\n"""\n\nimport marimo\n'


@pytest.fixture
def house(tmp_path, monkeypatch):
    for name, folder in (
        ("ROOT", ""),
        ("DATA", "data"),
        ("RECORDS", "data/records"),
        ("NOTEBOOKS", "notebooks"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        monkeypatch.setattr(paths, name, tmp_path / folder)
    row = {"station": "interp", "title": "t", "measures": "m", "records": []}
    (tmp_path / "data/exhibits.json").write_text(json.dumps([{"id": i, **row} for i in ("R9", "R9b", "L6")]))
    (tmp_path / "notebooks/interp").mkdir()
    (tmp_path / "notebooks/interp/patching.py").write_text(NOTEBOOK)
    return tmp_path


def test_a_docstring_declares(house):
    says = exhibits.declared(house / "notebooks/interp/patching.py")
    assert says == {"exhibits": ["R9", "R9b"], "records": ["interp.a", "interp.b"]}


def test_status_follows_the_records(house):
    def status():
        return [row["status"] for row in exhibits.listed()]

    assert status() == ["not measured", "not measured", "missing"]
    records.write("interp.a", 1.0, "s", bar=2.0, command="x")
    assert status() == ["partly", "partly", "missing"]
    records.write("interp.b", 1.0, "s", bar=2.0, command="x")
    assert status() == ["works", "works", "missing"]
    records.write("interp.b", 3.0, "s", bar=2.0, command="x")
    assert status() == ["below its bar", "below its bar", "missing"]
    row = exhibits.listed()[0]
    assert row["lacks"] is None
    assert row["notebook"] == "notebooks/interp/patching.py"
    assert [r["id"] for r in row["records"]] == ["interp.a", "interp.b"]


def test_the_plan_of_this_repository():
    done = subprocess.run([sys.executable, "-m", "lab", "exhibits", "--json"], capture_output=True, text=True)
    rows = json.loads(done.stdout)
    assert len(rows) == len({row["id"] for row in rows}) == 51
    assert all({"id", "notebook", "records", "status"} <= set(row) for row in rows)
    known = {row["id"] for row in rows}
    for path in paths.NOTEBOOKS.rglob("*.py"):
        assert set(exhibits.declared(path)["exhibits"]) <= known, f"{path} declares an exhibit the plan lacks"


def test_a_row_in_part_says_what_it_lacks(house):
    row = {"station": "interp", "title": "t", "measures": "m", "records": ["interp.a"], "lacks": "SAEs"}
    (house / "data/exhibits.json").write_text(json.dumps([{"id": "R9", **row}]))
    records.write("interp.a", 1.0, "s", bar=2.0, command="x")
    assert [(r["status"], r["lacks"]) for r in exhibits.listed()] == [("partly", "SAEs")]
