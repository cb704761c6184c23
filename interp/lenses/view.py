"""Lenses as widgets: what each layer would say at every position, how far it is from the end, patchscope grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from interp.lenses.logit import LensResult, logit_lens
from interp.lenses.patchscopes import Patchscope
from interp.lenses.tuned import TunedLens
from widgets.curves import Curves
from widgets.textgrid import TextGrid, View

SHADES = (
    {"key": "probability", "title": "probability", "vmax": 1.0},
    {"key": "entropy", "title": "entropy", "unit": "nats"},
    {"key": "kl", "title": "KL to the end", "unit": "nats"},
)
TOP = 5


def _words(lm, ids: Tensor) -> list[list[list[str]]]:
    different = ids.unique().tolist()
    pieces = dict(zip(different, lm.tokenizer.pieces(different)))
    return [[[pieces[i] for i in cell] for cell in row] for row in ids.tolist()]


def _view(lm, name: str, found: LensResult) -> View:
    return View(
        name,
        _words(lm, found.ids),
        found.probs.numpy(),
        {"probability": found.probs[..., 0], "entropy": found.entropy, "kl": found.kl},
    )


def lens_grid(lm, ids: Sequence[int], lens: TunedLens | None) -> TextGrid:
    """The logit lens at every layer and position, and the tuned one where there is one."""
    views = [_view(lm, "logit lens", logit_lens(lm, ids, k=TOP))]
    if lens is not None:
        views.append(_view(lm, "tuned lens", logit_lens(lm, ids, k=TOP, lens=lens)))
    rows = ["embed"] + [str(i) for i in range(lm.config.n_layers)]
    return TextGrid(
        views, SHADES, rows, lm.tokenizer.pieces(list(ids)), title="The likeliest next token after each layer",
        col_title="token read", view=len(views) - 1, selected=[lm.config.n_layers, len(ids) - 1],
    )  # fmt: skip


def kl_curves(measured: Mapping[str, Sequence[float]]) -> Curves:
    """Held-out KL to the last layer over the layers, one curve a lens; the last layer is 0 by definition."""
    return Curves(
        series=[{"id": name, "label": name} for name in measured],
        panels=[{"key": "kl", "title": "How far each layer is from the model's answer", "unit": "KL, nats/token", "log": True}],
        x="layer",
        x_title="layers read (0: the embedding)",
        rows=[{"run": name, "layer": i, "kl": kl} for name, values in measured.items() for i, kl in enumerate(values)],
    )


def patchscope_grid(lm, found: Patchscope, token: int | None, source: str) -> TextGrid:
    """Source layers upwards, target layers across; shaded by the chance of the first word, or of `token`."""
    shades = [SHADES[0]]
    values = {"probability": found.probs[..., 0]}
    if token is not None:
        piece = lm.tokenizer.pieces([token])[0].strip()
        shades = [{"key": "tracked", "title": f"of “{piece}”", "vmax": 1.0}, *shades]
        values["tracked"] = found.tracked[token]
    return TextGrid(
        [View(
            "patchscope", _words(lm, found.ids), found.probs.numpy(), values,
            [[lm.tokenizer.decode(said) for said in row] for row in found.said],
        )],
        shades, found.sources, found.targets, row_title="source layer", col_title="target layer (state put in before it)",
        title=f"Read out of the state at the end of “{source.strip()}”",
    )  # fmt: skip


