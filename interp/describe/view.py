"""What a page shows of descriptions: how their scores are spread, one table, and one neuron on real text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch

from interp.describe.clauses import Description, Questions, propose
from interp.describe.reading import Features, Neurons, Text, activations, text_for
from interp.describe.score import LEGIBLE, simulated
from widgets.excerpts import Excerpts

COLUMNS = (
    {"key": "layer", "title": "layer", "kind": "num", "digits": 0},
    {"key": "neuron", "title": "unit", "kind": "num", "digits": 0},
    {"key": "text", "title": "description"},
    {"key": "score", "title": "score", "unit": "r", "kind": "bar", "digits": 2},
    {"key": "control", "title": "control", "unit": "r", "kind": "num", "digits": 2},
    {"key": "table", "title": "token table", "unit": "r", "kind": "num", "digits": 2},
)
TRIED = 16  # units described to tell how long all take
WINDOWS = 8  # excerpts shown of one neuron


def spread(rows: Sequence[dict[str, Any]]) -> go.Figure:
    """Histogram of the scores beside that of the control, with the line from which a description counts."""
    figure = go.Figure()
    for key, name in (("score", "its own description"), ("control", "another unit's description")):
        values = [row[key] for row in rows if row[key] is not None]
        figure.add_histogram(x=values, name=name, xbins={"start": -0.3, "end": 1.0, "size": 0.05}, opacity=0.75)
    figure.add_vline(x=LEGIBLE, line_dash="dot", line_width=1, line_color="rgba(128,128,128,.9)")
    figure.update_layout(
        barmode="overlay", height=260, xaxis_title="correlation of simulated and true activation, held-out text",
        yaxis_title="units", margin={"t": 40},
    )  # fmt: skip
    return figure


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Share legible, mean score, mean control and mean of the token table; silent units count as zero."""

    def mean(key: str) -> float:
        return sum(row[key] or 0.0 for row in rows) / max(1, len(rows))

    legible = sum((row["score"] or 0.0) >= LEGIBLE for row in rows) / max(1, len(rows))
    return {"legible": legible, "score": mean("score"), "control": mean("control"), "table": mean("table")}


def on_text(source: Neurons | Features, lm, unit: int, description: Description, held: Text) -> Excerpts:
    """One unit on held-out text: true activations beside what its description says, where it is most active and at
    random."""
    length = held.tokens.shape[1]
    true = activations(source, lm, held, torch.tensor([unit])).view(-1, length)
    said = simulated([description], held).view(-1, length)
    # on one scale: a description predicts deviations from a floor, which may lie below zero
    sign = -1.0 if true.amin().abs() > true.amax() else 1.0  # a neuron may speak by being negative
    strongest = (sign * true).amax(1).topk(min(WINDOWS, len(true))).indices.tolist()
    anyhow = torch.linspace(0, len(true) - 1, min(WINDOWS, len(true))).long().tolist()

    def group(title: str, values: torch.Tensor, windows: Sequence[int]) -> dict[str, Any]:
        shown = (sign * values).clamp_min(0)
        return {"title": title, "rows": [{"pieces": held.excerpt(w), "values": shown[w].tolist()} for w in windows]}

    entry = {
        "title": f"{source.title}: {unit}" + (" (shaded where negative)" if sign < 0 else ""),
        "vmax": float((sign * true).max().clamp_min(1e-6)),
        "groups": [
            group("most active, true", true, strongest), group("the same, simulated", said, strongest),
            group("any text, true", true, anyhow), group("the same, simulated", said, anyhow),
        ],
    }  # fmt: skip
    return Excerpts([entry])


def seconds(lm) -> float:
    """Expected time to describe every neuron: the text of one layer read once, and a few units described."""
    source, text = Neurons(lm.config.n_layers // 2), text_for(lm, 40, 64, False)
    started = time.perf_counter()
    acts = activations(source, lm, text)
    read = (time.perf_counter() - started) * 15  # 400 windows to describe from and 200 to score on
    started = time.perf_counter()
    questions = Questions(text.tokens, text.piece)
    simulated(propose(acts[:, :TRIED], questions), text)
    fit = (time.perf_counter() - started) * 10 * acts.shape[1] / TRIED
    return lm.config.n_layers * (read + fit)
