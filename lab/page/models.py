"""One control that chooses the model in every notebook, and the loading behind it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import marimo

from lab.errors import LabError
from lab.page.parts import count, problem
from widgets.model_picker import ModelPicker

#: Names the file in which `lab.share` wants to read which models a notebook loaded.
CHOSEN = "LAB_SHARE_CHOSEN"


def _group(name: str) -> str:
    return "Runs" if name.startswith("run:") else "Bundled" if name.startswith("pocket") else "Real"


def options() -> list[dict[str, Any]]:
    """What the picker lists, from `lab.models.available`."""
    import lab.models  # here because it brings torch, which notes and headers do not need

    return [
        {
            "name": info.name, "title": info.title, "ready": info.ready, "group": _group(info.name),
            "detail": f"{count(info.n_params)} parameters, {info.n_layers} layers",
        }
        for info in lab.models.available()
    ]  # fmt: skip


def model_picker(mo: Any, default: str = "pocket") -> Any:
    """The shared model control; `?model=` in the address, or `-- --model x` after marimo's command, overrides `default`.

    The shell passes the model chosen last, so that one model goes through every layer."""
    asked = mo.query_params().get("model") or mo.cli_args().get("model")
    return mo.ui.anywidget(ModelPicker(options(), str(asked or default), refresh=options))


def chosen(picker: Any, load: Callable[..., Any] | None = None) -> Any:
    """The picked model, loaded (shared by every tab) with a progress bar; a wrong name stops the cell with a sentence.

    `load(name, progress=...)` in place of `lab.models.load`."""
    import lab.models

    name = picker.value["value"]
    try:
        with marimo.status.progress_bar(total=100, title=f"Loading {name}", remove_on_exit=True) as bar:
            done = 0

            def progress(fraction: float, text: str = "") -> None:
                nonlocal done
                now = max(done, min(100, int(100 * fraction)))
                bar.update(increment=now - done, subtitle=text)
                done = now

            lm = (load or lab.models.load)(name, progress=progress)
    except LabError as error:
        marimo.stop(True, problem(error))
        raise  # not reached: stop raises
    if told := os.environ.get(CHOSEN):
        with Path(told).open("a") as file:
            file.write(f"{lm.name}\n")
    return lm
