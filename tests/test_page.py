"""The furniture of a notebook page."""

import marimo
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import page
from lab.errors import LabError
from lab.page import style


def test_header_escapes_and_names_its_station():
    html = page.header("a < b", "why & how?", station="interp", exhibits=("R9",)).text
    assert (
        "a &lt; b" in html
        and "why &amp; how?" in html
        and "Interpretability" in html
        and "var(--interp)" in html
    )
    with pytest.raises(ValueError, match="not a station"):
        page.header("t", "q", station="nowhere")


def test_guard_passes_results_and_turns_lab_errors_into_a_sentence():
    assert page.guard(lambda a, b: a + b, 2, b=3) == 5

    def bad() -> None:
        raise LabError("Prompt <b> is empty; write a word.")

    with pytest.raises(BaseException) as stopped:
        page.guard(bad)
    assert "Prompt &lt;b&gt; is empty" in stopped.value.output.text
    with pytest.raises(KeyError):
        page.guard({}.__getitem__, "a bug stays loud")


def test_not_live_outside_a_server():
    assert page.live(marimo) is False


@given(st.floats(1e-6, 1e6))
def test_durations_keep_their_magnitude(seconds):
    text = page.duration(seconds)
    units = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600}
    words = text.split()
    read = sum(float(n) * units[u] for n, u in zip(words[::2], words[1::2]))
    assert read == pytest.approx(seconds, rel=0.06, abs=6e-5)


@given(st.integers(0, 10**15))
def test_sizes_keep_their_magnitude(n):
    number, unit = page.size(n).split()
    assert float(number) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit] == pytest.approx(
        n, rel=0.01
    )


def test_cost_reads_as_a_label():
    assert page.cost(3, forwards=300) == "300 forwards, about 3.0 s"


def test_template_takes_its_hues_from_the_tokens():
    tokens = style.tokens()
    assert set(style.STATIONS) <= set(tokens)
    assert list(style.template().layout.colorway) == [tokens[name] for name in style.SERIES]
    assert tokens["paper"] == "#fbfaf7"


def test_head_carries_style_and_theme():
    head = style.head()
    assert "data-vite-dev-id" in head and "matchMedia" in head and "</script>" in head


def test_a_bare_figure_is_drawn_without_the_internet():
    import plotly.graph_objects as go

    style.use_template()
    drawn = marimo.as_html(go.Figure(go.Bar(x=["a"], y=[2.0]))).text
    assert "marimo-plotly" in drawn and "cdn.plot.ly" not in drawn
