"""Direct attribution as pictures: a waterfall over the layers, heads, the tokens they read, neurons, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from interp.bootstrap import mean_interval
from interp.lenses.direct import Direct, direct
from interp.metrics import at_least_fp32
from lab.errors import LabError
from widgets.heatmap import Heatmap
from widgets.table import Table

UNIT = "logits"
COLUMNS = (
    {"key": "neuron", "title": "neuron"},
    {"key": "value", "title": "adds", "unit": UNIT, "kind": "num", "digits": 3},
    {"key": "raises", "title": "raises most", "kind": "text"},
    {"key": "lowers", "title": "lowers most", "kind": "text"},
)


def waterfall(found: Direct, prompt: int, colours: dict[str, str], title: str) -> go.Figure:
    """Every step of the stream added up to the logit difference, at the first position read."""
    names, values = zip(*((name, float(v[prompt, 0])) for name, v in found.steps()))
    figure = go.Figure(
        go.Waterfall(
            x=[*names, "sum"],
            y=[*values, None],
            measure=["relative"] * len(names) + ["total"],
            increasing={"marker": {"color": colours["pos"]}},
            decreasing={"marker": {"color": colours["neg"]}},
            totals={"marker": {"color": colours["faint"]}},
            connector={"line": {"color": "rgba(128,128,128,.45)", "width": 1}},
            hovertemplate="%{x}: %{delta:+.3f} logits, then %{y:.3f}<extra></extra>",
        )
    )
    figure.update_layout(
        title={"text": title, "font": {"size": 15}}, height=330, showlegend=False,
        xaxis={"title": "in the order in which the model adds them", "tickangle": -60 if len(names) > 12 else 0},
        yaxis={"title": "logit difference, logits"},
    )  # fmt: skip
    return figure


def head_map(found: Direct, prompt: int, channel: str = "") -> Heatmap:
    """Layers x heads, signed, with the strongest head chosen."""
    values = found.heads[prompt, 0]
    layer, head = divmod(int(values.abs().argmax()), values.shape[1])
    return Heatmap(
        values.numpy(), row_title="layer", col_title="head", value_title="What each head adds by itself", unit=UNIT,
        selected=[[layer, head]], channel=channel,
    )  # fmt: skip


def source_map(found: Direct, prompt: int, pieces: Sequence[str], most: int = 12) -> Heatmap:
    """The strongest heads and the tokens from which they brought it."""
    assert found.sources is not None
    heads = found.heads[prompt, 0]
    order = heads.abs().flatten().argsort(descending=True)[:most].flip(0).tolist()
    cells = [divmod(i, heads.shape[1]) for i in order]
    return Heatmap(
        torch.stack([found.sources[prompt, 0, layer, head] for layer, head in cells]).numpy(),
        row_labels=[f"{layer}.{head}" for layer, head in cells], col_labels=pieces, row_title="layer.head",
        col_title="token it reads", value_title="The strongest heads, by the token they read", unit=UNIT,
    )  # fmt: skip


def next_token_map(model, ids: Tensor, pieces: Sequence[str]) -> Heatmap:
    """What each layer says for the token that really comes next, at every position of a text [1, pos]."""
    n = ids.shape[1] - 1
    if n < 1:
        raise LabError("One token has no next one; write a longer text.")
    found = direct(model, ids[:, :-1], ids[:, 1:], positions=range(n), neurons=False)
    steps = found.steps()
    return Heatmap(
        torch.stack([value[0] for _, value in steps]).numpy(), row_labels=[name for name, _ in steps],
        col_labels=pieces[:-1], col_labels2=pieces[1:], row_title="part", col_title="token read, and below it the one that comes next",
        value_title="What each part adds to the next token, above the mean of the vocabulary", unit=UNIT,
    )  # fmt: skip


def neuron_table(lm, found: Direct, prompt: int, most: int = 40, words: int = 3) -> Table:
    """The strongest neurons, either way, with the tokens that their write raises and lowers most."""
    assert found.neurons is not None
    values = found.neurons[prompt, 0]
    width = values.shape[1]
    strongest = values.abs().flatten().argsort(descending=True)[:most].tolist()
    rows = []
    for layer, neuron in (divmod(i, width) for i in strongest):
        up, down = promotes(lm, layer, neuron, words)
        rows.append(
            {"id": f"{layer}.{neuron}", "neuron": f"{layer}.{neuron}", "value": float(values[layer, neuron]),
             "raises": _list(lm, up), "lowers": _list(lm, down)}
        )  # fmt: skip
    return Table(rows, columns=COLUMNS, page=10, name="direct-neurons")


@torch.no_grad()
def promotes(lm, layer: int, neuron: int, words: int) -> tuple[list[int], list[int]]:
    """Tokens that one more unit of a neuron's activation raises and lowers most."""
    write = at_least_fp32(lm.model.mlp_weights(layer).W_out[neuron])
    if lm.config.norm == "layer":
        write = write - write.mean()
    logits = (write * lm.model.norm_gain("ln_final")).to(lm.model.dtype) @ lm.model.W_U
    return logits.topk(words).indices.tolist(), (-logits).topk(words).indices.tolist()


def _list(lm, ids: Sequence[int]) -> str:
    return ", ".join(piece.strip() or "·" for piece in lm.tokenizer.pieces(list(ids)))


def component_rows(found: Direct, most: int = 24) -> list[dict[str, Any]]:
    """Parts of largest mean over the prompts, with 95 % intervals, largest first."""
    named = found.components()
    values = torch.stack([v[:, 0] for v in named.values()], 1)
    mean, low, high = mean_interval(values)
    names = list(named)
    order = mean.abs().argsort(descending=True)[:most].tolist()
    return [
        {"id": names[i], "part": names[i], "mean": float(mean[i]), "low": float(low[i]), "high": float(high[i]),
         "positive": float((values[:, i] > 0).double().mean())}
        for i in order
    ]  # fmt: skip


def component_figure(rows: Sequence[dict[str, Any]], colours: dict[str, str], title: str) -> go.Figure:
    """Means with their intervals, one bar a part."""
    figure = go.Figure(
        go.Bar(
            x=[row["part"] for row in rows], y=[row["mean"] for row in rows],
            marker={"color": [colours["pos"] if row["mean"] > 0 else colours["neg"] for row in rows]},
            error_y={
                "type": "data", "symmetric": False, "color": "rgba(128,128,128,.9)", "thickness": 1.2, "width": 3,
                "array": [row["high"] - row["mean"] for row in rows],
                "arrayminus": [row["mean"] - row["low"] for row in rows],
            },
            hovertemplate="%{x}: %{y:+.3f} logits<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        title={"text": title, "font": {"size": 15}}, height=330, showlegend=False,
        xaxis={"title": "part (a layer.h head, m layer)", "tickangle": -60},
        yaxis={"title": "mean contribution, logits"},
    )  # fmt: skip
    return figure
