"""What a run can do: a name for each `work(spec, ctx)` function."""

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    from lab.runs.context import Context

#: kind -> "module:function"
KINDS: dict[str, str] = {
    "train": "lab.train.loop:work",
    "eval": "lab.evals.work:work",
    "profile": "lab.profiling.step:work",
    "bench": "lab.bench:work",
    "grokking": "interp.truth.modular:work",
    "induction": "interp.truth.induction:work",
    "tuned_lens": "interp.lenses.train:work",
    "sae": "interp.features.train:work",
    "describe": "interp.describe.work:work",
}


def entry(kind: str) -> str:
    """Where the kind's function is."""
    if kind not in KINDS:
        raise LabError(f"There is no kind of run {kind!r}; there are: {', '.join(sorted(KINDS))}.")
    return KINDS[kind]


def trusted(kind: str, where: str) -> str:
    """Where to find the work of a run on disk. A directory may come from a stranger and must not choose the code.

    `LAB_FOREIGN_KINDS=1` lets a run name its own function: for kinds that another package registers.
    """
    if kind in KINDS:
        return KINDS[kind]
    if os.environ.get("LAB_FOREIGN_KINDS") == "1":
        return where
    raise LabError(f"Runs of kind {kind!r} are not the lab's own; set LAB_FOREIGN_KINDS=1 if you trust this directory.")


def load(where: str) -> Callable[[dict[str, Any], "Context"], None]:
    """Import the function named as "module:function"."""
    module, _, function = where.partition(":")
    return getattr(importlib.import_module(module), function)
