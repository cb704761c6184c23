"""One interface, three ways to run a model: our decoder, TransformerLens's bridge, nnsight."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import Any, cast

import torch
from torch import nn

from interp.backends.base import Backend
from lab import models
from lab.errors import LabError
from lab.models import LM, Decoder, Tokenizer
from lab.models.fetch import Progress
from lab.models.load import resolve

__all__ = ["BACKENDS", "Backend", "any_backend", "load", "wrap"]

BACKENDS = {"own": "looplab", "bridge": "TransformerLens", "nnsight": "nnsight"}
KEPT = 4  # models behind a library held in memory, each with weights of its own

_kept: OrderedDict[tuple, LM] = OrderedDict()
_guard = threading.Lock()


def load(
    name: str,
    backend: str = "own",
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> LM:
    """The model of that name behind one of BACKENDS, from memory when it was loaded before.

    Names are those of `lab.models.load`; `dtype` as stored unless given. Its `.model` is called alike whatever the
    backend; only our own has blocks that run one at a time, a key-value cache and named weights.
    """
    if backend not in BACKENDS:
        raise LabError(f"There is no backend called {backend!r}; choose one of {', '.join(BACKENDS)}.")
    if backend == "own":
        return models.load(name, dtype, device, progress)
    path = resolve(name, progress)
    changed = max((f.stat().st_mtime_ns for f in path.glob("*.safetensors")), default=0)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    key = (path, changed, backend, dtype, str(where))
    with _guard:  # one at a time: these libraries patch torch and transformers while they wrap
        if key not in _kept:
            tokenizer = Tokenizer(path)
            model = _wrapped(_transformers(path, dtype).to(where), backend, tokenizer)
            _kept[key] = LM(name, cast(Decoder, model), tokenizer, path, BACKENDS[backend])
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
        return _kept[key]


def any_backend(name: str, dtype: torch.dtype | None = None, progress: Progress | None = None) -> LM:
    """Our own decoder where it reads the model, else nnsight, which takes whatever transformers opens."""
    try:
        return load(name, "own", dtype, progress=progress)
    except LabError as ours:
        try:
            return load(name, "nnsight", dtype, progress=progress)
        except LabError:
            raise ours from None


def wrap(module: nn.Module, backend: str, tokenizer: Tokenizer | None = None) -> Backend:
    """A copy of any torch module (nnsight) or transformers model (bridge), as a model the analyses take.

    The module itself stays as it is. It is called with token ids `[batch, pos]`, and its first tensor out is taken for
    the logits. LabError when the library has no way to wrap it.
    """
    with _guard:
        return _wrapped(copy.deepcopy(module), backend, tokenizer)


def _wrapped(module: nn.Module, backend: str, tokenizer: Tokenizer | None) -> Backend:
    module.eval().requires_grad_(False)
    if backend == "bridge":
        from interp.backends.bridge import Bridge

        if not hasattr(module, "config"):
            raise LabError(f"TransformerLens wraps transformers models and {type(module).__name__} is none; take nnsight.")
        return Bridge(module, tokenizer)
    if backend == "nnsight":
        from interp.backends.traced import Traced

        return Traced(module)
    raise LabError(f"A module is wrapped by 'bridge' or 'nnsight', not {backend!r}.")


def _transformers(path: Any, dtype: torch.dtype | None) -> nn.Module:
    """The checkpoint as transformers reads it, with attention written out so that patterns exist; never pickled weights."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype or "auto", attn_implementation="eager", local_files_only=True, use_safetensors=True
        )
    except (ValueError, KeyError, OSError, ImportError) as error:
        said = " ".join(str(error).split())[:200]
        raise LabError(f"transformers does not read {path.name} ({said}); take the backend 'own'.") from None
