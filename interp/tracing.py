"""Causal tracing: which hidden states carry a fact from its subject to the answer.

The subject's embeddings are corrupted with noise of three standard deviations, so that the fact is forgotten; then one
hidden state, or a window of attention or MLP outputs, is restored to what it was, and the probability of the answer is
read again. The total effect is clean minus corrupted, the indirect effect of a state is restored minus corrupted
(Meng, Bau, Andonian and Belinkov 2022, "Locating and editing factual associations in GPT", section 2).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interp.metrics import at_least_fp32
from interp.sites import SITES, Hook, Intervention, Patch, chain, keep
from lab.data import facts
from lab.errors import LabError

KINDS = {"state": "resid_post", "mlp": "mlp_out", "attn": "attn_out"}
TITLES = {"state": "hidden state", "mlp": "MLP outputs", "attn": "attention outputs"}
ROLES = (
    "first subject token", "middle subject tokens", "last subject token",
    "first token after", "further tokens", "last token",
)  # fmt: skip
TOKENS_PER_BATCH = 4096
SIGMAS = 3.0


# ---- facts a model recalls


@dataclass(frozen=True)
class Recall:
    """A prompt whose next token the model gets right; the subject is `ids[first:last + 1]`, `p` the probability."""

    text: str
    subject: str
    ids: list[int]
    pieces: list[str]
    first: int
    last: int
    answer_id: int
    p: float

    def role(self, position: int) -> str | None:
        """Which of ROLES a position plays; None before the subject. A subject of one token is its last one."""
        if position < self.first:
            return None
        if position == len(self.ids) - 1:
            return ROLES[5]
        if position > self.last:
            return ROLES[3] if position == self.last + 1 else ROLES[4]
        return ROLES[2] if position == self.last else ROLES[0] if position == self.first else ROLES[1]


def subject_span(tokenizer, text: str, subject: str) -> tuple[int, int]:
    """First and last token of `subject` in `text`; LabError when it is not there or closes the prompt."""
    at = text.lower().find(subject.lower())
    if not subject.strip() or at < 0:
        raise LabError(f"The prompt does not contain the subject {subject!r}; write it as it stands in the prompt.")
    end = at + len(subject)
    inside = [i for i, (a, b) in enumerate(tokenizer.inner.encode(text).offsets) if b > at and a < end]
    return inside[0], inside[-1]


@torch.no_grad()
def recall(lm, text: str, subject: str) -> Recall:
    """A prompt of the user's own; the answer is what the model says."""
    first, last = subject_span(lm.tokenizer, text, subject)
    ids = lm.tokenizer.encode(text)
    probs = at_least_fp32(lm.model(torch.tensor([ids], device=lm.model.device), last=True)[0, -1]).softmax(-1)
    answer = int(probs.argmax())
    return Recall(text, subject, ids, lm.tokenizer.pieces(ids), first, last, answer, float(probs[answer]))


@torch.no_grad()
def recalled(lm, relation: str, phrasing: int = 0, limit: int = 1000) -> list[Recall]:
    """Facts of a relation whose answer's first token the model ranks first, in the order of their table, at most `limit`."""
    found: list[Recall] = []
    asked = [facts.prompt(fact, phrasing) for fact in facts.facts(relation)]
    for at in range(0, len(asked), 32):
        part = [(prompt, lm.tokenizer.encode(prompt.text)) for prompt in asked[at : at + 32]]
        for length in sorted({len(ids) for _, ids in part}):
            group = [(prompt, ids) for prompt, ids in part if len(ids) == length <= lm.config.context]
            if not group:
                continue
            tokens = torch.tensor([ids for _, ids in group], device=lm.model.device)
            best = at_least_fp32(lm.model(tokens, last=True)[:, -1]).softmax(-1).max(-1)
            for (prompt, ids), p, token in zip(group, best.values.tolist(), best.indices.tolist()):
                if token == lm.tokenizer.encode(prompt.answer)[0]:
                    first, last = subject_span(lm.tokenizer, prompt.text, prompt.fact.subject)
                    found.append(
                        Recall(prompt.text, prompt.fact.subject, ids, lm.tokenizer.pieces(ids), first, last, token, p)
                    )
        if len(found) >= limit:
            break
    return found[:limit]


