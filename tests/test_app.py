"""The lab in a real chromium: front page, notebooks in frames, one port, tokens, a child that never outlives us."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from browser import ROOT, browser, free_port, front_page, process, served
from playwright.sync_api import Browser, BrowserContext, FrameLocator, Page, expect

from lab import catalog, front, server
from lab.errors import LabError
from widgets import shell

NOTEBOOKS = {"LAB_NOTEBOOKS": str(ROOT / "tests" / "notebooks")}
OPEN = 8  # notebooks the shell keeps open: the least recently used is closed
WAIT = 120_000  # ms; a busy machine is slow, not broken
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def chrome():
    with browser() as b:
        yield b


@pytest.fixture(scope="module")
def lab():
    front.HEAD.unlink(missing_ok=True)  # the page as last seen may be of other notebooks
    with front_page(**NOTEBOOKS) as (url, _):
        yield url


@pytest.fixture(scope="module")
def context(chrome: Browser):
    with chrome.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light") as context:
        yield context


@pytest.fixture
def tab(context: BrowserContext, lab: str):
    """A fresh tab that remembers nothing, on the front page."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(lab, wait_until="commit")
    page.locator(".ll-map").wait_for(timeout=WAIT)
    yield page
    page.evaluate("localStorage.clear()")
    for each in context.pages:
        each.close()
    assert not problems


def opened(page: Page, path: str = "interp/peek") -> FrameLocator:
    return page.frame_locator(f'iframe[data-path="{path}"]')


def seen(page: Page) -> str:
    line = opened(page).locator("#seen")
    line.wait_for(timeout=WAIT)
    return line.inner_text()


def test_map_opens_a_notebook_in_the_shared_process(tab: Page):
    tab.locator('[data-station="interp"]').click()
    assert seen(tab).endswith("at 0")
    line = opened(tab).locator("#seen")
    assert line.get_attribute("data-live") == "True"
    expect(tab.locator(".ll-cover")).to_have_count(0)
    expect(tab).to_have_title("Peek · looplab")
    # a second tab of the same front page uses the same process
    other = tab.context.new_page()
    other.goto(tab.url)
    assert seen(other)
    assert opened(other).locator("#seen").get_attribute("data-pid") == line.get_attribute("data-pid")


def test_what_is_not_there_is_shown_as_coming(tab: Page):
    expect(tab.locator('[data-station="deploy"]')).to_have_class(re.compile("ll-coming"))
    tab.locator('[data-station="deploy"]').press("Enter")
    expect(tab.locator(".ll-page h1")).to_have_text("Deploy")
    expect(tab.locator(".ll-page")).to_contain_text("Nothing can be run at this station yet")
    expect(tab.locator(".ll-page")).to_contain_text("Air-gapped install")
    expect(tab.locator("iframe")).to_have_count(0)


def test_search_opens_what_it_finds(tab: Page):
    tab.keyboard.press("/")
    tab.keyboard.type("peek")
    expect(tab.locator(".ll-navlist a")).to_have_count(1)
    tab.keyboard.press("Enter")
    assert seen(tab)
    tab.keyboard.press("/")
    tab.keyboard.type("ring attention")
    expect(tab.locator(".ll-navlist")).to_contain_text("Coming")
    tab.keyboard.press("Escape")
    expect(tab.locator(".ll-navlist h4")).to_have_count(len(catalog.STATIONS))


def test_deep_link_carries_the_model_and_it_stays_in_hand(tab: Page, lab: str):
    tab.goto(f"{lab}#/interp/peek?model=pocket-draft")
    assert seen(tab) == "pocket-draft at 0"
    field = opened(tab).locator(".lw-picker select")
    field.select_option(label="another…")
    opened(tab).locator(".lw-picker input").fill("org/name")
    opened(tab).locator(".lw-picker input").press("Enter")
    expect(opened(tab).locator("#seen")).to_have_text("org/name at 0", timeout=WAIT)
    expect(tab).to_have_url(re.compile(r"#/interp/peek\?model=org%2Fname"))
    # a link with another model starts the open notebook anew; one without leaves it alone
    tab.goto(f"{lab}#/interp/peek?model=pocket")
    expect(opened(tab).locator("#seen")).to_have_text("pocket at 0", timeout=WAIT)
    tab.goto(f"{lab}#/")
    tab.goto(f"{lab}#/interp/peek?model=org%2Fname")
    expect(opened(tab).locator("#seen")).to_have_text("org/name at 0", timeout=WAIT)
    # the next notebook opened starts with it
    fresh = tab.context.new_page()
    fresh.goto(f"{lab}#/interp/peek")
    assert seen(fresh) == "org/name at 0"


def test_unknown_address_says_so(tab: Page, lab: str):
    tab.goto(f"{lab}#/interp/nothing")
    expect(tab.locator(".ll-trouble")).to_contain_text("There is no notebook or station “interp/nothing”")


