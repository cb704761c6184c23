"""The index of shared pages: one file in the lab's look, nothing to load."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from lab.catalog import TITLES, Notebook
from widgets.assets import tokens


@dataclass(frozen=True)
class Entry:
    """One page: its file name beside the index, its size in bytes, the notebook it shows."""

    file: str
    size: int
    notebook: Notebook


STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 var(--sans);font-variant-numeric:tabular-nums}
main{max-width:820px;margin:0 auto;padding:56px 24px 80px}
h1{font-size:30px;line-height:1.2;letter-spacing:-.015em;margin:0 0 4px;display:flex;gap:12px;align-items:center}
h1 i{width:24px;height:24px;border-radius:50%;border:5px solid var(--interp);border-right-color:var(--train);border-bottom-color:var(--kernels);border-left-color:var(--inference)}
.lead{color:var(--soft);max-width:64ch;margin:0 0 30px;font-size:16px}
h2{font-size:13px;color:var(--soft);margin:26px 0 2px;display:flex;gap:8px;align-items:center}
h2 b{width:8px;height:8px;border-radius:50%;background:var(--c)}
a{display:flex;gap:20px;align-items:baseline;justify-content:space-between;padding:11px 12px;margin:0 -12px;color:inherit;text-decoration:none;border-top:1px solid var(--line)}
a:hover,a:focus-visible{background:var(--hover)}a:focus-visible{outline:2px solid var(--ink);outline-offset:-2px}
a strong{display:block;font-weight:700}a em{font-style:normal;color:var(--soft);font-size:14px}
a small{color:var(--soft);white-space:nowrap;font-size:13px}
"""

SCRIPT = """
const scheme = matchMedia('(prefers-color-scheme: dark)');
const paint = () => document.documentElement.classList.toggle('dark', scheme.matches);
scheme.addEventListener('change', paint); paint();
"""


def render(entries: Sequence[Entry], date: datetime) -> str:
    """The page that lists `entries`, grouped by station in the order of the loop."""
    parts = []
    for station, title in TITLES.items():
        group = [e for e in entries if e.notebook.station == station]
        if group:
            parts.append(f'<h2 style="--c:var(--{station})"><b></b>{title}</h2>')
            parts += [_link(e) for e in group]
    parts += [_link(e) for e in entries if e.notebook.station not in TITLES]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src data: 'unsafe-inline'\">"
        f"<title>looplab, shared</title><style>:root{{{tokens('light')}}}:root.dark{{{tokens('dark')}}}{STYLE}</style><script>{SCRIPT}</script></head><body><main>"
        "<h1><i></i>looplab</h1>"
        f'<p class="lead">Pages of the lab as they were on {date:%-d %B %Y}. Each is one file that opens without '
        "a network: maps, plots and tables can be explored, what computes needs the lab itself.</p>"
        f"{''.join(parts)}</main></body></html>"
    )


def _link(entry: Entry) -> str:
    question = f"<em>{escape(entry.notebook.question)}</em>" if entry.notebook.question else ""
    return (
        f'<a href="{escape(entry.file)}"><span><strong>{escape(entry.notebook.title)}</strong>{question}</span>'
        f"<small>{entry.size / 1e6:.1f} MB</small></a>"
    )
