"""What the front page shows: stations, notebooks, runs with their curves, models, hardware, the plan."""

import json
import threading
import time
from typing import Any

from lab import catalog, exhibits, paths, records, runs
from lab.errors import LabError
from widgets import shell

HEAD = paths.ROOT / "build" / "front.html"
SHOWN_RUNS = 5
CURVE_POINTS = 120
_KIND_STATION = {"train": "train", "eval": "evals", "profile": "kernels", "bench": "kernels"}

_curves: dict[str, tuple[int, dict[str, Any]]] = {}
_lock = threading.Lock()


def hardware() -> dict[str, Any]:
    """Cores and GPU, found without waking either."""
    line = records.hardware()
    return {"cores": records.cores(), "gpu": line.rpartition("; ")[0], "line": line}


def _curve(run: runs.Run) -> dict[str, Any]:
    """Loss, or the share right, or the first figure logged, against step, thinned, and the newest row; cached by the file's size."""
    file = run.path / "metrics.jsonl"
    size = file.stat().st_size if file.exists() else 0
    with _lock:
        known = _curves.get(run.id)
    if known and known[0] == size:
        return known[1]
    rows = run.metrics()
    logged = {k for row in rows for k in row}
    numbers = [k for row in rows[-1:] for k, v in row.items() if isinstance(v, int | float)]
    preferred = (k for k in ("loss", "share", *numbers) if k in logged - {"step", "time"})
    key = next(preferred, "")
    points = [
        (row["step"], row[key])
        for row in rows
        if "step" in row and isinstance(row.get(key), int | float)
    ]
    every = max(1, len(points) // CURVE_POINTS)
    thin = points[::every] + (points[-1:] if len(points) % every != 1 and every > 1 else [])
    last = rows[-1] if rows else {}
    found = {
        "metric": key or None,
        "points": [[s, round(float(v), 5)] for s, v in thin],
        "value": points[-1][1] if points else None,
        "step": last.get("step"),
        "tokens_per_s": next((row["tokens_per_s"] for row in reversed(rows) if "tokens_per_s" in row), None),
    }
    with _lock:
        _curves[run.id] = (size, found)
    return found


def recent_runs() -> list[dict[str, Any]]:
    """The newest runs, each with its state and curve."""
    shown = []
    for run in runs.listed()[:SHOWN_RUNS]:
        try:
            changed = run.path.stat().st_mtime
        except FileNotFoundError:  # deleted since it was listed
            continue
        # of a directory edited by hand what can be read is shown, and `error` says what is wrong
        told: dict[str, Any] = {"name": run.id, "kind": "", "when": changed, "steps": None}
        curve: dict[str, Any] = {
            "metric": None,
            "points": [],
            "value": None,
            "step": None,
            "tokens_per_s": None,
        }
        error = run.error
        try:
            told = {
                "name": run.name,
                "kind": run.kind,
                "steps": run.spec.get("steps"),
                "when": run.status.get("ended") or run.created,
            }
            curve = _curve(run)
        except LabError as damage:
            error = error or str(damage)
        station = _KIND_STATION.get(told["kind"], "research")
        shown.append({"id": run.id, **told, "state": run.state, "error": error, "station": station, **curve})
    return shown


def models() -> list[dict[str, Any]]:
    """Models at hand (brings torch: call it in the process that serves the notebooks)."""
    import lab.models

    return [
        {
            "name": m.name, "title": m.title, "params": m.n_params, "layers": m.n_layers, "width": m.d_model,
            "where": m.where, "ready": m.ready,
        }
        for m in lab.models.available()
    ]  # fmt: skip


def plan() -> list[dict[str, Any]]:
    """Every exhibit with its station, title, notebook and status."""
    keep = ("id", "station", "title", "measures", "notebook", "status")
    return [{key: row[key] for key in keep} for row in exhibits.listed()]


def still() -> dict[str, Any]:
    """Everything that changes seldom."""
    return {
        "stations": [{"id": i, "title": t, "about": a} for i, t, a in catalog.STATIONS],
        "notebooks": catalog.listed(), "exhibits": plan(), "hardware": hardware(),
    }  # fmt: skip


def head(data: dict[str, Any]) -> str:
    """The shell for the head of the front page: it paints the page as last seen before marimo has loaded.

    The widget finds it there and goes on with live data."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<style id="looplab-style">{shell.style()}</style>'
        f"<script>(() => {{\n{shell.code()}\nlooplab({text});\n}})()</script>"
    )


def write_head() -> None:
    """Keep the page as it looks now for the next visit (`build/front.html`, which app.py names).

    A folder that cannot be written costs the early paint and nothing else."""
    text = head({**still(), "runs": recent_runs()})
    try:
        if HEAD.exists() and HEAD.read_text("utf-8") == text:
            return
        HEAD.parent.mkdir(exist_ok=True)
        aside = HEAD.with_name(f".front-{time.time_ns()}.html")
        aside.write_text(text, "utf-8")
        aside.replace(HEAD)
    except OSError:
        return


if __name__ == "__main__":  # `make app` does this, so that the first visit paints early too
    write_head()
