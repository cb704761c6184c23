"""The features page: the text read, the widgets that show it, and what is said beside them."""

from __future__ import annotations

import functools
import html
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import marimo
import torch
from torch import Tensor

from interp.features import dashboard, store
from interp.features.activations import at_sites
from interp.features.dictionary import TARGETS, Dictionary
from interp.features.effects import Ablation
from interp.features.firings import Firings, collect
from interp.features.text import text
from lab import models, records
from lab.models import LM
from widgets.excerpts import Excerpts
from widgets.table import Table

OPENING = 6_000  # positions read before anything is shown
SOON = 24_000  # and after a pause, while the page is looked at
PAUSE_S = 4.0
MORE = 120_000  # and when asked for more
FRAME_S = 1.0  # between drawings while more is read

_guard = threading.Lock()


@functools.lru_cache(maxsize=4)
def _opened(name: str, step: str, positions: int) -> Firings:
    dictionary = store.load(name)
    lm = models.load(dictionary.shape.model)
    *_, firings = collect(lm, dictionary, text(lm, positions))
    return firings


def opened(name: str, positions: int = OPENING) -> Firings:
    """Where the features of a dictionary fire in the page's text, read once for every tab."""
    path = store.resolve(name)
    with _guard:
        return _opened(name, str(path), positions)


class Explorer:
    """One dictionary on a page: the text read so far, the table of its features and the excerpts of one of them.

    Widgets may be set from any thread; no cell runs again for it.
    """

    def __init__(self, name: str, positions: int = OPENING) -> None:
        self.name = name
        self.dictionary: Dictionary = store.load(name)
        self.lm: LM = models.load(self.dictionary.shape.model)
        self.firings = opened(name, positions)
        self.feature = 0
        self.excerpts = Excerpts([], value_title=self._read())
        self.table = Table(
            dashboard.rows(self.lm, self.dictionary, self.firings), dashboard.COLUMNS, page=9, sort=["most", "down"],
            name=f"features-{name.replace(':', '-')}",
        )  # fmt: skip

    def _read(self) -> str:
        return f"activation, length of what it writes; {self.firings.positions:,} tokens read"

    def show(self, *features: int) -> None:
        """Excerpts of a feature; with several, of all of them, to be leafed through without Python."""
        self.feature = features[0]
        self.excerpts.update([dashboard.excerpts(self.lm, self.firings, f) for f in features])

    def read(self, positions: int, stopped: Callable[[], bool] = lambda: False) -> None:
        """Read more text, drawing what is found as it comes; when stopped, what was read stays."""
        drawn = time.perf_counter()
        for found in collect(self.lm, self.dictionary, text(self.lm, positions)):
            ended = found.fraction == 1 or stopped()
            if found.positions < self.firings.positions or (time.perf_counter() - drawn < FRAME_S and not ended):
                if ended:
                    return
                continue
            self.firings = found
            self.table.update(dashboard.rows(self.lm, self.dictionary, found))
            self.excerpts.value_title = self._read() + ("" if found.fraction == 1 else f" of {found.text.positions:,}")
            self.excerpts.entries = [dashboard.excerpts(self.lm, found, self.feature)]
            drawn = time.perf_counter()
            if ended:
                return


@functools.lru_cache(maxsize=8)
def reading_speed(model: str, layer: int) -> float:
    lm = models.load(model)
    rows = torch.zeros(6, min(128, lm.config.context), dtype=torch.long, device=lm.model.device)
    names = [f"blocks.{layer}.hook_resid_post"]
    at_sites(lm.model, rows[:2], names)
    started = time.perf_counter()
    at_sites(lm.model, rows, names)
    return rows.numel() / (time.perf_counter() - started)


def reading_seconds(dictionary: Dictionary, positions: int) -> float:
    """How long it takes here to read so much text, from a few windows read just now; sorting takes about as long again."""
    return 2 * positions / reading_speed(dictionary.shape.model, dictionary.layer)


# ---- what is said


def beside(left: Any, right: Any, widths: str = "1fr 1fr") -> str:
    """HTML: two elements beside each other, one above the other where the page is narrow."""
    style = ".beside{display:grid;gap:14px;grid-template-columns:minmax(0,1fr);align-items:start}@media(min-width:1000px){.beside{grid-template-columns:var(--w)}}"
    parts = "".join(f'<div style="min-width:0">{marimo.as_html(part).text}</div>' for part in (left, right))
    return f'<style>{style}</style><div class="beside" style="--w:{widths}">{parts}</div>'


def described(explorer: Explorer) -> str:
    """HTML: what the dictionary is, and its quality as it was measured when it was made."""
    shape, notes = store.config(store.resolve(explorer.name))
    chips = [f"{TARGETS[shape.target][2]}, layer {shape.layer} of <b>{html.escape(shape.model)}</b>", f"<b>{shape.d_dict:,}</b> features"]
    told = (
        ("loss_recovered", "loss recovered <b>{:.3f}</b>"), ("explained", "variance explained <b>{:.3f}</b>"),
        ("l0", "L0 <b>{:.1f}</b>"), ("dead", "dead <b>{:.1%}</b>"),
    )  # fmt: skip
    chips += [form.format(notes[key]) for key, form in told if key in notes]
    if "positions" in notes:
        chips.append(f"on {notes['positions']:,} held-out tokens")
    if "step" in notes:
        chips.append(f"step {notes['step']:,}")
    return '<div style="display:flex;flex-wrap:wrap;gap:6px">' + "".join(f'<span class="lab-chip">{chip}</span>' for chip in chips) + "</div>"


