"""Every widget in a real browser: through marimo (shadow roots, kernel, traits read back in Python), and alone in
a bare page, which is how Jupyter and an exported file hold them."""

import base64
import json
import time
from pathlib import Path

import numpy as np
import pytest
from browser import browser, notebook

from widgets.assets import css, esm
from widgets.curves import Curves
from widgets.heatmap import Heatmap

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def address():
    with notebook("tests/widgets_demo.py") as url:
        yield url + "?theme=system"


@pytest.fixture(scope="module")
def page(chromium, address):
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(address)
    page.wait_for_selector("#live-rows", timeout=60_000)
    page.wait_for_selector(".lw-scrubber", timeout=30_000)
    page.wait_for_timeout(500)
    yield page
    page.close()


def said(page, name, want, timeout=8):
    """Waits until Python says `want` in the element `name`; Python is the judge of what a click did."""
    deadline = time.monotonic() + timeout
    got = None
    while time.monotonic() < deadline:
        got = json.loads(page.locator(f"#{name}").inner_text())
        if got == want or (callable(want) and want(got)):
            return got
        page.wait_for_timeout(50)
    pytest.fail(f"{name} is {got}")
    return None


def ink(page, canvas, x, y):
    """The colour at a css position of a canvas."""
    return canvas.evaluate(
        "(c, [x, y]) => { const k = c.width / c.clientWidth; return [...c.getContext('2d').getImageData(x * k, y * k, 1, 1).data] }", [x, y]
    )


def sorted_cells(cells):
    return lambda got: sorted(got) == sorted(cells)


