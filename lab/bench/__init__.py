"""Benchmarks: functions that measure and write records, one file per family.

    @bench("interp")
    def interp() -> None:
        records.write("interp.sweep_s.pocket", seconds, "s", bar=0.3)

`python -m lab bench` runs them, each family in its own process so that none inherits another's memory,
threads or environment.
"""

import argparse
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lab import records
from lab.errors import LabError

if TYPE_CHECKING:
    from lab.runs import Context


@dataclass(frozen=True)
class Bench:
    """One registered measurement."""

    family: str
    gpu: bool
    measure: Callable[[], None]


REGISTRY: dict[str, list[Bench]] = {}


def bench(family: str, gpu: bool = False) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a function that measures and writes records; a family may hold several."""

    def register(measure: Callable[[], None]) -> Callable[[], None]:
        REGISTRY.setdefault(family, []).append(Bench(family, gpu, measure))
        return measure

    return register


def discover() -> dict[str, list[Bench]]:
    """Import every file of this folder; a file whose imports fail is a bug and stays loud."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return REGISTRY


def measure(family: str, gpu: bool) -> list[dict]:
    """Run one family in this process and return the records it wrote."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    command = f"python -m lab bench {'--gpu ' if gpu else ''}{family}"
    token = records.command_now.set(command)
    try:
        for one in REGISTRY[family]:
            if gpu or not one.gpu:
                one.measure()
    finally:
        records.command_now.reset(token)
    return [row for row in records.newest() if row["date"] >= since and row["command"] == command]


def work(spec: dict[str, Any], ctx: "Context") -> None:
    """Run of kind "bench": measure `spec["family"]` with the hardware at hand, from a notebook's button."""
    import torch

    discover()
    for row in measure(spec["family"], gpu=torch.cuda.is_available()):
        ctx.log(0, **{row["id"]: row["value"]})


def main(argv: list[str]) -> int:
    """`python -m lab bench`."""
    parser = argparse.ArgumentParser(prog="python -m lab bench", description="Measure the records anew.")
    parser.add_argument("family", nargs="*", help="only these families (default: all)")
    parser.add_argument("--gpu", action="store_true", help="also what needs a GPU")
    parser.add_argument("--list", action="store_true", help="name the families and stop")
    args = parser.parse_args(argv)
    known = discover()
    if unknown := [name for name in args.family if name not in known]:
        raise LabError(f"There is no benchmark family {unknown[0]!r}; there are: {', '.join(sorted(known))}.")
    if args.list:
        for name in sorted(known):
            print(name + (" (GPU)" if all(one.gpu for one in known[name]) else ""))
        return 0
    if args.gpu:
        _need_gpu()
    chosen = args.family or sorted(known)
    chosen = [name for name in chosen if args.gpu or not all(one.gpu for one in known[name])]
    if not chosen:
        raise LabError("These benchmarks need a GPU: add --gpu on a machine that has one.")
    if len(chosen) == 1:
        print(records.table(measure(chosen[0], args.gpu)), flush=True)
        return 0
    failed = []
    for name in chosen:
        print(f"== {name}", flush=True)
        flags = ["--gpu"] if args.gpu else []
        if subprocess.run([sys.executable, "-m", "lab", "bench", *flags, name]).returncode:
            failed.append(name)
    if failed:
        raise LabError(f"These families did not finish: {', '.join(failed)}; their output above says why.")
    return 0


def _need_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise LabError("There is no CUDA GPU here: leave --gpu out, or run this on a machine that has one.")
