"""Send one request to a child process and wait for its answer, with a time limit."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class KernelError(Exception):
    """What is wrong with a kernel's source, in one sentence, and on which of its lines (from 1, or None)."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message)
        self.line = line


def ask(task: str, source: str, timeout: float, interpret: bool = False, **request) -> dict:
    """Run `task` of `kernels.tools.child` on `source`; KernelError when the source is at fault or too slow."""
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        # the file's name appears in every listing the compiler writes
        (Path(folder) / "kernel.py").write_text(source)
        answer = Path(folder) / "answer.json"
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "TRITON_CACHE_DIR": str(Path(folder) / "triton"),  # ours is keyed by the source itself
            "TRITON_INTERPRET": "1" if interpret else "0",
            "TRITON_DEFAULT_FP_FUSION": "1",
            "PYTHONWARNINGS": "ignore",
            "OMP_NUM_THREADS": "1",
        }
        child = subprocess.Popen(
            [sys.executable, "-m", "kernels.tools.child", task, folder],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=env, cwd=folder, start_new_session=True, text=True,
        )  # fmt: skip
        try:
            _, errors = child.communicate(json.dumps(request), timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()  # and no longer for its pipe, which a process that the source detached may hold
            raise KernelError(
                f"The kernel did not finish within {timeout:.0f} s and was stopped; "
                "look for a loop that never ends."
            ) from None
        if not answer.exists():
            said = errors.strip().splitlines() or [f"exit code {child.returncode}"]
            cause = said[-1] if child.returncode >= 0 else f"signal {-child.returncode}"
            raise KernelError(f"The process that ran the kernel ended early ({cause}).")
        try:
            reply = json.loads(answer.read_text())
        except ValueError:
            raise KernelError("The process that ran the kernel left an answer that cannot be read.") from None
    if "error" in reply:
        raise KernelError(reply["error"], reply["line"])
    return reply
