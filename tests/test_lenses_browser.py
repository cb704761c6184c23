"""The pages of lenses and heads in a real chromium: switch lenses, hover, choose heads in the table and on the map."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import notebook

pytestmark = pytest.mark.browser


def test_the_grid_of_words_switches_lenses_and_tells_more_on_hover(page: Page):
    with notebook("notebooks/interp/lenses.py") as url:
        page.goto(url)
        grid = page.locator(".lw-textgrid").first
        grid.locator("canvas").last.wait_for(timeout=60_000)
        tuned, logit = (grid.get_by_role("button", name=name) for name in ("tuned lens", "logit lens"))
        expect(tuned).to_have_attribute("aria-pressed", "true")
        foot = grid.locator(".foot")
        expect(foot).to_contain_text("layer 7")
        scroll = grid.locator(".scroll")
        scroll.focus()
        scroll.press("ArrowDown")
        expect(foot).to_contain_text("layer 6")
        said = foot.inner_text()
        logit.click()
        expect(foot).not_to_have_text(said)  # the same cell, read by the other lens
        grid.get_by_role("button", name="entropy").click()
        expect(grid.locator(".legend")).to_contain_text("nats")
        box = scroll.bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 34)
        tip = grid.locator(".lw-tip")
        expect(tip).to_contain_text("KL to the end 0")  # the last layer is the model
        expect(page.get_by_text(re.compile(r"closer in 8 of 8 layers"))).to_be_visible(timeout=30_000)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_head_is_chosen_in_the_table_and_on_the_map(page: Page):
    with notebook("notebooks/interp/heads.py") as url:
        page.goto(url)
        title = page.get_by_role("heading", name=re.compile(r"Head \d\.\d of pocket"))
        expect(title).to_contain_text("Head 6.2", timeout=60_000)
        page.locator(".lw-table").first.get_by_role("gridcell", name="5.1", exact=True).click()
        expect(title).to_contain_text("Head 5.1", timeout=30_000)
        expect(page.locator(".lw-attention h3")).to_contain_text("layer 5, head 1", timeout=30_000)
        heat = page.locator(".lw-heatmap .map").first
        heat.focus()
        heat.press("ArrowRight")
        heat.press("Enter")
        expect(title).to_contain_text("Head 6.3", timeout=30_000)
