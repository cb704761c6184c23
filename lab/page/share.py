"""The button that hands a notebook on as one file."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.page.parts import live


def share_button(mo: Any, notebook: str, picker: Any = None) -> Any:
    """A download of this notebook as one offline page, run again from its start with the picked model.

    `notebook` is `__file__`. The page is made when the button is pressed, in a process of its own; nothing is
    shown where nobody can press it. Put it into `header(..., aside=[...])`."""
    if not live(mo):
        return mo.Html("")

    async def page() -> bytes:
        from lab import share

        model = picker.value["value"] if picker is not None else None
        with tempfile.TemporaryDirectory() as folder:
            try:
                made = await asyncio.to_thread(share.export, notebook, Path(folder) / "page.html", model)
            except LabError as error:
                mo.status.toast("The page could not be made", str(error), kind="danger")
                raise
            return made.read_bytes()

    name = f"{Path(notebook).stem}.html"
    return mo.download(data=page, filename=name, mimetype="text/html", label="Share as HTML")
