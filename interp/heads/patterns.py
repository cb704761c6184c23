"""Heads told by where they look: at the token before, at an equal token, at what followed an equal token.

A score is the mean attention a head gives to its targets, over the queries that have one (Elhage et al. 2021; Olsson
et al. 2022). Patterns [batch, head, query, key] are reduced a layer at a time and not kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from interp.sites import Hook
from lab.errors import LabError


def previous(tokens: Tensor) -> Tensor:
    """The token just before."""
    n = tokens.shape[1]
    return torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril(-1).triu(-1).expand(len(tokens), -1, -1)


def duplicate(tokens: Tensor) -> Tensor:
    """Earlier copies of the same token."""
    return (tokens[:, :, None] == tokens[:, None, :]).tril(-1)


def induction(tokens: Tensor) -> Tensor:
    """What followed an earlier copy of the same token."""
    return duplicate(tokens).roll(1, -1).index_fill(-1, torch.tensor([0], device=tokens.device), False)


def first(tokens: Tensor) -> Tensor:
    """The first token, where heads with nothing to do rest their attention."""
    n = tokens.shape[1]
    at_start = torch.arange(n, device=tokens.device)[None, :] == 0
    return (at_start & (torch.arange(n, device=tokens.device)[:, None] > 0)).expand(len(tokens), -1, -1)


#: key -> (what the head is called, its targets: [batch, pos] tokens to bool [batch, query, key])
KINDS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "previous": ("previous token", previous),
    "duplicate": ("duplicate token", duplicate),
    "induction": ("induction", induction),
    "first": ("first token", first),
}


@torch.no_grad()
def attention_to(model, tokens: Tensor, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Mean attention [layer, head] to each set of targets, bool [batch, query, key], over the queries that have one."""
    counted = {}
    for name, mask in targets.items():
        asked = mask.any(-1)
        if not asked.any():
            raise LabError(f"No token of this text has a {name!r} target; use a longer or a repeated text.")
        counted[name] = asked
    found: dict[str, list[Tensor]] = {name: [] for name in targets}

    def reduce(pattern: Tensor, name: str) -> None:
        for kind, mask in targets.items():
            mass = torch.einsum("bhqk,bqk->bhq", pattern.double(), mask.double())
            asked = counted[kind].double()
            found[kind].append((torch.einsum("bhq,bq->h", mass, asked) / asked.sum()).cpu())

    hooks: dict[str, Hook] = {f"blocks.{i}.attn.hook_pattern": reduce for i in range(model.cfg.n_layers)}
    model(tokens, hooks=hooks, last=True)
    return {name: torch.stack(rows) for name, rows in found.items()}


def detect(model, tokens: Tensor, kinds: Sequence[str] = tuple(KINDS)) -> dict[str, Tensor]:
    """Scores [layer, head] of each kind of head on these tokens [batch, pos]."""
    return attention_to(model, tokens, {kind: KINDS[kind][1](tokens) for kind in kinds})


def repeated(lm, length: int = 20, rows: int = 8, seed: int = 0) -> Tensor:
    """Random distinct tokens said twice, [rows, 2 * length], begun by the model's start token where it has one.

    Shortened to what the model can read. The only way to continue them is to look back: what induction heads do.
    """
    start = next((x for x in (lm.tokenizer.bos, lm.tokenizer.eos) if x is not None), None)
    special = {x for x in (lm.tokenizer.bos, lm.tokenizer.eos) if x is not None}
    words = [i for i in range(min(lm.tokenizer.vocab_size, lm.config.vocab_size)) if i not in special]
    begin = [] if start is None else [start]
    length = min(length, (lm.config.context - len(begin)) // 2, len(words))
    rng = random.Random(seed)
    drawn = [rng.sample(words, length) for _ in range(rows)]
    return torch.tensor([begin + part * 2 for part in drawn], device=lm.model.device)
