"""`python -m lab runs`: what a terminal can do with runs."""

import argparse
import json
import time
from contextlib import suppress
from typing import Any

from lab import jsonl, runs
from lab.errors import LabError
from lab.records import figure
from lab.runs.run import Run
from lab.text import columns


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    return args.do(args) or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab runs", description="Runs: work in processes of their own."
    )
    parser.set_defaults(do=_list, json=False)
    commands = parser.add_subparsers(metavar="command")

    def command(name: str, do: Any, help: str, many: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        if do is not _list:
            what = "an id, the beginning of one, or `last`"
            sub.add_argument("ids" if many else "id", nargs="+" if many else None, help=what)
        sub.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="for programs")
        sub.set_defaults(do=do)
        return sub

    parser.add_argument("--json", action="store_true", help="for programs")
    command("list", _list, "every run, newest first (the default)")
    command("show", _show, "one run: state, spec, last numbers, checkpoints, end of its log")
    sub = command("cancel", _cancel, "ask runs to stop, and end those that do not", many=True)
    sub.add_argument("--wait", type=float, default=15.0, help="seconds before force (default 15)")
    command("resume", _resume, "go on from the newest checkpoint", many=True)
    command(
        "compare",
        _compare,
        "runs side by side: what differs in their specs, last and best numbers",
        many=True,
    )
    command("delete", _delete, "remove runs that are not running", many=True)
    return parser


def find(word: str) -> Run:
    """The run with this id, the one id that begins with it, or the newest for "last"."""
    every = runs.listed()
    if word == "last" and every:
        return every[0]
    hits = [run for run in every if run.id.startswith(word)]
    if len(hits) > 1 and word not in (exact := [run.id for run in hits]):
        raise LabError(f"{word!r} fits {len(hits)} runs ({', '.join(exact[:4])}...): give more of the id.")
    return next((run for run in hits if run.id == word), None) or (hits[0] if hits else runs.get(word))


def summary(run: Run) -> dict[str, Any]:
    """What the list shows of a run; a damaged one shows its sentence."""
    row: dict[str, Any] = {
        "id": run.id,
        "name": None,
        "kind": None,
        "state": run.state,
        "step": None,
        "last": {},
        "created": None,
        "seconds": None,
        "error": run.error,
    }
    try:
        row |= {"name": run.name, "kind": run.kind, "created": run.created}
        status, rows = run.status, run.metrics()
        end = status.get("ended") or (rows[-1].get("time", 0) if rows and not run.live else time.time())
        row |= {"last": last(rows), "seconds": round(max(0.0, end - status["started"]), 1)}
        row["step"] = max((r["step"] for r in rows if isinstance(r.get("step"), int)), default=None)
    except LabError as error:
        row["error"] = row["error"] or str(error)
    return row


def last(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The last value of every number that was logged."""
    found: dict[str, float] = {}
    for row in rows:
        found |= {k: v for k, v in row.items() if isinstance(v, (int, float)) and k not in ("step", "time")}
    return found


def _print(value: Any) -> None:
    print(json.dumps(jsonl.finite(value), indent=1, ensure_ascii=False, allow_nan=False, default=str))


def _list(args: argparse.Namespace) -> None:
    rows = [summary(run) for run in runs.listed()]
    if args.json:
        _print(rows)
        return
    if not rows:
        print("No runs yet.")
        return
    cells = []
    for row in rows:
        shown = [f"{key} {figure(row['last'][key])}" for key in _headline(row["last"])]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"])) if row["created"] else ""
        step = "" if row["step"] is None else f"{row['step']:,}"
        cells.append(
            [row["id"], row["state"], step, when, _span(row["seconds"]), row["error"] or ", ".join(shown)]
        )
    print(columns(["run", "state", "step", "started", "ran", "last"], cells, right={2, 4}))


def _headline(last: dict[str, float]) -> list[str]:
    """Loss and recall first: the numbers most runs are about."""
    return sorted(last, key=lambda key: ("loss" not in key, "recall" not in key, key))[:3]


def _span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def _show(args: argparse.Namespace) -> None:
    run = find(args.id)
    row = summary(run)
    if args.json:
        try:
            spec = run.spec
        except LabError:
            spec = None
        steps = [checkpoint.step for checkpoint in run.checkpoints()]
        _print(row | {"path": str(run.path), "spec": spec, "checkpoints": steps})
        return
    print(f"{run.id}  {row['state']}  {_span(row['seconds'])}\n{run.path}")
    if row["error"]:
        print(row["error"])
    with suppress(LabError):  # said above
        print("\nspec  " + json.dumps(run.spec, ensure_ascii=False))
    if row["last"]:
        print(f"\nlast, at step {row['step']}")
        print("\n".join(f"  {key:<20}{figure(value)}" for key, value in sorted(row["last"].items())))
    named = [f"{checkpoint.step:,}" for checkpoint in run.checkpoints()]
    print("\ncheckpoints  " + (", ".join(named) or "none"))
    if log := run.log().splitlines()[-10:]:
        print("\nend of the log\n  " + "\n  ".join(log))


def _cancel(args: argparse.Namespace) -> None:
    for run in map(find, args.ids):
        run.cancel(wait=args.wait)
        print(f"{run.id} {run.state}")


def _resume(args: argparse.Namespace) -> None:
    for run in map(find, args.ids):
        steps = [checkpoint.step for checkpoint in run.checkpoints()]
        run.resume()
        print(f"{run.id} goes on from " + (f"step {steps[-1]}" if steps else "the start"))


def _delete(args: argparse.Namespace) -> None:
    for run in [find(word) for word in args.ids]:
        run.delete()
        print(f"{run.id} deleted")


def compare(chosen: list[Run]) -> dict[str, dict[str, list[Any]]]:
    """Runs side by side: settings that differ, last value of each number, lowest of each loss."""
    specs, tables = [run.spec for run in chosen], [run.metrics() for run in chosen]
    settings = {key: [spec.get(key) for spec in specs] for key in dict.fromkeys(k for s in specs for k in s)}
    numbers = [last(rows) for rows in tables]
    names = sorted({key for found in numbers for key in found})
    losses = [key for key in names if "loss" in key]
    return {
        "settings": {k: v for k, v in settings.items() if any(one != v[0] for one in v)},
        "last": {key: [found.get(key) for found in numbers] for key in names},
        "lowest": {
            key: [min((v for row in rows if isinstance(v := row.get(key), int | float)), default=None) for rows in tables]
            for key in losses
        },
    }


def _compare(args: argparse.Namespace) -> None:
    chosen = [find(word) for word in args.ids]
    parts = compare(chosen)
    if args.json:
        _print({"ids": [run.id for run in chosen], **parts})
        return

    def show(value: Any) -> str:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "" if value is None else figure(value) if number else str(value)

    rows = [
        [part if i == 0 else "", key, *map(show, values)]
        for part, lines in parts.items()
        for i, (key, values) in enumerate(lines.items())
    ]
    print(columns(["", "", *(run.id for run in chosen)], rows, right=range(2, 2 + len(chosen))))
