"""Several checkpoints of one small model in one file: eight-bit integers, one scale a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lab.errors import LabError
from lab.models import Decoder, ModelConfig


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers and one float32 scale a row; `integers * scale` is `weight` to half a step, 1/254 of the row's largest."""
    scale = weight.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return (weight / scale).round().to(torch.int8), scale


def pack(states: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Parameter -> [checkpoint, ...] integers, and parameter.scale -> [checkpoint, row, 1]."""
    out: dict[str, list[Tensor]] = {}
    for state in states:
        for name, p in state.items():
            q, scale = quantised(p.detach().cpu().float())
            out.setdefault(name, []).append(q)
            out.setdefault(f"{name}.scale", []).append(scale)
    return {name: torch.stack(parts) for name, parts in out.items()}


def unpack(cfg: ModelConfig, packed: Mapping[str, Tensor], at: int) -> Decoder:
    """The model of one checkpoint, in float32."""
    names = [name for name in packed if f"{name}.scale" in packed]
    model = Decoder(cfg)
    model.load_state_dict({n: packed[n][at].float() * packed[f"{n}.scale"][at] for n in names})
    return model.requires_grad_(False).eval()


def read(file: Path) -> dict[str, Tensor]:
    """The tensors of a bundled file; LabError when it is not there whole."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise LabError(f"{file.parent.name}/{file.name} cannot be read ({error}): restore {file.parent}.") from None
