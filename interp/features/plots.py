"""Plots of dictionaries: what sparsity costs, how strongly a feature fires, known directions found again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from interp.features import store
from interp.features.dashboard import histogram
from interp.features.firings import Firings
from lab.page.style import SERIES, tokens

SYMBOLS = ("circle", "square", "diamond")  # of the kinds, in alphabetical order


def spread(firings: Firings, feature: int) -> go.Figure:
    """Histogram of a feature's activations above zero."""
    counts, edges = histogram(firings, feature)
    n = int(counts.sum())
    figure = go.Figure(go.Bar(
        x=(edges[1:] + edges[:-1]) / 2, y=counts, width=edges[1:] - edges[:-1], marker_color=tokens()["pos"],
        hovertemplate="%{x:.2f}: %{y} tokens<extra></extra>",
    ))  # fmt: skip
    figure.update_xaxes(title="activation, length of what it writes", rangemode="tozero")
    figure.update_yaxes(title="tokens", type="log" if n else "linear", dtick=1)
    figure.update_layout(height=290, bargap=0.05, title={"text": f"Fires on {n:,} of {firings.positions:,} tokens", "font": {"size": 14}, "x": 0})
    return figure


def recovery(trail: Sequence[tuple[int, float]], cosine: Tensor) -> go.Figure:
    """Left: the mean cosine of true directions with their nearest learned one, over training; right: each of them at the end."""
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, column_widths=[0.55, 0.45], horizontal_spacing=0.12)
    colour = tokens()
    figure.add_scatter(x=[s for s, _ in trail], y=[c for _, c in trail], mode="lines+markers", line={"color": colour["interp"]},
                       hovertemplate="step %{x}: %{y:.3f}<extra></extra>", row=1, col=1)  # fmt: skip
    best = cosine.amax(0).sort(descending=True).values.tolist()
    figure.add_bar(x=list(range(1, len(best) + 1)), y=best, marker_color=colour["interp"],
                   hovertemplate="cosine %{y:.3f}<extra></extra>", row=1, col=2)  # fmt: skip
    for at in (1, 2):
        figure.add_hline(0.95, line={"dash": "dot", "color": colour["faint"], "width": 1}, row=1, col=at)
    figure.update_xaxes(title="step", row=1, col=1)
    figure.update_yaxes(title="mean largest cosine", range=[0, 1.03], row=1, col=1)
    figure.update_xaxes(title="true direction, best first", row=1, col=2)
    figure.update_yaxes(title="cosine with the nearest learned", range=[0, 1.03], row=1, col=2)
    figure.update_layout(height=300, showlegend=False)
    return figure


def sweep() -> list[dict[str, Any]]:
    """The points of the recorded sweep; none where it is missing."""
    points: list[dict[str, Any]] = []
    for part in ("sweep", "gated", "others"):
        path = store.BUNDLED / f"{part}.json"
        if path.exists():
            points += [dict(point, long=part != "sweep") for point in json.loads(path.read_text())]
    return points


def frontier(points: Iterable[Mapping[str, Any]], yours: Iterable[Mapping[str, Any]] = (), against: str = "loss_recovered") -> go.Figure:
    """Loss recovered against L0: one line a kind and size, longer training as open symbols, the bundled autoencoder
    ringed, runs of one's own as crosses."""
    colour, names = tokens(), {"topk": "TopK", "jumprelu": "JumpReLU", "gated": "gated"}
    lines: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    longer, rates = [], []
    for point in points:
        if point["long"]:
            longer.append(point)
        elif point["lr"] != 1e-3:
            rates.append(point)
        else:
            lines.setdefault((point["kind"], point["d_dict"]), []).append(point)
    figure = go.Figure()
    hover = "L0 %{x:.1f}<br>loss recovered %{y:.4f}<br>%{text}<extra>%{fullData.name}</extra>"

    def told(point: Mapping[str, Any]) -> str:
        return f"dead {point['dead']:.1%}, {point['activations'] / 1e6:.0f} M activations, rate {point['lr']:g}"

    def trace(name: str, some: Sequence[Mapping[str, Any]], **style: Any) -> None:
        some = sorted(some, key=lambda p: p["l0"])
        figure.add_scatter(x=[p["l0"] for p in some], y=[p[against] for p in some], text=[told(p) for p in some], name=name, hovertemplate=hover, **style)

    for i, ((kind, size), some) in enumerate(sorted(lines.items())):
        ink = colour[SERIES[i % len(SERIES)]]
        trace(f"{names[kind]}, {size:,} features", some, mode="lines+markers", line={"color": ink, "width": 2}, marker={"size": 7, "symbol": SYMBOLS[sorted(names).index(kind)]})
    if rates:
        trace("other learning rates", rates, mode="markers", marker={"size": 8, "symbol": "triangle-up-open", "color": colour["faint"]})
    if longer:
        symbols = [f"{SYMBOLS[sorted(names).index(p['kind'])]}-open" for p in sorted(longer, key=lambda p: p["l0"])]
        trace("trained longer", longer, mode="markers", marker={"size": 11, "symbol": symbols, "color": colour["evals"], "line": {"width": 2}})
    bundled = [info for info in store.available() if not info.name.startswith("run:") and info.shape.target != "transcoder"]
    kept = [info.notes for info in bundled if "loss_recovered" in info.notes]
    if kept:
        trace("bundled", kept, mode="markers", marker={"size": 19, "symbol": "circle-open", "color": colour["kernels"], "line": {"width": 1.5}})
    if mine := list(yours):
        trace("your runs", mine, mode="markers", marker={"size": 11, "symbol": "x", "color": colour["posttrain"]})
    figure.update_xaxes(type="log", title="L0, features active a token", tickvals=[4, 8, 16, 32, 64, 128, 256])
    figure.update_yaxes(title="loss recovered, share")
    figure.update_layout(height=380)
    return figure
