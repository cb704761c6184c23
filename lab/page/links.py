"""Links from one notebook to another. Inside the lab its shell follows them (head.js), and keeps both pages alive."""

import html
import json
from typing import Any
from urllib.parse import urlencode

from lab.page.parts import live


def open_in(mo: Any, notebook: str, text: str, **query: str) -> str:
    """HTML of a link to `notebook` (as "interp/patching") with these query parameters.

    Only the text where nobody serves the other page: in an export and a test."""
    if not live(mo):
        return html.escape(text)
    href = f"../../{notebook}/?{urlencode(query)}"
    told = {"href": href, "data-go": notebook, "data-query": json.dumps(query)}
    attributes = " ".join(f'{key}="{html.escape(value, quote=True)}"' for key, value in told.items())
    return f"<a {attributes}>{html.escape(text)}</a>"
