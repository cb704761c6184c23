"""Compile a kernel's source for a GPU that need not be here, and read what came out."""

import hashlib
import json
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import assembly
from .process import ask

_TOOLS = "".join((Path(__file__).parent / name).read_text() for name in ("child.py", "assembly.py"))


@dataclass(frozen=True)
class Target:
    """A GPU to compile for, with what one of its multiprocessors holds (warps, registers, shared bytes).

    NVIDIA: CUDA C++ Programming Guide, "Technical specifications per compute capability". AMD: CDNA 3 ISA
    (a SIMD has 512 vector registers a lane and 8 waves; four SIMDs a compute unit).
    """

    name: str
    triton: tuple[str, int | str, int]
    warps: int
    registers: int
    shared: int


TARGETS = {
    "sm_80": Target("A100 (sm_80)", ("cuda", 80, 32), 64, 65536, 163 * 1024),
    "sm_90": Target("H100, H200 (sm_90)", ("cuda", 90, 32), 64, 65536, 227 * 1024),
    "sm_100": Target("B200 (sm_100)", ("cuda", 100, 32), 64, 65536, 227 * 1024),
    "sm_120": Target("RTX 5090 (sm_120)", ("cuda", 120, 32), 48, 65536, 99 * 1024),
    "gfx942": Target("MI300X (gfx942)", ("hip", "gfx942", 64), 32, 4 * 512 * 64, 64 * 1024),
}


@dataclass
class Compiled:
    """One kernel, compiled: its texts by stage, and what it takes of a multiprocessor."""

    name: str
    target: str
    seconds: float
    warps: int
    shared: int  # bytes a program asks for
    registers: int  # a thread
    spill_bytes: int  # a thread
    constants: dict
    text: dict[str, str] = field(repr=False)

    @property
    def machine(self) -> str:
        return "sass" if "sass" in self.text else "amdgcn"

    def lines(self, stage: str) -> list[tuple[str, int]]:
        """A stage's text as (line, source line it came from, or 0)."""
        if stage == "sass":
            return assembly.sass(self.text[stage])
        if stage in ("ptx", "amdgcn"):
            return assembly.ptx(self.text[stage])
        return [(line, 0) for line in self.text[stage].splitlines()]

    def mix(self) -> dict[str, int]:
        """Instructions of the machine code by kind."""
        counted = Counter(assembly.kind(text) for text, _ in self.lines(self.machine))
        return {kind: counted[kind] for kind in assembly.KINDS}

    def occupancy(self) -> float:
        """Share of a multiprocessor's warps that can be resident, by registers, shared memory and warp slots."""
        t = TARGETS[self.target]
        lanes = t.triton[2]
        by_registers = t.registers // (-(-self.registers // 8) * 8 * lanes * self.warps)
        by_shared = t.shared // self.shared if self.shared else by_registers
        programs = min(by_registers, by_shared, t.warps // self.warps)
        return programs * self.warps / t.warps


def compile_source(
    source: str, entry: str, target: str, shape: tuple[int, int], dtype: str, cache: Path, timeout: float = 60
) -> list[Compiled]:
    """Every kernel that `entry(x)` and its gradient launch for `x` [rows, cols]; KernelError points at the line.

    Answers are kept in `cache` under a hash of the source, the request, Triton's version and these tools.
    """
    request: dict[str, Any] = {
        "entry": entry,
        "target": TARGETS[target].triton,
        "shape": shape,
        "dtype": dtype,
    }
    key = hashlib.sha256(json.dumps([source, request, version("triton"), _TOOLS]).encode()).hexdigest()[:24]
    kept = cache / f"{key}.json"
    answer: dict[str, Any] | None = None
    with suppress(OSError, ValueError):  # not there, or damaged: compiled again
        answer = json.loads(kept.read_text())
    if not isinstance(answer, dict) or "kernels" not in answer:
        answer = ask("compile", source, timeout, **request)
        cache.mkdir(parents=True, exist_ok=True)
        aside = kept.with_suffix(f".{uuid.uuid4().hex}")  # two tabs may compile the same source
        aside.write_text(json.dumps(answer))
        aside.replace(kept)
    return [
        Compiled(target=target, **{k: v for k, v in one.items() if k != "resources"}, **one["resources"])
        for one in answer["kernels"]
    ]
