"""Which process a run is: a pid together with when it started, so that a recycled pid is another process."""

import os
import signal
import time
from pathlib import Path

import psutil


def mark(pid: int) -> str | None:
    """What tells this process from any later one with the same pid; None when there is none (or a zombie)."""
    try:
        # On Linux the kernel's own start time, in ticks since boot, does not move with the clock.
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if stat[0] in "ZX":
            return None
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}:{stat[19]}"
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except ProcessLookupError:
        return None
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.3f}"
    except psutil.Error:
        return None


def alive(pid: int, expected: str) -> bool:
    """Whether that very process still runs."""
    return mark(pid) == expected


def kill(pid: int, expected: str, wait: float = 5.0) -> None:
    """End the process and its group at once; it leads its own session, so nobody else is in the group."""
    if not alive(pid, expected):
        return
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    until = time.monotonic() + wait
    while alive(pid, expected) and time.monotonic() < until:
        time.sleep(0.01)
