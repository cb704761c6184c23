"""A GPU machine measures with torch, triton and numpy alone: nothing a notebook needs may be imported."""

import subprocess
import sys

from lab import paths

NOTEBOOK_ONLY = (
    "marimo", "polars", "anywidget", "plotly", "ipywidgets", "traitlets", "uvicorn", "gguf", "datasets", "nnsight",
    "transformer_lens", "torch_tb_profiler",
)  # fmt: skip

PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({NOTEBOOK_ONLY!r}))  # None makes an import raise
from lab.__main__ import main
sys.exit(main(["bench", "--list"]))
"""


def test_the_benchmarks_load_without_notebook_packages():
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "kernels (GPU)" in done.stdout.splitlines()
