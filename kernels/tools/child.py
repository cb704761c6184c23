"""The child's side: `python -m kernels.tools.child TASK FOLDER`, request on stdin, answer in FOLDER.

FOLDER/kernel.py is the source under test. It defines `softmax(x)`-like entry points in torch; the Triton
launches they make are what gets compiled.
"""

import importlib.util
import json
import re
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel"] = module
    spec.loader.exec_module(module)
    return module


def entry(module: ModuleType, name: str):
    if not callable(getattr(module, name, None)):
        raise NameError(f"the file defines no function {name}(x), which is what the lab calls")
    return getattr(module, name)


def launches(module: ModuleType, name: str, shape: list[int], dtype: torch.dtype) -> list[tuple]:
    """(kernel, arguments by name, options) of each launch that forward and backward make.

    The tensors are on the meta device: shapes and strides are real, there is no memory and no GPU.
    """
    from triton.runtime.jit import JITFunction

    seen: list[tuple] = []

    def note(kernel, *args, grid, warmup, **kwargs):
        names = [p.name for p in kernel.params]
        options = {k: v for k, v in kwargs.items() if k not in names}
        bound = {p.name: p.default for p in kernel.params if p.has_default}
        bound |= dict(zip(names, args)) | {k: v for k, v in kwargs.items() if k in names}
        if missing := [name for name in names if name not in bound]:
            raise TypeError(f"{kernel.__name__} is launched without {', '.join(missing)}")
        seen.append((kernel, bound, options))

    # the launcher's public face is kernel[grid](...), which calls run: standing in for it sees every launch
    JITFunction.run = note
    x = torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
    y = entry(module, name)(x)
    # not y.backward(dy): torch imports sympy to compare the two shapes, half a second
    (y * torch.empty_like(y)).sum().backward()
    if not seen:
        raise RuntimeError(f"{name}(x) launched no Triton kernel")
    return seen


