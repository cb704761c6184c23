"""Pictures of toy models: the vectors of features, their overlaps, dimensionality against density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor

from interp.truth.superposition import Shape, Toy, dimensionality, per_feature
from lab.page.style import tokens

GREY = "rgba(128,128,128,.55)"
KNOWN = {"alone": 1.0, "tetrahedron 3/4": 3 / 4, "triangle 2/3": 2 / 3, "antipodal pair 1/2": 1 / 2, "pentagon 2/5": 2 / 5}


def _hues(n: int) -> list[str]:
    """One colour a feature, the most important darkest."""
    start, end = (19, 138, 128), (217, 123, 41)
    parts = [[round(s + (e - s) * i / max(1, n - 1)) for s, e in zip(start, end)] for i in range(n)]
    return [f"rgb({r},{g},{b})" for r, g, b in parts]


def arrows(W: Tensor) -> list[Any]:
    """A line from the origin to every feature's vector, [hidden, feature], in one, two or three dimensions."""
    hidden, n = W.shape
    share = dimensionality(W)
    traces = []
    for i, hue in enumerate(_hues(n)):
        tip = W[:, i].tolist()
        text = f"feature {i}: length {W[:, i].norm():.2f}, dimensionality {share[i]:.3f}<extra></extra>"
        style = {"mode": "lines+markers", "marker": {"size": [0, 8 if hidden < 3 else 5], "color": hue}, "showlegend": False,
                 "line": {"color": hue, "width": 3 if hidden < 3 else 5}, "hovertemplate": text}  # fmt: skip
        if hidden == 3:
            traces.append(go.Scatter3d(x=[0, tip[0]], y=[0, tip[1]], z=[0, tip[2]], **style))
        else:
            y = [0, tip[1]] if hidden == 2 else [0, 0]
            traces.append(go.Scatter(x=[0, tip[0]], y=y, **style))
    return traces


def shapes(found: Sequence[tuple[Shape, Tensor]]) -> go.Figure:
    """Trained vectors beside each other, the dimensionality that geometry gives and the one found in the title."""
    titles = []
    for shape, W in found:
        share = dimensionality(W)
        titles.append(f"{shape.title}: {shape.hidden}/{shape.features} = {shape.dimensionality:.3f}<br>found {share.min():.3f} to {share.max():.3f}")
    kinds = [{"type": "scene" if shape.hidden == 3 else "xy"} for shape, _ in found]
    figure = make_subplots(1, len(found), specs=[kinds], subplot_titles=titles, horizontal_spacing=0.05)
    for column, (shape, W) in enumerate(found, 1):
        for trace in arrows(W):
            figure.add_trace(trace, row=1, col=column)
        if shape.hidden < 3:
            figure.update_xaxes(range=[-1.4, 1.4], title="dimension 1", dtick=1, row=1, col=column)
            figure.update_yaxes(range=[-1.4, 1.4], title="dimension 2" if shape.hidden == 2 else "", dtick=1, row=1, col=column)
    return _scene(figure).update_layout(height=330, margin={"t": 56})


