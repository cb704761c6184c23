"""Shared pages: one file, offline, whole; and plain words when they cannot be made."""

import re
import resource
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from lab import share
from lab.errors import LabError
from lab.share import offline

NOTEBOOK = '''"""A page to share.

What does it hold?

exhibits: R9
"""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import anywidget
    import marimo as mo
    import plotly.graph_objects as go
    import traitlets

    return anywidget, go, mo, traitlets


@app.cell
def _(mo):
    mo.md(r"# Model: `" + str(mo.cli_args().get("model")) + r"` $\\int x$")
    return


@app.cell
def _(go):
    go.Figure(go.Scatter(x=[1, 2, 3], y=[3, 1, 2], name="a line"), go.Layout(hovermode="x"))
    return


@app.cell
def _(anywidget, mo, traitlets):
    class Counter(anywidget.AnyWidget):
        _esm = """export default { render({model, el}) {
            const b = document.createElement('button');
            const show = () => { b.textContent = 'count ' + model.get('n'); };
            b.onclick = () => { model.set('n', model.get('n') + 1); model.save_changes(); };
            model.on('change:n', show); show(); el.append(b);
        } }"""
        n = traitlets.Int(3).tag(sync=True)

    mo.ui.anywidget(Counter())
    return


@app.cell
def _(mo):
    mo.vstack([mo.ui.tabs({"one": mo.md("first"), "two": mo.md("second")}), mo.ui.table([{"row": 41}])])
    return


if __name__ == "__main__":
    app.run()
'''


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook above as a shared page."""
    folder = tmp_path_factory.mktemp("share")
    notebook = folder / "sample.py"
    notebook.write_text(NOTEBOOK)
    said: list[tuple[float, str]] = []
    path = share.export(notebook, folder / "out" / "sample.html", "pocket", lambda done, text: said.append((done, text)))
    assert [done for done, _ in said] == sorted(done for done, _ in said) and said[-1][0] == 1.0
    assert path == folder / "out" / "sample.html"
    assert [p.name for p in path.parent.iterdir()] == ["sample.html"]
    return path


def open_offline(page: Page, path: Path) -> list[str]:
    """Open a file with every request but its own refused; returns what was attempted or went wrong."""
    wrong: list[str] = []
    page.context.set_offline(True)
    page.route(re.compile("^(?!file:|blob:|data:)"), lambda route: route.abort())
    page.on("request", lambda r: None if re.match(f"{re.escape(path.as_uri())}|blob:|data:", r.url) else wrong.append(r.url))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.goto(path.as_uri())
    return wrong


@pytest.mark.browser
def test_page_opens_offline_and_explores(shared: Path, page: Page) -> None:
    wrong = open_offline(page, shared)
    page.get_by_text("count 3").click()
    page.get_by_text("count 4").wait_for()
    page.locator(".js-plotly-plot .scatterlayer .trace path.js-line").wait_for()
    page.locator(".js-plotly-plot .nsewdrag").first.hover()
    page.locator(".hoverlayer .hovertext").first.wait_for()
    page.get_by_role("tab", name="two").click()
    page.get_by_role("tabpanel", name="two").get_by_text("second").wait_for()
    page.get_by_text("41").first.wait_for()
    page.locator(".katex").first.wait_for(state="attached")
    assert page.locator("h1").inner_text().startswith("Model: pocket")
    assert page.title() == "A page to share · looplab"
    assert "Exported from the lab on" in page.locator(".lab-shared").inner_text()
    assert not page.locator("#lab-opening").count()
    assert not page.get_by_text("not connected to a kernel").count()
    page.wait_for_timeout(500)
    assert wrong == []


@pytest.mark.browser
def test_page_follows_the_viewer_and_turns(shared: Path, browser: Browser) -> None:
    with browser.new_context(color_scheme="dark") as context:
        page = context.new_page()
        page.goto(shared.as_uri())
        page.locator("body.dark").wait_for()
        page.get_by_role("button", name="Switch between dark and light").click()
        page.locator("body.light").wait_for()


@pytest.mark.browser
def test_page_that_cannot_start_says_so(shared: Path, page: Page, tmp_path: Path) -> None:
    torn = tmp_path / "torn.html"
    torn.write_text(re.sub(r'(id="lab-assets">.{1000}).*?<', r"\1<", shared.read_text(), count=1))
    page.goto(torn.as_uri())
    page.get_by_text("This page could not start").wait_for()


def test_page_is_small_and_names_no_host(shared: Path) -> None:
    html = shared.read_text()
    assert len(html.encode()) < 6.5e6
    assert not re.search(r"""(?:src|href)=["']?https?:""", html)


