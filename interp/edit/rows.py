"""Many prompts of any lengths at once, each read at its last token, and where each mentions its subject."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.metrics import at_least_fp32
from interp.sites import Hook, chain
from lab.errors import LabError
from lab.infer.score import batches
from lab.models import KVCache


def mentions(tokenizer, text: str, subject: str) -> list[int]:
    """Positions of the tokens that spell the subject (its article left out), every time it occurs."""
    name = re.sub(r"^(the|The) ", "", subject.strip())
    spans = [(m.start(), m.end()) for m in re.finditer(re.escape(name), text)] if name else []
    offsets = tokenizer.inner.encode(text).offsets
    return [i for i, (a, b) in enumerate(offsets) if any(a < end and b > start for start, end in spans)]


class Rows:
    """A batch padded on the right, where causal attention never looks.

    `tokens` [row, pos], `ends` [row] the last token of each, `subject` [row, pos] the tokens that spell its subject.
    The first position of a prompt is never counted as subject: whatever stands there, heads that have nothing to
    look for rest on it.
    """

    def __init__(self, lm, prompts: Sequence[str], subjects: Sequence[str | None] | None = None) -> None:
        self.lm, self.prompts = lm, list(prompts)
        ids = [lm.tokenizer.encode(text) for text in prompts]
        if any(not row for row in ids):
            raise LabError("A prompt is empty; write a sentence that ends just before the answer.")
        width, device = max(map(len, ids)), lm.model.device
        self.tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids], device=device)
        self.lengths = [len(row) for row in ids]
        self.ends = torch.tensor(self.lengths, device=device) - 1
        self.index = torch.arange(len(ids), device=device)
        self.subject = torch.zeros(self.tokens.shape, dtype=torch.bool, device=device)
        for row, subject in enumerate(subjects or ()):
            if subject:
                self.subject[row, mentions(lm.tokenizer, prompts[row], subject)] = True
        self.subject[:, 0] = False

    def __len__(self) -> int:
        return len(self.lengths)

    def last(self, activation: Tensor) -> Tensor:
        """`[row, pos, ..]` at every row's last token, `[row, ..]`."""
        return activation[self.index, self.ends]

    @torch.no_grad()
    def logits(self, hooks: Mapping[str, Hook] | None = None) -> Tensor:
        """After the last token of every row, `[row, vocab]` in float32 or wider; the rest is never unembedded."""
        end = f"blocks.{self.lm.config.n_layers - 1}.hook_resid_post"
        gather = {end: lambda x, _: self.last(x)[:, None]}
        return at_least_fp32(self.lm.model(self.tokens, hooks=chain(hooks, gather), last=True)[:, 0])


@dataclass(frozen=True)
class Asked:
    """Likeliest next token and its probability after each prompt, `[prompt]`; with `watch`, that token's probability."""

    top: Tensor
    probability: Tensor
    watched: Tensor | None = None


def in_batches(lm, prompts: Sequence[str], subjects: Sequence[str | None] | None = None) -> Iterator[tuple[list[int], Rows]]:
    """Prompts of like length together: their places in the list, and the batch."""
    lengths = [len(lm.tokenizer.encode(text)) for text in prompts]
    for part in batches(lengths, rows=32):
        yield part, Rows(lm, [prompts[i] for i in part], None if subjects is None else [subjects[i] for i in part])


def ask(
    lm,
    prompts: Sequence[str],
    hooks: Callable[[list[int], Rows], Mapping[str, Hook]] | None = None,
    subjects: Sequence[str | None] | None = None,
    watch: Sequence[int] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Asked:
    """What the model says next; `hooks(places, rows)` gives the interventions of one batch."""
    top = torch.zeros(len(prompts), dtype=torch.long)
    probability, watched, done = torch.zeros(len(prompts)), torch.zeros(len(prompts)), 0
    for part, rows in in_batches(lm, prompts, subjects):
        p = rows.logits(hooks(part, rows) if hooks else None).softmax(-1)
        best = p.max(-1)
        top[part], probability[part] = best.indices.cpu(), best.values.float().cpu()
        if watch is not None:
            watched[part] = p[rows.index, torch.tensor([watch[i] for i in part], device=p.device)].float().cpu()
        done += len(part)
        if progress:
            progress(done / len(prompts))
    return Asked(top, probability, None if watch is None else watched)


@torch.no_grad()
def greedy(lm, tokens: Tensor, hooks: Mapping[str, Hook] | None, new_tokens: int, after: Callable[[int], None] | None = None) -> list[int]:
    """The greedy continuation of one prompt [1, pos], with the hooks in place at every step.

    `after(length)` is told how many tokens the cache holds before the next step, for hooks that count positions.
    """
    lm.model.check(tokens)
    length = tokens.shape[1]
    steps = max(1, min(new_tokens, lm.config.context - length))
    cache = KVCache(lm.config, 1, length + steps, lm.model.dtype, lm.model.device)
    said: list[int] = []
    for _ in range(steps):
        token = lm.model(tokens, hooks=hooks, cache=cache, last=True)[:, -1].argmax(-1, keepdim=True)
        if int(token) == lm.tokenizer.eos:
            break
        said.append(int(token))
        tokens = token
        if after:
            after(cache.length)
    return said
