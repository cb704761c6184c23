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
def _(heat, mo, np):
    def fill(_):
        heat.widget.update(np.nan_to_num(heat.widget.values, nan=0.5))

    mo.ui.button(label="fill the map", on_click=fill)
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
    return Curves, curves


@app.cell
def _(curves, json, mo):
    mo.md(f"<div id='curves-state'>{json.dumps([curves.widget.cursor, curves.widget.hidden, curves.widget.log])}</div>")
    return


@app.cell
def _(Curves, mo):
    live = mo.ui.anywidget(Curves(panels=[{"key": "loss", "title": "Loss", "unit": "nats/token"}, {"key": "lr", "title": "Learning rate"}]))
    live
    return (live,)


@app.cell
def _(live, mo, threading, time):
    def feed():
        for start in range(0, 1000, 20):
            live.widget.append([{"step": s, "loss": 5 / (1 + s / 50), "lr": 3e-4} for s in range(start, start + 20)])
            time.sleep(0.02)

    mo.ui.button(label="start the thread", on_click=lambda _: threading.Thread(target=feed, daemon=True).start())
    return


@app.cell
def _(live, mo):
    mo.md(f"<div id='live-rows'>{len(live.widget.data)}</div>")
    return


@app.cell
def _(mo):
    from widgets.tokens import Tokens

    _clean = ["The", " E", "iffel", " Tower", " is", " located", " in", " the", " city", " of"]
    _corrupt = ["The", " great", " Tokyo", *_clean[3:]]
    toks = mo.ui.anywidget(
        Tokens([
            {"label": "clean", "pieces": _clean, "marks": [1, 2], "note": "Paris +8.02", "ids": list(range(100, 110))},
            {"label": "corrupted", "pieces": _corrupt, "marks": [1, 2], "note": "Tokyo −11.32"},
        ])
    )
    shaded = mo.ui.anywidget(
        Tokens([
            {"label": "sample", "pieces": ["def", " f", "(", "x", "):", "\n", "   ", " return", " x", " *", " ", "2", "\n", "\n", "print", "(", "f", "(", "2", "1", "))"],
             "values": [None, 0.02, 0.9, 0.4, 0.8, 0.99, 0.95, 0.9, 0.7, 0.3, float("nan"), 0.2, 0.6, 0.5, 0.4, 0.97, 0.7, 0.99, 0.1, 0.05, 0.8]},
        ])
    )
    mo.vstack([toks, shaded])
    return shaded, toks


@app.cell
def _(json, mo, toks):
    mo.md(f"<div id='tokens-selected'>{json.dumps(toks.widget.selected)}</div>")
    return


@app.cell
def _(mo):
    from widgets.bars import Bars

    bars = mo.ui.anywidget(
        Bars([[" Paris", 0.688], [" Mont", 0.03], [" Mar", 0.029], [" T", 0.027], ["\n", 0.004]],
             compare=[[" Tokyo", 0.955], [" Sh", 0.018], [" Paris", 0.006]], title="Next token", names=("corrupted", "patched"))
    )
    plain_bars = mo.ui.anywidget(Bars([[" Tokyo", 0.955], [" Sh", 0.018], [" As", 0.004], [" Osaka", 0.003]], title="Unpatched"))
    mo.hstack([bars, plain_bars])
    return


@app.cell
def _(mo, np):
    from widgets.attention import Attention

    _tokens = ["The", " E", "iffel", " Tower", " is", " located", " in", " the", " city", " of", " Paris", ",", " in", " the", " north", " of", " France", "."]
    _rng = np.random.default_rng(3)
    _scores = _rng.normal(0, 1.5, (9, 18, 18))
    _scores[:, :, 0] += 2.5
    _scores[3] += 6 * np.eye(18, k=-1)
    _scores[np.broadcast_to(np.triu(np.ones((18, 18), bool), 1), _scores.shape)] = -np.inf
    _p = np.exp(_scores - _scores.max(-1, keepdims=True))
    att = mo.ui.anywidget(Attention(_p / _p.sum(-1, keepdims=True), _tokens, selected=3, labels=[f"9.{h}" for h in range(9)], title="layer 9"))
    att
    return (att,)


@app.cell
def _(att, json, mo):
    mo.md(f"<div id='attention-state'>{json.dumps([att.widget.selected, att.widget.query])}</div>")
    return


@app.cell
def _(mo, np):
    from widgets.table import Table

    _rng = np.random.default_rng(4)
    _ops = ["aten::mm", "aten::addmm", "aten::_softmax", "aten::mul", "aten::copy_", "aten::add_", "aten::bmm", "aten::silu"]
    _rows = [{"id": f"op{i}", "name": f"{_ops[i % 8]}", "token": [" Paris", "\n", " of"][i % 3], "calls": int(_rng.integers(1, 900)),
              "self_us": float(_rng.gamma(2, 4000)), "share": float(_rng.beta(1, 8)), "stack": f"model/layers.{i % 30}/mlp, \"{i}\""} for i in range(5000)]
    _rows[7]["self_us"] = float("nan")
    table = mo.ui.anywidget(
        Table(_rows, [{"key": "name", "title": "operator"}, {"key": "token", "kind": "mono"}, {"key": "calls", "kind": "num"},
                      {"key": "self_us", "title": "self time", "unit": "µs", "kind": "num", "digits": 1},
                      {"key": "share", "title": "share of step", "kind": "bar", "digits": 3}, {"key": "stack", "title": "module"}], name="operators")
    )
    table
    return (table,)


@app.cell
def _(json, mo, table):
    mo.md(f"<div id='table-state'>{json.dumps([table.widget.selected, table.widget.sort, table.widget.filter])}</div>")
    return


@app.cell
def _(mo):
    from widgets.roofline import Roofline

    roof = mo.ui.anywidget(
        Roofline(
            [{"name": "H200 bf16", "flops_per_s": 989e12, "bytes_per_s": 4.8e12}, {"name": "H200 fp32", "flops_per_s": 67e12, "bytes_per_s": 4.8e12}],
            [{"label": "softmax, fused", "intensity": 1.1, "flops_per_s": 4.1e12, "group": "kernel"},
             {"label": "softmax, torch", "intensity": 0.9, "flops_per_s": 1.6e12, "group": "torch"},
             {"label": "prefill 512", "intensity": 410, "flops_per_s": 610e12, "group": "model"},
             {"label": "decode, batch 1", "intensity": 1.0, "flops_per_s": 2.9e12, "group": "model"},
             {"label": "decode, batch 64", "intensity": 58, "flops_per_s": 150e12, "group": "model"}],
            title="Where the time goes")
    )
    roof
    return (roof,)


@app.cell
def _(json, mo, roof):
    mo.md(f"<div id='roofline-state'>{json.dumps(roof.widget.selected)}</div>")
    return


@app.cell
def _(mo):
    from widgets.scrubber import Scrubber

    scrub = mo.ui.anywidget(Scrubber(range(0, 2100, 100), 500, [f"loss {8 / (1 + i):.2f}" for i in range(21)]))
    more = mo.ui.button(label="one more checkpoint", on_click=lambda _: setattr(scrub.widget, "steps", [*range(0, 2200, 100)]))
    mo.vstack([scrub, more])
    return more, scrub


@app.cell
def _(json, mo, scrub):
    mo.md(f"<div id='scrubber-state'>{json.dumps(scrub.widget.value)}</div>")
    return


if __name__ == "__main__":
    app.run()