def signature(kernel, args: dict) -> tuple[dict, dict, dict]:
    """Triton's own specialisation rules: ones become constants, multiples of 16 are promised as such."""
    from triton._utils import canonicalize_dtype

    kinds: dict[str, str] = {}
    constants: dict[tuple, object] = {}
    attributes: dict[tuple, list] = {}
    for i, p in enumerate(kernel.params):
        value = args[p.name]
        aligned = False
        if (
            p.is_constexpr
            or value is None
            or (isinstance(value, int) and not isinstance(value, bool) and value == 1)
        ):
            kinds[p.name] = "constexpr"
            constants[(i,)] = value
        elif isinstance(value, torch.Tensor):
            kinds[p.name] = "*" + canonicalize_dtype(value.dtype)
            aligned = True  # allocators align to 256 bytes and more
        elif isinstance(value, bool):
            kinds[p.name] = "u1"
        elif isinstance(value, int):
            kinds[p.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            aligned = value % 16 == 0
        else:
            kinds[p.name] = "fp32"
        if aligned:
            attributes[(i,)] = [["tt.divisibility", 16]]
    return kinds, constants, attributes


def compile(folder: Path, request: dict) -> dict:
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import ASTSource
    from triton.compiler import compile as triton_compile

    from . import assembly

    assemble = CUDABackend.make_cubin  # the machine code's line marks come from the PTX it is given
    CUDABackend.make_cubin = lambda self, src, *rest: assemble(self, assembly.true_lines(src), *rest)
    module = load(folder / "kernel.py")
    backend, arch, width = request["target"]
    results = []
    for kernel, args, options in launches(
        module, request["entry"], request["shape"], DTYPES[request["dtype"]]
    ):
        started = time.perf_counter()
        source = ASTSource(kernel, *signature(kernel, args))
        built = triton_compile(source, target=GPUTarget(backend, arch, width), options=options)
        seconds = time.perf_counter() - started
        text = {k: v for k, v in built.asm.items() if isinstance(v, str) and k != "source"}
        if backend == "cuda":
            text["sass"] = assembly.disassemble(built.asm["cubin"])
            resources = assembly.nvidia_resources(built.asm["cubin"])
        else:
            resources = assembly.amd_resources(text["amdgcn"])
        results.append(
            {
                "name": kernel.__name__,
                "seconds": seconds,
                "warps": built.metadata.num_warps,
                "shared": built.metadata.shared,
                "constants": {k: v for k, v in args.items() if isinstance(v, (int, float, bool))},
                "text": text,
                "resources": resources,
            }
        )
    return {"kernels": results}


def interpret(folder: Path, request: dict) -> dict:
    module = load(folder / "kernel.py")
    run = entry(module, request["entry"])
    truth = getattr(torch, request["entry"])
    rows: list[dict] = []
    for case in request["cases"]:
        generator = torch.Generator().manual_seed(request["seed"] + len(rows))
        dtype = DTYPES[case["dtype"]]
        # unit variance: in a nearly one-hot row the gradient is a small difference of large terms, lost in any rounding
        x = torch.randn(case["shape"], generator=generator).to(dtype)
        dy = torch.randn(case["shape"], generator=generator).to(dtype)
        for index, value in case.get("plant", []):
            x[tuple(index)] = value
        ours, exact = x.clone().requires_grad_(), x.double().requires_grad_()
        started = time.perf_counter()
        y = run(ours)
        (y * dy).sum().backward()  # dy arrives at y as it is, times one
        seconds = time.perf_counter() - started
        want = truth(exact, dim=-1)
        (want * dy.double()).sum().backward()
        assert ours.grad is not None and exact.grad is not None
        errors = {"forward": error(y.detach(), want.detach()), "backward": error(ours.grad, exact.grad)}
        rows.append({**case, "seconds": seconds, **errors})
    return {"cases": rows}


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want|| over finite entries; infinite when NaNs are not where they should be."""
    got = got.double()
    if got.shape != want.shape or not torch.equal(got.isfinite(), want.isfinite()):
        return float("inf")
    finite = want.isfinite()
    scale = want[finite].norm()
    return float((got - want)[finite].norm() / scale) if scale > 0 else float((got - want)[finite].norm())


def locate(exc: BaseException, path: Path) -> tuple[str, int | None]:
    """One sentence and the line of the user's file, dug out of however deep Triton wrapped it."""
    text = path.read_text()
    if isinstance(exc, SyntaxError) and exc.filename == str(path):
        return f"SyntaxError: {exc.msg}", exc.lineno
    line, message, kind = None, "", type(exc).__name__
    link: BaseException | None = exc
    while link is not None:
        frames = [f.lineno for f in traceback.extract_tb(link.__traceback__) if f.filename == str(path)]
        source: str | None = getattr(link, "src", None)
        node: Any = getattr(link, "node", None)
        if source and hasattr(node, "lineno"):  # Triton counts from the kernel's def
            if (at := text.find(source)) >= 0:
                line = text[:at].count("\n") + node.lineno
        elif frames:
            line = frames[-1]
        said = getattr(link, "error_message", None) if node is not None else str(link)
        if said:
            message, kind = said.strip().splitlines()[-1], type(link).__name__
            # Triton keeps the cause as its repr
            if wrapped := re.fullmatch(r"(\w+)\(([\"'])(.*)\2,?\)", message):
                kind, message = wrapped[1], wrapped[3]
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return f"{kind}: {message}" if message else kind, line


def main() -> None:
    task, folder = sys.argv[1], Path(sys.argv[2])
    request = json.load(sys.stdin)
    try:
        answer = {"compile": compile, "interpret": interpret}[task](folder, request)
    except Exception as exc:  # whatever the source under test raises is the answer
        message, line = locate(exc, folder / "kernel.py")
        answer = {"error": message, "line": line}
    (folder / "answer.tmp").write_text(json.dumps(answer))
    (folder / "answer.tmp").replace(folder / "answer.json")


if __name__ == "__main__":
    main()
