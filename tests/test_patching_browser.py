"""The patching notebook in a real chromium: open, click, see the answer change, sweep, cancel."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser import notebook

pytestmark = [pytest.mark.browser, pytest.mark.smollm2]


@pytest.fixture(scope="module")
def address():
    with notebook("notebooks/interp/patching.py") as url:
        yield url


@pytest.fixture
def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.locator(".lw-patched .lens canvas").wait_for(timeout=120_000)
    return page


def click(page: Page, row: int, column: int, rows: int = 30, columns: int = 10, last: tuple[int, int] | None = None):
    """Click a cell of the first map, or drag from it to `last`; cells are found from the canvas's geometry."""
    page.locator(".lw-heatmap .map").first.scroll_into_view_if_needed()
    box = page.locator(".lw-heatmap .map canvas").first.bounding_box()
    assert box

    def at(r: int, c: int) -> tuple[float, float]:
        left, top, height = 25, 20, 13  # row labels, the axis title, one row
        return box["x"] + left + (box["width"] - left) * (c + 0.5) / columns, box["y"] + top + (rows - r - 0.5) * height

    page.mouse.move(*at(row, column))
    page.mouse.down()
    if last:
        page.mouse.move(*at(*last), steps=4)
    page.mouse.up()


def test_a_click_moves_the_eiffel_tower(opened: Page):
    answer, goes = (opened.locator(".lw-patched .panel").nth(i) for i in range(2))
    expect(answer).to_contain_text("the answer changes Paris → Tokyo")  # before anything is clicked
    click(opened, 6, 2)
    expect(answer).to_contain_text(re.compile(r"layer 6, position 2.*Paris → Tokyo", re.S), timeout=30_000)
    expect(goes).to_contain_text("Tokyo, Japan", timeout=30_000)
    click(opened, 6, 5)  # " located": both prompts say it, nothing comes back
    expect(answer).to_contain_text(re.compile(r"position 5.*the answer stays Paris", re.S), timeout=30_000)
    expect(goes).to_contain_text("Paris, France", timeout=30_000)
    click(opened, 3, 2, last=(8, 3))
    expect(answer).to_contain_text("12 cells", timeout=30_000)
    expect(answer).to_contain_text("12 receipts", timeout=30_000)
    expect(goes).to_contain_text("Tokyo, Japan", timeout=30_000)
    assert "null" not in opened.locator(".lw-patched").inner_text()


def test_another_site_answers_for_its_own_cell(opened: Page):
    answer, chosen = opened.locator(".lw-patched .panel").first, opened.get_by_text("cells selected").first
    click(opened, 3, 2, last=(8, 3))
    expect(answer).to_contain_text("12 receipts", timeout=30_000)
    opened.get_by_label("site").select_option("MLP output")
    expect(answer).to_contain_text("Patched: layer", timeout=30_000)
    expect(answer).to_contain_text("changed the output by", timeout=30_000)
    opened.get_by_label("site").select_option("residual stream (pre)")
    expect(chosen).to_contain_text("12", timeout=30_000)  # the choice made there before, on the map and beside it
    expect(answer).to_contain_text("12 receipts", timeout=30_000)


def test_the_sweep_can_be_cancelled_and_run_to_its_end(opened: Page):
    title = opened.locator(".lw-heatmap h3").first
    expect(title).to_contain_text("estimated")
    label = opened.get_by_role("button", name="Sweep exactly").locator("span").last
    inks = label.evaluate("e => [getComputedStyle(e).color, getComputedStyle(e.closest('button')).backgroundColor]")
    assert inks[0] != inks[1], "the dark button's label cannot be read"
    opened.get_by_role("button", name="Sweep exactly").click()
    expect(title).to_contain_text("exact:", timeout=30_000)
    opened.get_by_role("button", name="Cancel").first.click()
    expect(title).to_contain_text("cancelled at", timeout=30_000)
    opened.get_by_role("button", name="Sweep exactly").click()
    expect(title).to_contain_text("the estimate correlates", timeout=120_000)
    answer = opened.locator(".lw-patched .panel").first
    started = time.perf_counter()
    click(opened, 12, 2)  # what the sweep measured is there without a word from Python
    expect(answer).to_contain_text("layer 12, position 2")
    expect(answer).to_contain_text("returns")
    assert time.perf_counter() - started < 5


def test_bad_prompts_are_sentences_and_unequal_ones_are_warned_about(opened: Page):
    opened.get_by_text("Write your own prompts").click()
    answer = opened.get_by_label("answer").first
    answer.fill("Antananarivo")
    answer.press("Enter")
    expect(opened.get_by_role("alert").first).to_contain_text("is 4 tokens for this model", timeout=30_000)
    opened.get_by_label("of an answer that is several tokens, use the first").click()
    expect(opened.locator(".lw-heatmap").first).to_be_visible(timeout=60_000)
    opened.get_by_label("fact").select_option("Eiffel Tower to Tokyo, unequal lengths")
    expect(opened.get_by_text("The prompts have 9 and 10 tokens")).to_be_visible(timeout=60_000)
