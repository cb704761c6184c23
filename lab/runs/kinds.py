"""What a run can do: a name for each `work(spec, ctx)` function."""

import importlib
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
}


def entry(kind: str) -> str:
    """Where the kind's function is."""
    if kind not in KINDS:
        raise LabError(f"There is no kind of run {kind!r}; there are: {', '.join(sorted(KINDS))}.")
    return KINDS[kind]


def load(where: str) -> Callable[[dict[str, Any], "Context"], None]:
    """Import the function named as "module:function"."""
    module, _, function = where.partition(":")
    return getattr(importlib.import_module(module), function)
