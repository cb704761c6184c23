"""The logit lens as a table: what a model would say after each layer, at every position of a prompt."""

import html
from collections.abc import Sequence
from typing import Any

import marimo

from interp.lenses.logit import logit_lens
from lab.models import LM

Top = Sequence[tuple[str, float]]  # the likeliest tokens of a cell with their probabilities


def lens_table(lm: LM, prompt: str, answer: str, k: int = 5) -> Any:
    """Layers upwards, tokens across; the last column is the probability of `answer` after the prompt.

    The shade of a cell is the probability of its first token, which its tooltip names with the others. LabError
    for a prompt that is empty or too long, and for an answer that is several tokens."""
    ids = lm.tokens(prompt)[0].tolist()
    wanted = lm.tokenizer.single(answer if answer.startswith(" ") else f" {answer}")
    lens = logit_lens(lm, ids, track=[wanted], k=k)
    pieces = lm.tokenizer.pieces
    tops = [
        [list(zip(pieces(cell_ids), cell_probs)) for cell_ids, cell_probs in zip(row_ids, row_probs)]
        for row_ids, row_probs in zip(lens.ids.tolist(), lens.probs.tolist())
    ]
    return _draw(lens.rows, pieces(ids), tops, lens.tracked[wanted][:, -1].tolist(), answer)


def _draw(rows: Sequence[str], pieces: Sequence[str], tops: Sequence[Sequence[Top]], tracked: Sequence[float],
          answer: str) -> Any:  # fmt: skip
    head = "".join(f"<th>{html.escape(_plain(piece))}</th>" for piece in pieces)
    body = []
    for name, cells, p in reversed(list(zip(rows, tops, tracked))):
        bar = f'<td class="answer"><i style="--p:{p:.3f}"></i><b>{p:.3f}</b></td>'
        body.append(f"<tr><th>{html.escape(name)}</th>{''.join(map(_cell, cells))}{bar}</tr>")
    return marimo.Html(
        f"<style>{_STYLE}</style>"
        '<div class="lab-lens" tabindex="0" role="region" aria-label="Logit lens"><table>'
        f'<thead><tr><th>layer</th>{head}<th class="answer">{html.escape(_plain(answer))}</th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(top: Top) -> str:
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
.lab-lens td.answer i { position: absolute; left: 14px; top: 5px; bottom: 5px; width: calc(1px + var(--p) * (100% - 68px)); border-radius: 2px; background: var(--pos); }
.lab-lens td.answer b { position: relative; display: block; text-align: right; font-weight: 400; }
"""