def neighbours(explorer: Explorer, nearest: Sequence[tuple[int, float]]) -> str:
    """HTML: the features whose directions are most alike."""
    known = {row["id"]: row for row in explorer.table.rows}
    lines = "".join(
        f'<tr><td class="n">{f}</td><td><code>{html.escape(known[f]["name"]) if f in known else "never fired"}</code></td>'
        f'<td class="n">{cosine:.2f}</td></tr>'
        for f, cosine in nearest
    )
    return f'<div class="lab-card"><b>Nearest directions</b><table class="lab-table"><tr><th class="n">feature</th><th>fires on</th><th class="n">cosine</th></tr>{lines}</table></div>'


def removed(
    explorer: Explorer, feature: int, rows: Sequence[Mapping[str, Any]], cut: Ablation
) -> tuple[str, list[tuple[str, float]], list[tuple[str, float]]]:
    """HTML of what is lost without a feature in these excerpts; next tokens after the first of them, with and without it."""
    at, _ = explorer.firings.of(feature)
    n = explorer.firings.context
    on = torch.zeros(len(rows), n, dtype=torch.bool)
    for i, row in enumerate(rows):
        on[i, (at[at // n == row["row"]] % n).long()] = True
    rise, ids = cut.rise, explorer.firings.text.tokens
    worst = [
        (float(rise[i, p]), "".join(explorer.lm.tokenizer.pieces(ids[row["row"], max(0, p - 5) : p + 1].tolist())), explorer.lm.tokenizer.pieces([int(ids[row["row"], p + 1])])[0])
        for i, row in enumerate(rows)
        for p in rise[i].topk(2).indices.tolist()
    ]
    lines = "".join(
        f"<tr><td><code>…{html.escape(before)}</code></td><td><code>{html.escape(after)}</code></td><td class='n'>{value:+.2f}</td></tr>"
        for value, before, after in sorted(worst, reverse=True)[:5]
    )
    told = (
        f'<div class="lab-card"><p>Its write is taken out of the stream wherever it fires in these {len(rows)} windows; all else stays. '
        f"The loss of the next token changes by <b>{float(rise[on].mean()):+.3f}</b> nats where it fires ({int(on.sum())} tokens) and by "
        f"<b>{float(rise[~on].mean()):+.4f}</b> elsewhere.</p><table class='lab-table'><tr><th>after</th><th>the text goes on</th>"
        f"<th class='n'>loss, nats</th></tr>{lines}</table></div>"
    )
    return told, *_next(explorer.lm, cut.before[0], cut.after[0])


def pushed(
    lm: LM, prompt: str, plain: tuple[list[int], Tensor], pushed: tuple[list[int], Tensor]
) -> tuple[str, list[tuple[str, float]], list[tuple[str, float]]]:
    """HTML of a continuation before and after; next tokens after the prompt, before and after."""
    lines = "".join(
        f'<tr><th>{name}</th><td><span style="color:var(--soft)">{html.escape(prompt)}</span><b>{html.escape(lm.tokenizer.decode(ids))}</b></td></tr>'
        for name, (ids, _) in (("as it is", plain), ("pushed", pushed))
    )
    return f'<div class="lab-card"><table class="lab-table">{lines}</table></div>', *_next(lm, plain[1], pushed[1])


def _next(lm: LM, before: Tensor, after: Tensor, k: int = 6) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """The likeliest tokens of both distributions, with their probabilities before and after."""
    ids = list(dict.fromkeys([*after.topk(k).indices.tolist(), *before.topk(k).indices.tolist()]))[: k + 2]
    names = lm.tokenizer.pieces(ids)
    return [(name, float(before[i])) for name, i in zip(names, ids)], [(name, float(after[i])) for name, i in zip(names, ids)]


def recorded() -> str:
    """HTML: the records of the bundled autoencoder beside their bars."""
    named = {
        "interp.sae.loss_recovered": "loss recovered",
        "interp.sae.l0": "features active a token",
        "interp.sae.dead_fraction": "features that never fire",
    }
    found = {row["id"]: row for row in records.newest()}
    lines = "".join(
        f"<tr><td>{what}</td><td class='n'>{row['value']:.4g} {html.escape(row['unit'])}</td>"
        f"<td class='n'>{'at least' if row['better'] == 'higher' else 'at most'} {row['bar']:g}</td><td>{html.escape(row['note'] or '')}</td><td>{row['date'][:10]}</td></tr>"
        for id, what in named.items()
        if (row := found.get(id))
    )
    if not lines:
        return "<p>Nothing is recorded yet: <code>python -m lab bench interp_features</code> measures it here.</p>"
    return f"<table class='lab-table'><tr><th>on pocket's held-out text</th><th class='n'>measured</th><th class='n'>bar</th><th>how</th><th>date</th></tr>{lines}</table>"
