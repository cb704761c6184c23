"""Measurements: every number the lab claims, with what is needed to believe it and to make it again.

A record is a row of `data/records/<id>.jsonl`. Where a figure has several cases, the case is a suffix of the
id (`infer.decode.bandwidth_fraction.int8`) and the id without suffix holds the worst of them.
"""

import argparse
import functools
import json
import math
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from lab import jsonl, paths
from lab.errors import LabError
from lab.text import columns

Better = Literal["lower", "higher"]

#: The command that makes the running measurement again; `lab.bench` sets it.
command_now: ContextVar[str | None] = ContextVar("command_now", default=None)

_ID = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_\-]+)*")
_PACKAGES = ("torch", "triton", "transformers", "transformer-lens", "marimo")


def write(
    id: str,
    value: float,
    unit: str,
    bar: float | None = None,
    better: Better = "lower",
    compared: str | None = None,
    command: str | None = None,
    note: str | None = None,
    detail: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Store one measurement and return its row.

    `bar` is the figure it must reach, `compared` says with what it is compared, `command` is what makes it
    again (a benchmark run by `python -m lab bench` need not say). The value must be a finite number.
    """
    command = command or command_now.get()
    if not _ID.fullmatch(id):
        raise ValueError(f"record id {id!r}: lower-case words joined by dots")
    if not math.isfinite(value):
        raise ValueError(f"record {id}: {value} is not a measurement")
    if command is None:
        raise ValueError(f"record {id}: say which command makes it again")
    row = {
        "id": id,
        "value": float(value),
        "unit": unit,
        "bar": bar,
        "better": better,
        "holds": holds(value, bar, better),
        "compared": compared,
        "hardware": hardware(),
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "note": note,
        "detail": detail,
    }
    paths.RECORDS.mkdir(parents=True, exist_ok=True)
    appender = jsonl.Appender(paths.RECORDS / f"{id}.jsonl")
    try:
        appender.append(row)
        appender.sync()
    finally:
        appender.close()
    return row


def write_cases(
    id: str,
    cases: Mapping[str, float],
    unit: str,
    bar: float | Mapping[str, float] | None = None,
    better: Better = "lower",
    details: Mapping[str, dict[str, Any]] | None = None,
    **rest: Any,
) -> dict[str, Any]:
    """Store a figure measured in several cases: one record a case, and the worst under the plain id.

    With a bar for each case the worst is the one furthest beyond its own bar, as a ratio.
    """
    if not cases:
        raise ValueError(f"record {id}: no cases")
    bars = {case: bar.get(case) if isinstance(bar, Mapping) else bar for case in cases}
    details = details or {}
    for case, value in cases.items():
        write(f"{id}.{case}", value, unit, bars[case], better, detail=details.get(case), **rest)

    def badness(case: str) -> float:
        limit = bars[case] if isinstance(bar, Mapping) and bars[case] else 1.0
        return (cases[case] / limit) * (1 if better == "lower" else -1)  # type: ignore[operator]

    worst = max(cases, key=badness)
    detail = {"case": worst, "cases": dict(cases)}
    return write(id, cases[worst], unit, bars[worst], better, detail=detail, **rest)


def holds(value: float, bar: float | None, better: Better) -> bool | None:
    """Whether the value reaches its bar; None when it has none."""
    if bar is None:
        return None
    return value <= bar if better == "lower" else value >= bar


def read(id: str) -> dict[str, Any]:
    """The newest record of this id; LabError when it was never measured."""
    rows = jsonl.read(paths.RECORDS / f"{id}.jsonl")
    if not rows:
        raise LabError(f"There is no record {id!r}; `python -m lab records` lists those there are.")
    for number, row in enumerate(rows, 1):
        figures = (row.get("value"), 0.0 if row.get("bar") is None else row["bar"])
        words = [row.get(key) for key in ("id", "unit", "better", "date", "hardware")]
        if not all(isinstance(n, int | float) for n in figures) or not all(isinstance(w, str) for w in words):
            raise LabError(f"Row {number} of {paths.RECORDS / f'{id}.jsonl'} is not a record; mend or remove it.")
    return max(reversed(rows), key=lambda row: row["date"])  # of two in one second, the later line


def newest() -> list[dict[str, Any]]:
    """The newest record of every id, by id."""
    return [read(path.stem) for path in sorted(paths.RECORDS.glob("*.jsonl")) if path.stat().st_size]


@functools.cache
def hardware() -> str:
    """This machine in one line: processor, cores, memory, and the GPU where there is one."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    line = f"{processor()}, {cores()} cores, {memory:.0f} GiB"
    return f"{gpu}; {line}" if (gpu := _gpu()) else line


def processor() -> str:
    """The processor's name as its maker gives it."""
    if platform.system() == "Darwin":
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return done.stdout.strip() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open() as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu() -> str | None:
    """The GPUs' name through the driver's own tool, so that listing records need not import torch."""
    if not shutil.which("nvidia-smi"):
        return None
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(ask, capture_output=True, text=True, timeout=30)
    names = [name.strip() for name in done.stdout.splitlines() if name.strip()]
    if done.returncode or not names:
        return None
    return names[0] if len(names) == 1 else f"{len(names)} x {names[0]}"


@functools.cache
def versions() -> dict[str, str]:
    """Python and the packages that decide how fast and how exact things are."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def figure(value: float) -> str:
    """A number for people: four significant digits, thousands grouped."""
    if value == 0:
        return "0"
    if abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.2e}" if abs(value) < 1e-3 else f"{value:.4g}"


def table(rows: list[dict[str, Any]]) -> str:
    """Records as a table for people."""
    sign = {"lower": "<=", "higher": ">="}
    word = {True: "holds", False: "FAILS", None: ""}
    cells = [
        [
            row["id"],
            figure(row["value"]),
            row["unit"],
            f"{sign[row['better']]} {figure(row['bar'])}" if row["bar"] is not None else "",
            word[row["holds"]],
            row["date"][:10],
            row["hardware"],
        ]
        for row in rows
    ]
    return columns(["record", "value", "unit", "bar", "", "date", "hardware"], cells, right={1, 3})


def main(argv: list[str]) -> int:
    """`python -m lab records`."""
    parser = argparse.ArgumentParser(prog="python -m lab records", description="Measurements, newest per id.")
    parser.add_argument("--json", action="store_true", help="a list of objects for programs")
    parser.add_argument("prefix", nargs="?", default="", help="only ids that start with this")
    args = parser.parse_args(argv)
    rows = [row for row in newest() if row["id"].startswith(args.prefix)]
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        print(table(rows))
    else:
        print("Nothing measured yet: `python -m lab bench` measures.")
    return 0