def sweep(toy: Toy) -> go.Figure:
    """The vectors and their overlaps at every density, under one slider that carries them all."""
    hidden, n = toy.W.shape[1:]
    drawn = hidden <= 3
    kinds = [{"type": "scene" if hidden == 3 else "xy"}, {"type": "xy"}] if drawn else [{"type": "xy"}]
    titles = (["Feature vectors"] if drawn else []) + ["Overlap of features, W^T W"]
    figure = make_subplots(1, len(kinds), specs=[kinds], subplot_titles=titles, horizontal_spacing=0.1)
    colour = tokens()
    scale = [[0, colour["neg"]], [0.5, "rgba(128,128,128,.08)"], [1, colour["pos"]]]
    top = float((toy.W.transpose(1, 2) @ toy.W).abs().max())

    def traces(W: Tensor) -> list[Any]:
        gram = go.Heatmap(
            z=(W.T @ W).numpy(), zmin=-top, zmax=top, colorscale=scale, colorbar={"title": "product", "thickness": 10},
            hovertemplate="features %{y} and %{x}: %{z:.2f}<extra></extra>",
        )  # fmt: skip
        return [*(arrows(W) if drawn else []), gram]

    at = len(toy.densities) // 2
    for i, trace in enumerate(traces(toy.W[at])):
        figure.add_trace(trace, row=1, col=1 if drawn and i < n else len(kinds))
    figure.frames = [
        go.Frame(name=f"{d:.3g}", data=traces(W), traces=list(range(len(figure.data))))
        for d, W in zip(toy.densities, toy.W)
    ]
    play = {"frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}, "mode": "immediate"}
    figure.update_layout(
        height=460,
        sliders=[{
            "active": at, "pad": {"t": 44}, "currentvalue": {"prefix": "probability that a feature is there: ", "font": {"size": 14, "color": "#7b818c"}},
            "steps": [{"label": f.name, "method": "animate", "args": [[f.name], play]} for f in figure.frames],
            "ticklen": 0, "minorticklen": 0, "font": {"color": "rgba(0,0,0,0)", "size": 1}, "bgcolor": "rgba(128,128,128,.25)", "borderwidth": 0,
        }],
    )  # fmt: skip
    if drawn and hidden < 3:
        edge = 1.15 * float(toy.W.abs().max())
        figure.update_xaxes(range=[-edge, edge], title="dimension 1", row=1, col=1)
        figure.update_yaxes(range=[-edge, edge], title="dimension 2" if hidden == 2 else "", row=1, col=1)
    figure.update_xaxes(title="feature", row=1, col=len(kinds))
    figure.update_yaxes(title="feature", autorange="reversed", row=1, col=len(kinds))
    return _scene(figure)


def phase(toy: Toy) -> go.Figure:
    """Dimensionality of every feature against how rare features are, with the levels that geometry knows."""
    colour = tokens()
    rare = [1 / d for d in toy.densities]
    share = dimensionality(toy.W)
    kept = [(x, float(v)) for x, row in zip(rare, share) for v in row if v > 0.02]
    figure = go.Figure()
    for title, level in KNOWN.items():
        figure.add_hline(
            y=level, line={"color": GREY, "width": 1, "dash": "dot"}, annotation_text=title, annotation_position="top right",
            annotation_font_size=12,
        )  # fmt: skip
    figure.add_scatter(
        x=[x for x, _ in kept], y=[v for _, v in kept], mode="markers", name="one feature",
        marker={"color": colour["interp"], "size": 6, "opacity": 0.45}, hovertemplate="1 / density %{x:.3g}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=rare, y=per_feature(toy.W).tolist(), mode="lines", name="dimensions a stored feature has, mean",
        line={"color": colour["train"], "width": 2}, hovertemplate="1 / density %{x:.3g}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(type="log", title="1 / probability that a feature is there", dtick="D2")
    figure.update_yaxes(title="dimensionality", range=[0, 1.08])
    return figure.update_layout(height=430)


def stored(toy: Toy) -> list[dict[str, Any]]:
    """A line for every density: how many features are kept, what they share, what is lost."""
    share = dimensionality(toy.W)
    size = toy.W.norm(dim=1)
    return [
        {
            "density": d, "stored": int((one > 0.5).sum()), "mean": float(mean), "loss": float(loss),
            "dimensionality": ", ".join(f"{v:.2f}" for v in row[one > 0.5].sort(descending=True).values.tolist()[:8]),
        }
        for d, one, row, mean, loss in zip(toy.densities, size, share, per_feature(toy.W), toy.loss)
    ]  # fmt: skip


def _scene(figure: go.Figure) -> go.Figure:
    axis = {"showbackground": False, "gridcolor": "rgba(128,128,128,.3)", "zerolinecolor": GREY, "showticklabels": False}
    return figure.update_scenes(
        xaxis={**axis, "title": "1"}, yaxis={**axis, "title": "2"}, zaxis={**axis, "title": "3"}, aspectmode="cube",
        camera={"eye": {"x": 1.5, "y": 1.5, "z": 1.0}},
    )  # fmt: skip
