"""The pages of interventions in a real chromium: brush points and see them measured; trace facts and stop."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import notebook

pytestmark = pytest.mark.browser
WAIT = 60_000


def test_brushed_points_are_measured(page: Page):
    with notebook("notebooks/interp/estimates.py") as address:
        page.goto(f"{address}?model=pocket")
        plot = page.locator(".lw-scatter")
        state = plot.locator(".foot b")
        expect(state).to_contain_text("48 of 96 measured", timeout=WAIT)  # a sample, before anything is chosen
        expect(plot.locator("h3")).to_contain_text("r = ")
        box = plot.locator(".map canvas").first.bounding_box()
        assert box
        page.mouse.move(box["x"] + 62, box["y"] + 12)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 12, box["y"] + box["height"] - 60, steps=4)
        page.mouse.up()
        expect(state).to_contain_text(re.compile("9[0-6] of 96 measured, .* chosen"), timeout=WAIT)
        plot.locator(".map").focus()
        page.keyboard.press("Escape")
        expect(state).not_to_contain_text("chosen")
        page.keyboard.press("End")
        expect(plot.locator(".sr")).to_contain_text(re.compile("layer .*exact share restored"))
        page.keyboard.press(" ")
        expect(state).to_contain_text("1 chosen")


def test_facts_are_traced_one_after_another_and_stopped(page: Page):
    with notebook("notebooks/interp/causal_tracing.py") as address:
        page.goto(f"{address}?model=pocket")
        page.get_by_role("button", name=re.compile("Trace many facts")).click(timeout=WAIT)
        note = page.locator(".lw-bands .note").first
        expect(note).to_contain_text(re.compile("[1-9][0-9]* of 30 facts; average total effect"), timeout=WAIT)
        page.get_by_role("button", name="Cancel").last.click()
        expect(note).to_contain_text("facts, stopped", timeout=WAIT)
        expect(page.locator(".lw-table").first).to_contain_text("last subject token")
