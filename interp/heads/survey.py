"""Every head of a model, every score at once: what the table and the maps of the page show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.heads import names, patterns, weights
from lab.errors import LabError


@dataclass(frozen=True)
class Score:
    """A column: its title, its unit, how it is measured in one line."""

    title: str
    unit: str
    how: str


SCORES = {
    "previous": Score("previous token", "attention", "mean attention to the token just before"),
    "duplicate": Score("duplicate token", "attention", "mean attention to an earlier copy of the same token"),
    "induction": Score("induction", "attention", "mean attention to what followed an earlier copy, random tokens said twice"),
    "first": Score("first token", "attention", "mean attention to the first token, where idle heads rest"),
    "copying": Score("copying", "−1 to 1", "sum of the eigenvalues of W_E W_V W_O W_U over the sum of their sizes"),
    "mover": Score("name mover", "−1 to 1", "attention to the right name, times whether it is then promoted above all names"),
    "io": Score("sees the right name", "attention", "indirect-object sentences: mean attention from the end to the right name"),
    "s2": Score("sees the giver again", "attention", "the same to the second mention of the giver: S-inhibition heads read it"),
    "direct": Score("says the right name", "logits", "the head's own contribution to the right name against the giver's"),
}  # fmt: skip


@dataclass(frozen=True)
class Survey:
    """Scores [layer, head] by key of SCORES, in that order; `missing` says why a score is not there."""

    scores: dict[str, Tensor]
    missing: dict[str, str]

    def rows(self) -> list[dict[str, Any]]:
        """One row a head."""
        layers, heads = next(iter(self.scores.values())).shape
        return [
            {"id": f"{i}.{h}", "head": f"{i}.{h}", **{key: float(x[i, h]) for key, x in self.scores.items()}}
            for i in range(layers)
            for h in range(heads)
        ]

    def columns(self) -> list[dict[str, Any]]:
        """For `widgets.table`."""
        shown = [{"key": k, "title": SCORES[k].title, "kind": "num", "digits": 2} for k in self.scores]
        return [{"key": "head", "title": "layer.head"}, *shown]

    def strongest(self, key: str) -> tuple[int, int]:
        """The head with the largest value."""
        layer, head = divmod(int(self.scores[key].argmax()), self.scores[key].shape[1])
        return layer, head


def survey(lm, rows: int = 8, sentences: int = 24) -> Survey:
    """Patterns on random repeated tokens, copying by weights, names on held-out sentences."""
    scores = patterns.detect(lm.model, patterns.repeated(lm, rows=rows))
    missing: dict[str, str] = {}
    try:
        scores["copying"] = weights.copying(lm.model)
    except LabError as error:
        missing["copying"] = str(error)
    try:
        found = names.name_heads(lm, names.sentences(lm, sentences))
        scores |= {key: getattr(found, key) for key in ("mover", "io", "s2", "direct")}
    except LabError as error:
        missing["mover"] = str(error)
    return Survey({key: scores[key] for key in SCORES if key in scores}, missing)


def survey_seconds(config, rows: int = 8, sentences: int = 24, flops_per_s: float = 2e10) -> float:
    """About how long it takes: the forwards, and the products of the copying scores."""
    work = rows * config.forward_flops(41) + 2 * sentences * config.forward_flops(20)
    work += 2 * config.vocab_size * config.d_model**2 + 60 * config.n_layers * config.n_heads * config.d_head**3
    return work / flops_per_s


def pairs(composition: Tensor, chance: float, most: int = 200) -> list[dict[str, Any]]:
    """The head pairs that compose most, strongest first, beyond what unrelated matrices do."""
    layers, heads = composition.shape[:2]
    flat = composition.flatten().nan_to_num(-1)
    rows = []
    for i in flat.argsort(descending=True)[: min(most, int((~composition.isnan()).sum()))].tolist():
        receiver, sender = divmod(i, layers * heads)
        (a, b), (c, d) = divmod(receiver, heads), divmod(sender, heads)
        rows.append({"receiver": f"{a}.{b}", "sender": f"{c}.{d}", "score": float(flat[i]), "beyond": float(flat[i]) - chance})
    return rows


def promoted(lm, logits: Tensor, ids: Sequence[int], words: int = 5) -> list[dict[str, Any]]:
    """What looking at each token writes: the tokens it raises and lowers most, and the rank of the token itself."""
    rows = []
    pieces = lm.tokenizer.pieces
    for token, row in zip(ids, logits):
        up, down = row.topk(words), (-row).topk(words)
        rank = int((row > row[token]).sum()) + 1 if token < len(row) else None
        rows.append(
            {"token": pieces([token])[0].strip(), "rank": rank, "itself": float(row[token]) if rank else None,
             "raises": ", ".join(p.strip() or "·" for p in pieces(up.indices.tolist())),
             "lowers": ", ".join(p.strip() or "·" for p in pieces(down.indices.tolist()))}
        )  # fmt: skip
    return rows


@torch.no_grad()
def typical_scale(lm, tokens: Tensor) -> float:
    """The final norm's mean scale at the last token of these prompts [batch, pos]: logits are what is written over it."""
    if lm.config.norm == "none":
        return 1.0
    kept: list[Tensor] = []
    lm.model(tokens, hooks={"ln_final.hook_scale": lambda x, name: kept.append(x)}, last=True)
    return float(kept[0].mean())
