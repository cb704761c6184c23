"""Patchscopes: a hidden state is put into another prompt, and the model itself says what is in it.

Ghandeharioun et al. 2024. The identity prompt repeats words ("cat cat; 135 135; hello hello; ?"); the state of a token
at some layer takes the place of the "?" at some layer, and what follows names the state in the model's own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.metrics import at_least_fp32
from interp.patching import generate
from interp.sites import Hook, keep
from lab.errors import LabError

PLACE = "?"
#: what to ask of a state: prompts that repeat the word in the place of the "?", and one that asks where it is
PROMPTS = {
    "what is it? (pairs)": "cat cat; 135 135; hello hello; ?",
    "what is it? (list)": "The list is: river, stone, lamp, ?. Again: river, stone, lamp,",
    "in which city is it?": "The ? is located in the city of",
}


@dataclass(frozen=True)
class Patchscope:
    """`sources` and `targets` name the layers: the state before block i ("embed" is before block 0), and after the
    last one. `ids`, `probs` [source, target, k]: the likeliest next tokens; `said` the continuations; `tracked`
    {token: probability [source, target]}; `position` is the overwritten one of the target prompt."""

    sources: list[str]
    targets: list[str]
    position: int
    ids: Tensor
    probs: Tensor
    said: list[list[list[int]]]
    tracked: dict[int, Tensor]


def spread(config, prompt: int, budget: float = 2e11) -> list[int]:
    """Layers to try, evenly and both ends among them: a grid of so many by so many stays within `budget` FLOPs."""
    most = max(3, min(12, int((budget / config.forward_flops(prompt)) ** 0.5)))
    if config.n_layers <= most:
        return list(range(config.n_layers))
    return sorted({round(i * (config.n_layers - 1) / (most - 1)) for i in range(most)})


def placeholder(lm, prompt: str, place: str = PLACE) -> tuple[list[int], int]:
    """Tokens of a target prompt and where its last `place` stands; LabError when it is no token of its own."""
    ids = lm.tokens(prompt)[0].tolist()
    where = [i for i, piece in enumerate(lm.tokenizer.pieces(ids)) if piece.strip() == place]
    if not where:
        raise LabError(f"The target prompt has no token {place!r} to put the state in; end it with ' {place}'.")
    return ids, where[-1]


@torch.no_grad()
def patchscope(
    lm,
    source: Sequence[int],
    position: int,
    target: Sequence[int],
    place: int,
    sources: Sequence[int] | None = None,
    targets: Sequence[int] | None = None,
    new_tokens: int = 4,
    track: Sequence[int] = (),
    k: int = 5,
    rows: int = 256,
) -> Patchscope:
    """Every chosen source layer into every chosen target layer (default: all), `rows` of the grid at a time.

    Source layer i is the stream before block i, n_layers the one after the last block; target layers are 0 to
    n_layers - 1.
    """
    model, cfg = lm.model, lm.config
    sources = list(range(cfg.n_layers + 1) if sources is None else sources)
    targets = list(range(cfg.n_layers) if targets is None else targets)
    names = [f"blocks.{i}.hook_resid_pre" for i in range(cfg.n_layers)] + [f"blocks.{cfg.n_layers - 1}.hook_resid_post"]
    if not -len(source) <= position < len(source):
        raise LabError(f"Position {position} lies outside the source prompt, which has {len(source)} tokens.")
    kept: dict[str, Tensor] = {}
    model(torch.tensor([list(source)], device=model.device), hooks=keep([names[i] for i in sources], kept), last=True)
    states = [kept[names[i]][0, position] for i in sources]
    cells = [(s, t) for s in range(len(sources)) for t in targets]
    logits: list[Tensor] = []
    said: list[list[int]] = []
    for at in range(0, len(cells), rows):
        part = cells[at : at + rows]
        hooks = {names[t]: _write(part, t, states, place) for t in {t for _, t in part}}
        end, continued = generate(lm, [list(target)] * len(part), new_tokens, hooks)
        logits.append(at_least_fp32(end).cpu())
        said += continued
    p = torch.cat(logits).softmax(-1).view(len(sources), len(targets), -1)
    top = p.topk(k)
    wide = len(targets)
    return Patchscope(
        ["embed" if i == 0 else str(i - 1) for i in sources], [str(t) for t in targets], place, top.indices, top.values,
        [said[i : i + wide] for i in range(0, len(said), wide)], {token: p[..., token] for token in track},
    )  # fmt: skip


def _write(cells: Sequence[tuple[int, int]], layer: int, states: Sequence[Tensor], place: int) -> Hook:
    chosen = [(row, s) for row, (s, t) in enumerate(cells) if t == layer]
    rows = [row for row, _ in chosen]
    new = torch.stack([states[s] for _, s in chosen])

    def write(stream: Tensor, name: str) -> Tensor:
        out = stream.clone()
        out[rows, place] = new.to(stream.dtype)
        return out

    return write
