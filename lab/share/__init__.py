"""Share the lab as files: one self-contained HTML page per notebook, and an index.

    from lab import share
    path = share.export("notebooks/interp/patching.py", "patching.html", model="smollm2-135m")

A page opens from disk with the network off. What carries its data (widgets, plots, tables) stays explorable;
what computes rests at the values it had when it was exported. The notebook runs in a process of its own.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

from lab import catalog, paths
from lab.errors import LabError
from lab.page.models import CHOSEN
from lab.share.index import Entry, render
from lab.share.offline import inline

TIMEOUT_S = 600


def about(notebook: Path) -> catalog.Notebook:
    """The notebook's entry in the catalog, wherever its file lies; a `LabError` when it is not Python."""
    try:
        compile(notebook.read_text("utf-8"), notebook.name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        raise LabError(f"{notebook} is not a notebook that can be read: name a .py file under notebooks/.") from None
    return catalog.read(notebook, notebook.parent.parent)


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
    title = about(notebook).title
    tell = progress or (lambda done, text: None)
    tell(0.05, "running the notebook")
    html, models = _run(notebook, model)
    tell(0.85, "packing it into one file")
    page = inline(html, f"{title} · looplab", note(models))
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


def note(models: Sequence[str]) -> str:
    """The line at the top of a shared page: where it came from, when, with which models, and what works in it."""
    using = f" with {' and '.join(models)}" if models else ""
    return (
        f"Exported from the lab on {datetime.now(UTC):%-d %B %Y}{using}. "
        "Maps, plots and tables can be explored here; controls that compute need the lab itself."
    )


def _run(notebook: Path, model: str | None) -> tuple[str, list[str]]:
    """What `marimo export html` makes of the notebook, and the models it loaded."""
    with tempfile.TemporaryDirectory() as folder:
        out, chosen = Path(folder) / "page.html", Path(folder) / "chosen"
        command = [sys.executable, "-m", "marimo", "export", "html", str(notebook), "-o", str(out)]
        command += ["-f", "--no-include-code", "--no-sandbox"]
        if model:
            command += ["--", "--model", model]
        path = os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, CHOSEN: str(chosen)}
        try:
            done = subprocess.run(
                command, cwd=paths.ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"{notebook.name} did not finish in {TIMEOUT_S // 60} minutes: make its first result lighter.") from None
        if done.returncode:
            raise LabError(f"{notebook.name} cannot be shared: {_reason(done.stderr)}")
        html = out.read_text("utf-8")
        if sentence := shown_problem(html):
            raise LabError(f"{notebook.name} cannot be shared: {sentence}")
        return html, list(dict.fromkeys(chosen.read_text().splitlines())) if chosen.exists() else []


def shown_problem(html: str) -> str | None:
    """The sentence of the first error callout in an exported page (`lab.page.guard` stops a cell with one)."""
    found = re.search(r'role=\\"alert\\" data-kind=\\"bad\\".*?\\u003E(.*?)\\u003C', html)
    return unescape(json.loads(f'"{found[1]}"')) if found else None


def _reason(stderr: str) -> str:
    """The first error of a failed export; later cells only say that an earlier one failed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for line in lines:
        if found := re.match(r"Marimo\w*Error: (.*)", line):
            return f"a cell failed with: {found[1].rstrip('.')}."
    return re.sub(r"^[\w.]+: ", "", lines[-1]) if lines else "marimo gave no reason."


def main(argv: list[str]) -> int:
    """`python -m lab share`: pages of all notebooks, or of those named, and an index of them."""
    parser = argparse.ArgumentParser(prog="python -m lab share", description="Write the lab as offline HTML files.")
    parser.add_argument("notebook", nargs="*", type=Path, help="files under notebooks/ (default: all)")
    parser.add_argument("--model", default="pocket", help="the model to use in every notebook (default: pocket)")
    parser.add_argument("--to", type=Path, default=paths.ROOT / "share", help="folder to write to (default: share/)")
    args = parser.parse_args(argv)
    notebooks = args.notebook or [paths.NOTEBOOKS / f"{n.path}.py" for n in catalog.notebooks()]
    failed: list[str] = []
    entries: list[Entry] = []
    for notebook in map(Path.resolve, notebooks):
        name = f"{notebook.parent.name}-{notebook.stem}.html"
        print(f"{notebook.stem:<20}", end=" ", flush=True)
        try:
            page = export(notebook, args.to / name, args.model)
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
