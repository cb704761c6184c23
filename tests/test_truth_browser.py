"""The small grokking run in a real browser: it starts, is watched, its checkpoints are looked into, it stops."""

import pytest
from browser import notebook
from playwright.sync_api import Page, expect

from lab import paths


@pytest.mark.browser
def test_a_small_run_is_started_watched_and_cancelled(page: Page, tmp_path) -> None:
    with notebook(paths.NOTEBOOKS / "interp" / "grokking.py", LAB_RUNS=str(tmp_path)) as url:
        page.goto(url)
        start = page.get_by_role("button", name="Train, about")
        start.wait_for(timeout=60_000)
        start.click()
        expect(page.get_by_text("Key frequencies by the newest checkpoint")).to_be_visible(timeout=60_000)  # of a checkpoint of the running run
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_text("cancelled", exact=True)).to_be_visible(timeout=30_000)
