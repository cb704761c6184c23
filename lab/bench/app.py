"""How long a person waits for the lab: front page, a notebook, coming back to it. Needs chromium."""

import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from lab import paths, records
from lab.bench import bench
from lab.errors import LabError

NOTEBOOK = "interp/patching"
REPEATS = 3
WAIT_MS = 120_000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
# resolves when the browser has put on the screen what the selector finds
PAINTED = """selector => new Promise(done => {
  const look = () => document.querySelector(selector)?.getClientRects().length
    ? requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))) : setTimeout(look, 5);
  look();
})"""
RETURN = """path => new Promise(done => {
  const start = performance.now();
  const look = () => document.querySelector(`.ll-shown iframe[data-path="${path}"]`)
    ? requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start))) : setTimeout(look, 1);
  document.querySelector(`.ll-navlist a[href="#/${path}"]`).click();
  look();
})"""


def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise LabError("This benchmark drives chromium and finds none: install it (apt-get install chromium).")


@contextlib.contextmanager
def _app() -> Iterator[str]:
    """`marimo run app.py` on a free port, up and answering."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-m", "marimo", "-q", "run", "app.py", "--headless", "--no-token", "--port", str(port)]
    child = subprocess.Popen(command, cwd=paths.ROOT, start_new_session=True, env={**os.environ, "PYTHONPATH": str(paths.ROOT)})
    try:
        while True:
            if child.poll() is not None:
                raise LabError(f"`marimo run app.py` ended with {child.returncode}; its output above says why.")
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{url}health", timeout=2).close()
                break
            time.sleep(0.05)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _visit(p: Any, url: str, with_notebook: bool) -> dict[str, float]:
    """One cold browser: seconds to the map, to the notebook's first result, and back to it."""
    browser = p.chromium.launch(executable_path=_chromium(), args=FLAGS)
    try:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(WAIT_MS)
        page.goto(url, wait_until="commit")
        took = {"paint": page.evaluate(PAINTED, ".ll-station") / 1e3}
        if not with_notebook:
            return took
        page.locator(".ll-radio").first.wait_for()  # the lab is up: it has told what models there are
        page.wait_for_timeout(4000)  # a person looks at the map
        start = time.perf_counter()
        page.locator(f'.ll-navlist a[href="#/{NOTEBOOK}"]').click()
        frame = page.frame_locator(f'iframe[data-path="{NOTEBOOK}"]')
        frame.locator("canvas").first.wait_for()
        took["open"] = time.perf_counter() - start
        page.locator(".ll-brand").click()
        page.wait_for_timeout(500)
        took["return"] = page.evaluate(RETURN, NOTEBOOK) / 1e3
        return took
    finally:
        browser.close()


@bench("app")
def app() -> None:
    """Medians over fresh browsers that have cached nothing."""
    from playwright.sync_api import sync_playwright

    from lab import front

    with sync_playwright() as p:
        front.HEAD.unlink(missing_ok=True)
        with _app() as url:
            first = _visit(p, url, with_notebook=False)["paint"]
            visits = [_visit(p, url, with_notebook=True) for _ in range(REPEATS)]
    medians = {key: statistics.median(v[key] for v in visits) for key in visits[0]}
    records.write_cases(
        "app.first_paint_s", {"first_visit": first, "later": medians["paint"]}, "s", bar=3.0,
        note="cold browser to the map on the screen, server up; the first visit ever has no page as last seen",
    )  # fmt: skip
    spread = {key: [round(v[key], 3) for v in visits] for key in visits[0]}
    records.write(
        "app.open_notebook_s", medians["open"], "s", bar=4.0, detail={"visits": spread["open"]},
        note="click to the first map drawn in interp/patching; cold browser, model cached, lab warm",
    )  # fmt: skip
    records.write(
        "app.return_to_notebook_s", medians["return"], "s", bar=0.2, detail={"visits": spread["return"]},
        note="click to the notebook on the screen again",
    )  # fmt: skip
