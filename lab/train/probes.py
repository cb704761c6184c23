"""What is measured while a model learns: held-out losses, answers to held-out prompts, a sample."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from lab.data import facts, ioi, repeats, sums
from lab.data.packed import Stream
from lab.models import Decoder, Tokenizer

Question = tuple[str, str]  # a prompt, and the continuation it must get


@torch.no_grad()
def loss(model: Decoder, stream: Stream, windows: int = 16, batch: int = 16) -> float:
    """Mean cross-entropy in nats a token over evenly spaced windows of the context's length."""
    length = model.cfg.context
    last = len(stream) - length - 1
    if last < 0:
        windows, length, last = 1, len(stream) - 1, 0
    starts = np.unique(np.linspace(0, last, windows).astype(int))
    rows = torch.from_numpy(np.stack([stream.tokens[s : s + length + 1] for s in starts])).long().to(model.device)
    total = 0.0
    for part in rows.split(batch):
        logits = model(part[:, :-1]).float()
        total += F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum").item()
    return total / rows[:, 1:].numel()


def _batches(rows: list[tuple[int, list[int], int]], batch: int) -> Iterator[list[tuple[int, list[int], int]]]:
    ordered = sorted(rows, key=lambda r: len(r[1]))
    for i in range(0, len(ordered), batch):
        yield ordered[i : i + batch]


@torch.no_grad()
def answered(model: Decoder, tokenizer: Tokenizer, questions: Sequence[Question], batch: int = 128) -> list[bool]:
    """Whether greedy decoding gives exactly each answer, and then ends the word.

    All answers are checked in one pass each: greedy decoding reproduces the answer exactly when every token of it
    is the most likely one given those before. The token after it must not go on with a letter, digit or hyphen."""
    ends = _word_ends(tokenizer)
    rows = []
    for i, (prompt, answer) in enumerate(questions):
        shown, whole = tokenizer.encode(prompt), tokenizer.encode(prompt + answer)
        if whole[: len(shown)] != shown:  # the answer would change the prompt's own tokens
            whole = shown + tokenizer.encode(answer)
        rows.append((i, whole, len(shown)))
    right = [False] * len(questions)
    for part in _batches(rows, batch):
        width = max(len(ids) for _, ids, _ in part)
        tokens = torch.zeros(len(part), width, dtype=torch.long)
        for row, (_, ids, _) in enumerate(part):
            tokens[row, : len(ids)] = torch.tensor(ids)
        best = model(tokens.to(model.device)).argmax(-1).cpu()  # padding on the right does not reach back
        for row, (i, ids, start) in enumerate(part):
            said = best[row, start - 1 : len(ids) - 1].tolist()
            right[i] = said == ids[start:] and bool(ends[best[row, len(ids) - 1]])
    return right


def _word_ends(tokenizer: Tokenizer) -> list[bool]:
    """For each token, whether a word before it is over."""
    first = [tokenizer.token_bytes(i)[:1] for i in range(tokenizer.vocab_size)]
    special = {tokenizer.bos, tokenizer.eos}
    return [i in special or not (b.isalnum() or b == b"-" or b >= b"\x80") for i, b in enumerate(first)]


def questions(count: int, seed: int = 0) -> dict[str, list[Question]]:
    """Held-out prompts of every task, `count` each, fixed by the seed."""
    import random

    rng = random.Random(seed)
    return {
        "facts": [(p.text, p.answer) for p in facts.scored(limit=count, seed=seed)],
        "first": [(p.text, p.answer) for r in facts.FIRST for p in facts.scored(r, max(count // 2, 1), seed)],
        "ioi": [(p.text, p.answer) for p in ioi.prompts(count, seed)],
        "sums": sums.prompts(rng, min(count, len(sums.pairs(True)))),
        "repeats": repeats.prompts(count, seed),
    }


@torch.no_grad()
def sample(model: Decoder, tokenizer: Tokenizer, prompt: str, tokens: int = 48, temperature: float = 0.7,
           seed: int = 0) -> str:  # fmt: skip
    """The prompt continued, up to the end-of-text token."""
    ids = tokenizer.encode(prompt)[-(model.cfg.context - 1) :]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(min(tokens, model.cfg.context - len(ids))):
        logits = model(torch.tensor([ids], device=model.device), last=True)[0, -1].float().cpu()
        chosen = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
        if chosen == tokenizer.eos:
            break
        ids.append(chosen)
    return tokenizer.decode(ids)


def evaluate(model: Decoder, tokenizer: Tokenizer, held: Mapping[str, Stream], asked: Mapping[str, list[Question]],
             prompt: str) -> dict[str, float | str]:  # fmt: skip
    """One row of metrics: `val_<domain>` in nats a token, `<task>` as a share of answers, `sample` as text."""
    row: dict[str, float | str] = {f"val_{name}": loss(model, stream) for name, stream in held.items()}
    for name, prompts in asked.items():
        right = answered(model, tokenizer, prompts)
        row[name] = sum(right) / len(right)
    row["sample"] = sample(model, tokenizer, prompt)
    return row