class Grid:
    """Where the first heat map (30 x 10) has its cells on the screen: found from its own drawing constants."""

    def __init__(self, page):
        self.map = page.locator(".lw-heatmap .map").first
        self.map.scroll_into_view_if_needed()
        box = self.map.bounding_box()
        self.box, self.cell_h, self.top = box, 13, 20
        # the left gutter is what remains: columns are equal, the last one ends 2 px before the canvas does
        widths = self.map.evaluate(
            "(m) => { const c = m.querySelector('canvas').getContext('2d'); c.save(); c.font = '12px ' + getComputedStyle(m.closest('.lw')).getPropertyValue('--sans'); const w = c.measureText('29').width; c.restore(); return w }"
        )
        self.left = max(14, int(-(-widths // 1))) + 9
        self.cell_w = min(84, (int(box["width"]) - self.left - 2) / 10)

    def at(self, row, col):
        return (
            self.box["x"] + self.left + (col + 0.5) * self.cell_w,
            self.box["y"] + self.top + (29 - row + 0.5) * self.cell_h,
        )


def test_heatmap_mouse(page):
    grid = Grid(page)
    said(page, "heat-selected", [[9, 2]])
    assert "Patched: layer 9" in page.locator(".lw-heatmap .aside").first.inner_text()
    page.mouse.click(*grid.at(4, 7))
    said(page, "heat-selected", [[4, 7]])
    page.keyboard.down("Shift")
    page.mouse.click(*grid.at(5, 2))
    page.keyboard.up("Shift")
    said(page, "heat-selected", sorted_cells([[4, 7], [5, 2]]))
    assert "2 cells" in page.locator(".lw-heatmap .aside").first.inner_text()
    page.mouse.move(*grid.at(2, 1))
    page.mouse.down()
    page.mouse.move(*grid.at(3, 2))
    page.mouse.move(*grid.at(4, 3))
    page.mouse.up()
    said(page, "heat-selected", sorted_cells([[r, c] for r in (2, 3, 4) for c in (1, 2, 3)]))
    page.mouse.move(*grid.at(21, 7))
    assert "not computed yet" in page.locator(".lw-heatmap .lw-tip").first.inner_text()
    page.mouse.move(*grid.at(7, 2))
    assert "0.97" in page.locator(".lw-heatmap .lw-tip").first.inner_text()
    page.mouse.move(5, 5)


def test_heatmap_keys(page):
    grid = Grid(page)
    page.mouse.click(*grid.at(10, 2))
    said(page, "heat-selected", [[10, 2]])
    for key in ("ArrowUp", "ArrowRight", "Space"):
        page.keyboard.press(key)
    said(page, "heat-selected", sorted_cells([[10, 2], [11, 3]]))
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Shift+ArrowRight")
    said(page, "heat-selected", sorted_cells([[11, 3], [11, 4], [12, 3], [12, 4]]))
    page.keyboard.press("Escape")
    said(page, "heat-selected", [])


def test_heatmap_fills_in_live_and_keeps_the_selection(page):
    grid = Grid(page)
    page.mouse.click(*grid.at(22, 7))
    said(page, "heat-selected", [[22, 7]])
    page.get_by_role("button", name="fill the map").click()
    page.wait_for_timeout(400)
    page.mouse.move(*grid.at(22, 7))
    assert "0.5" in page.locator(".lw-heatmap .lw-tip").first.inner_text()
    said(page, "heat-selected", [[22, 7]])


def test_curves(page):
    widget = page.locator(".lw-curves").first
    widget.scroll_into_view_if_needed()
    widget.get_by_role("button", name="half the rate").click()
    said(page, "curves-state", [None, ["b"], ["grad_norm"]])
    widget.get_by_role("button", name="log").first.click()
    said(page, "curves-state", [None, ["b"], ["grad_norm", "loss"]])
    plot = widget.locator(".plot").first
    box = plot.bounding_box()
    middle = (box["x"] + 46 + (box["width"] - 56) / 2, box["y"] + 60)
    page.mouse.move(*middle)
    assert widget.locator(".at").inner_text().startswith("step 7")
    page.mouse.click(*middle)
    cursor = said(page, "curves-state", lambda s: s[0] is not None)[0]
    assert 730 <= cursor <= 770
    page.keyboard.press("ArrowRight")
    said(page, "curves-state", lambda s: s[0] == cursor + 1)
    page.keyboard.press("Home")
    said(page, "curves-state", lambda s: s[0] == 0)
    page.keyboard.press("Escape")
    said(page, "curves-state", lambda s: s[0] is None)
    page.mouse.move(middle[0] - 60, middle[1])
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1], steps=4)
    page.mouse.up()
    whole = widget.get_by_role("button", name="Whole range")
    assert whole.is_visible()
    whole.click()
    assert not whole.is_visible()
    widget.get_by_role("button", name="half the rate").click()
    with page.expect_download() as waiting:
        widget.get_by_role("button", name="CSV").click()
    lines = Path(waiting.value.path()).read_text("utf-8").splitlines()
    assert lines[0] == "run,step,loss,grad_norm,lr,tokens_per_s,mfu"
    assert len(lines) == 1 + 1500 + 900


def test_curves_from_a_thread(page):
    """The demo's thread appends 1000 rows (the tail is merged on the way) through the trait; no cell runs again, every row arrives."""
    widget = page.locator(".lw-curves").nth(1)
    widget.scroll_into_view_if_needed()
    page.get_by_role("button", name="start the thread").click()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        widget.locator(".plot").first.focus()
        page.keyboard.press("End")
        if widget.locator(".at").inner_text() == "step 999":
            break
        page.wait_for_timeout(200)
    assert widget.locator(".at").inner_text() == "step 999"


def test_tokens(page):
    widget = page.locator(".lw-tokens").first
    widget.scroll_into_view_if_needed()
    boxes = widget.locator(".tok")
    boxes.nth(2).click()
    said(page, "tokens-selected", 2)
    assert widget.locator("[aria-selected=true]").count() == 2
    boxes.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert "id 101" in widget.locator(".lw-tip").inner_text()
    page.keyboard.press("Enter")
    said(page, "tokens-selected", 1)
    page.keyboard.press("Escape")
    said(page, "tokens-selected", None)
    boxes.nth(3).hover()
    assert "id 103" in widget.locator(".lw-tip").inner_text()
    assert widget.locator(".tok.mark").count() == 4


def test_attention(page):
    widget = page.locator(".lw-attention").first
    widget.scroll_into_view_if_needed()
    widget.get_by_role("option", name="head 9.5").click()
    said(page, "attention-state", [5, None])
    page.keyboard.press("ArrowLeft")
    said(page, "attention-state", [4, None])
    widget.locator(".map").focus()
    page.keyboard.press("ArrowUp")
    said(page, "attention-state", [4, 17])
    page.keyboard.press("Escape")
    said(page, "attention-state", [4, None])
    widget.get_by_role("option", name="head 9.3").click()
    widget.locator(".looks .tok").nth(10).hover()
    # head 3 looks one token back
    assert "“Paris” (10) looks at “of” (9)" in widget.locator(".say").inner_text()


def test_table(page):
    widget = page.locator(".lw-table").first
    widget.scroll_into_view_if_needed()
    assert widget.locator("tbody tr").count() < 80, "only rows in sight exist"
    widget.get_by_role("button", name="self time, µs").click()
    said(page, "table-state", [[], ["self_us", "down"], ""])
    figures = [float(text.replace(",", "")) for text in widget.locator("tbody tr[data-at] td:nth-child(4)").all_inner_texts()]
    assert figures == sorted(figures, reverse=True)
    widget.get_by_role("button", name="self time, µs").click()
    said(page, "table-state", [[], ["self_us", "up"], ""])
    widget.locator("input").fill("layers.7/")
    said(page, "table-state", [[], ["self_us", "up"], "layers.7/"])
    assert "of 5,000 rows" in widget.locator(".count").inner_text()
    scroll = widget.locator(".scroll")
    scroll.evaluate("(e) => e.scrollTo(0, 1e9)")
    page.wait_for_timeout(100)
    assert widget.locator("tbody tr[data-at]").last.inner_text().split("\t")[3] == "–", "what is missing is last"
    scroll.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    state = said(page, "table-state", lambda s: len(s[0]) == 2)
    with page.expect_download() as waiting:
        widget.get_by_role("button", name="CSV").click()
    lines = Path(waiting.value.path()).read_text("utf-8").splitlines()
    assert lines[0] == 'operator,token,calls,"self time, µs",share of step,module'
    assert '"model/layers.7/mlp, ""' in "".join(lines)
    page.keyboard.press("Escape")
    assert state[1] == ["self_us", "up"]


def test_roofline(page):
    widget = page.locator(".lw-roofline").first
    widget.locator(".plot").focus()
    page.keyboard.press("ArrowLeft")
    said(page, "roofline-state", 2)  # the point of highest intensity
    assert "61.7% of H200 bf16 (compute-bound)" in widget.locator(".say").inner_text()
    page.keyboard.press("Home")
    said(page, "roofline-state", 1)
    # 1.6 TFLOP/s of the 4.8 TB/s x 0.9 FLOP/byte = 4.32 TFLOP/s the memory allows
    assert "37.0% of H200 bf16 (memory-bound)" in widget.locator(".say").inner_text()
    page.keyboard.press("Escape")
    said(page, "roofline-state", None)


def test_scrubber(page):
    widget = page.locator(".lw-scrubber").first
    widget.locator("input").focus()
    page.keyboard.press("ArrowRight")
    said(page, "scrubber-state", 600)
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    said(page, "scrubber-state", 1900)
    widget.get_by_role("button", name="Play").click()
    said(page, "scrubber-state", 2000)
    widget.get_by_role("button", name="Play").wait_for()  # it stops by itself
    page.get_by_role("button", name="one more checkpoint").click()
    said(page, "scrubber-state", 2100)  # it stood at the end, so it follows


def test_theme_follows_live_and_nothing_overflows(page):
    root, canvas = page.locator(".lw-heatmap").first, page.locator(".lw-heatmap .map canvas").first
    light = canvas.evaluate("(c) => c.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(400)
    assert {one.get_attribute("data-theme") for one in page.locator(".lw").all()} == {"dark"}
    assert root.evaluate("(e) => getComputedStyle(e).color") == "rgb(236, 238, 241)"
    assert canvas.evaluate("(c) => c.toDataURL()") != light
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(400)
    assert canvas.evaluate("(c) => c.toDataURL()") == light
    for width in (900, 420):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(400)
        for widget in page.locator(".lw").all():
            assert widget.bounding_box()["width"] > 120, "a widget beside others in a row keeps a width"
            wide = widget.evaluate(
                "(e) => [...e.querySelectorAll('*')].filter((c) => !c.closest('.scroll table') && !c.classList.contains('sr') && !c.closest('.lw-tip')"
                " && c.getBoundingClientRect().right > e.getBoundingClientRect().right + 1.5).map((c) => c.tagName + '.' + c.className)"
            )
            assert not wide, (width, widget.get_attribute("class"), wide)
    page.set_viewport_size({"width": 1400, "height": 1000})
    assert page.errors == []


ALONE = """<!doctype html><html lang="en"><body><div id="here"></div><script type="module">
import widget from "data:text/javascript;base64,%s";
const state = %s, heard = {};
const decode = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
for (const [key, value] of Object.entries(state)) if (value && value.bytes !== undefined) state[key] = decode(value.bytes);
const model = {
  get: (key) => state[key],
  set: (key, value) => { state[key] = value; for (const fn of heard[key] ?? []) fn(); },
  on: (name, fn) => (heard[name.slice(7)] ??= new Set()).add(fn),
  off: (name, fn) => heard[name.slice(7)]?.delete(fn),
  save_changes: () => {},
};
window.state = state; window.heard = heard;
window.end = await widget.render({ model, el: document.getElementById("here") });
</script></body></html>"""


def alone(widget, name):
    """A page that holds one widget through the bare anywidget interface: no marimo, no Python behind it."""

    state = {
        key: {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes | memoryview) else value
        for key, value in widget.get_state().items()
        if key != "layout" and not key.startswith("_")
    }
    code = base64.b64encode(esm(name).encode()).decode()
    html = ALONE % (code, json.dumps(state))
    return html.replace("<body>", f"<style>{css(name)}</style><body>")


def test_alone_it_explores_without_python(chromium):
    heat = Heatmap([[0.0, 1.0], [-1.0, 0.5]], details={"0,1": {"title": "restored", "bars": [[" Paris", 0.7]]}})
    with chromium.new_context(color_scheme="dark", viewport={"width": 1000, "height": 600}) as context:
        page = context.new_page()
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content(alone(heat, "heatmap"))
        page.wait_for_selector(".lw-heatmap")
        assert page.locator(".lw").get_attribute("data-theme") == "dark", "follows prefers-color-scheme"
        page.locator(".map").focus()
        for key in ("ArrowRight", "Enter"):
            page.keyboard.press(key)
        assert page.evaluate("state.selected") == [[0, 1]]
        assert "restored" in page.locator(".aside").inner_text() and "0.700" in page.locator(".aside").inner_text()
        page.evaluate("document.documentElement.className = 'light'")
        page.wait_for_function("document.querySelector('.lw').dataset.theme === 'light'")
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.wait_for_function("document.querySelector('.lw').dataset.theme === 'dark'")
        page.evaluate("end()")
        assert page.evaluate("Object.values(heard).reduce((n, s) => n + s.size, 0)") == 0, "listeners are taken off again"
        assert page.locator(".lw").count() == 0
        assert errors == []


def test_curves_rows_that_repeat_or_come_late(chromium):
    """A resumed run writes steps again: the later row wins; a late row finds its place."""
    curves = Curves([{"id": "a", "label": "a"}], [{"key": "loss", "title": "Loss"}, {"key": "lr", "title": "lr"}])
    curves.append([{"step": s, "loss": float(s)} for s in (1, 2, 4)])
    curves.append([{"step": 2, "loss": 20.0}, {"step": 3, "lr": 0.5}])
    page = chromium.new_page()
    page.set_content(alone(curves, "curves"))
    page.wait_for_selector(".lw-curves .plot")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    assert Path(waiting.value.path()).read_text().splitlines() == ["run,step,loss,lr", "a,1,1,", "a,2,20,", "a,3,,0.5", "a,4,4,"]
    page.close()


@pytest.mark.parametrize("n", [1, 2, 700])
def test_heatmap_of_any_size_stays_inside(chromium, n):
    page = chromium.new_page(viewport={"width": 900, "height": 700})
    page.set_content(alone(Heatmap(np.random.default_rng(n).normal(size=(n, n)), unit="nats", row_title="row"), "heatmap"))
    page.wait_for_selector(".map canvas")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 900
    page.close()