def test_dark_and_light_reach_the_notebook_and_its_widgets(tab: Page):
    tab.locator('[data-station="interp"]').click()
    seen(tab)
    body = opened(tab).locator("body")
    expect(body).to_have_class(re.compile(r"\blight\b"))
    paper = "getComputedStyle(document.body).backgroundColor"
    assert body.evaluate(paper) == "rgb(251, 250, 247)"
    tab.get_by_role("button", name="Switch to dark").click()
    expect(body).to_have_class(re.compile(r"\bdark\b"))
    assert body.evaluate(paper) == "rgb(17, 19, 22)"
    field = opened(tab).locator(".lw-picker select")
    assert field.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(24, 27, 31)"
    tab.reload()
    expect(tab.locator("#looplab")).to_have_attribute("data-theme", "dark")


def test_state_is_kept_when_one_moves_on_and_forgotten_when_closed(tab: Page):
    tab.locator('[data-station="interp"]').click()
    seen(tab)
    thumb = opened(tab).get_by_role("slider")
    thumb.focus()
    thumb.press("End")
    expect(opened(tab).locator("#seen")).to_contain_text("at 10", timeout=WAIT)
    tab.locator(".ll-navlist a", has_text="Fails").click()
    expect(opened(tab, "train/fails").locator(".lab-note")).to_have_text(
        "The prompt is <empty>; write a word.", timeout=WAIT
    )
    start = time.monotonic()
    tab.locator(".ll-navlist a", has_text="Peek").click()
    expect(opened(tab).locator("#seen")).to_be_visible()
    assert time.monotonic() - start < 1
    assert seen(tab).endswith("at 10")
    tab.locator(".ll-brand").click()
    tab.locator(".ll-item", has_text="Peek").hover()
    tab.get_by_role("button", name="Close Peek").click()
    expect(tab.locator('iframe[data-path="interp/peek"]')).to_have_count(0)
    tab.locator('[data-station="interp"]').click()
    assert seen(tab).endswith("at 0")


def test_slash_in_a_notebook_goes_to_the_search(tab: Page):
    tab.locator('[data-station="interp"]').click()
    seen(tab)
    opened(tab).locator(".lab-head h1").click()
    opened(tab).locator("body").press("/")
    expect(tab.locator(".ll-find")).to_be_focused()


