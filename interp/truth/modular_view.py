"""Pictures of modular addition: its story, its spectrum, its circles, what heads and neurons do with two numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor

from interp.truth import fourier
from interp.truth.fourier import Look
from interp.truth.grokking import Story
from interp.truth.modular import loss64, questions
from lab.page.style import tokens

LOSSES = {
    "train_loss": ("training pairs", "train"),
    "test_loss": ("pairs never seen", "interp"),
    "restricted_loss": ("key frequencies alone, all pairs", "inference"),
    "excluded_loss": ("without the key frequencies, training pairs", "kernels"),
}
GREY = "rgba(128,128,128,.55)"


def phases(told: Story) -> list[tuple[str, int, int]]:
    """Memorisation until the training loss is below 1e-4, the circuit forms until its own loss is below 0.1, clean-up
    until the test loss is below 1e-3: (title, first epoch, last epoch)."""
    curves, ends = told.curves, []
    for name, below in (("train_loss", 1e-4), ("restricted_loss", 0.1), ("test_loss", 1e-3)):
        ends.append(told.epochs[int((curves[name] < below).nonzero()[0])])
    titles = ("memorises", "circuit forms", "cleans up")
    return list(zip(titles, [0, *ends], ends))


def story(told: Story, shown: int | None = None) -> go.Figure:
    """Losses over training and the embedding's spectrum, with a slider that carries every frame."""
    colour = tokens()
    figure = make_subplots(
        1, 2, column_widths=[0.6, 0.4], horizontal_spacing=0.09, subplot_titles=("", "Embedding by Fourier frequency")
    )
    step = max(1, len(told.epochs) // 600)
    for name, (title, hue) in LOSSES.items():
        figure.add_scatter(
            x=told.epochs[::step], y=told.curves[name][::step].tolist(), name=title, mode="lines",
            line={"color": colour[hue], "width": 2}, hovertemplate="%{y:.2e} nats", row=1, col=1,
        )  # fmt: skip
    epochs = told.spectra_epochs
    spectra = told.spectra["embedding"]
    frames = sorted({*range(0, len(epochs), 4), *(epochs.index(e) for e in told.saved if e in epochs)})
    ends = [e for _, _, e in phases(told)]
    last = next((i for i, e in enumerate(epochs) if e >= 1.5 * ends[-1]), len(epochs) - 1)
    frames = [i for i in frames if i <= last or i % 40 == 0]
    at = min(frames, key=lambda i: abs(epochs[i] - (ends[1] if shown is None else shown)))
    k = list(range(1, spectra.shape[1] + 1))
    hues = [colour["interp"] if one in told.keys else GREY for one in k]

    def moving(i: int) -> list[Any]:
        line = {"color": GREY, "width": 2, "dash": "dot"}
        return [
            go.Scatter(x=[epochs[i]] * 2, y=[1e-8, 1e3], mode="lines", line=line, showlegend=False, hoverinfo="skip"),
            go.Bar(x=k, y=spectra[i].tolist(), marker_color=hues, showlegend=False, hovertemplate="k = %{x}: %{y:.3f}<extra></extra>"),
        ]

    mark, bars = moving(at)
    figure.add_trace(mark, row=1, col=1)
    figure.add_trace(bars, row=1, col=2)
    figure.frames = [go.Frame(name=str(epochs[i]), data=moving(i), traces=[4, 5]) for i in frames]
    for title, start, end in phases(told):
        narrow = title == "memorises"  # wider than its phase: it begins where the phase begins
        figure.add_annotation(
            x=start if narrow else (start + end) / 2, xanchor="left" if narrow else "center", y=1.0, yref="y domain",
            yanchor="top", text=title, showarrow=False, font={"size": 12}, xshift=2 if narrow else 0,
        )  # fmt: skip
        figure.add_vline(x=end, line={"color": GREY, "width": 1}, row=1, col=1)
    play = {"frame": {"duration": 60, "redraw": False}, "transition": {"duration": 0}, "mode": "immediate"}
    figure.update_layout(
        height=460, hovermode="x unified", bargap=0.15, legend={"y": 1.06},
        sliders=[{
            "active": frames.index(at), "pad": {"t": 44, "l": 70}, "currentvalue": {"prefix": "epoch ", "font": {"size": 14, "color": "#7b818c"}},
            "steps": [{"label": f"{epochs[i]:,}", "method": "animate", "args": [[str(epochs[i])], play]} for i in frames],
            "ticklen": 0, "minorticklen": 0, "font": {"color": "rgba(0,0,0,0)", "size": 1}, "bgcolor": "rgba(128,128,128,.25)", "borderwidth": 0,
        }],
        updatemenus=[{
            "type": "buttons", "x": 0, "y": -0.2, "xanchor": "left", "yanchor": "top", "pad": {"t": 22}, "showactive": False,
            "buttons": [{"label": "▶", "method": "animate", "args": [None, {**play, "fromcurrent": True}]}],
        }],
    )  # fmt: skip
    figure.update_xaxes(title="epoch", range=[0, epochs[last]], row=1, col=1)
    figure.update_yaxes(title="loss, nats", type="log", range=[-7.5, 2.8], dtick=2, exponentformat="power", row=1, col=1)
    figure.update_xaxes(title="frequency k", row=1, col=2)
    figure.update_yaxes(title="norm", range=[0, 1.05 * float(spectra[frames].max())], row=1, col=2)
    return figure


def bars(spectrum: Tensor, keys: Sequence[int], title: str = "norm") -> go.Figure:
    """A spectrum [k] with the key frequencies in colour."""
    colour = tokens()
    k = list(range(1, len(spectrum) + 1))
    hues = [colour["interp"] if one in keys else GREY for one in k]
    figure = go.Figure(go.Bar(x=k, y=spectrum.tolist(), marker_color=hues, hovertemplate="k = %{x}: %{y:.3f}<extra></extra>"))
    return figure.update_layout(height=260, bargap=0.15, xaxis_title="frequency k", yaxis_title=title)


def circles(embedding: Tensor, keys: Sequence[int]) -> go.Figure:
    """The numbers in the plane of each frequency; the colour is where the number should stand on the circle."""
    p = embedding.shape[0]
    figure = make_subplots(1, len(keys), subplot_titles=[f"k = {k}" for k in keys], horizontal_spacing=0.04)
    numbers = torch.arange(p)
    for column, k in enumerate(keys, 1):
        xy = fourier.circle(embedding, k)
        figure.add_scatter(
            x=xy[:, 0].tolist(), y=xy[:, 1].tolist(), mode="markers", text=numbers.tolist(), showlegend=False,
            marker={"size": 7, "color": (numbers * k % p).tolist(), "colorscale": "Phase", "cmin": 0, "cmax": p},
            hovertemplate="number %{text}<extra></extra>", row=1, col=column,
        )  # fmt: skip
        edge = 1.15 * max(float(xy.abs().max()), 1e-6)
        figure.update_xaxes(range=[-edge, edge], showticklabels=False, title="cosine", row=1, col=column)
        figure.update_yaxes(range=[-edge, edge], showticklabels=False, title="sine" if column == 1 else "", row=1, col=column)
    return figure.update_layout(height=300)


def maps(values: Tensor, titles: Sequence[str], unit: str, shared: float | None = None) -> go.Figure:
    """Functions of a and b, [a, b, n], as n heat maps; `shared` is the top of a common scale, else each its own."""
    n = values.shape[-1]
    figure = make_subplots(1, n, subplot_titles=list(titles), horizontal_spacing=0.03, shared_yaxes=True)
    for i in range(n):
        top = shared if shared is not None else float(values[..., i].max()) or 1.0
        figure.add_heatmap(
            z=values[..., i].float().numpy(), zmin=0, zmax=top, colorscale=_sequential(), showscale=i == n - 1 and shared is not None,
            colorbar={"title": unit, "thickness": 10}, hovertemplate="a = %{y}, b = %{x}: %{z:.3f} " + unit + "<extra></extra>",
            row=1, col=i + 1,
        )  # fmt: skip
        figure.update_xaxes(title="b", row=1, col=i + 1)
    figure.update_yaxes(title="a", row=1, col=1)
    return figure.update_layout(height=290)


def fits(seen: Look, keys: Sequence[int]) -> go.Figure:
    """Every neuron: the frequency that explains it best, and how much of it; beside it their energy by two frequencies."""
    colour = tokens()
    best, share = fourier.neuron_fits(seen.neurons)
    energy = fourier.plane(seen.neurons)
    energy[0, 0] = float("nan")  # the mean, which dwarfs the rest
    generator = torch.Generator().manual_seed(0)
    jitter = (torch.rand(len(best), generator=generator) - 0.5) * 0.8
    hues = [colour["interp"] if int(k) in keys else GREY for k in best]
    figure = make_subplots(
        1, 2, column_widths=[0.6, 0.4], horizontal_spacing=0.1,
        subplot_titles=("Each neuron by the one frequency that explains it best", "Energy of all neurons, frequency of a by frequency of b"),
    )  # fmt: skip
    figure.add_scatter(
        x=(best + jitter).tolist(), y=share.tolist(), mode="markers", marker={"color": hues, "size": 5, "opacity": 0.6},
        text=[f"neuron {i}, k = {int(k)}" for i, k in enumerate(best)], showlegend=False,
        hovertemplate="%{text}: %{y:.0%}<extra></extra>", row=1, col=1,
    )  # fmt: skip
    figure.add_heatmap(
        z=(energy / energy.nan_to_num().sum()).numpy(), colorscale=_sequential(), colorbar={"title": "share", "thickness": 10},
        hovertemplate="frequency %{y} of a, %{x} of b: %{z:.1%}<extra></extra>", row=1, col=2,
    )  # fmt: skip
    figure.update_xaxes(title="frequency k", row=1, col=1)
    figure.update_yaxes(title="share of its variance", range=[0, 1.03], tickformat=".0%", row=1, col=1)
    figure.update_xaxes(title="frequency of b (0: constant)", row=1, col=2)
    figure.update_yaxes(title="frequency of a", row=1, col=2)
    return figure.update_layout(height=360)


def examples(seen: Look, keys: Sequence[int]) -> tuple[Tensor, list[str]]:
    """The neuron that each key frequency explains best, [a, b, n], with titles."""
    best, share = fourier.neuron_fits(seen.neurons)
    chosen, titles = [], []
    for k in keys:
        mine = torch.where(best == k, share, -1.0)
        if float(mine.max()) >= 0:
            chosen.append(int(mine.argmax()))
            titles.append(f"neuron {chosen[-1]}, k = {k}, {float(mine.max()):.0%}")
    return seen.neurons[..., chosen], titles


def account(seen: Look, keys: Sequence[int]) -> list[dict[str, Any]]:
    """The mechanism put to the test on all pairs: losses (nats) and right answers of parts of the model."""
    p = seen.logits.shape[0]
    answers = questions(p)[1]
    waves = fourier.waves_of_answer(seen.logits)
    only = torch.zeros_like(waves)
    only[[k - 1 for k in keys]] = waves[[k - 1 for k in keys]]
    cases = {
        "the model": seen.logits,
        "its key frequencies alone (restricted)": fourier.restricted(seen.logits, list(keys)),
        "all but its key frequencies (excluded)": fourier.excluded(seen.logits, list(keys)),
        f"the formula, {len(keys)} numbers in place of the weights": fourier.formula(only, p),
    }
    rows = []
    for what, logits in cases.items():
        flat = logits.reshape(-1, p)
        rows.append({"what": what, "loss": float(loss64(flat, answers)), "right": float((flat.argmax(-1) == answers).double().mean())})
    return rows


def _sequential() -> list[list[Any]]:
    return [[0, "rgba(19,138,128,0)"], [1, tokens()["pos"]]]
