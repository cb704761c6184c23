"""The fused softmax against float64 under the interpreter, and the tools that check and compile its source."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernels.tools import TARGETS, KernelError, assembly, compile_source, interpret_source
from kernels.tools.process import ask
from lab import paths

SOURCE = (paths.ROOT / "kernels" / "softmax.py").read_text()

PROPERTIES = """
import sys
import torch
from hypothesis import given, settings, strategies as st
from kernels.softmax import bytes_moved, softmax, tile

SIZES = st.sampled_from([1, 2, 3, 31, 64, 129, 1000])
SPECIAL = st.sampled_from([None, float("inf"), -float("inf"), float("nan"), 3e4, -3e4])

@settings(max_examples=30, deadline=None)
@given(rows=st.integers(0, 40), cols=SIZES, lead=st.integers(1, 3), layout=st.sampled_from("plain sliced skipping turned".split()),
       dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), special=SPECIAL, seed=st.integers(0, 2**31))
def agrees_with_float64(rows, cols, lead, layout, dtype, special, seed):
    g = torch.Generator().manual_seed(seed)
    x = (torch.randn(lead, rows, 2 * cols, generator=g) * 4).to(dtype)
    x = {"plain": lambda: x[..., :cols].contiguous(), "sliced": lambda: x[..., cols:], "skipping": lambda: x[..., ::2],
         "turned": lambda: x[..., :cols].transpose(0, 1)}[layout]()
    if special is not None and x.numel():
        x[0, 0, cols // 2] = special
    ours, exact = x.clone(memory_format=torch.preserve_format).detach().requires_grad_(), x.double().detach().requires_grad_()
    dy = torch.randn(x.shape, generator=g).to(dtype)
    got, want = softmax(ours), torch.softmax(exact, -1)
    got.backward(dy); want.backward(dy.double())
    assert got.shape == x.shape and got.dtype == dtype
    allowed = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    for a, b in ((got.detach(), want.detach()), (ours.grad, exact.grad)):
        torch.testing.assert_close(a.double(), b, rtol=allowed, atol=allowed, equal_nan=True)

agrees_with_float64()
for bad in (torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.int64)):
    try: softmax(bad)
    except TypeError as e: assert "softmax takes" in str(e)
    else: sys.exit("took " + str(bad.dtype))
x = torch.randn(2, 1, 5, requires_grad=True)
softmax(x.expand(2, 3, 5)).sum().backward()  # stride 0 in and a broadcast gradient back
assert float(x.grad.abs().max()) < 1e-6
for n in (1, 2, 3, 4095, 4096, 4097, 32768, 32769, 10**6):
    t = tile(n)
    assert t["WHOLE"] == (n <= 32768) and (not t["WHOLE"] or t["COLS"] >= n) and t["COLS"] & (t["COLS"] - 1) == 0