@pytest.mark.parametrize("width", [900, 600])
def test_nothing_overflows_on_a_narrow_window(tab: Page, width: int):
    tab.set_viewport_size({"width": width, "height": 800})
    for at in ("#/", "#/inference"):
        tab.goto(tab.url.split("#")[0] + at)
        wide = tab.evaluate(
            "[...document.querySelectorAll('.ll-home, .ll-home *')].filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible' && e.clientWidth).map(e => e.className)"
        )
        assert wide == [] and tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_child_dies_with_a_killed_parent(chrome: Browser):
    with front_page(**NOTEBOOKS) as (url, parent):
        page = chrome.new_page()
        page.goto(url, wait_until="commit")
        page.locator('[data-station="interp"]').wait_for(timeout=WAIT)
        end = time.monotonic() + 60
        while not (
            children := [c for c in psutil.Process(parent.pid).children(True) if "lab.server" in c.cmdline()]
        ):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert len(children) == 1
        os.kill(parent.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs(children, timeout=30)
        page.close()
        assert gone and not alive


def get(url: str) -> tuple[int, str]:
    """Status and last address, as a browser without cookies sees them."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.url
    except urllib.error.HTTPError as error:
        return error.code, error.url


def may_enter(url: str) -> bool:
    status, at = get(url)
    return status == 200 and "/auth/login" not in at


def test_one_port_with_a_token(chrome: Browser):
    with served("--token", "correct-horse", **NOTEBOOKS) as url:
        for path in ("", "nb/interp/peek/"):
            assert not may_enter(f"{url}{path}")
            assert not may_enter(f"{url}{path}?access_token=wrong-horse")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(
                urllib.request.Request(f"{url}nb/interp/peek/api/kernel/run", method="POST", data=b"{}")
            )
        assert get(f"{url}nb/interp/../../app/")[0] in (403, 404) or not may_enter(
            f"{url}nb/interp/../../app/"
        )
        context = chrome.new_context()
        page = context.new_page()
        page.goto(f"{url}?access_token=correct-horse#/interp/peek", wait_until="commit")
        assert seen(page)
        context.close()


def test_any_other_address_needs_a_token():
    port = free_port()
    command = [sys.executable, "-m", "lab", "serve", "--host", "0.0.0.0", "--port", str(port)]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, **NOTEBOOKS, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert child.stdout is not None
        token = re.search(r"access_token=(\S{20,})", child.stdout.readline())
        assert token
        end = time.monotonic() + 60
        while get_or_none(f"http://127.0.0.1:{port}/") is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert not may_enter(f"http://127.0.0.1:{port}/")
    finally:
        child.kill()
        child.wait()


def get_or_none(url: str) -> tuple[int, str] | None:
    try:
        return get(url)
    except OSError:
        return None


def own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            return s.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def test_front_page_seen_from_another_machine_says_what_to_do(chrome: Browser):
    if (address := own_address()).startswith("127."):
        pytest.skip("this machine has the loopback address alone")
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "marimo",
        "-q",
        "run",
        "app.py",
        "--headless",
        "--no-token",
        "--host",
        "0.0.0.0",
        "--port",
        str(port),
    ]
    with process(command, f"http://127.0.0.1:{port}/", **NOTEBOOKS):
        page = chrome.new_page()
        page.goto(f"http://{address}:{port}/#/interp/peek", wait_until="commit")
        expect(page.locator(".ll-trouble")).to_contain_text("python -m lab serve --host", timeout=WAIT)
        expect(page.locator("iframe")).to_have_count(0)
        page.close()


# ---- without a browser


def test_wrong_options_are_sentences():
    with pytest.raises(LabError, match="shorter than 8"):
        server.main(["--token", "short"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(LabError, match="choose another --host or --port"):
            server.main(["--port", str(taken.getsockname()[1])])
    with pytest.raises(LabError, match="no port 99999"):
        server.main(["--port", "99999"])


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_loopback(host: str, local: bool):
    assert server.loopback(host) is local


def notebook(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_catalog_reads_docstrings_and_survives_what_it_cannot_read(tmp_path: Path):
    notebook(
        tmp_path,
        "interp/b.py",
        '"""Second\n\nWhy\nso?\n\nexhibits: R9,\n  R9b\nstart: Try it, now, 3 min\norder: 2\n"""\n',
    )
    notebook(tmp_path, "interp/a_file.py", "x = (")
    notebook(tmp_path, "data/plain.py", "x = 1\n")
    notebook(tmp_path, "interp/deep/er.py", '"""Deeper.\n\nHow deep?\n\norder: 1\n"""')
    notebook(tmp_path, "interp/_helper.py", "")
    notebook(tmp_path, "elsewhere/x.py", "")
    found = {n.path: n for n in catalog.notebooks(tmp_path)}
    assert list(found) == ["data/plain", "interp/deep/er", "interp/b", "interp/a_file"]
    second = found["interp/b"]
    assert (second.title, second.question, second.exhibits) == ("Second", "Why so?", ("R9", "R9b"))
    assert (second.start, second.minutes) == ("Try it, now", "3 min")
    assert found["interp/deep/er"].title == "Deeper" and found["data/plain"].title == "Plain"
    assert found["interp/a_file"].title == "A file"


def test_the_page_as_last_seen_can_stand_in_a_head():
    text = front.head({**front.still(), "runs": [], "note": "</script></head><b>"})
    assert "<b>" not in text and text.count("</script>") == 1 and "</head" not in text
    assert "</" not in shell.code()


def test_every_notebook_of_the_lab_opens_in_it(context: BrowserContext):
    """From the sidebar, one after the other, each as far as its first result."""
    with served() as url:
        page = context.new_page()
        page.goto(url, wait_until="commit")
        for n in catalog.notebooks():
            page.locator(f'.ll-navlist a[href="#/{n.path}"]').click()
            frame = opened(page, n.path)
            frame.locator(".lab-head h1").wait_for(timeout=WAIT)
            expect(page.locator(".ll-shown .ll-cover")).to_have_count(0)
            frame.locator("canvas, .lab-note, .js-plotly-plot").first.wait_for(timeout=WAIT)
            assert "internal error" not in frame.locator("body").inner_text()
        expect(page.locator(".ll-close")).to_have_count(min(len(catalog.notebooks()), OPEN))
        page.close()


def test_recent_runs_show_their_curve_and_survive_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    for name, spec in (("good", '{"kind": "train", "work": "x:y", "name": "mine", "created": 1.0, "spec": {"steps": 900}}'), ("bad", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.json").write_text(spec)
        (tmp_path / name / "status.json").write_text('{"state": "done", "error": null, "started": 1.0, "ended": 5.0}')
        rows = "".join(f'{{"step": {i}, "loss": {1000 - i}}}\n' for i in range(900))
        (tmp_path / name / "metrics.jsonl").write_text(rows + '{"step": 901, "lo')
    shown = {run["id"]: run for run in front.recent_runs()}
    assert shown["bad"]["state"] == "failed" and shown["bad"]["error"]
    good = shown["good"]
    assert (good["name"], good["state"], good["when"], good["steps"], good["station"]) == ("mine", "done", 5.0, 900, "train")
    assert good["value"] == 101 and good["step"] == 899 and good["metric"] == "loss"
    assert good["points"][0] == [0, 1000.0] and good["points"][-1] == [899, 101.0]
    assert len(good["points"]) <= 2 * front.CURVE_POINTS
    with (tmp_path / "good" / "metrics.jsonl").open("w") as file:
        file.write('{"step": 1, "loss": 2.5}\n')
    assert {run["id"]: run for run in front.recent_runs()}["good"]["value"] == 2.5
