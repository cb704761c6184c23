"""Timeline and listing in a bare page: everything they do, they do without Python."""

import base64
import json

import numpy as np
import pytest
from test_widgets_browser import ALONE

from widgets.listing import Listing
from widgets.timeline import Timeline

pytestmark = pytest.mark.browser


def alone(widget) -> str:
    state = {
        key: {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes | memoryview) else value
        for key, value in widget.get_state().items()
        if key != "layout" and not key.startswith("_")
    }
    html = ALONE % (base64.b64encode(str(widget._esm).encode()).decode(), json.dumps(state))
    return html.replace("<body>", f"<style>{widget._css}</style><body>")


@pytest.fixture
def show(page):
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_viewport_size({"width": 1000, "height": 900})

    def shown(widget, wait):
        page.set_content(alone(widget))
        page.wait_for_selector(wait)
        return page

    yield shown
    page.evaluate("end()")
    assert page.evaluate("Object.values(heard).reduce((n, s) => n + s.size, 0)") == 0
    assert page.locator(".lw").count() == 0
    assert errors == []


def timeline(n=40):
    """Products and sums in turn, 100 us each, with a copy inside every sum, and one of each of ten others in products."""
    start, name, depth, duration = [], [], [], []
    for i in range(n):
        start.append(100.0 * i)
        name.append(i % 2)
        depth.append(0)
        duration.append(90.0)
        if i % 2:
            start.append(100.0 * i + 10)
            name.append(2)
            depth.append(1)
            duration.append(30.0)
        elif i < 20:
            start.append(100.0 * i + 1)
            name.append(3 + i // 2)
            depth.append(1)
            duration.append(1.0)
    count = len(start)
    own = np.array(duration) - 30.0 * (np.array(name) == 1)
    return Timeline(
        start=start, duration=duration, self_time=own, flops=[1e6] * count, bytes=np.zeros(count), device=np.zeros(count), name=name,
        lane=np.zeros(count), depth=depth, lanes=["CPU thread 1"], memory=([0.0, 2000.0, 4000.0], [0.0, 1e6, 5e5]),
        names=[
            {"name": "aten::mm", "kind": "operator", "group": "matrix product", "shapes": "2 x 2"},
            {"name": "aten::add", "kind": "operator", "group": "element-wise", "shapes": None},
            {"name": "aten::copy_", "kind": "operator", "group": "copy and layout", "shapes": None},
            *({"name": f"other{i}", "kind": "operator", "group": "runtime", "shapes": None} for i in range(10)),
        ],
    )  # fmt: skip


def rows(page):
    return page.locator(".lw-timeline .lw-table tbody tr[data-at]").all_inner_texts()


def test_the_timeline_and_its_table_filter_each_other(show):
    page = show(timeline(), ".lw-timeline .lw-table tbody tr[data-at]")
    stage = page.locator(".stage")
    box = stage.bounding_box()
    assert [row.split()[0] for row in rows(page)[:3]] == ["aten::mm", "aten::add", "aten::copy_"]
    assert rows(page)[0].split()[4:7] == ["20", "1.8", "1.8"], "calls, self ms, total ms"

    before = stage.locator("canvas").first.evaluate("(c) => c.toDataURL()")
    page.locator("tr[data-at]").nth(2).click()
    assert page.evaluate("state.selected") == ["aten::copy_"]
    page.wait_for_timeout(100)
    assert stage.locator("canvas").first.evaluate("(c) => c.toDataURL()") != before, "the others are dimmed"
    page.keyboard.press("Escape")
    assert page.evaluate("state.selected") == []

    # 4 ms over the stage's width: the middle of the first product, under the strip and the ruler
    page.mouse.click(box["x"] + box["width"] * 45 / 3990, box["y"] + 26 + 22 + 18 + 8)
    assert page.evaluate("state.selected") == ["aten::mm"]
    assert page.locator('tr[aria-selected="true"]').inner_text().startswith("aten::mm")
    page.keyboard.press("Escape")

    page.get_by_label("Filter rows").fill("element")
    assert page.evaluate("state.filter") == "element" and len(rows(page)) == 1
    page.get_by_role("button", name="copy and layout").click()
    assert page.evaluate("state.filter") == "copy and layout" and rows(page)[0].startswith("aten::copy_")
    page.get_by_role("button", name="copy and layout").click()

    stage.focus()
    for _ in range(14):
        page.keyboard.press("+")
    page.wait_for_function("state.window.length === 2 && state.window[1] - state.window[0] < 100")
    page.wait_for_timeout(250)
    assert len(rows(page)) < 3, "the table counts what is in view"
    page.keyboard.press("0")
    page.wait_for_function("state.window.length === 0")
    page.mouse.move(box["x"] + 300, box["y"] + 80)
    page.mouse.wheel(0, -200)
    page.wait_for_function("state.window.length === 2")
    wide = page.evaluate("state.window[1] - state.window[0]")
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 80, steps=4)
    page.mouse.up()
    page.wait_for_timeout(300)
    assert page.evaluate("state.window[1] - state.window[0]") == pytest.approx(wide)
    assert page.evaluate("state.selected") == [], "a drag is no click"


