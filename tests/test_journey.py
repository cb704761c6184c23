"""The lab as a person uses it, in a real chromium: patch by clicking, train, come back, share, open the file offline.

Patching runs on SmolLM2, which `make test` fetches; sharing on the bundled model.
"""

import re
import time
from pathlib import Path

import pytest
from browser import front_page
from playwright.sync_api import BrowserContext, FrameLocator, Locator, Page, expect

from lab import runs

pytestmark = pytest.mark.browser
WAIT = 90_000


@pytest.fixture(scope="module")
def lab():
    with front_page() as (url, _):
        yield url


def opened(page: Page, lab: str, path: str, query: str = "") -> FrameLocator:
    """A notebook of the lab in its frame, opened by its deep link."""
    page.goto(f"{lab}#/{path}{query}")
    return page.frame_locator(f'iframe[data-path="{path}"]')


def choose(notebook: FrameLocator | Locator, across: float, up: float) -> None:
    """Click the residual stream's map at a fraction of its cells, from the lower left."""
    heat = notebook.locator(".lw-heatmap .map").first
    heat.wait_for(timeout=WAIT)
    size = heat.bounding_box()
    assert size
    # 40 px of row labels at the left; 20 px of title above the cells and 66 px of column labels below
    x, y = 40 + (size["width"] - 42) * across, 20 + (size["height"] - 86) * (1 - up)
    heat.click(position={"x": x, "y": y})


def answer(notebook: FrameLocator | Locator) -> Locator:
    """The panel that says what the patch did."""
    return notebook.locator(".lw-patched .panel").first


def verdict(notebook: FrameLocator | Locator, says: str) -> str:
    """Wait until the panel's verdict says this; returns the panel's text."""
    expect(answer(notebook).locator(".verdict")).to_contain_text(says, timeout=WAIT)
    return answer(notebook).inner_text()


def test_a_first_visitor_changes_the_answer(lab: str, page: Page) -> None:
    began = time.monotonic()
    page.goto(lab)
    page.locator(".ll-navlist a", has_text="Patching").click()
    notebook = page.frame_locator('iframe[data-path="interp/patching"]')
    # the first token is the same in both prompts: nothing to restore there, whatever the layer
    answer(notebook).wait_for(timeout=WAIT)
    choose(notebook, 0.03, 0.97)
    stays = verdict(notebook, "the answer stays")
    assert "position 0" in stays
    # the last layer at the last token holds the answer
    choose(notebook, 0.97, 0.98)
    changes = verdict(notebook, "the answer changes")
    assert float(re.search(r"(\d+)% of the", changes)[1]) > 50
    assert time.monotonic() - began < 120
    expect(notebook.locator(".lw-patched .panel", has_text="It goes on")).not_to_contain_text("…", timeout=WAIT)
    notebook.get_by_role("button", name="Sweep exactly").first.click()
    expect(notebook.locator(".lw-heatmap h3").first).not_to_contain_text("estimated", timeout=WAIT)


def test_two_tabs_patch_the_same_model_at_once(lab: str, context: BrowserContext) -> None:
    one, two = (opened(context.new_page(), lab, "interp/patching") for _ in range(2))
    for notebook in (one, two):
        answer(notebook).wait_for(timeout=WAIT)
        notebook.locator(".lw-heatmap .map").first.wait_for(timeout=WAIT)
    for _ in range(3):
        # clicks go out before either answer is awaited
        choose(one, 0.03, 0.97)
        choose(two, 0.97, 0.98)
        alone = verdict(one, "the answer stays"), verdict(two, "the answer changes")
        choose(one, 0.97, 0.98)
        choose(two, 0.03, 0.97)
        swapped = verdict(two, "the answer stays"), verdict(one, "the answer changes")
        assert swapped == alone


def test_train_cancel_reload_and_find_it_again(lab: str, page: Page) -> None:
    before = {run.id for run in runs.listed()}
    notebook = opened(page, lab, "train/first_run")
    size = notebook.locator("select", has=notebook.locator("option", has_text="tiny:"))
    button = notebook.get_by_role("button", name=re.compile("^Train"))
    cost = button.inner_text(timeout=WAIT)
    size.select_option(label=size.locator("option", has_text="tiny:").inner_text(timeout=WAIT))
    expect(button).not_to_have_text(cost, timeout=WAIT)  # the button is made anew: a click on the old one would be lost
    button.click(timeout=WAIT)
    monitor = notebook.locator(".lw-run_monitor")
    expect(monitor.locator(".state")).to_have_text("running", timeout=WAIT)
    expect(monitor.locator(".at")).to_contain_text(re.compile(r"step [1-9]"), timeout=WAIT)
    monitor.get_by_role("button", name="Cancel").click()
    expect(monitor.locator(".state")).to_have_text("cancelled", timeout=WAIT)
    (new,) = (run for run in runs.listed() if run.id not in before)
    rows = new.metrics()
    assert rows and new.state == "cancelled"
    page.reload()
    found = page.frame_locator('iframe[data-path="train/first_run"]')
    expect(found.locator(".lw-run_monitor .state")).to_have_text("cancelled", timeout=WAIT)
    expect(found.locator(".lw-run_monitor .label")).to_have_text(new.id)
    expect(found.locator(".lw-table tbody tr").first).to_contain_text("cancelled")
    assert new.metrics() == rows
    # and the front page shows it
    page.locator(".ll-brand").click()
    expect(page.locator("#looplab")).to_contain_text("cancelled", timeout=WAIT)


def test_share_and_open_the_file_with_the_network_off(lab: str, context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    notebook = opened(page, lab, "interp/patching", "?model=pocket")
    answer(notebook).wait_for(timeout=WAIT)
    with page.expect_download(timeout=3 * WAIT) as download:
        notebook.get_by_text("Share as HTML").click()
    file = tmp_path / "patching.html"
    download.value.save_as(file)
    page.close()

    alone = context.new_page()
    attempts = watch_offline(alone, file)
    alone.goto(file.as_uri())
    shared = alone.locator("body")
    shared.locator(".lw-heatmap .map").first.wait_for(timeout=WAIT)
    assert re.search(r"Exported from the lab on .* with pocket\.", alone.locator(".lab-shared").inner_text())
    choose(shared, 0.03, 0.97)
    verdict(shared, "the answer stays")
    choose(shared, 0.97, 0.98)
    verdict(shared, "the answer changes")
    assert attempts == []


def watch_offline(page: Page, file: Path) -> list[str]:
    """Cut the network; the list fills with every request but the file's own, and with errors."""
    wrong: list[str] = []
    page.context.set_offline(True)
    page.route(re.compile("^(?!file:|blob:|data:)"), lambda route: route.abort())
    own = re.compile(f"{re.escape(file.as_uri())}|blob:|data:")
    page.on("request", lambda r: None if own.match(r.url) else wrong.append(r.url))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    return wrong