assert bytes_moved(3, 5, 2) == 60 and bytes_moved(3, 5, 4, backward=True) == 180
"""


def test_softmax_agrees_with_float64_on_any_shape_layout_and_dtype():
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(paths.ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", PROPERTIES], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_check_finds_the_kernel_right(dtype):
    checks = interpret_source(SOURCE, "softmax", (3, 500), dtype, seed=random.randrange(2**31))
    assert [c.name for c in checks if not c.ok] == []
    assert any(max(c.shape) > 32768 for c in checks)


@pytest.mark.parametrize(
    ("break_it", "found_by"),
    [
        (("x - tl.max(x, 1)[:, None]", "x"), {"very large values"}),
        (("dx = y * (dy - tl.sum(y * dy, 1)[:, None])", "dx = y * dy"), {"random", "odd length"}),
        (('grown == float("-inf"), 0.0, grown', 'grown == float("-inf"), grown, grown'), set()),
    ],
)
def test_the_check_finds_a_wrong_kernel(break_it, found_by):
    broken = SOURCE.replace(*break_it)
    assert broken != SOURCE
    wrong = {c.name for c in interpret_source(broken, "softmax", (3, 500), "float32", seed=1) if not c.ok}
    assert found_by <= wrong


def test_every_target_compiles_without_its_gpu(tmp_path):
    for name, target in TARGETS.items():
        kernels = compile_source(SOURCE, "softmax", name, (4096, 4096), "bfloat16", tmp_path)
        assert [k.name for k in kernels] == ["forward_kernel", "backward_kernel"]
        for k, loads in zip(kernels, (1, 2)):
            assert {"ttir", "ttgir", "llir", k.machine} <= set(k.text)
            assert ("ptx" in k.text) == (target.triton[0] == "cuda")
            assert k.spill_bytes == 0 and 16 <= k.registers <= 128 and 0 < k.occupancy() <= 1
            mix = k.mix()
            # 4096 values of 2 bytes over the program's threads, 16 bytes an instruction
            wide = 4096 * 2 // 16 // (k.warps * target.triton[2])
            assert mix["load"] == loads * wide and mix["store"] == wide
            assert sum(mix.values()) > 0.9 * sum(bool(assembly.kind(text)) for text, _ in k.lines(k.machine))


def test_machine_code_points_at_the_source(tmp_path):
    for target in ("sm_90", "gfx942"):
        forward, _ = compile_source(SOURCE, "softmax", target, (4096, 4096), "float32", tmp_path)
        text = SOURCE.splitlines()
        for instruction, line in forward.lines(forward.machine):
            if assembly.kind(instruction) == "load":
                assert "tl.load" in text[line - 1]
            if assembly.kind(instruction) == "store":
                assert "tl.store" in text[line - 1]


def test_a_compiled_kernel_is_kept_and_read_back(tmp_path, monkeypatch):
    first = compile_source(SOURCE, "softmax", "sm_80", (64, 256), "float32", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("kernels.tools.compile.ask", lambda *a, **k: pytest.fail("compiled again"))
        assert compile_source(SOURCE, "softmax", "sm_80", (64, 256), "float32", tmp_path) == first
    (kept,) = tmp_path.glob("*.json")
    kept.write_text(kept.read_text()[:1000])  # cut short: compiled again, and kept whole
    again = compile_source(SOURCE, "softmax", "sm_80", (64, 256), "float32", tmp_path)
    assert [(k.name, k.registers, k.mix()) for k in again] == [(k.name, k.registers, k.mix()) for k in first]
    assert "kernels" in json.loads(kept.read_text())


BAD = {
    "a misspelt function": ("tl.exp(x - tl.max", "tl.expp(x - tl.max", "expp"),
    "a syntax error": ("e = tl.exp(x", "e = = tl.exp(x", "SyntaxError"),
    "a missing argument": ("y2.stride(0), **launch", "**launch", "y_row"),
    "a wrong rank": ("(1.0 / tl.sum(e, 1))[:, None]", "(1.0 / tl.sum(e, 1))[:, :, None]", "rank"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_error_names_its_line(case, tmp_path):
    how = random.choice(["compiled", "interpreted"])
    before, after, word = BAD[case]
    broken = SOURCE.replace(before, after, 1)
    line = next(i for i, (a, b) in enumerate(zip(SOURCE.splitlines(), broken.splitlines()), 1) if a != b)
    with pytest.raises(KernelError) as caught:
        if how == "compiled":
            compile_source(broken, "softmax", "sm_90", (64, 4096), "float32", tmp_path)
        else:
            interpret_source(broken, "softmax", (2, 64), "float32", seed=0)
    assert caught.value.line == line
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_source_that_hangs_dies_or_lacks_its_entry_is_a_sentence():
    with pytest.raises(KernelError, match="did not finish within 3 s"):
        ask("interpret", "while True: pass", 3, interpret=True, entry="softmax", cases=[], seed=0)
    with pytest.raises(KernelError, match="ended early"):
        ask(
            "compile",
            "import os; os._exit(3)",
            60,
            entry="softmax",
            shape=[1, 1],
            dtype="float32",
            target=["cuda", 90, 32],
        )
    with pytest.raises(KernelError, match=r"no function softmax\(x\)"):
        ask("interpret", "x = 1", 60, interpret=True, entry="softmax", cases=[], seed=0)


def test_kernels_import_nothing_of_ours():
    for path in Path(paths.ROOT / "kernels").rglob("*.py"):
        for line in path.read_text().splitlines():
            assert not line.strip().startswith(("from lab", "import lab", "from interp", "from widgets")), (
                path
            )


def test_a_detached_process_does_not_hold_the_page():
    """The time limit holds for a source that leaves a process of its own behind."""
    lost = "import subprocess, time\nsubprocess.Popen(['sleep', '20'], start_new_session=True)\ntime.sleep(60)\n"
    started = time.monotonic()
    with pytest.raises(KernelError, match="did not finish within 3 s"):
        interpret_source(lost + SOURCE, "softmax", (3, 8), "float32", seed=0, timeout=3)
    assert time.monotonic() - started < 15
