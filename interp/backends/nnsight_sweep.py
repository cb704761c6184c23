"""The sweep as somebody who uses nnsight alone would write it: what our own is measured against.

Kept here and not with the benchmark because nnsight reads the source of its traces.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.backends.traced import library
from interp.prompts import Pair


def model(path: Path, dtype: torch.dtype) -> Any:
    """The checkpoint as a `TransformersModel`, in memory."""
    return library().TransformersModel(str(path), task="text-generation", dtype=dtype, dispatch=True)


@torch.no_grad()
def batched(lm: Any, pair: Pair, layers: Iterable[int]) -> Tensor:
    """Logit differences [layer, position]: one trace a layer, one invoke a position, all rows in one forward."""
    streams = _streams(lm, pair)
    rows = []
    for layer in layers:
        found: list[Tensor] = []
        with lm.trace() as tracer:
            for position in range(len(pair.corrupted_ids)):
                with tracer.invoke(torch.tensor([pair.corrupted_ids])):
                    lm.model.layers[layer].input[:, position] = streams[layer][:, position]
                    logits = lm.lm_head.output[0, -1].float()
                    found.append(logits[pair.answer_id] - logits[pair.wrong_id])
        rows.append(torch.stack(found))
    return torch.stack(rows).double()


@torch.no_grad()
def single(lm: Any, pair: Pair, layers: Iterable[int]) -> Tensor:
    """The same with one forward a cell, which is how most tutorials write it."""
    streams = _streams(lm, pair)
    rows = []
    for layer in layers:
        found: list[Tensor] = []
        for position in range(len(pair.corrupted_ids)):
            with lm.trace(torch.tensor([pair.corrupted_ids])):
                lm.model.layers[layer].input[:, position] = streams[layer][:, position]
                logits = lm.lm_head.output[0, -1].float()
                found.append(logits[pair.answer_id] - logits[pair.wrong_id])
        rows.append(torch.stack(found))
    return torch.stack(rows).double()


def _streams(lm: Any, pair: Pair) -> list[Tensor]:
    """The clean stream before every layer, [1, pos, d_model]."""
    kept: list[Tensor] = []
    with lm.trace(torch.tensor([pair.clean_ids])):
        for layer in lm.model.layers:
            kept.append(layer.input.clone())
    return kept
