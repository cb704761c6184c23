"""Text from a prompt, one token at a time, with what every token took."""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lab.errors import LabError
from lab.infer.cost import Cost, step_cost
from lab.infer.sampling import NAN, check_sampling, sample
from lab.infer.steps import decode_one, prefill
from lab.infer.text import TextStream
from lab.models import KVCache

if TYPE_CHECKING:
    from lab.models import LM


@dataclass(frozen=True)
class Token:
    """One generated token and the step that made it. The first one's step is the prefill of the whole prompt."""

    index: int
    id: int
    piece: str
    """the token alone, readable"""
    text: str
    """text that became certain with it; the texts of all tokens add up to the completion"""
    logprob: float
    """log of the probability the model gave it, before temperature and filters"""
    top: tuple[tuple[int, float], ...]
    """likeliest tokens in its place with their probabilities"""
    phase: str
    """ "prefill" or "decode" """
    context: int
    """tokens in the cache when the step was done"""
    seconds: float
    cost: Cost
    finish: str | None = None
    """why it ended here: "end of text", "stop string", "length", "context"; None while it goes on"""

    @property
    def bytes_per_s(self) -> float:
        return self.cost.bytes / self.seconds

    @property
    def flops_per_s(self) -> float:
        return self.cost.flops / self.seconds


def encode_prompt(lm: "LM", prompt: str) -> list[int]:
    """Tokens of a prompt; LabError when there are none or more than the model reads."""
    if not prompt.strip():
        raise LabError("The prompt is empty: write at least one word for the model to go on from.")
    ids = lm.tokenizer.encode(prompt)
    if not ids:
        raise LabError("The prompt has no tokens in this model's vocabulary; write some other text.")
    check_context(lm, len(ids))
    return ids


def check_context(lm: "LM", tokens: int) -> None:
    """LabError unless the prompt leaves room for one more token."""
    if tokens >= lm.config.context:
        raise LabError(
            f"The prompt is {tokens:,} tokens long and {lm.name} holds {lm.config.context:,}, "
            "one of them for its answer; shorten the prompt or choose a model with a longer context."
        )


def generate(
    lm: "LM",
    prompt: str | Sequence[int],
    max_tokens: int = 64,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stops: Sequence[str] = (),
    top: int = 5,
    cancel: threading.Event | None = None,
) -> Iterator[Token]:
    """Generate after a prompt (text, or token ids), yielding each token when it is there.

    Ends with the tokenizer's end token, a stop string (never part of the text), `max_tokens`, or a full context;
    the last token says which. A set `cancel` ends it before the next step, without a finish.
    """
    check_sampling(temperature, top_k, top_p, min_p)
    if max_tokens < 1:
        raise LabError(f"Asked for {max_tokens} tokens; ask for at least 1.")
    ids = encode_prompt(lm, prompt) if isinstance(prompt, str) else list(prompt)
    if not ids or not 0 <= min(ids) <= max(ids) < lm.config.vocab_size:
        raise LabError(f"The prompt holds no token, or one outside 0 to {lm.config.vocab_size - 1}, this model's vocabulary.")
    check_context(lm, len(ids))
    room = min(max_tokens, lm.config.context - len(ids))
    device, dtype = lm.model.device, lm.model.dtype
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    stream = TextStream(lm.tokenizer, ids, stops)
    cache = KVCache(lm.config, 1, len(ids) + room, dtype, device)
    prompt_ids = torch.tensor([ids], device=device)
    drawn = prompt_ids[:, -1]
    for index in range(room):
        if cancel is not None and cancel.is_set():
            return
        began = time.perf_counter()
        logits = decode_one(lm.model, drawn, cache) if index else prefill(lm.model, prompt_ids, cache)
        drawn = sample(logits, temperature, top_k, top_p, min_p, generator)
        chosen = int(drawn)  # waits for the device
        seconds = time.perf_counter() - began
        new, past = (len(ids), 0) if index == 0 else (1, len(ids) + index - 1)
        logprobs = logits[0].float().log_softmax(-1)
        if math.isnan(logprobs[chosen]):
            raise LabError(NAN)
        best = logprobs.topk(min(top, len(logprobs)))
        text = "" if chosen == lm.tokenizer.eos else stream.push(chosen)
        finish = _finish(chosen == lm.tokenizer.eos, stream.stopped, index + 1, room, max_tokens)
        if finish:
            text += stream.flush()
        yield Token(
            index=index,
            id=chosen,
            piece=lm.tokenizer.pieces([chosen])[0],
            text=text,
            logprob=float(logprobs[chosen]),
            top=tuple(zip(best.indices.tolist(), best.values.exp().tolist())),
            phase="decode" if index else "prefill",
            context=past + new,
            seconds=seconds,
            cost=step_cost(lm.config, new, past, dtype=dtype),
            finish=finish,
        )
        if finish:
            return


def _finish(ended: bool, stopped: str | None, made: int, room: int, max_tokens: int) -> str | None:
    if ended:
        return "end of text"
    if stopped is not None:
        return "stop string"
    if made == room:
        return "length" if room == max_tokens else "context"
    return None