def test_plotly_is_packed_only_where_it_is_drawn(tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text("import marimo\napp = marimo.App()\n\n@app.cell\ndef _():\n    1 + 1\n    return\n")
    page = share.export(plain, tmp_path / "plain.html")
    assert page.stat().st_size < 4e6
    assert "with" not in re.search(r"<span>(Exported[^.]*)", page.read_text())[1]


def test_failing_cell_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import marimo\napp = marimo.App()\n\n@app.cell\ndef _():\n    raise KeyError('layer 99')\n    return\n")
    with pytest.raises(LabError, match=r"bad\.py cannot be shared: a cell failed with: 'layer 99'\."):
        share.export(bad, tmp_path / "bad.html")
    assert not (tmp_path / "bad.html").exists()


@pytest.mark.parametrize("text", [None, "def (", b"\xff\xfe\x00", "x = 1\n"])
def test_what_is_not_a_notebook_is_refused(text: str | bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LabError, match=r"is not a (marimo )?notebook"):
        share.export(file, tmp_path / "x.html")


def test_other_assets_of_marimo_are_refused(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = '<script type="module" crossorigin src="https://cdn/x/assets/index-s0meHash.js"></script>'
    html = f'<html><head>{head}</head><body><div id="root"></div></body></html>'
    with pytest.raises(LabError, match="does not know marimo"):
        offline.inline("<html></html>", "t", "n")
    with pytest.raises(LabError, match=r"lacks index-s0meHash\.js"):
        offline.inline(html, "t", "n")
    monkeypatch.setattr(offline, "ASSETS", tmp_path)
    with pytest.raises(LabError, match="has no"):
        offline.inline(html, "t", "n")


def test_an_error_on_the_page_is_not_shared(tmp_path: Path) -> None:
    file = tmp_path / "guarded.py"
    file.write_text(
        "import marimo\napp = marimo.App()\n\n@app.cell\ndef _():\n    from lab import errors, page\n\n"
        "    def fail():\n        raise errors.LabError('The prompt \"<b>\" is é.')\n\n    page.guard(fail)\n    return\n"
    )
    with pytest.raises(LabError, match=r'guarded\.py cannot be shared: The prompt "<b>" is é\.'):
        share.export(file, tmp_path / "x.html")


def test_the_note_names_the_models_loaded() -> None:
    assert " with pocket and smollm2-135m. " in share.note(["pocket", "smollm2-135m"])
    assert re.match(r"Exported from the lab on \d+ \w+ \d{4}\. ", share.note([]))


def test_no_room_leaves_nothing_half_written(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(LabError, match=r"page\.html cannot be written \(File too large\)"):
            share._write(tmp_path / "page.html", "x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be written"):
        share._write(tmp_path / "file" / "page.html", "x")


@pytest.mark.browser
def test_index_links_every_page(tmp_path: Path, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "interp" / "sample.py"
    good.parent.mkdir()
    good.write_text('"""First & <second>.\n\nWhat?\n"""\nimport marimo\napp = marimo.App()\n')
    bad = tmp_path / "evals" / "broken.py"
    bad.parent.mkdir()
    bad.write_text("import marimo\napp = marimo.App()\n\n@app.cell\ndef _():\n    1 / 0\n    return\n")
    assert share.main([str(good), str(bad), "--to", str(tmp_path / "share")]) == 1
    assert "broken.py cannot be shared: a cell failed with: division by zero." in capsys.readouterr().err
    wrong = open_offline(page, tmp_path / "share" / "index.html")
    assert page.get_by_role("link").all_inner_texts()[0].startswith("First & <second>\nWhat?")
    assert page.get_by_role("link").count() == 1 and wrong == []
    page.get_by_role("link").click()
    page.wait_for_url("**/interp-sample.html")
