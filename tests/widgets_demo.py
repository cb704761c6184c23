# ruff: noqa: B018 - marimo cells end in a bare expression
"""Every widget of the lab on one page: what the browser tests drive, and a place to look at them."""

import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import json
    import threading
    import time

    import marimo as mo
    import numpy as np

    return json, mo, np, threading, time


@app.cell
def _(mo, np):
    from widgets.heatmap import Heatmap

    _clean = ["The", " E", "iffel", " Tower", " is", " located", " in", " the", " city", " of"]
    _corrupt = ["The", " great", " Tokyo", *_clean[3:]]
    _rng = np.random.default_rng(0)
    _v = _rng.normal(0, 0.02, (30, 10))
    _v[:24, 2] = 0.97
    _v[24:, 9] = np.linspace(0.75, 1.0, 6)
    _v[5:10, 3] = -0.4
    _v[20:24, 6:9] = np.nan
    _details = {
        f"{r},2": {
            "title": f"Patched: layer {r}, position 2",
            "text": "fired once, changed the stream by 41% of its norm",
            "bars": [[" Paris", 0.688], [" Mont", 0.03], [" Mar", 0.029], [" T", 0.027]],
        }
        for r in range(24)
    }
    heat = mo.ui.anywidget(
        Heatmap(_v, range(30), _clean, _corrupt, "layer", "token position (clean above, corrupted below)",
                "Share of the answer restored", details=_details, selected=[[9, 2]])
    )
    heat
    return Heatmap, heat


@app.cell
def _(heat, json, mo):
    mo.md(f"<div id='heat-selected'>{json.dumps(heat.widget.selected)}</div>")
    return


@app.cell
def _(Heatmap, mo, np):
    wide = mo.ui.anywidget(
        Heatmap(np.random.default_rng(1).normal(0, 1, (12, 64)), [f"L{i}" for i in range(12)],
                [f" token{i}" for i in range(64)], row_title="layer", col_title="position", value_title="Logit difference", unit="nats")
    )
    wide
    return


@app.cell
def _(mo, np):
    from widgets.curves import Curves

    _rng = np.random.default_rng(2)

    def rows(name, n, rate):
        s = np.arange(n)
        loss = 2.1 + 6 * np.exp(-s / rate) + _rng.normal(0, 0.05, n)
        return [
            {"run": name, "step": int(i), "loss": float(y), "grad_norm": float(0.3 + 3 * np.exp(-i / 60) + abs(_rng.normal(0, 0.1))),
             "lr": 3e-4 * min(1, i / 100), "tokens_per_s": 41000 + float(_rng.normal(0, 700)), "mfu": 0.31 + float(_rng.normal(0, 0.005))}
            for i, y in zip(s, loss)
        ]

    curves = mo.ui.anywidget(
        Curves(
            [{"id": "a", "label": "first run"}, {"id": "b", "label": "half the rate"}],
            [{"key": "loss", "title": "Loss", "unit": "nats/token"},
             {"key": "grad_norm", "title": "Gradient norm", "unit": "", "log": True},
             {"key": "lr", "title": "Learning rate"},
             {"key": "tokens_per_s", "title": "Throughput", "unit": "tokens/s", "zero": True},
             {"key": "mfu", "title": "MFU", "unit": "fraction of peak", "zero": True}],
            rows=rows("a", 1500, 150) + rows("b", 900, 320), smoothing=0.6)
    )
    curves
    return (curves,)


@app.cell
def _(curves, json, mo):
    mo.md(f"<div id='curves-state'>{json.dumps([curves.widget.cursor, curves.widget.hidden, curves.widget.log])}</div>")
    return


if __name__ == "__main__":
    app.run()
