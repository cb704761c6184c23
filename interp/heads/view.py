"""Heads as widgets: maps of a score, the two circuits of a head for some words, composition."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from interp.heads import circuits, survey, weights
from interp.heads.survey import SCORES, Survey
from lab.errors import LabError
from widgets.heatmap import Heatmap
from widgets.table import Table


def score_map(found: Survey, key: str, selected: tuple[int, int] | None = None) -> Heatmap:
    """Layer by head; attention scores are full at 1, others at their largest."""
    score = SCORES[key]
    return Heatmap(
        found.scores[key].numpy(), row_title="layer", col_title="head", value_title=f"{score.title.capitalize()}: {score.how}",
        unit="" if score.unit == "attention" else score.unit, vmax=1.0 if score.unit in ("attention", "−1 to 1") else None,
        selected=[list(selected)] if selected else [],
    )  # fmt: skip


class Newest:
    """Which head was chosen last, on the map or in the table: the one whose choice is not what it was."""

    def __init__(self, first: tuple[int, int]) -> None:
        self.head = first
        self._cells: list[Sequence[int]] = [list(first)]
        self._rows = ["{}.{}".format(*first)]

    def of(self, cells: Sequence[Sequence[int]], rows: Sequence[str]) -> tuple[int, int]:
        """From what is selected now: cells `[layer, head]` of the map, ids "layer.head" of the table."""
        if list(cells) != self._cells and cells:
            self.head = (cells[-1][0], cells[-1][1])
        elif list(rows) != self._rows and rows:
            layer, head = rows[-1].split(".")
            self.head = (int(layer), int(head))
        self._cells, self._rows = list(cells), list(rows)
        return self.head


def words_of(lm, text: str, most: int = 32) -> list[int]:
    """The different tokens of a text, in order; its first word as it would be within a sentence, where that is known."""
    try:
        ids = lm.tokens(f" {text.strip()}")
    except LabError:
        ids = lm.tokens(text)
    return list(dict.fromkeys(ids[0].tolist()))[:most]


def circuit_maps(lm, layer: int, head: int, ids: Sequence[int], distance: int, through: int) -> tuple[Heatmap, Heatmap, Table]:
    """QK (who looks at whom), OV among the same tokens, and what OV raises in the whole vocabulary."""
    stream = circuits.alone(lm.model, ids, through)
    pieces = lm.tokenizer.pieces(list(ids))
    scores = circuits.qk(lm.model, layer, head, stream, distance)
    scores = scores - scores.mean(-1, keepdim=True)  # the softmax does not see what a query adds to all its keys
    scale = survey.typical_scale(lm, torch.tensor([list(ids)], device=lm.model.device))
    written = circuits.ov(lm.model, layer, head, stream, scale)
    inside = [i for i in ids if i < written.shape[1]]
    qk = Heatmap(
        scores.flip(0).cpu().numpy(), row_labels=[p.strip() or "·" for p in reversed(pieces)], col_labels=pieces, row_title="query",
        col_title=f"key, {distance} before", value_title=f"QK of head {layer}.{head}: who looks at whom", unit="nats",
    )  # fmt: skip
    ov = Heatmap(
        written[:, inside].flip(0).cpu().numpy(), row_labels=[p.strip() or "·" for p in reversed(pieces)],
        col_labels=lm.tokenizer.pieces(inside), row_title="looked at", col_title="what it then says",
        value_title=f"OV of head {layer}.{head}: what looking writes", unit="logits",
    )  # fmt: skip
    table = Table(
        survey.promoted(lm, written, ids),
        columns=[
            {"key": "token", "title": "looking at", "kind": "mono"},
            {"key": "raises", "title": "raises most"},
            {"key": "lowers", "title": "lowers most"},
            {"key": "itself", "title": "itself", "unit": "logits", "kind": "num", "digits": 2},
            {"key": "rank", "title": "its own rank", "kind": "num"},
        ],
        page=8,
        name=f"ov-{layer}-{head}",
    )
    return qk, ov, table


def composition_map(model, kind: str) -> tuple[Heatmap, Table]:
    """Receivers up, senders across, beyond chance; and the strongest pairs."""
    found, chance = weights.composition(model, kind), weights.chance(model)
    layers, heads = found.shape[:2]
    labels = [f"{i}.{h}" for i in range(layers) for h in range(heads)]
    what = {"q": "queries", "k": "keys", "v": "values"}[kind]
    heat = Heatmap(
        (found - chance).flatten(0, 1).flatten(1)[heads:, : (layers - 1) * heads].numpy(), row_labels=labels[heads:],
        col_labels=labels[: (layers - 1) * heads], row_title="receiver", col_title="sender (layer.head)",
        value_title=f"{kind.upper()}-composition: whose writing the {what} read, beyond chance ({chance:.3f}); hatched: not earlier",
    )  # fmt: skip
    table = Table(
        survey.pairs(found, chance),
        columns=[{"key": "receiver"}, {"key": "sender"}, {"key": "score", "kind": "num", "digits": 3},
                 {"key": "beyond", "title": "beyond chance", "kind": "bar", "digits": 3}],
        page=8, name=f"composition-{kind}",
    )  # fmt: skip
    return heat, table
