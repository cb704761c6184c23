"""Every notebook: its grammar, what it declares, and a headless run from its first cell to its last."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import marimo
import pytest

from lab import catalog, exhibits, paths

NOTEBOOKS = sorted(paths.NOTEBOOKS.rglob("*.py"))
FIRST_CUT = {"interp/patching", "train/first_run", "kernels/first_kernel", "inference/prefill_decode", "evals/facts"}


def name(notebook: Path) -> str:
    return notebook.relative_to(paths.NOTEBOOKS).with_suffix("").as_posix()


each = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)


def run(notebook: Path) -> list[Any]:
    """What the cells show, in order; whatever a cell raises is raised here."""
    spec = importlib.util.spec_from_file_location(f"notebook_{notebook.stem}", notebook)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, _ = module.app.run()
    return list(outputs)


def problems(outputs: list[Any]) -> list[str]:
    """The callouts in which a notebook says that something went wrong."""
    shown = [marimo.as_html(output).text for output in outputs if output is not None]
    return [html for html in shown if 'data-kind="bad"' in html]


def test_the_first_cut_is_there() -> None:
    assert {name(n) for n in NOTEBOOKS} >= FIRST_CUT


def test_grammar() -> None:
    files = [str(paths.ROOT / "app.py"), *map(str, NOTEBOOKS)]
    command = [sys.executable, "-m", "marimo", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=paths.ROOT, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


@each
def test_declares_itself(notebook: Path) -> None:
    says = catalog.read(notebook, paths.NOTEBOOKS)
    assert says.title and says.question, "the docstring's first line is the title, its next paragraph the question"
    known = {row["id"] for row in exhibits.plan()}
    declared = exhibits.declared(notebook)["exhibits"]
    assert set(declared) <= known
    assert notebook.parent.name in catalog.TITLES


@each
def test_runs_headless(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(notebook), "--model", "pocket"])
    began = time.process_time()
    outputs = run(notebook)
    assert problems(outputs) == []
    assert sum(output is not None for output in outputs) >= 3, "a notebook shows a result before anything is clicked"
    assert time.process_time() - began < 60, "processor seconds: a shared page is made from such a run"


BROKEN = """
import marimo
app = marimo.App()

@app.cell
def _():
    from lab import page
    from lab.errors import LabError
    return LabError, page

@app.cell
def _(LabError, page):
    def fail():
        raise LabError("the prompt is <empty>")
    {body}
    return
"""


def test_a_run_fails_with_its_cell(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN.replace("{body}", "1 / 0"))
    with pytest.raises(ZeroDivisionError):
        run(file)


def test_a_callout_of_an_error_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "guarded.py"
    file.write_text(BROKEN.replace("{body}", "page.guard(fail)"))
    assert "the prompt is &lt;empty&gt;" in problems(run(file))[0]
