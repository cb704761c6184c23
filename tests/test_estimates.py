"""The pictures of estimates hold what the library computes; the scatter and the bands hold what they are given."""

import threading
import time

import numpy as np
import pytest
import torch

from interp.attribution import attribute
from interp.baseline import baseline
from interp.estimates import METHODS, estimate
from interp.estimates_view import MOST, Comparison, EverySite, TokenView, layers, points
from interp.prompts import prepare
from interp.sites import SITES
from interp.sweep import grid, sweep
from lab.errors import LabError
from tests.interp_models import decoder, language_model, pair_of
from widgets.bands import Bands
from widgets.scatter import Scatter

PROMPTS = ("the Eiffel tower stands in", "the Tokyo tower stands in", "Paris", "Rome")


@pytest.fixture
def lm(tmp_path):
    return language_model(tmp_path)


@pytest.fixture
def pair(lm):
    return prepare(lm, *PROMPTS)


@pytest.mark.parametrize("site", ["resid_mid", "z", "neuron"])
def test_every_method_estimates_the_grid_of_the_sweep(lm, pair, site):
    base = baseline(lm.model, pair, (site,))
    *_, exact = sweep(lm.model, pair, site, base=base)
    for method in METHODS:
        found = estimate(lm.model, pair, site, method, "logit_diff", base)
        assert found.shape == exact.share.shape and not found.isnan().any()
    torch.testing.assert_close(
        estimate(lm.model, pair, site, "gradient", "logit_diff", base), attribute(lm.model, pair, sites=[site])[site]
    )
    with pytest.raises(LabError, match="no method called"):
        estimate(lm.model, pair, site, "guess", "logit_diff", base)


def test_integrated_estimates_of_a_linear_way_are_exact():
    """After the last layer's MLP only the final norm bends: with a metric of one head the sum must be the whole patch."""
    model = decoder(5)
    pair = pair_of([1, 2, 5, 7, 8, 9], [1, 3, 6, 7, 8, 9])
    base = baseline(model, pair, ("resid_post",))
    found = estimate(model, pair, "resid_post", "integrated", "logit_diff", base)
    assert found.sum(1).tolist() == pytest.approx([1, 1, 1], abs=0.05)
    assert float(found[2, 5]) == pytest.approx(1, abs=1e-3) and found[2, :5].abs().max() < 1e-9


def test_brushed_points_are_measured_exactly_and_only_they(lm, pair):
    shown = Comparison(lm, pair, "resid_pre", "gradient", "logit_diff", live=True)
    assert np.isnan(shown.scatter.points[:, 0]).all() and "layer 0, position 1 “Tokyo”" in shown.scatter.labels
    ended = threading.Event()
    thread = threading.Thread(target=shown.serve, args=(ended.is_set,))
    thread.start()
    shown.scatter.selected = [1, 6]
    until = time.monotonic() + 20
    while np.isnan(shown.scatter.points[[1, 6], 0]).any():
        assert time.monotonic() < until
        time.sleep(0.01)
    ended.set()
    thread.join()
    *_, exact = sweep(lm.model, pair)
    for i, cell in enumerate(shown.cells):
        x, y = shown.scatter.points[i]
        assert np.isnan(x) if i not in (1, 6) else x == pytest.approx(float(exact.share[cell.row, cell.column]), abs=1e-6)
        assert y == pytest.approx(shown.estimates[i], abs=1e-6)
    shown.measure(range(len(shown.cells)))
    assert not np.isnan(shown.exact).any() and shown.table.rows[1]["exact"] == pytest.approx(shown.exact[1])
    assert -1 <= shown.r <= 1


def test_of_many_cells_the_strongest_and_a_spread_are_shown(lm, pair):
    cells = grid(lm.config, pair, "neuron")
    values = torch.arange(120, dtype=torch.float64).view(3, 40)
    few = points(cells, values, 20)
    assert len(few) == 20 == len({(c.row, c.column) for c in few}) and points(cells, values) == cells
    assert {(c.row, c.column) for c in few[:10]} == {divmod(i, 40) for i in range(110, 120)}
    assert len(cells) < MOST


def test_every_site_is_compared(lm, pair):
    sites = EverySite(lm, pair, "logit_diff", ("resid_pre", "z"))
    assert sites.seconds > 0
    sites.run()
    assert [row["site"] for row in sites.table.rows] == [SITES["resid_pre"].title, SITES["z"].title]
    *_, exact = sweep(lm.model, pair, "z")
    found = attribute(lm.model, pair, sites=["z"])["z"]
    assert sites.table.rows[1]["gradient"] == pytest.approx(float(torch.corrcoef(torch.stack([found.flatten(), exact.share.flatten()]))[0, 1]))
    stopped = EverySite(lm, pair, "logit_diff", ("resid_pre",))
    stopped.run(stopped=lambda: True)
    assert stopped.table.rows == []


def test_tokens_and_layers_say_how_complete_they_are(lm, pair):
    scale = baseline(lm.model, pair).scale(pair, "logit_diff")
    view = TokenView(lm, pair, scale, "corrupted", 32)
    slope, whole = view.strips().rows
    assert sum(whole["values"]) == pytest.approx(scale.clean - scale.corrupted, abs=1e-3) and "of" in whole["note"]
    assert slope["values"] != whole["values"]
    errors = view.errors()
    assert errors["gauss"][-1] < 1e-3 and errors["gauss"][-1] < errors["gauss"][0]
    shares, rows = layers(lm, pair, "mlp_out", scale, 32)
    assert shares.shape == (3, 5) and all(row["error"] < 1e-3 for row in rows)


def test_scatter_and_bands_refuse_what_does_not_fit():
    scatter = Scatter([0.1, np.nan], [0.2, 0.3], labels=["a", "b"])
    scatter.update([0.1, 0.4])
    np.testing.assert_allclose(scatter.points, [[0.1, 0.2], [0.4, 0.3]], rtol=1e-6)
    for bad in (lambda: Scatter([0.1], [0.2, 0.3]), lambda: Scatter([1, 2], [1, 2], labels=["a"]), lambda: scatter.update([1])):
        with pytest.raises(ValueError):
            bad()
    bands = Bands(["p"], ["s", "t"], range(3))
    assert np.isnan(bands.values).all()
    bands.update(np.ones((1, 2, 3)), np.zeros((1, 2, 3)), "done")
    assert bands.note == "done" and bands.values[0].sum() == 6
    with pytest.raises(ValueError, match="must be"):
        bands.update(np.ones((2, 3)), np.ones((2, 3)))
