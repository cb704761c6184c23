"""Dictionaries on disk: a folder with `config.json` and `model.safetensors`.

Matrices are stored in bfloat16, or in 8-bit integers with one scale a feature; they are float32 in memory.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.features.dictionary import TARGETS, Dictionary, Shape
from lab import paths
from lab.errors import LabError

BUNDLED = paths.MODELS / "features"
FORMATS = ("float32", "bfloat16", "int8")
KEPT = 24  # dictionaries held in memory: the transcoders of every layer of a small model and a few more
_FEATURE = {"W_enc": 1, "W_dec": 0}  # the dimension that counts features


def save(dictionary: Dictionary, directory: Path, format: str = "bfloat16", notes: Mapping[str, Any] | None = None) -> None:
    """Write a dictionary; `notes` (how it was made, what was measured) are kept in its config."""
    if format not in FORMATS:
        raise LabError(f"There is no format {format!r}: choose one of {', '.join(FORMATS)}.")
    directory.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, p in dictionary.state_dict().items():
        p = p.detach().float().cpu().contiguous()
        if name in _FEATURE and format == "int8":
            scale = p.abs().amax(1 - _FEATURE[name], keepdim=True).clamp_min(1e-12) / 127
            tensors[name] = (p / scale).round().to(torch.int8)
            tensors[f"{name}.scale"] = scale
        else:
            tensors[name] = p.to(torch.bfloat16) if name in _FEATURE and format == "bfloat16" else p
    save_file(tensors, directory / "model.safetensors")
    config = {"model_type": "looplab-dictionary", **dictionary.shape.to_dict(), "notes": dict(notes or {})}
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def read(directory: Path) -> Dictionary:
    """Read what `save` wrote, in float32; LabError when it is no dictionary or damaged."""
    shape, _ = config(directory)
    dictionary = Dictionary(shape)
    try:
        tensors = load_file(directory / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise LabError(f"The dictionary {directory} cannot be read ({error}): restore it, or choose another.") from None
    weights = {
        name: x.float() * tensors[f"{name}.scale"] if x.dtype == torch.int8 and f"{name}.scale" in tensors else x.float()
        for name, x in tensors.items()
        if not name.endswith(".scale")
    }
    try:
        dictionary.load_state_dict(weights)
    except RuntimeError:
        raise LabError(f"The dictionary {directory} does not have the shape its config says: restore it.") from None
    return dictionary.requires_grad_(False).eval()


def config(directory: Path) -> tuple[Shape, dict[str, Any]]:
    """The shape of a dictionary on disk, and its notes."""
    try:
        given = json.loads((directory / "config.json").read_text())
        if given.get("model_type") != "looplab-dictionary":
            raise ValueError("it is another kind of model")
        return Shape(**{f.name: given[f.name] for f in fields(Shape)}), given.get("notes", {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{directory} holds no dictionary of features ({error}): choose another.") from None


@dataclass(frozen=True)
class Info:
    """A line of the choice of dictionaries."""

    name: str
    title: str
    shape: Shape
    notes: dict[str, Any]


def resolve(name: str) -> Path:
    """The folder a name stands for: bundled, `run:<id>[@step]`, or a directory."""
    if name.startswith("run:"):
        from lab.models.load import resolve as checkpoint

        return checkpoint(name)
    if name and (BUNDLED / name / "config.json").is_file():
        return BUNDLED / name
    if name and paths.there(Path(name) / "config.json"):
        return Path(name)
    known = ", ".join(info.name for info in available()) or "none here"
    raise LabError(f"There is no dictionary {name[:80]!r}; known are {known}, run:<id>, or a directory.")


_kept: OrderedDict[tuple, Dictionary] = OrderedDict()
_guard = threading.Lock()


def load(name: str | Path, device: str | torch.device | None = None) -> Dictionary:
    """The dictionary of that name, shared by every tab: read it, never write on it. LabError when there is none."""
    path = resolve(str(name))
    where = str(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    weights = path / "model.safetensors"
    key = (path, weights.stat().st_mtime_ns if weights.exists() else 0, where)
    with _guard:
        if key not in _kept:
            _kept[key] = read(path).to(where)
        _kept.move_to_end(key)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
        return _kept[key]


def available(model: str | None = None) -> list[Info]:
    """Bundled dictionaries and runs that left one, newest first; `model` keeps those of one model."""
    from lab import runs

    found = []
    for path in sorted(BUNDLED.glob("*/config.json")):
        shape, notes = config(path.parent)
        found.append(Info(path.parent.name, title(shape), shape, notes))
    for run in runs.listed():
        try:
            if checkpoints := run.checkpoints():
                shape, notes = config(checkpoints[-1].path)
                found.append(Info(f"run:{run.id}", f"{run.id}: {title(shape)}", shape, notes))
        except LabError:
            continue  # a run of another kind
    return [info for info in found if model is None or info.shape.model == model]


def title(shape: Shape) -> str:
    """`TopK 32 of 2,048, residual stream (post) of layer 4`."""
    kind = {"topk": "TopK", "jumprelu": "JumpReLU", "gated": "gated"}[shape.kind]
    return f"{kind} {shape.k} of {shape.d_dict:,}, {TARGETS[shape.target][2]}, layer {shape.layer}"


def transcoders(model: str, device: str | torch.device | None = None) -> list[Dictionary]:
    """The bundled transcoders of a model, one a layer, in order; LabError when some are missing."""
    named = {info.shape.layer: info.name for info in available(model) if info.shape.target == "transcoder" and not info.name.startswith("run:")}
    if not named or sorted(named) != list(range(len(named))):
        raise LabError(f"There are no transcoders for every layer of {model!r} here: choose pocket, or train them.")
    return [load(named[layer], device) for layer in range(len(named))]
