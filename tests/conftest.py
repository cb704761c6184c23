"""Shared by all tests: two threads, run directories of their own, a real chromium."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# before torch is imported anywhere; child processes inherit them
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "2")
_RUNS = tempfile.mkdtemp(prefix="lab-runs-")
os.environ["LAB_RUNS"] = _RUNS
os.environ["LAB_FOREIGN_KINDS"] = "1"  # tests register kinds of their own

import pytest  # noqa: E402
from browser import browser as chromium_started  # noqa: E402
from playwright.sync_api import Browser, BrowserContext, Page  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
SHOTS = ROOT / "build" / "screenshots"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first, those that execute notebooks next, those that drive the browser last."""

    def slowness(item: pytest.Item) -> int:
        if item.get_closest_marker("browser"):
            return 2
        return 1 if item.path.name == "test_notebooks.py" else 0

    items.sort(key=slowness)


def pytest_sessionfinish() -> None:
    shutil.rmtree(_RUNS, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """A failing test that has pages open leaves their pictures in build/screenshots."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when != "call" or not report.failed:
        return
    used = getattr(item, "funcargs", {}).values()
    pages = [u for u in used if isinstance(u, Page)]
    pages += [p for u in used if isinstance(u, BrowserContext) for p in u.pages if p not in pages]
    SHOTS.mkdir(parents=True, exist_ok=True)
    for i, page in enumerate(pages):
        page.screenshot(path=SHOTS / f"{item.name.replace('/', '-')}-{i}.png")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One chromium for the whole session."""
    with chromium_started() as started:
        yield started


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh profile: nothing cached, 1400 x 900, 20 s of patience."""
    fresh = browser.new_context(viewport={"width": 1400, "height": 900})
    fresh.set_default_timeout(20_000)
    yield fresh
    fresh.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """One tab."""
    return context.new_page()