def embedding_std(model, recalls: Sequence[Recall]) -> float:
    """Standard deviation of the embeddings of these facts' subject tokens, over all of their features."""
    ids = sorted({i for r in recalls for i in r.ids[r.first : r.last + 1]})
    found = []
    with torch.no_grad():
        for at in range(0, len(ids), model.cfg.context):
            kept: dict[str, Tensor] = {}
            part = torch.tensor([ids[at : at + model.cfg.context]], device=model.device)
            model(part, hooks=keep(["hook_embed"], kept), last=True)
            found.append(kept["hook_embed"][0].double())
    return float(torch.cat(found).std())


# ---- one fact


@dataclass(frozen=True)
class Corruption:
    """`samples` draws of Gaussian noise of standard deviation `std` on the subject's embeddings."""

    std: float
    samples: int = 10
    seed: int = 0

    def hook(self, recall: Recall) -> Hook:
        """Noise on rows 0 to samples - 1 of the embeddings."""

        def corrupt(activation: Tensor, name: str) -> Tensor:
            generator = torch.Generator().manual_seed(self.seed)
            width = recall.last + 1 - recall.first
            noise = torch.randn(self.samples, width, activation.shape[-1], generator=generator) * self.std
            new = activation.clone()
            new[:, recall.first : recall.last + 1] += noise.to(activation)
            return new

        return corrupt


@dataclass
class Trace:
    """`restored` [layer, position]: probability of the answer, mean over samples; NaN where not (yet) measured.

    Before the subject nothing is corrupted, so restoring changes nothing and `restored` is `corrupted`.
    """

    recall: Recall
    kind: str
    window: int
    clean: float
    corrupted: float
    restored: Tensor
    done: int = 0
    fired: int = 0

    @property
    def total_effect(self) -> float:
        return self.clean - self.corrupted

    @property
    def indirect(self) -> Tensor:
        """[layer, position], in probability."""
        return self.restored - self.corrupted

    @property
    def fraction(self) -> float:
        return self.done / len(self.restored)


