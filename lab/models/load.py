"""One function for every model: bundled, real, a run's checkpoint, a directory, a hub id."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lab import paths
from lab.errors import LabError

from . import fetch, io
from .config import ModelConfig
from .decoder import Decoder
from .fetch import Progress
from .io import save
from .tokenizer import Tokenizer

__all__ = ["LM", "ModelInfo", "available", "load", "resolve", "save"]

BUNDLED = {"pocket": "pocket", "pocket-draft": "pocket draft"}
KNOWN_MECHANISM = ("induction", "grokking")  # models of interp.truth: bundled, not offered for text
SMOLLM2 = "smollm2-135m"
KEPT = 4  # models held in memory; a notebook that still uses an older one keeps it alive itself


@dataclass(frozen=True)
class LM:
    """A model and its tokenizer, shared by every tab: read it, never write on it."""

    name: str
    model: Decoder
    tokenizer: Tokenizer
    path: Path
    source: str

    @property
    def config(self) -> ModelConfig:
        return self.model.cfg

    def tokens(self, text: str) -> torch.Tensor:
        """`[1, pos]` token ids; raises LabError for a text that is empty or longer than the context."""
        ids = torch.tensor([self.tokenizer.encode(text)], dtype=torch.long, device=self.model.device)
        self.model.check(ids)
        return ids


@dataclass(frozen=True)
class ModelInfo:
    """A line of the model picker. `ready` is False while a model still has to be fetched."""

    name: str
    title: str
    n_params: int
    n_layers: int
    d_model: int
    where: str
    ready: bool


def resolve(name: str, progress: Progress | None = None) -> Path:
    """The directory a name stands for, fetching it first where needed."""
    name = name.strip()
    if not name:
        raise LabError("No model is named; choose one from the list.")
    if name in BUNDLED or name in KNOWN_MECHANISM:
        return paths.MODELS / name
    if name == SMOLLM2:
        return fetch.smollm2(progress)
    if name.startswith("run:"):
        return _checkpoint(name.removeprefix("run:"))
    with suppress(RuntimeError):  # ~somebody who has no home here
        if paths.there(directory := Path(name).expanduser()) and directory.is_dir():
            return directory.resolve()
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return fetch.hub_model(name, progress)
    known = ", ".join([SMOLLM2, *BUNDLED])
    shown = name if len(name) <= 80 else f"{name[:80]}..."
    raise LabError(f"There is no model {shown!r}; known are {known}, run:<id>, a directory, or a hub id like org/name.")


def _checkpoint(name: str) -> Path:
    from lab import runs

    run_id, _, step = name.partition("@")
    checkpoints = runs.get(run_id).checkpoints()
    if not checkpoints:
        raise LabError(f"Run {run_id} has no checkpoint yet; let it train a little longer.")
    if not step:
        return checkpoints[-1].path
    for checkpoint in checkpoints:
        if str(checkpoint.step) == step:
            return checkpoint.path
    steps = ", ".join(str(c.step) for c in checkpoints)
    raise LabError(f"Run {run_id} has no checkpoint at step {step!r}; it has {steps}.")


_models: OrderedDict[tuple, LM] = OrderedDict()
_locks: dict[tuple, threading.Lock] = {}
_guard = threading.Lock()


def load(
    name: str,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> LM:
    """The model of that name, from memory when any tab has loaded it already.

    `dtype` as stored and `device` the GPU where there is one, unless given. `progress(fraction, text)` is told
    about downloads. Raises LabError for a name that means nothing and for a checkpoint that is damaged.
    """
    path = resolve(name, progress)
    where = str(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    changed = max((f.stat().st_mtime_ns for f in path.glob("*.safetensors") if paths.there(f)), default=0)
    key = (path, changed, dtype, where)
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        with _guard:
            if key in _models:
                _models.move_to_end(key)
                kept = _models[key]  # two names may mean one directory (run:x and run:x@100): answer to the one asked
                return kept if kept.name == name else replace(kept, name=name)
        lm = LM(name, io.read(path, dtype, where), Tokenizer(path), path, _source(path))
        with _guard:
            _models[key] = lm
            while len(_models) > KEPT:
                _models.popitem(last=False)
        return lm


def _source(path: Path) -> str:
    manifest = path / "complete.json"
    if manifest.exists():
        return json.loads(manifest.read_text()).get("source", str(path))
    return "bundled" if path.parent == paths.MODELS else str(path)


def available() -> list[ModelInfo]:
    """Models at hand: the real one, the bundled ones, and every run that left a checkpoint, newest first."""
    found = []
    where = fetch.directory(SMOLLM2)
    ready = fetch.complete(where)
    found.append(ModelInfo(SMOLLM2, "SmolLM2-135M", 134_515_008, 30, 576, "fetched once", ready))
    for name, title in BUNDLED.items():
        if (paths.MODELS / name / "config.json").exists():
            found.append(_info(name, title, paths.MODELS / name, "bundled"))
    from lab import runs

    for run in runs.listed():
        try:
            if checkpoints := run.checkpoints():
                found.append(_info(f"run:{run.id}", run.id, checkpoints[-1].path, f"step {checkpoints[-1].step}"))
        except LabError:
            continue  # a run of another kind, or one edited by hand; loading it by name says what is wrong
    return found


def _info(name: str, title: str, path: Path, where: str) -> ModelInfo:
    cfg = io.read_config(path)
    return ModelInfo(name, title, cfg.n_params(), cfg.n_layers, cfg.d_model, where, True)
