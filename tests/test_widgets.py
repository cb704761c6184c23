"""The widgets without a browser: what their traits hold, what they refuse."""

import json
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from widgets.assets import css, esm
from widgets.attention import Attention
from widgets.bars import Bars
from widgets.curves import MIDDLE, TAIL, Curves
from widgets.heatmap import Heatmap
from widgets.numbers import plain
from widgets.roofline import Roofline
from widgets.scrubber import Scrubber
from widgets.table import Table
from widgets.tokens import Tokens


def test_assets_join_base_and_own():
    code, style = esm("heatmap"), css("heatmap")
    assert code.index("const lab =") < code.index("export default")
    assert style.index("--paper") < style.index(".lw-heatmap")
    assert "http://" not in code.replace("http://www.w3.org", "") and "https://" not in code + style


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8)))
@settings(deadline=None, max_examples=30)
def test_heatmap_carries_its_values(values):
    heat = Heatmap(values.tolist(), selected=[[0, 0]])
    np.testing.assert_array_equal(heat.values, values)
    heat.update(values + 1)
    np.testing.assert_array_equal(heat.values, values + 1)
    assert heat.selected == [[0, 0]]


def test_heatmap_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="matrix"):
        Heatmap([1.0, 2.0])
    with pytest.raises(ValueError, match="row_labels has 1 entries for 2 cells"):
        Heatmap(np.zeros((2, 2)), row_labels=["a"])
    with pytest.raises(ValueError, match="2 x 2, the new values are 2 x 3"):
        Heatmap(np.zeros((2, 2))).update(np.zeros((2, 3)))


PANELS = [{"key": "loss", "title": "Loss"}, {"key": "lr", "title": "Learning rate"}]


def test_curves_keep_every_row_through_the_merges():
    curves = Curves(panels=PANELS)
    n = MIDDLE + 3 * TAIL + 7
    values = np.random.default_rng(0).normal(size=n)
    for start in range(0, n, 100):
        curves.append([{"step": i, "loss": values[i]} for i in range(start, min(n, start + 100))])
    assert curves.base and curves.tail
    assert len(curves.tail) <= TAIL * 4 * 8
    np.testing.assert_array_equal(curves.data[:, 1], np.arange(n))
    np.testing.assert_array_equal(curves.data[:, 2], values)
    assert np.isnan(curves.data[:, 3]).all()


def test_curves_add_unknown_runs_and_ignore_what_is_no_number():
    curves = Curves([{"id": "a", "label": "first"}], PANELS)
    curves.append([{"run": "b", "step": 1, "loss": "nan?", "lr": 0.5}, {"step": 2, "loss": True}])
    assert [one["id"] for one in curves.series] == ["a", "b"]
    np.testing.assert_array_equal(curves.data, [[1, 1, np.nan, 0.5], [0, 2, 1, np.nan]])
    curves.clear()
    assert curves.data.shape == (0, 4)


def test_curves_append_from_many_threads():
    curves = Curves(panels=PANELS)

    def work(name):
        for i in range(200):
            curves.append([{"step": i, "loss": 1.0}], series=name)

    threads = [threading.Thread(target=work, args=(f"run{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.bincount(curves.data[:, 0].astype(int)).tolist() == [200] * 4


def test_state_is_json_and_bytes():
    nan = float("nan")
    for widget in (
        Heatmap([[1.0, nan]]),
        Curves(panels=PANELS, rows=[{"step": 1, "loss": 2.0}]),
        Tokens([{"label": "a", "pieces": ["x"], "values": [nan]}]),
        Bars([["a", nan]]),
        Attention(np.ones((1, 1, 1)), ["x"]),
        Table([{"a": nan}]),
        Roofline([], [{"label": "a", "intensity": 1, "flops_per_s": np.float32(2)}]),
        Scrubber(np.arange(3)),
    ):
        state = {k: v for k, v in widget.get_state().items() if k != "layout" and not isinstance(v, bytes | memoryview)}
        json.dumps(state, allow_nan=False)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
def test_plain_is_json_and_keeps_all_but_what_json_cannot_say(value):
    text = json.dumps(plain(value), allow_nan=False)
    if "NaN" not in (said := json.dumps(value)) and "Infinity" not in said:
        assert json.loads(text) == json.loads(said)


def test_plain_takes_numpy():
    assert plain({1: np.float32(0.5), "a": np.array([1.0, np.nan]), "b": (np.int64(3), np.bool_(True))}) == {
        "1": 0.5,
        "a": [1.0, None],
        "b": [3, True],
    }


def test_attention_keeps_the_head_and_refuses_other_shapes():
    rng = np.random.default_rng(0)
    pattern = rng.dirichlet(np.ones(5), (4, 5))
    attention = Attention(pattern, list("abcde"), selected=3, query=4)
    np.testing.assert_allclose(np.frombuffer(attention.data, "<f2").reshape(attention.shape), pattern, rtol=1e-3, atol=1e-7)
    attention.update(pattern[:2, :3, :3], list("abc"))
    assert (attention.selected, attention.query, attention.labels) == (1, None, ["0", "1"])
    with pytest.raises(ValueError, match="over 3 tokens"):
        attention.update(pattern)


def test_table_guesses_columns_and_refuses_unknown_kinds():
    table = Table([{"name": "a", "calls": 1, "ok": True}, {"name": "b", "calls": np.nan, "ok": False}])
    assert [(one["key"], one["kind"]) for one in table.columns] == [("name", "text"), ("calls", "num"), ("ok", "text")]
    assert table.rows[1]["calls"] is None
    with pytest.raises(ValueError, match="known are text, num, bar, mono"):
        Table([], [{"key": "a", "kind": "pie"}])


def test_roofline_refuses_what_has_no_place_on_log_axes():
    with pytest.raises(ValueError, match="positive"):
        Roofline([{"name": "a", "flops_per_s": 0, "bytes_per_s": 1}])
    with pytest.raises(ValueError, match="'idle'"):
        Roofline([], [{"label": "idle", "intensity": 1, "flops_per_s": 0}])


def test_scrubber_starts_at_the_last_step():
    assert Scrubber([0, 10, 20]).value == 20
    assert Scrubber([]).value is None
    with pytest.raises(ValueError, match="not one of"):
        Scrubber([0, 10], 5)


def test_bars_take_pairs_of_any_kind():
    bars = Bars({" a": np.float32(0.5)}.items())
    bars.update([("b", 1)], compare=[(" a", 0.5)])
    assert (bars.rows, bars.compare) == ([["b", 1.0]], [[" a", 0.5]])
