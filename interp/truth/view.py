"""Pictures of a compiled program: its lines, its residual stream with every direction named, where its heads look."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import marimo
import torch

from interp.truth.compile import Compiled, compile_program
from interp.truth.parts import Direction
from interp.truth.programs import PROGRAMS
from interp.truth.rasp import Value
from interp.truth.wiring import Edge, circuit, idle
from widgets.attention import Attention
from widgets.tokens import Tokens


@lru_cache(maxsize=16)
def known(key: str) -> tuple[Compiled, frozenset[Edge], frozenset[Edge]]:
    """A program's model, its circuit, and the edges that are wired but idle; made once for every tab."""
    made = compile_program(PROGRAMS[key])
    return made, frozenset(circuit(made)), frozenset(idle(made))


def said(value: Value) -> str:
    """A value as it is printed."""
    if value is None:
        return "–"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


# ---- the program


def listing(compiled: Compiled) -> Any:
    """The program's lines beside the parts that run them."""
    rows = "".join(
        f"<tr><td class='mono'><b>{html.escape(name)}</b></td><td class='mono'>= {html.escape(text)}</td>"
        f"<td class='mono'>{', '.join(compiled.places[name])}</td></tr>"
        for name, text in compiled.program.lines()
    )
    return marimo.Html(
        f"<style>{_STYLE}</style><div class='lab-scroll'><table class='lab-table rasp'><tr><th>sequence</th><th>program</th>"
        f"<th>made by</th></tr>{rows}</table></div>"
    )


def strips(compiled: Compiled, xs: Sequence[Value]) -> Tokens:
    """The input, what the model answers, and what the program means."""
    answer, meant = [said(v) for v in compiled.run(xs)], ["BOS", *(said(v) for v in compiled.program.run(xs))]
    differ = [i for i, (a, b) in enumerate(zip(answer, meant)) if a != b]
    return Tokens(
        [
            {"label": "input", "pieces": ["BOS", *(said(x) for x in xs)]},
            {"label": "the weights answer", "pieces": answer, "marks": differ},
            {"label": "the program means", "pieces": meant, "marks": differ},
        ]
    )


# ---- the residual stream


@dataclass(frozen=True)
class Stage:
    """The stream after some parts have written: `point` is where it is read, `written` the directions they write."""

    title: str
    point: str
    written: frozenset[Direction]


def stages(compiled: Compiled) -> list[Stage]:
    """The embedding and every half layer that holds a part."""
    first = [d for d in compiled.directions if d.name in ("one", "tokens", "indices")]
    found = [Stage("embed", "blocks.0.hook_resid_pre", frozenset(first))]
    for i, (heads, neurons) in enumerate(zip(compiled.heads, compiled.neurons)):
        if heads:
            names = ", ".join(f"a{i}.h{h}" for h in range(len(heads)))
            found.append(Stage(names, f"blocks.{i}.hook_resid_mid", frozenset(d for head in heads for row in head.o for d in row)))
        if neurons:
            found.append(Stage(f"m{i}", f"blocks.{i}.hook_resid_post", frozenset(d for n in neurons for d in n.writes)))
    return found


