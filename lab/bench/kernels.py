"""Kernels on the GPU at hand: error against float64, then bandwidth beside torch and torch.compile.

Bandwidth is least bytes over median time with the L2 cache flushed before each go. The bar is a share of what
a plain copy reaches on the same card in the same minute, since no kernel that reads and writes goes faster.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lab import paths, records
from lab.bench import bench

if TYPE_CHECKING:
    import torch

LENGTHS = (256, 1024, 4096, 16384, 65536)
ELEMENTS = 2**28  # 0.5 GB in bfloat16: far beyond any L2
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
SHAPES = [
    (1, 1), (3, 5), (2, 3, 257), (1000, 127), (513, 1024), (64, 4097), (33, 16384), (3, 32769), (2, 131072),
    (1, 1_000_003), (200_003, 3),
]  # fmt: skip
STRIDED = [
    (3, 5),
    (2, 3, 257),
    (64, 4097),
    (3, 32769),
]  # also drawn as slices, every other column, transposed


@bench("kernels", gpu=True)
def softmax_error() -> None:
    """Worst relative error of output and gradient over many shapes, layouts and special values."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)  # torch.empty now hands out NaN: unwritten shows
    worst: dict[str, float] = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        worst[name] = max(
            _error(given, TOLERANCE[name]) for shape in SHAPES for given in _inputs(shape, dtype)
        )
    torch.use_deterministic_algorithms(False)
    records.write_cases(
        "kernels.softmax.error", worst, "of what is allowed", bar=1.0,
        compared="float64, output and gradient; allowed is the error of torch.softmax in the same dtype "
        f"plus {TOLERANCE}",
        note=f"{len(SHAPES)} shapes, slices, strides, transposes, rows with NaN, +inf, -inf and all -inf",
    )  # fmt: skip


