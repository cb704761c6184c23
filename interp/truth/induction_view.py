"""Pictures of an induction circuit: its growth, its heads, what silencing them costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from interp.truth import induction
from lab.models import Decoder
from lab.page.style import tokens
from widgets.curves import Curves
from widgets.heatmap import Heatmap

LENGTH = 16
PANELS = (
    {"key": "second_loss", "title": "Loss, second copy", "unit": "nats/word", "zero": True},
    {"key": "induction", "title": "Induction score, best head of layer 1", "unit": "attention", "zero": True},
    {"key": "previous", "title": "Previous-token score, best head of layer 0", "unit": "attention", "zero": True},
    {"key": "composition", "title": "K-composition of these two", "unit": "above chance"},
    {"key": "first_loss", "title": "Loss, first copy", "unit": "nats/word", "zero": True},
    {"key": "partner_loss", "title": "Loss, partners of leaders", "unit": "nats/word", "zero": True},
)


def growth(step: int | None = None) -> Curves:
    """The curves of the bundled model's training."""
    found = Curves(series=[{"id": "bundled", "label": "bundled model"}], panels=PANELS, cursor=step)
    found.append(induction.curves(), series="bundled")
    return found


def labels(model: Decoder) -> list[tuple[int, int]]:
    """Every head, (layer, head)."""
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


def heads(model: Decoder, texts: Tensor) -> list[dict[str, Any]]:
    """A line for every head: its two scores, and the losses of second copy and partners when it is silenced."""
    previous, found = induction.scores(induction.patterns(model, texts), LENGTH)
    rows = []
    for layer, head in labels(model):
        cut = induction.losses(induction.ablated(model, texts, [(layer, head)]), texts, LENGTH)
        rows.append({
            "head": f"{layer}.{head}", "previous": float(previous[layer, head]), "induction": float(found[layer, head]),
            "second": cut["second_loss"], "partner": cut["partner_loss"],
        })  # fmt: skip
    return rows


def composition(model: Decoder) -> Heatmap:
    """K-composition scores, first-layer heads upwards, second-layer heads across."""
    n = model.cfg.n_heads
    return Heatmap(
        induction.composition(model).float().numpy(), [f"0.{h}" for h in range(n)], [f"1.{h}" for h in range(n)],
        row_title="writes (layer 0)", col_title="reads by its key (layer 1)", value_title="K-composition, above chance",
    )  # fmt: skip


def silenced(model: Decoder, texts: Tensor, chosen: Sequence[tuple[int, int]]) -> go.Figure:
    """Loss along the text, whole and with the chosen heads silenced."""
    colour = tokens()
    with torch.no_grad():
        whole = induction.by_position(model(texts), texts)
    cut = induction.by_position(induction.ablated(model, texts, chosen), texts)
    at = list(range(1, texts.shape[1]))
    figure = go.Figure()
    name = "without " + ", ".join(f"{layer}.{head}" for layer, head in chosen) if chosen else "nothing silenced"
    for losses, title, hue in ((whole, "whole", "interp"), (cut, name, "kernels")):
        figure.add_scatter(
            x=at, y=losses.tolist(), name=title, mode="lines+markers", line={"color": colour[hue], "width": 2}, marker={"size": 5},
            hovertemplate="word %{x}: %{y:.2f} nats",
        )  # fmt: skip
    edge = {"color": "rgba(128,128,128,.55)", "width": 1, "dash": "dot"}
    figure.add_vline(x=LENGTH + 0.5, line=edge, annotation_text="second copy", annotation_position="top right")
    figure.update_xaxes(title="position in the text, words")
    figure.update_yaxes(title="loss, nats/word", rangemode="tozero")
    return figure.update_layout(height=330, hovermode="x unified")


def example() -> str:
    """A text to begin with: a segment and the same again, cut where the next word can be known."""
    row = induction.repeated(1, 9, torch.Generator().manual_seed(3))[0, :-1]
    return " ".join(induction.WORDS[i] for i in row.tolist())