def windows(layers: int, layer: int, window: int) -> range:
    """The layers restored together around one, cut off at the ends as in the paper's code."""
    return range(max(0, layer - window // 2), min(layers, layer + -(-window // 2)))


@torch.no_grad()
def trace(
    model, recall: Recall, kind: str, corruption: Corruption, window: int = 1, positions: Sequence[int] | None = None
) -> Iterator[Trace]:
    """Yield one Trace again and again, after every layer. `kind` of KINDS; hidden states are restored one at a time."""
    if kind not in KINDS:
        raise LabError(f"There is no kind of state called {kind!r}; choose one of {', '.join(KINDS)}.")
    if window < 1 or corruption.samples < 1:
        raise LabError("A window and a number of noise samples are at least 1.")
    layers, length, n = model.cfg.n_layers, len(recall.ids), corruption.samples
    site = SITES[KINDS[kind]]
    clean: dict[str, Tensor] = {}
    tokens = torch.tensor([recall.ids], device=model.device)
    logits = model(tokens, hooks=keep([site.name(i) for i in range(layers)], clean), last=True)
    source = {name: x[0] for name, x in clean.items()}
    streams: dict[str, Tensor] = {}
    starts = [SITES["resid_pre"].name(i) for i in range(layers)]
    spoiled = model(
        tokens.expand(n, -1), hooks=chain({"hook_embed": corruption.hook(recall)}, keep(starts, streams)), last=True
    )
    probability = _probability(recall.answer_id)
    result = Trace(
        recall, kind, window, float(probability(logits[:, -1])[0]), float(probability(spoiled[:, -1]).mean()),
        torch.full((layers, length), float("nan"), dtype=torch.float64),
    )  # fmt: skip
    result.restored[:, : recall.first] = result.corrupted
    wanted = [p for p in (range(length) if positions is None else positions) if p >= recall.first]
    many = max(1, TOKENS_PER_BATCH // (n * length))
    yield result
    for layer in range(layers):
        together = windows(layers, layer, window) if kind != "state" else range(layer, layer + 1)
        for at in range(0, len(wanted), many):
            part = wanted[at : at + many]
            cells = [(p, row) for row, p in enumerate(p for p in part for _ in range(n))]
            patches = [Patch(site.key, i, p) for i in together for p, _ in cells]
            act = Intervention(patches, source, range(length), [row for _ in together for _, row in cells])
            stream = streams[starts[together[0]]].repeat(len(part), 1, 1)
            after = from_layer(model, tokens, stream, together[0], act.hooks)
            result.fired += len(act.receipts())  # raises when a patch did not fire
            result.restored[layer, part] = probability(after).view(len(part), n).mean(1).cpu()
        result.done += 1
        yield result


def _probability(token: int):
    return lambda logits: at_least_fp32(logits).softmax(-1)[..., token].double()


def from_layer(model, tokens: Tensor, stream: Tensor, layer: int, hooks: dict[str, Hook]) -> Tensor:
    """Logits [row, vocab] of the last position for streams [row, pos, d_model] that enter `layer`.

    A model that cannot start in the middle runs whole, its stream replaced there.
    """
    if not hasattr(model, "run_block"):
        enter = {SITES["resid_pre"].name(layer): lambda x, name: stream}
        return model(tokens.expand(len(stream), -1), hooks=chain(enter, hooks), last=True)[:, -1]
    for i in range(layer, model.cfg.n_layers):
        stream = model.run_block(i, stream, hooks=hooks)
    return model.unembed(stream[:, -1:])[:, 0]


def forwards(layers: int, recall: Recall, samples: int) -> int:
    """Prompts a trace runs through (part of) the model."""
    return 1 + samples + layers * (len(recall.ids) - recall.first) * samples


# ---- many facts


@dataclass
class Average:
    """Indirect effects of many traces of one kind by role of the token: `effects` [fact][role, layer], NaN where a
    prompt has no such token; `totals` the total effects."""

    kind: str
    effects: list[Tensor] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)

    def add(self, done: Trace) -> None:
        rows = torch.full((len(ROLES), len(done.restored)), float("nan"), dtype=torch.float64)
        roles = [done.recall.role(p) for p in range(len(done.recall.ids))]
        for r, role in enumerate(ROLES):
            which = [p for p, name in enumerate(roles) if name == role]
            if which:
                rows[r] = done.indirect[:, which].nanmean(1)
        self.effects.append(rows)
        self.totals.append(done.total_effect)

    @property
    def total(self) -> tuple[float, float]:
        """Average total effect and half of its 95% interval."""
        mean, half = interval(torch.tensor(self.totals, dtype=torch.float64)[:, None])
        return float(mean[0]), float(half[0])

    @property
    def indirect(self) -> tuple[Tensor, Tensor]:
        """Average indirect effect [role, layer] and half of its 95% interval."""
        return interval(torch.stack(self.effects))


def interval(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the first dimension and 1.96 standard errors of it, NaN left out; the latter NaN below two values."""
    n = (~values.isnan()).sum(0).double()
    mean = values.nanmean(0)
    variance = (values - mean).square().nansum(0) / (n - 1)
    return mean, torch.where(n > 1, 1.96 * (variance / n).sqrt(), math.nan)


# ---- what it will cost


def seconds_needed(model, recall: Recall, kind: str, samples: int, window: int = 1) -> float:
    """Expected duration of a trace: its tokens times layers, at the rate of one block (or forward) timed just now."""
    layers, length = model.cfg.n_layers, len(recall.ids)
    rows = samples * (length - recall.first)
    few = max(1, min(rows, 512 // length))
    carried = sum(layers - (windows(layers, i, window)[0] if kind != "state" else i) for i in range(layers))
    with torch.no_grad():
        if hasattr(model, "run_block"):
            stream = torch.randn(few, length, model.cfg.d_model).to(model.device, model.dtype)
            model.run_block(0, stream)  # the first call pays for set-up
            started = time.perf_counter()
            model.run_block(0, stream)
            return (time.perf_counter() - started) / few * rows * carried
        started = time.perf_counter()
        model(torch.tensor([recall.ids], device=model.device).expand(few, -1), last=True)
        return (time.perf_counter() - started) / few * rows * layers