def _inputs(shape: tuple[int, ...], dtype: "torch.dtype") -> "Iterator[torch.Tensor]":
    """Random tensors of one shape in several layouts, and one with special values in its rows."""
    import torch

    def draw(*size: int) -> torch.Tensor:
        return (torch.randn(size, device="cuda") * 4).to(dtype)

    yield draw(*shape)
    special = draw(*shape)
    rows = special.view(-1, shape[-1])
    for row, value in zip(rows, (float("nan"), float("-inf"), float("inf"))):
        row[shape[-1] // 2] = value
    rows[3:4] = float("-inf")
    yield special
    if shape in STRIDED and dtype != torch.float16:
        wide = draw(*shape[:-1], 2 * shape[-1])
        yield wide[..., ::2]
        yield wide[..., : shape[-1]]
        yield draw(*shape[::-1]).permute(*range(len(shape))[::-1])


def _error(x: "torch.Tensor", tolerance: float) -> float:
    """The larger of output's and gradient's ||got - float64|| / ||float64||, over what is allowed.

    Allowed is `tolerance` more than torch's own kernel is off in the same dtype: half-precision outputs of long
    rows are subnormal, where any kernel is off by more than a rounding.
    """
    import torch

    from kernels.softmax import reference, softmax

    dy = torch.randn_like(x)

    def run(make: Callable, given: torch.Tensor, upstream: torch.Tensor) -> list[torch.Tensor]:
        leaf = given.detach().requires_grad_()
        y = make(leaf)
        return [y.detach().double(), torch.autograd.grad(y, leaf, upstream)[0].double()]

    exact = run(reference, x.double(), dy.double())
    ours, theirs = run(softmax, x, dy), run(reference, x, dy)
    return max(_relative(o, e) / (tolerance + _relative(t, e)) for o, t, e in zip(ours, theirs, exact))


def _relative(got: "torch.Tensor", want: "torch.Tensor") -> float:
    import torch

    finite = want.isfinite()
    if not torch.equal(got.isfinite(), finite):
        return float("inf")
    scale = float(want[finite].norm())
    return float((got - want)[finite].norm()) / (scale or 1.0)


@functools.cache
def copy_bandwidth() -> float:
    """Bytes/s read plus written by a device-to-device copy of 1 GiB."""
    import torch

    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _seconds(lambda: target.copy_(source))


def _seconds(work: Callable[[], object]) -> float:
    from triton.testing import do_bench

    return do_bench(work, warmup=20, rep=80, return_mode="median") / 1e3


@bench("kernels", gpu=True)
def softmax_bandwidth() -> None:
    """Share of the copy's bandwidth, and time over the best peer's, by direction, dtype and row length."""
    import torch

    from kernels import softmax as kernel
    from lab.profiling import hardware

    torch._functorch.config.donated_buffer = False  # backward is timed many times
    copy, spec = copy_bandwidth(), hardware.ceiling("cuda")
    records.write(
        "kernels.copy_bandwidth", copy / 1e12, "TB/s", better="higher", compared=f"{spec.bandwidth / 1e12} TB/s, {spec.source}",
    )  # fmt: skip
    fraction, ratio, details = {}, {}, {}
    for dtype, cols in itertools.product((torch.bfloat16, torch.float32), LENGTHS):
        torch._dynamo.reset()
        rows = ELEMENTS // cols
        x = torch.randn(rows, cols, device="cuda", dtype=dtype).requires_grad_()
        dy = torch.randn_like(x)
        compiled = torch.compile(kernel.reference, dynamic=False)
        makers = {"ours": kernel.softmax, "torch": kernel.reference, "compile": compiled}
        for direction in ("forward", "backward"):
            seconds = {name: _direction(direction, make, x, dy) for name, make in makers.items()}
            moved = kernel.bytes_moved(rows, cols, x.element_size(), backward=direction == "backward")
            case = f"{direction}-{'bf16' if dtype == torch.bfloat16 else 'fp32'}-{cols}"
            peers = {name: s for name, s in seconds.items() if name != "ours"}
            fraction[case] = moved / seconds["ours"] / copy
            ratio[case] = seconds["ours"] / min(peers.values())
            details[case] = {
                "direction": direction, "dtype": str(dtype).removeprefix("torch."), "rows": rows, "cols": cols,
                "bytes": moved, "flops": kernel.flops(rows, cols, backward=direction == "backward"),
                "seconds": seconds, "copy_bytes_per_s": copy,
                "of_data_sheet": moved / seconds["ours"] / spec.bandwidth,
                "launch": {k: int(v) for k, v in kernel.tile(cols).items()},
            }  # fmt: skip
            told = ", ".join(f"{name} {moved / s / 1e12:.2f}" for name, s in seconds.items())
            print(f"{case:>22}: {told} TB/s", flush=True)
        del x, dy
    records.write_cases(
        "kernels.softmax.bandwidth_fraction", fraction, "of copy bandwidth", bar=0.85, better="higher",
        details=details, compared=f"a device-to-device copy, {copy / 1e12:.2f} TB/s here",
    )  # fmt: skip
    records.write_cases(
        "kernels.softmax.time_vs_best_peer",
        ratio,
        "x",
        bar=1.1,
        compared="the faster of torch.softmax and torch.compile",
    )


def _direction(direction: str, make: Callable, x: "torch.Tensor", dy: "torch.Tensor") -> float:
    import torch

    if direction == "forward":
        with torch.no_grad():
            return _seconds(lambda: make(x))
    y = make(x)
    return _seconds(lambda: torch.autograd.grad(y, x, dy, retain_graph=True))


@bench("kernels", gpu=True)
def softmax_tiles() -> None:
    """How much a better tile would gain: the launcher's choice over the best of a sweep, forward, bfloat16."""
    import torch

    from kernels import softmax as kernel

    lost, details = {}, {}
    for cols in LENGTHS:
        x = torch.randn(ELEMENTS // cols, cols, device="cuda", dtype=torch.bfloat16)
        y = torch.empty_like(x)
        chosen = kernel.tile(cols)
        rows = []
        for height, width, warps in itertools.product(
            (1, 2, 4, 8, 16), {cols, 4096, 8192, 16384}, (2, 4, 8, 16, 32)
        ):
            whole = width == cols
            if width > cols or (not whole and height > 1) or not 4 <= height * width / (32 * warps) <= 64:
                continue  # a thread holds 4 to 64 values
            launch = {"ROWS": height, "COLS": width, "WHOLE": whole, "num_warps": warps}
            rows.append({**launch, "seconds": _seconds_of(kernel, x, y, launch)})
        ours = _seconds_of(kernel, x, y, chosen)
        best = min([*rows, {**chosen, "seconds": ours}], key=lambda row: row["seconds"])
        lost[str(cols)] = ours / best["seconds"]
        details[str(cols)] = {"chosen": {**chosen, "seconds": ours}, "best": best, "swept": rows}
        print(f"{cols:>8}: chosen {chosen} {ours * 1e6:.0f} us, best {best}", flush=True)
    records.write_cases(
        "kernels.softmax.tile_loss", lost, "x", bar=1.05, details=details, compared="the best tile of a sweep"
    )


def _seconds_of(kernel, x: "torch.Tensor", y: "torch.Tensor", launch: dict) -> float:
    from triton.testing import do_bench

    grid = (-(-x.shape[0] // launch["ROWS"]),)
    work = lambda: kernel.forward_kernel[grid](x, y, *x.shape, *x.stride(), y.stride(0), **launch)  # noqa: E731
    return do_bench(work, warmup=5, rep=25, return_mode="median") / 1e3


@bench("profiling")
def profiled_step() -> None:
    """One training step of a model of the pocket's shape, and its trace for the notebook to show.

    Weights are random: what a step costs does not depend on them.
    """
    import torch

    from lab.models import Decoder, ModelConfig
    from lab.profiling import hardware, step

    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = "gpu" if device == "cuda" else "cpu"
    batch, length = (32, 256) if device == "cuda" else (4, 128)
    cfg = ModelConfig(
        vocab_size=4096, d_model=320, n_layers=8, n_heads=5, n_kv_heads=5, d_head=64, d_mlp=864, context=512
    )
    model = Decoder(cfg).init_weights(0).to(device)
    path = paths.RECORDS / "traces" / f"pocket-step-{where}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = step.profile(model, batch, length, path)
    flops = 3 * batch * cfg.forward_flops(length)
    peak = hardware.ceiling(device).flops_per_s("bfloat16" if device == "cuda" else "float32")
    records.write(
        f"profiling.step_s.{where}",
        found["seconds"],
        "s",
        note=f"forward, backward, AdamW on {batch} x {length} tokens, eager, {flops / found['seconds'] / peak:.1%} of peak",
        detail={
            **found,
            "flops": flops,
            "batch": batch,
            "length": length,
            "model": cfg.to_dict(),
            "trace": path.name,
        },
    )
