"""First run in a real chromium: start, watch, cancel, resume, reload and find the run again, move the handle."""

import pytest
from browser import browser, notebook
from playwright.sync_api import expect

from lab import runs

pytestmark = pytest.mark.browser


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    with notebook("notebooks/train/first_run.py", LAB_RUNS=str(tmp_path)) as url:
        yield url
    for run in runs.listed():
        if run.live:
            run.cancel(wait=5)


def choose(page, label, option):
    page.get_by_label(label, exact=True).select_option(label=option)


def test_train_cancel_resume_and_find_it_again(address):
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(address)
        monitor = page.locator(".lw-run_monitor")
        start = page.get_by_role("button", name="Train, ")
        expect(start).to_be_visible(timeout=60_000)
        choose(page, "size", "tiny: 2 layers, 64 wide")
        choose(page, "context, tokens", "32")
        expect(page.get_by_text("parameters,").first).to_contain_text("k parameters", timeout=30_000)
        start.click()

        # it is live: the step moves by itself, curves and samples come, no reload
        expect(monitor.locator(".state")).to_have_text("running", timeout=60_000)
        step = monitor.locator(".at")
        expect(step).to_contain_text("of 600")
        first = step.inner_text()
        expect(step).not_to_have_text(first, timeout=20_000)
        expect(page.locator(".lw-curves .chart")).to_have_count(7)
        expect(monitor.locator(".samples p").first).to_contain_text("The capital of France is", timeout=60_000)
        (run,) = runs.listed()

        # the handle follows the newest checkpoint, and the lens with it
        expect(page.get_by_text(f"Patch run:{run.id}@")).to_be_visible(timeout=150_000)
        expect(page.locator(".lab-lens")).to_be_visible()

        # a reload finds the very run, still going
        page.reload()
        expect(monitor.locator(".label")).to_have_text(run.id, timeout=60_000)
        monitor.get_by_role("button", name="Cancel").click()
        expect(monitor.locator(".state")).to_have_text("cancelled", timeout=30_000)
        assert run.state == "cancelled" and run.checkpoints()
        kept = run.checkpoints()[-1].step

        monitor.get_by_role("button", name="Resume").click()
        expect(monitor.locator(".state")).to_have_text("running", timeout=60_000)
        assert f"resumed at step {kept}" in run.log() or run.state == "running"
        monitor.get_by_role("button", name="Cancel").click()
        expect(monitor.locator(".state")).to_have_text("cancelled", timeout=30_000)

        # moving the handle shows another checkpoint in the lens
        marks = [c.step for c in run.checkpoints()]
        if len(marks) > 1:
            page.locator(".lw-scrubber input").press("Home")
            expect(page.get_by_text(f"run:{run.id}@{marks[0]}")).to_be_visible(timeout=30_000)
        assert len(runs.listed()) == 1
        page.close()
