"""Many prompts at once: log-likelihood of given text, and greedy completions, in batches of like length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lab.errors import LabError
from lab.infer.generate import check_context, encode_prompt
from lab.infer.steps import decode_one
from lab.infer.text import TextStream
from lab.models import KVCache

if TYPE_CHECKING:
    from lab.models import LM


@dataclass(frozen=True)
class Scored:
    """How likely a model finds one continuation of a prompt."""

    text: str
    logprobs: tuple[float, ...]
    """of each of its tokens"""

    @property
    def total(self) -> float:
        return sum(self.logprobs)

    @property
    def mean(self) -> float:
        """Log-likelihood a token: options of different length compare by this."""
        return self.total / len(self.logprobs)


@dataclass(frozen=True)
class Completion:
    """A greedy completion with the probabilities behind it."""

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]
    """likeliest tokens at every step"""
    prompt_ids: tuple[int, ...]
    prompt_logprobs: tuple[float | None, ...]
    prompt_top: tuple[tuple[tuple[int, float], ...], ...]


def batches(lengths: Sequence[int], rows: int = 16, positions: int = 1024) -> Iterator[list[int]]:
    """Indices in batches, shortest first, so that little is padded.

    Logits of 1,024 positions over 49,152 tokens are 200 MB, so long texts come in smaller batches.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and (len(batch) == rows or (len(batch) + 1) * lengths[i] > positions):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@torch.inference_mode()
def score(lm: "LM", prompts: Sequence[str], options: Sequence[Sequence[str]]) -> list[list[Scored]]:
    """Log-likelihood of every option after its prompt; `options[i]` belongs to `prompts[i]`.

    An option is encoded together with its prompt, so a word gets the tokens it has in running text. Rows of a batch
    are padded on the right: attention is causal, so what follows a row's end cannot reach it.
    """
    texts, spans = [], []
    for prompt, choices in zip(prompts, options, strict=True):
        ids = encode_prompt(lm, prompt)
        for option in choices:
            whole = lm.tokenizer.encode(prompt + option)
            common = next(
                (i for i, (a, b) in enumerate(zip(ids, whole)) if a != b), min(len(ids), len(whole))
            )
            if common == len(whole):
                raise LabError(
                    f"The option “{option}” adds no token to its prompt; write out what the model should say."
                )
            check_context(lm, len(whole) - 1)
            texts.append(whole)
            spans.append(max(common, 1))
    found: list[tuple[float, ...]] = [()] * len(texts)
    for batch in batches([len(t) for t in texts]):
        width = max(len(texts[i]) for i in batch)
        tokens = torch.tensor(
            [texts[i] + [0] * (width - len(texts[i])) for i in batch], device=lm.model.device
        )
        logprobs = lm.model(tokens).float().log_softmax(-1)
        taken = logprobs[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1).cpu()
        for row, i in enumerate(batch):
            found[i] = tuple(taken[row, spans[i] - 1 : len(texts[i]) - 1].tolist())
    scored = iter(found)
    return [[Scored(option, next(scored)) for option in choices] for choices in options]


@torch.inference_mode()
def complete(
    lm: "LM",
    prompts: Sequence[str],
    max_tokens: int = 8,
    *,
    stops: Sequence[str] = (),
    top: int = 5,
) -> Iterator[tuple[int, Completion]]:
    """Greedy completions as (index of the prompt, completion), token for token what `generate` gives.

    Rows of a batch are padded on the left, where the cache never looks and positions do not count; the shortest
    prompts come first. A batch ends when all its rows have.
    """
    encoded = [encode_prompt(lm, prompt) for prompt in prompts]
    for batch in batches([len(ids) for ids in encoded]):
        # padding takes room in the cache: rows that could fill the context go alone
        fits = len(encoded[batch[-1]]) + max_tokens <= lm.config.context
        for group in [batch] if fits else [[i] for i in batch]:
            yield from zip(group, _complete(lm, [encoded[i] for i in group], max_tokens, stops, top))


def _complete(
    lm: "LM", rows: list[list[int]], max_tokens: int, stops: Sequence[str], top: int
) -> list[Completion]:
    width = max(len(row) for row in rows)
    room = min(max_tokens, lm.config.context - width)
    padding = [width - len(row) for row in rows]
    device = lm.model.device
    tokens = torch.tensor([[0] * pad + row for pad, row in zip(padding, rows)], device=device)
    pad = torch.tensor(padding, device=device) if any(padding) else None
    cache = KVCache(lm.config, len(rows), width + room, lm.model.dtype, device, pad)
    logits = lm.model(tokens, cache=cache)
    before = logits[:, :-1].float().log_softmax(-1)
    taken = before.gather(-1, tokens[:, 1:, None]).squeeze(-1).tolist()
    before_top = _top(before, top)
    streams = [TextStream(lm.tokenizer, row, stops) for row in rows]
    texts = [""] * len(rows)
    ids: list[list[int]] = [[] for _ in rows]
    logprobs: list[list[float]] = [[] for _ in rows]
    tops: list[list[tuple[tuple[int, float], ...]]] = [[] for _ in rows]
    going = set(range(len(rows)))
    last = logits[:, -1]
    for step in range(room):
        after = last.float().log_softmax(-1)
        chosen = last.argmax(-1)
        best = _top(after[:, None], top)
        for row in sorted(going):
            token = int(chosen[row])
            ids[row].append(token)
            logprobs[row].append(float(after[row, token]))
            tops[row].append(best[row][0])
            ended = token == lm.tokenizer.eos
            if not ended:
                texts[row] += streams[row].push(token)
            if ended or streams[row].stopped is not None or step + 1 == room:
                texts[row] += streams[row].flush()
                going.discard(row)
        if not going:
            break
        last = decode_one(lm.model, chosen, cache)
    return [
        Completion(
            text=texts[row],
            ids=tuple(ids[row]),
            logprobs=tuple(logprobs[row]),
            top=tuple(tops[row]),
            prompt_ids=tuple(rows[row]),
            prompt_logprobs=(None, *taken[row][padding[row] :]),
            prompt_top=((), *before_top[row][padding[row] :]),
        )
        for row in range(len(rows))
    ]


def _top(logprobs: Tensor, count: int) -> list[list[tuple[tuple[int, float], ...]]]:
    """Likeliest tokens of `[batch, pos, vocab]` log-probabilities as (id, probability), for each row and position."""
    best = logprobs.topk(min(count, logprobs.shape[-1]), dim=-1)
    return [
        [tuple(zip(ids, probs)) for ids, probs in zip(row_ids, row_probs)]
        for row_ids, row_probs in zip(best.indices.tolist(), best.values.exp().tolist())
    ]
