"""The two live pages of inference and evals in a real browser: read a sample, run an eval, generate, cancel."""

import re

import pytest
from browser import notebook
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_reading_and_running_the_facts_eval(page: Page) -> None:
    with notebook("notebooks/evals/facts.py") as url:
        page.goto(url)
        reader = page.locator(".lw-eval_reader")
        expect(reader.locator("tbody tr").first).to_be_visible(timeout=60_000)
        every = reader.locator(".scroll tbody tr").count()
        reader.get_by_role("button", name=re.compile("^pocket wrong")).click()
        wrong = reader.locator(".scroll tbody tr")
        expect(wrong.first).to_be_visible()
        assert 0 < wrong.count() < every
        prompt = wrong.nth(1).locator("td").nth(1).inner_text()
        wrong.nth(1).click()
        shown = reader.locator("section").first
        expect(shown.locator(".verdict")).to_have_text("✗")
        given = "".join(shown.locator(".tok.given").all_inner_texts()).replace("·", " ").replace("⏎", "\n")
        assert given == prompt
        shown.locator(".tok.made").first.click()
        expect(shown.locator(".alternatives tbody tr")).to_have_count(5)

        page.get_by_role("button", name=re.compile("^Evaluate both")).click()
        monitor = page.locator(".lw-run_monitor")
        expect(monitor).to_contain_text("running", timeout=60_000)
        expect(monitor).to_contain_text(re.compile(r"step [1-9]"), timeout=90_000)
        monitor.get_by_role("button", name="Cancel").click()
        expect(monitor).to_contain_text("cancelled", timeout=60_000)


def test_generating_and_cancelling(page: Page) -> None:
    with notebook("notebooks/inference/prefill_decode.py") as url:
        page.goto(url)
        strip = page.locator(".lw-tokens")
        expect(strip).to_contain_text("tokens in", timeout=60_000)
        made = strip.locator(".toks").nth(1)
        before = made.text_content()
        expect(page.locator(".lw-roofline").nth(1)).to_be_visible()
        page.get_by_role("button", name=re.compile("^Generate")).click()
        expect(made).not_to_have_text(before or "", timeout=60_000)
        expect(strip).to_contain_text("tokens in", timeout=60_000)
        page.locator("textarea").first.fill("")
        page.wait_for_timeout(500)  # the page tells Python a tenth of a second after the last key
        page.get_by_role("button", name=re.compile("^Generate")).click()
        expect(strip).to_contain_text("The prompt is empty", timeout=60_000)
