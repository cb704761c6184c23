"""What is here, and its two ceilings: arithmetic (FLOP/s) and memory traffic (bytes/s).

A CPU is measured (a matrix product and a copy, about half a second, kept in the user's cache); a GPU is
looked up in its maker's data sheet, and measured by `python -m lab bench --gpu kernels`.
"""

import functools
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lab import paths

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Ceiling:
    """Peak rates of one device: dense FLOP/s by dtype name, bytes/s read plus written, and their source."""

    name: str
    flops: dict[str, float]
    bandwidth: float
    source: str

    def flops_per_s(self, dtype: "torch.dtype | str") -> float:
        """Peak for a dtype; one the device has no figure for runs at float32's."""
        return self.flops.get(str(dtype).removeprefix("torch."), self.flops["float32"])

    def ridge(self, dtype: "torch.dtype | str") -> float:
        """FLOPs per byte at which arithmetic becomes the limit."""
        return self.flops_per_s(dtype) / self.bandwidth


def _card(half: float, single: float, bandwidth: float, source: str) -> tuple[dict[str, float], float, str]:
    flops = {"bfloat16": half * 1e12, "float16": half * 1e12, "float32": single * 1e12}
    return flops, bandwidth * 1e12, source


# Data-sheet peaks: dense bf16 on the matrix units (TFLOP/s), float32 on the vector units (TFLOP/s), TB/s.
# Matched by the first name that is a word of what the driver calls the card, so longer names come first; a GH200
# or GB200 is another card than an H200 or B200, and is measured.
GPUS = {
    "B200": _card(2250, 75, 8.0, "NVIDIA DGX B200 data sheet"),
    "H200": _card(989.5, 67, 4.8, "NVIDIA H200 data sheet"),
    "H100 PCIe": _card(756, 51, 2.0, "NVIDIA H100 data sheet"),
    "H100 NVL": _card(835.5, 60, 3.9, "NVIDIA H100 data sheet"),
    "H100": _card(989.5, 67, 3.35, "NVIDIA H100 data sheet"),
    "A100-SXM4-40GB": _card(312, 19.5, 1.555, "NVIDIA A100 40 GB data sheet"),
    "A100-PCIE-40GB": _card(312, 19.5, 1.555, "NVIDIA A100 40 GB data sheet"),
    "A100": _card(312, 19.5, 2.039, "NVIDIA A100 80 GB data sheet"),
    "L40S": _card(362, 91.6, 0.864, "NVIDIA L40S data sheet"),
    "RTX 5090": _card(209.5, 104.8, 1.792, "NVIDIA RTX Blackwell architecture paper"),
    "RTX 4090": _card(165.2, 82.6, 1.008, "NVIDIA Ada architecture paper"),
    "MI300X": _card(1307.4, 163.4, 5.3, "AMD Instinct MI300X data sheet"),
}


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int  # those this process may use
    memory: int  # bytes
    gpus: tuple[str, ...]

    def line(self) -> str:
        here = f"{self.cpu}, {self.cores} cores, {self.memory / 2**30:.0f} GiB"
        return f"{', '.join(self.gpus)}; {here}" if self.gpus else here


@functools.cache
def machine() -> Machine:
    """This machine, seen without waking a GPU."""
    import torch

    from lab import records

    gpus = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(records.processor(), records.cores(), memory, gpus)


def data_sheet(name: str) -> Ceiling | None:
    """Ceilings of a card by what its driver calls it, or None for one not in the table."""
    for known, (flops, bandwidth, source) in GPUS.items():
        if re.search(rf"\b{known}\b", name):
            return Ceiling(name, flops, bandwidth, source)
    return None


def ceiling(device: str = "cpu") -> Ceiling:
    """The ceilings of "cpu" or "cuda"; a GPU missing from the table is measured like a CPU.

    One tab measures and the others wait: two measurements at once would each halve the other.
    """
    with _one_at_a_time:
        return _ceiling(device)


_one_at_a_time = threading.Lock()


@functools.cache
def _ceiling(device: str) -> Ceiling:
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else machine().cpu
    if device.startswith("cuda") and (sheet := data_sheet(name)):
        return sheet
    kept = paths.cache() / "ceilings.json"
    key = f"{name}, {machine().cores} cores, torch {torch.__version__}"
    try:
        known_here = json.loads(kept.read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # a cache: what cannot be read is measured again
        known_here = {}
    if key not in known_here:
        busy = os.getloadavg()[0] > machine().cores
        measured = measure(device, name)
        if busy:  # other programs had the cores: good enough for now, not worth keeping
            return measured
        known_here[key] = asdict(measured)
        kept.parent.mkdir(parents=True, exist_ok=True)
        aside = kept.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(known_here, indent=1))
        aside.replace(kept)
    return Ceiling(**known_here[key])


def measure(device: str, name: str) -> Ceiling:
    """Best of many square matrix products in float32 and bfloat16, and of many copies too big for caches."""
    import torch

    side, megabytes = (512, 64) if device == "cpu" else (8192, 1024)
    flops = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(2, side, side, device=device).to(dtype)
        flops[str(dtype).removeprefix("torch.")] = (
            2 * side**3 / _fastest(functools.partial(torch.mm, a, b), device)
        )
    source = torch.randn(megabytes * 2**18, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * 4 * source.numel() / _fastest(functools.partial(target.copy_, source), device)
    return Ceiling(name, flops, bandwidth, "measured here: matrix product and copy")


def _fastest(work: Callable[[], object], device: str, budget: float = 0.2, enough: int = 40) -> float:
    """Seconds of the fastest go within the budget: other programs only ever add time, so goes are short.

    Where they have the cores a go takes a scheduler's quantum, and about one in twenty goes is undisturbed: with fewer
    than `enough` the budget is stretched, up to fivefold.
    """
    import torch

    wait = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    work()
    best, goes, begun = float("inf"), 0, time.perf_counter()
    while not goes or time.perf_counter() < begun + (budget if goes >= enough else 5 * budget):
        wait()
        started = time.perf_counter()
        work()
        wait()
        best, goes = min(best, time.perf_counter() - started), goes + 1
    return best