def test_a_hundred_thousand_events_zoom_smoothly(show):
    rng = np.random.default_rng()
    n = 120_000
    duration = rng.exponential(8, n)
    start = np.concatenate([[0], np.cumsum(duration + 1)[:-1]])
    big = Timeline(
        start=start, duration=duration, self_time=duration, flops=np.zeros(n), bytes=np.zeros(n), device=np.zeros(n),
        name=rng.integers(0, 50, n), lane=np.arange(n) % 3, depth=np.arange(n) % 5, lanes=["a", "b", "c"],
        names=[{"name": f"op{i}", "kind": "operator", "group": "attention", "shapes": None} for i in range(50)],
    )  # fmt: skip
    page = show(big, ".lw-timeline .lw-table tbody tr[data-at]")
    spent = page.evaluate(
        """async () => {
          const stage = document.querySelector(".stage"), box = stage.getBoundingClientRect(), spent = [];
          for (let k = 0; k < 24; k++) {
            stage.dispatchEvent(new WheelEvent("wheel", {deltaY: k < 12 ? -40 : 40, clientX: box.left + 400, clientY: box.top + 90, cancelable: true}));
            const began = await new Promise((done) => requestAnimationFrame(() => done(performance.now())));
            await new Promise((done) => setTimeout(done, 0));
            spent.push(performance.now() - began);
          }
          return spent.sort((a, b) => a - b);
        }"""
    )
    assert spent[12] < 100, f"median frame {spent[12]:.0f} ms"
    assert len(rows(page)) > 10


def test_a_line_of_source_shows_its_instructions(show):
    source = "def kernel(x):\n    y = load(x)\n    store(y)\n"
    stages = {
        "SASS": [
            ("0000  LDG R1", 2, "load"),
            ("0010  FADD R1", 2, "float"),
            ("0020  STG R1", 3, "store"),
            ("L:", 0, ""),
        ],
        "PTX": [("ld.global", 2, "load")],
    }
    page = show(
        Listing(source, stages, {"load": "reads", "store": "writes", "float": "arithmetic"}),
        ".lw-listing .line",
    )
    left, right = page.locator(".code").nth(0), page.locator(".code").nth(1)
    left.locator(".line").nth(1).click()
    assert page.evaluate("state.selected") == 2
    assert right.locator(".line.on").all_inner_texts() == ["0000  LDG R1", "0010  FADD R1"]
    assert "2 of 3 instructions" in page.locator(".told").last.inner_text()
    right.locator(".line", has_text="STG").click()
    assert left.locator(".line.on").inner_text().split()[-1] == "store(y)"
    left.focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("state.selected") == 2
    page.keyboard.press("Escape")
    assert page.evaluate("state.selected") == 0
    page.get_by_role("button", name="store 1").click()
    assert right.locator(".line:not(.dim)").all_inner_texts() == ["0020  STG R1"]
    page.get_by_role("tab", name="PTX").click()
    assert right.locator(".line").all_inner_texts() == ["ld.global"]
