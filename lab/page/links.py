"""Links from one notebook to another: inside the lab through its shell, which keeps both pages alive."""

import html
import json
from urllib.parse import urlencode

_GO = (
    "if (window.parent !== window) {{ event.preventDefault(); "
    "window.parent.postMessage({{lab: 'go', path: {path}, query: {query}}}, '*'); }}"
)


def open_in(notebook: str, text: str, **query: str) -> str:
    """HTML of a link to `notebook` (as "interp/patching") with these query parameters."""
    go = _GO.format(path=json.dumps(notebook), query=json.dumps(query))
    href = f"../../{notebook}/?{urlencode(query)}"
    return f'<a href="{html.escape(href, quote=True)}" onclick="{html.escape(go, quote=True)}">{html.escape(text)}</a>'
