"""The logit lens as a table: what the model would say after each layer, at every position."""

import html
from collections.abc import Sequence
from typing import Any

import marimo


def lens_table(
    rows: Sequence[str],
    pieces: Sequence[str],
    tops: Sequence[Sequence[Sequence[tuple[str, float]]]],
    tracked: Sequence[float] | None = None,
    answer: str = "",
) -> Any:
    """`tops[row][position]` lists the likeliest tokens with their probabilities; the last row is shown on top.

    The shade of a cell is the probability of its first token, which its tooltip names with the others.
    `tracked[row]` is the probability of `answer` at the last position, drawn as a bar."""
    head = "".join(f"<th>{html.escape(_plain(piece))}</th>" for piece in pieces)
    if tracked is not None:
        head += f'<th class="answer">{html.escape(_plain(answer))}</th>'
    body = []
    for i in reversed(range(len(rows))):
        cells = "".join(_cell(top) for top in tops[i])
        if tracked is not None:
            p = tracked[i]
            cells += f'<td class="answer"><i style="width:{100 * p:.1f}%"></i><b>{p:.3f}</b></td>'
        body.append(f"<tr><th>{html.escape(rows[i])}</th>{cells}</tr>")
    return marimo.Html(
        f"<style>{_STYLE}</style>"
        '<div class="lab-lens" tabindex="0" role="region" aria-label="Logit lens"><table>'
        f"<thead><tr><th>layer</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(top: Sequence[tuple[str, float]]) -> str:
    (text, p), names = top[0], "\n".join(f"{p:.3f}  {_plain(t)}" for t, p in top)
    return f'<td style="--p:{100 * p:.0f}%" title="{html.escape(names, quote=True)}">{html.escape(_plain(text))}</td>'


def _plain(piece: str) -> str:
    """A token without its leading space; white space made visible."""
    text = piece.removeprefix(" ")
    return text.replace("\n", "⏎").replace("\t", "⇥") or "·"


_STYLE = """
.lab-lens { overflow-x: auto; }
.lab-lens table { border-collapse: separate; border-spacing: 2px; font: 12.5px/1.3 var(--mono); color: var(--ink); }
.lab-lens th { font: 12.5px var(--sans); color: var(--soft); text-align: left; padding: 3px 6px; white-space: nowrap; }
.lab-lens thead th:not(:first-child) { font-family: var(--mono); }
.lab-lens td { padding: 4px 6px; min-width: 58px; max-width: 118px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  border-radius: 3px; background: color-mix(in oklab, var(--interp) calc(var(--p, 0%) * .62), var(--card)); }
.lab-lens .answer { position: relative; min-width: 104px; background: none; padding-left: 14px; }
.lab-lens td.answer i { position: absolute; left: 14px; top: 5px; bottom: 5px; min-width: 1px; max-width: calc(100% - 66px); border-radius: 2px; background: var(--pos); }
.lab-lens td.answer b { position: relative; display: block; text-align: right; font-weight: 400; }
"""
