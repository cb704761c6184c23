"""Read machine code: disassemble, link each line to the source line it came from, sort instructions by kind."""

import re
import subprocess
import tempfile
from pathlib import Path

KINDS = {
    "load": "reads from device memory",
    "store": "writes to device memory",
    "shared": "reads or writes shared memory",
    "exchange": "values passed between the threads of a warp",
    "special": "exponentials, reciprocals, roots",
    "float": "floating-point arithmetic",
    "integer": "addresses, comparisons, bits",
    "move": "copies, constants, conversions",
    "control": "branches, barriers, waits",
}


def _tool(name: str, *args: str) -> str:
    import triton.backends.nvidia as nvidia

    path = Path(nvidia.__path__[0]) / "bin" / name
    return subprocess.run([path, *args], capture_output=True, text=True, check=True).stdout


def disassemble(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _tool("nvdisasm", "-g", "-c", file.name)


def nvidia_resources(cubin: bytes) -> dict:
    """Registers a thread, and the bytes a thread has on its stack (where spilled registers go)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = dict(re.findall(r"(\w+):(\d+)", _tool("cuobjdump", "-res-usage", file.name)))
    return {"registers": int(usage["REG"]), "spill_bytes": int(usage["STACK"]) + int(usage["LOCAL"])}


def amd_resources(text: str) -> dict:
    usage = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count|sgpr_count):\s+(\d+)", text))
    return {"registers": int(usage["vgpr_count"]), "spill_bytes": 4 * int(usage["vgpr_spill_count"])}


def true_lines(ptx: str) -> str:
    """PTX without the line marks inside inline assembly: LLVM counts a line on for each line of the assembly."""
    inside, kept = False, []
    for line in ptx.splitlines():
        if "inline asm" in line:
            inside = "begin" in line
        if not (inside and line.lstrip().startswith(".loc")):
            kept.append(line)
    return "\n".join(kept) + "\n"


def sass(text: str, file: str = "kernel.py") -> list[tuple[str, int]]:
    """Instructions of an nvdisasm listing as (text, source line or 0)."""
    lines, at = [], 0
    for line in text.splitlines():
        if found := re.findall(rf'{re.escape(file)}", line (\d+)', line):
            at = int(found[-1])  # the outermost place an inlined instruction belongs to comes last
        elif "//## File" in line:
            continue  # a library line: it stays with the source line that called it
        elif match := re.match(r"\s*/\*([0-9a-f]{4,5})\*/\s+(.*?)\s*;", line):
            lines.append((f"{match[1]}  {match[2]}", at))
        elif re.match(r"\.L_x_\d+:", line):
            lines.append((line.strip(), 0))
    return lines


def ptx(text: str, file: str = "kernel.py") -> list[tuple[str, int]]:
    """PTX or AMD assembly as (text, source line or 0); directives that only describe are left out."""
    lines, at = [], 0
    inside = False
    for line in true_lines(text).splitlines():
        if line.lstrip().startswith(".loc"):
            if found := re.findall(rf"{re.escape(file)}:(\d+)", line):
                at = int(found[-1])
            elif outer := re.search(r"inlined_at 1 (\d+)", line):
                at = int(outer[1])
            continue
        body = line.strip()
        if re.match(r"\.section\s+\.debug|\.section\s+\.rodata|; Kernel info|\.Lfunc_end", body):
            if inside:
                break
            continue
        inside = inside or ".entry" in body or body.endswith("@function")
        if (
            not inside
            or not body
            or re.match(r"(\.file|\.cfi|\.Ltmp|\$L__tmp|//|; %bb|\.p2align|\.size|\.type|\.globl)", body)
        ):
            continue
        lines.append((body, at))
    return lines


def kind(instruction: str) -> str:
    """What an instruction of SASS, PTX or AMD assembly does; '' for labels and directives."""
    words = re.sub(r"^[0-9a-f]{4,5}\s+", "", instruction.strip())
    words = re.sub(r"^@!?%?\w+\s+", "", words)
    op = words.split(" ")[0].split("\t")[0].rstrip(";")
    if not op or op.endswith(":") or op[0] in "./{}()%":
        return ""
    low = op.lower()
    for name, pattern in _KINDS:
        if re.match(pattern, low):
            return name
    return "integer"


_KINDS = [
    ("load", r"ldg|ld\.global|global_load|buffer_load|flat_load|ldl|ld\.local|utmaldg|cp\.async|ldgsts"),
    ("store", r"stg|st\.global|global_store|buffer_store|flat_store|stl|st\.local|utmastg|red\b|atom"),
    ("shared", r"lds|sts|ldsm|stsm|ld\.shared|st\.shared|ds_(read|write|load|store)"),
    ("exchange", r"shfl|ds_bpermute|ds_swizzle|v_permlane|redux|v_readlane|v_readfirstlane|.*_dpp$"),
    ("special", r"mufu|ex2|rcp|div|sqrt|rsqrt|lg2|sin|cos|v_(exp|rcp|log|sqrt|rsq|div)"),
    (
        "move",
        r"u?mov|r2ur|s2r|s2ur|cs2r|u?ldc|ld\.param|prmt|u?sel|fsel|selp|cvta?|f2f|f2i|i2f|hadd2\.f32|v_mov|s_mov|s_load|v_cndmask|s_cselect|v_perm|v_cvt|v_accvgpr",
    ),
    (
        "float",
        r"f(add|mul|fma|mnmx|setp|set|chk)|h(fma|add|mul|mnmx|setp)|d(add|mul|fma)|hmma|[a-z]*gmma|(add|sub|mul|fma|max|min|neg|abs|setp\.\w+)(\.\w+)*\.(bf16|f16|f32|f64|bf16x2|f16x2)|v_(pk_)?(add|sub|mul|fma|fmac|max|min|max3|cmp_\w+)_f",
    ),
    (
        "control",
        r"bra|exit|ret|bar|call|bsync|bssy|warpsync|nop|s_(branch|cbranch|barrier|waitcnt|endpgm|nop|delay)|depbar|membar|errbar|yield|acqbulk|ucgabar",
    ),
]
