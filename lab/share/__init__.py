"""Share the lab as files: one self-contained HTML page per notebook, and an index.

    from lab import share
    path = share.export("notebooks/interp/patching.py", "patching.html", model="smollm2-135m")

A page opens from disk with the network off. What carries its data (widgets, plots, tables) stays explorable;
what computes rests at the values it had when it was exported. The notebook runs in a process of its own.
"""

import argparse
import ast
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from lab import catalog, paths
from lab.errors import LabError
from lab.share.index import Entry, render
from lab.share.offline import inline

TIMEOUT_S = 600


def about(notebook: Path) -> catalog.Notebook:
    """The notebook's entry in the catalog, wherever its file lies."""
    return catalog.read(notebook, notebook.parent.parent)


def default_model(notebook: Path) -> str | None:
    """The model its `page.model_picker(mo, default=...)` starts with; None without a picker."""
    try:
        tree = ast.parse(notebook.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        raise LabError(f"{notebook} is not a notebook that can be read: name a .py file under notebooks/.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "model_picker":
            given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "default")]
            return ast.literal_eval(given[0]) if given else "pocket"
    return None


def export(
    notebook: str | Path,
    dest: str | Path,
    model: str | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Path:
    """Run `notebook` in a child process and write it to `dest` as one offline page; returns `dest`.

    `model` (any name `lab.models.load` takes) replaces the model the notebook starts with. `progress` is told
    the share done and what is being done. A cell that fails is a `LabError` that carries its error.
    """
    notebook, dest = Path(notebook).resolve(), Path(dest)
    used = model or default_model(notebook)
    tell = progress or (lambda done, text: None)
    tell(0.05, "running the notebook")
    html = _run(notebook, model)
    tell(0.85, "packing it into one file")
    page = inline(html, f"{about(notebook).title} · looplab", note(used))
    _write(dest, page)
    tell(1.0, "done")
    return dest


def _write(dest: Path, page: str) -> None:
    """Write aside and rename into place, so that a page is whole or absent."""
    aside = dest.with_name(f".{dest.name}.{os.getpid()}.part")
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(page, "utf-8")
        aside.replace(dest)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise LabError(f"{dest} cannot be written ({error.strerror}): choose another folder or free some space.") from error


def note(model: str | None, date: datetime | None = None) -> str:
    """The line at the top of a shared page: where it came from, when, with which model, and what works in it."""
    day = (date or datetime.now(UTC)).strftime("%-d %B %Y")
    return (
        f"Exported from the lab on {day}{f' with {model}' if model else ''}. "
        "Maps, plots and tables can be explored here; controls that compute need the lab itself."
    )


def _run(notebook: Path, model: str | None) -> str:
    """What `marimo export html` makes of the notebook."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "page.html"
        command = [sys.executable, "-m", "marimo", "export", "html", str(notebook), "-o", str(out)]
        command += ["-f", "--no-include-code", "--no-sandbox"]
        if model:
            command += ["--", "--model", model]
        path = os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")]))
        try:
            done = subprocess.run(
                command, cwd=paths.ROOT, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"{notebook.name} did not finish in {TIMEOUT_S // 60} minutes: make its first result lighter.") from None
        if done.returncode:
            raise LabError(f"{notebook.name} cannot be shared: {_reason(done.stderr)}")
        return out.read_text("utf-8")


def _reason(stderr: str) -> str:
    """The first error of a failed export; later cells only say that an earlier one failed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for line in lines:
        if found := re.match(r"Marimo\w*Error: (.*)", line):
            return f"a cell failed with: {found[1].rstrip('.')}."
    return lines[-1] if lines else "marimo gave no reason."


def main(argv: list[str]) -> int:
    """`python -m lab share`: pages of all notebooks, or of those named, and an index of them."""
    parser = argparse.ArgumentParser(prog="python -m lab share", description="Write the lab as offline HTML files.")
    parser.add_argument("notebook", nargs="*", type=Path, help="files under notebooks/ (default: all)")
    parser.add_argument("--model", help="the model to use in every notebook (default: each one's own)")
    parser.add_argument("--to", type=Path, default=paths.ROOT / "share", help="folder to write to (default: share/)")
    args = parser.parse_args(argv)
    notebooks = args.notebook or [paths.NOTEBOOKS / f"{n.path}.py" for n in catalog.notebooks()]
    failed: list[str] = []
    entries: list[Entry] = []
    for notebook in map(Path.resolve, notebooks):
        name = f"{notebook.parent.name}-{notebook.stem}.html"
        print(f"{notebook.stem:<20}", end=" ", flush=True)
        try:
            picks = default_model(notebook) is not None
            page = export(notebook, args.to / name, args.model if picks else None)
        except LabError as error:
            print("failed", flush=True)
            failed.append(str(error))
            continue
        print(f"{page.stat().st_size / 1e6:5.1f} MB  {page}", flush=True)
        entries.append(Entry(name, page.stat().st_size, about(notebook)))
    if entries:
        index = args.to / "index.html"
        index.write_text(render(entries, datetime.now(UTC)))
        print(f"{'index':<20} {index}")
    for sentence in failed:
        print(sentence, file=sys.stderr)
    return 1 if failed else 0