def stream(compiled: Compiled, xs: Sequence[Value]) -> Any:
    """Every direction (down) at every position (across), after every part; what a part writes is framed."""
    told = stages(compiled)
    wanted = {stage.point for stage in told}
    with torch.no_grad():
        _, acts = compiled.model.run_with_cache(compiled.encode(xs), names=lambda name: name in wanted)
    pieces = ["BOS", *(said(x) for x in xs)]
    values = [acts[stage.point][0].tolist() for stage in told]
    heads = "".join(f"<th colspan='{len(pieces)}' class='g'>{html.escape(stage.title)}</th>" for stage in told)
    tokens = "".join(_heading(piece, i == 0) for _ in told for i, piece in enumerate(pieces))
    body = []
    for name, group in groupby(enumerate(compiled.directions), key=lambda pair: pair[1].name):
        members = list(group)
        for k, (row, direction) in enumerate(members):
            first = f"<th rowspan='{len(members)}' class='s' title='{html.escape(name, quote=True)}'>{html.escape(_short(name))}</th>" if k == 0 else ""
            label = "" if direction.value is None else html.escape(str(direction.value))
            cells = "".join(
                _cell(values[s][p][row], direction in stage.written, p == 0, f"{direction.label}, {piece} at {p}, after {stage.title}")
                for s, stage in enumerate(told)
                for p, piece in enumerate(pieces)
            )
            body.append(f"<tr{' class=top' if k == 0 else ''}>{first}<th class='v'>{label}</th>{cells}</tr>")
    return marimo.Html(
        f"<style>{_STYLE}</style><div class='lab-scroll' tabindex='0' role='region' aria-label='Residual stream'>"
        f"<table class='stream'><thead><tr><th colspan='2' class='axis'>stream after</th>{heads}</tr>"
        f"<tr><th colspan='2' class='axis'>direction / position</th>{tokens}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _heading(piece: str, first: bool) -> str:
    return f"<th class='p{' f' if first else ''}'>{html.escape(piece)}</th>"


def _short(name: str) -> str:
    return name.replace("_selector_width_attn_output", ", BOS share")


def _cell(value: float, written: bool, first: bool, where: str) -> str:
    kinds = " ".join(kind for kind, on in (("w", written), ("f", first), ("n", value < 0)) if on)
    classes = f" class='{kinds}'" if kinds else ""
    if abs(value) < 5e-4:
        return f"<td{classes}></td>"
    shade = min(1.0, abs(value)) * 100
    return f"<td{classes} style='--v:{shade:.0f}%' title='{html.escape(where, quote=True)}: {value:.3f}'></td>"


# ---- attention


def attention(compiled: Compiled, xs: Sequence[Value]) -> Attention:
    """The patterns of the heads that the program uses."""
    used = [(i, h) for i, heads in enumerate(compiled.heads) for h in range(len(heads))]
    with torch.no_grad():
        _, acts = compiled.model.run_with_cache(compiled.encode(xs), names=lambda name: name.endswith("hook_pattern"))
    pattern = torch.stack([acts[f"blocks.{i}.attn.hook_pattern"][0, h] for i, h in used])
    return Attention(
        pattern.numpy(), ["BOS", *(said(x) for x in xs)], labels=[f"a{i}.h{h}" for i, h in used],
        selected=len(used) - 1, title="Where the heads look",
    )  # fmt: skip


_STYLE = """
.lab-scroll { overflow-x: auto; max-width: 100%; }
.rasp td.mono { font: 13px/1.4 var(--mono); white-space: nowrap; }
.stream { border-collapse: separate; border-spacing: 0; font: 11.5px/1 var(--mono); color: var(--ink); margin: 2px 0; }
.stream th { font-weight: 400; padding: 0 5px; white-space: nowrap; text-align: left; color: var(--soft); height: 15px; border: 0; }
.stream thead th { background: var(--paper); }
.stream th.axis { font-family: var(--sans); color: var(--faint); }
.stream th.g { text-align: center; color: var(--ink); border-left: 1px solid var(--line); padding-bottom: 4px; }
.stream th.p { text-align: center; padding: 0 1px 4px; min-width: 17px; color: var(--ink); font-size: 11px; }
.stream th.s { vertical-align: top; padding-top: 3px; color: var(--ink); border-top: 1px solid var(--line); max-width: 150px; overflow: hidden; text-overflow: ellipsis; }
.stream th.v { text-align: right; }
.stream td { padding: 0; height: 15px; min-width: 17px; border: 0; background: var(--card);
  box-shadow: inset 0 0 0 .5px color-mix(in oklab, var(--line) 55%, transparent); --c: var(--pos); }
.stream td.n { --c: var(--neg); }
.stream td.w { background: color-mix(in oklab, var(--interp) 9%, var(--card)); }
.stream td[style] { background: color-mix(in oklab, var(--c) var(--v), var(--card)); }
.stream td:not(.w)[style] { background: color-mix(in oklab, var(--soft) calc(var(--v) * .45), var(--card)); }
.stream .f { border-left: 1px solid var(--line); }
.stream tr.top > * { border-top: 1px solid var(--line); }
"""
