"""The compiled programs in a real chromium: another input, another program, a refused token, ACDC run and cancelled."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import notebook

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address():
    with notebook("notebooks/interp/tracr.py") as url:
        yield url


def test_the_page_answers_what_is_typed(page: Page, address: str):
    page.goto(address)
    strips = page.locator(".lw-tokens").first
    expect(strips).to_contain_text(re.compile(r"the weights answer\s*BOS\s*3\s*2\s*1"), timeout=120_000)
    typed = page.locator("input[type=text]").first
    typed.fill("1 1 2 3")
    expect(strips).to_contain_text(re.compile(r"the weights answer\s*BOS\s*3\s*2\s*1\s*1"), timeout=30_000)
    expect(page.locator(".stream thead th.p")).to_have_count(5 * 6)  # BOS and four tokens, after six parts
    expect(page.locator(".stream td[title='length:4, 1 at 1, after m0: 1.000']")).to_have_count(1)
    typed.fill("1 9")
    expect(page.locator("[data-kind=bad]")).to_contain_text("'9' is not a token of this program", timeout=30_000)

    page.locator("select").first.select_option(label="Fraction of previous x")
    expect(strips).to_contain_text("0.667", timeout=30_000)
    row = page.locator(".lw-table", has_text=re.compile(r"(?<!\d)4 rows")).locator("tr", has_text="ACDC")
    expect(row).to_contain_text("–")
    page.get_by_role("button", name="Run ACDC").click()
    expect(row).to_contain_text(re.compile(r"1\.000\D*1\.000\D*0\.800"), timeout=60_000)
    expect(page.locator("[data-kind=bad]")).to_have_count(0)

    page.locator("select").first.select_option(label="Brackets balanced?")
    expect(strips).to_contain_text("True", timeout=30_000)
    page.get_by_role("button", name="Run ACDC").click()
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_timeout(2500)
    before = row.inner_text()
    page.wait_for_timeout(3000)
    assert row.inner_text() == before and "–" in before  # cancelled: no more ablations are filled in
