"""Helpers for tests in a real chromium: a browser, a free port, and the lab served on it."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def chromium() -> str:
    """Path of an installed chromium; without one the browser tests fail, they are not skipped."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.fail("The browser tests need chromium: apt-get install chromium", pytrace=False)


@functools.cache
def driver() -> Playwright:
    """Playwright itself, once a process: its synchronous interface cannot be started twice in one thread."""
    started = sync_playwright().start()
    atexit.register(started.stop)
    return started


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A fresh chromium (nothing cached), closed at the end."""
    b = driver().chromium.launch(executable_path=chromium(), args=FLAGS)
    try:
        yield b
    finally:
        b.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until_up(url: str, process: subprocess.Popen, seconds: float = 60) -> None:
    """Until the address answers anything; fails with the process's end when it ends first."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError(f"nothing answered at {url} for {seconds} s")


@contextlib.contextmanager
def process(command: list[str], url: str, **env: str) -> Iterator[subprocess.Popen]:
    """A server as a child in its own process group, up when the block begins, gone after it."""
    child = subprocess.Popen(
        command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )  # fmt: skip
    try:
        wait_until_up(url, child)
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _marimo_run(path: Path | str, port: int) -> list[str]:
    options = ["--headless", "--no-token", "--port", str(port)]
    return [sys.executable, "-m", "marimo", "-q", "run", str(path), *options]


@contextlib.contextmanager
def notebook(path: Path | str, **env: str) -> Iterator[str]:
    """`marimo run path` alone; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with process(_marimo_run(path, port), url, **env):
        yield url


@contextlib.contextmanager
def front_page(**env: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """`marimo run app.py`; yields its address and its process."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with process(_marimo_run("app.py", port), url, **env) as child:
        yield url, child


@contextlib.contextmanager
def served(*options: str, host: str = "127.0.0.1", **env: str) -> Iterator[str]:
    """`python -m lab serve`: the whole lab on one port; yields its address."""
    port = free_port()
    url = f"http://{host}:{port}/"
    command = [sys.executable, "-m", "lab", "serve", "--port", str(port), *options]
    with process(command, url, **env):
        yield url
