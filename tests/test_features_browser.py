"""The features page in a real chromium: a sentence, a feature, its excerpts by keyboard, a row of the table, a run."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import notebook

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address():
    with notebook("notebooks/interp/features.py") as url:
        yield url


@pytest.fixture
def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.locator(".lw-excerpts .line").first.wait_for(timeout=120_000)
    return page


def feature(page: Page) -> str:
    return page.locator(".lw-excerpts h3").first.inner_text()


def test_a_choice_on_the_map_or_in_the_table_shows_that_feature(opened: Page):
    first = feature(opened)
    heat = opened.locator(".lw-heatmap .map")
    heat.focus()
    for key in ("ArrowUp", "ArrowUp", " "):
        opened.keyboard.press(key)
    expect(opened.locator(".lw-excerpts h3").first).not_to_have_text(first, timeout=30_000)
    row = opened.locator(".lw-table tbody tr").nth(2)
    number = row.locator("td").first.inner_text()
    row.click()
    expect(opened.locator(".lw-excerpts h3").first).to_have_text(f"Feature {number}", timeout=30_000)
    expect(opened.get_by_role("heading", name=f"Feature {number}").first).to_be_visible()
    assert re.search(r"changes by [+-]\d\.\d{3} nats", opened.locator("body").inner_text())


def test_excerpts_are_walked_by_keyboard(opened: Page):
    lines = opened.locator(".lw-excerpts .line")
    lines.first.focus()
    opened.keyboard.press("ArrowDown")
    expect(lines.nth(1)).to_be_focused()
    opened.keyboard.press("ArrowRight")
    expect(opened.locator(".lw-excerpts .lw-tip")).to_contain_text("activation")
    expect(lines.nth(1).locator(".at")).to_have_count(1)
    opened.keyboard.press("Enter")
    expect(lines.nth(1)).to_have_attribute("aria-selected", "true")
    opened.keyboard.press("Escape")
    expect(lines.nth(1)).to_have_attribute("aria-selected", "false")
    tabs = opened.locator(".lw-excerpts .tabs button")
    if tabs.count() > 1:
        tabs.nth(1).click()
        expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")


def test_a_dictionary_trains_while_one_watches(opened: Page):
    steps = opened.locator('[data-testid="marimo-plugin-number-input"] input').nth(2)
    steps.fill("20")
    steps.press("Enter")
    opened.get_by_role("button", name="Train, about").click()
    state = opened.locator(".lw-run_monitor .state")
    expect(state).to_have_text(re.compile("starting|running|done"), timeout=60_000)
    expect(state).to_have_text("done", timeout=120_000)
    expect(opened.locator(".lw-curves .chart")).to_have_count(6)
    opened.reload()
    expect(opened.locator("select").first).to_contain_text("TopK 16 of 512", timeout=60_000)
