"""What is shown of features: the table of all of them, excerpts of one, and those that fire on a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.features.dictionary import Dictionary
from interp.features.effects import logit_effects
from interp.features.firings import Firings, encoded, fit
from lab.models import LM

TOP = 20  # strongest firings that name a feature
BEFORE, AFTER = 16, 8  # tokens of an excerpt around its strongest
#: bands of an excerpt's strongest activation, as shares of the feature's largest
BANDS = (("strongest", 0.0, 1.0), ("half", 0.4, 0.65), ("weak", 0.1, 0.3))

COLUMNS = (
    {"key": "feature", "title": "feature", "kind": "num"},
    {"key": "density", "title": "density", "unit": "% of tokens", "kind": "num"},
    {"key": "most", "title": "largest", "unit": "length", "kind": "num"},
    {"key": "fires", "title": "fires on", "kind": "mono"},
    {"key": "promotes", "title": "promotes", "kind": "mono"},
    {"key": "purity", "title": "purity", "kind": "bar", "digits": 2},
    {"key": "domain", "title": "text"},
)


def rows(lm: LM, dictionary: Dictionary, firings: Firings) -> list[dict[str, Any]]:
    """One row a feature that fired: density, largest activation, and what names it.

    `fires` are the commonest tokens among its strongest firings (`name`: without their spaces), `purity` the share of the first of them, `promotes`
    the tokens its direction raises most, `domain` the commonest kind of text among the strongest firings.
    """
    promoted = logit_effects(lm, dictionary).topk(2).indices
    pieces = lm.tokenizer.pieces
    tokens, density, most = firings.token(), firings.density(), firings.most()
    offsets = firings.offsets.tolist()
    found = []
    for feature in range(dictionary.d_dict):
        first, last = offsets[feature], offsets[feature + 1]
        if first == last:
            continue
        top = slice(first, min(last, first + TOP))
        common = Counter(tokens[top].tolist()).most_common(3)
        where = Counter(firings.text.domains[row] for row in (firings.at[top] // firings.context).tolist())
        found.append(
            {
                "id": feature, "feature": feature, "density": 100 * float(density[feature]), "most": float(most[feature]),
                "fires": " ".join(pieces([token for token, _ in common])),
                "name": " ".join(piece.strip() or "␣" for piece in pieces([token for token, _ in common])), "purity": common[0][1] / (top.stop - first),
                "promotes": " ".join(pieces(promoted[feature].tolist())), "domain": where.most_common(1)[0][0],
            }
        )  # fmt: skip
    return found


def excerpts(lm: LM, firings: Firings, feature: int, each: int = 8) -> dict[str, Any]:
    """An entry of the excerpts widget: the strongest places, each from another window of text, and weaker bands."""
    at, value = firings.of(feature)
    n, top = firings.context, float(value[0]) if len(value) else 0.0
    rows = at // n
    first: dict[int, int] = {}  # window -> its strongest firing: they come strongest first
    for i, row in enumerate(rows.tolist()):
        first.setdefault(row, i)
    groups = []
    for title, low, high in BANDS:
        inside = [i for i in first.values() if low * top <= float(value[i]) <= high * top]
        spread = inside[:each] if title == "strongest" else inside[:: max(1, len(inside) // each)][:each]
        if spread or title == "strongest":
            groups.append({"title": title, "rows": [_excerpt(lm, firings, at, value, rows, i) for i in spread]})
    return {"title": f"Feature {feature}", "vmax": top or None, "groups": groups}


def _excerpt(lm: LM, firings: Firings, at: Tensor, value: Tensor, rows: Tensor, i: int) -> dict[str, Any]:
    row, peak = int(rows[i]), int(at[i]) % firings.context
    here = rows == row
    dense = torch.zeros(firings.context)
    dense[(at[here] % firings.context).long()] = value[here]
    start, end = max(0, peak - BEFORE), min(firings.context, peak + AFTER + 1)
    ids = firings.text.tokens[row, start:end].tolist()
    return {
        "pieces": lm.tokenizer.pieces(ids), "values": [round(v, 3) for v in dense[start:end].tolist()],
        "peak": peak - start, "tag": firings.text.domains[row], "row": row, "at": peak,
    }  # fmt: skip


def histogram(firings: Firings, feature: int, bins: int = 36) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the activations above zero, and the edges of their bins."""
    _, value = firings.of(feature)
    return np.histogram(value.numpy(), bins=bins, range=(0, float(value[0]) if len(value) else 1.0))


@dataclass(frozen=True)
class Sentence:
    """The features that fire most on a text, strongest first: `acts [features, pos]`."""

    features: list[int]
    acts: Tensor
    pieces: list[str]


def sentence(lm: LM, dictionary: Dictionary, tokens: Tensor, firings: Firings, k: int = 20, common: float = 0.2) -> Sentence:
    """Features firing on `tokens [1, pos]`, ranked by their activation as a share of their largest in the text read.

    Features that fire on more than the share `common` of all tokens are left out: they say little about this one. So
    is what fires on the first token alone, where a model keeps a vector of its own (see `Scale`).
    """
    fit(lm, dictionary)
    acts = encoded(lm, dictionary, tokens)[0].T.cpu()  # [d_dict, pos]
    relative = acts[:, min(1, acts.shape[1] - 1) :].amax(1) / firings.most().clamp_min(1e-6)
    relative[(firings.density() > common) | (firings.most() == 0)] = -1
    top = relative.topk(min(k, len(relative)))
    chosen = [int(f) for f, share in zip(top.indices, top.values) if share > 0]
    # in the order of the text: a feature stands where it fires most
    chosen.sort(key=lambda f: (int(acts[f, 1:].argmax()) if acts.shape[1] > 1 else 0, -float(relative[f])))
    return Sentence(chosen, acts[chosen], lm.tokenizer.pieces(tokens[0].tolist()))


def effects(lm: LM, dictionary: Dictionary, feature: int, k: int = 8) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Tokens the feature's direction raises and lowers most, with the change in their logit per unit."""
    effect = logit_effects(lm, dictionary, [feature])[0]
    up, down = effect.topk(k), (-effect).topk(k)
    pieces = lm.tokenizer.pieces

    def named(ids: Sequence[int], values: Sequence[float]) -> list[tuple[str, float]]:
        return list(zip(pieces(list(ids)), values))

    return named(up.indices.tolist(), up.values.tolist()), named(down.indices.tolist(), (-down.values).tolist())
