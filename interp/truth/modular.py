"""Modular addition: a one-layer transformer that memorises (a + b) mod p and much later understands it.

The setting of Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability", after Power et
al. 2022, "Grokking: generalization beyond overfitting on small algorithmic datasets". The prompt is `a b =`, the
answer stands after `=`; every update sees the whole training set.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.truth.words import write_tokenizer
from lab.errors import LabError
from lab.models import Decoder, ModelConfig
from lab.train import state

if TYPE_CHECKING:
    from lab.runs.context import Context

BETAS = (0.9, 0.98)
WARMUP = 10  # updates over which the learning rate rises


@dataclass(frozen=True)
class ModularSpec:
    """One training; the defaults are the paper's."""

    p: int = 113
    train_share: float = 0.3
    split_seed: int = 598
    d_model: int = 128
    n_heads: int = 4
    d_mlp: int = 512
    lr: float = 1e-3
    weight_decay: float = 1.0
    steps: int = 25_000
    seed: int = 0
    log_every: int = 10
    save_every: int = 500

    def __post_init__(self) -> None:
        if self.p < 5 or self.p % 2 == 0:
            raise LabError(f"p is {self.p}; choose an odd number of at least 5, so that every frequency has a sine and a cosine.")
        if not 0 < self.train_share < 1:
            raise LabError(f"The training share is {self.train_share}; it must lie between 0 and 1.")
        if self.d_model % self.n_heads:
            raise LabError(f"{self.d_model} dimensions cannot be shared by {self.n_heads} heads evenly; choose a divisor.")
        if min(self.steps, self.log_every, self.save_every) < 1:
            raise LabError("Steps, and how often to log and to save, must be at least 1.")

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> ModularSpec:
        if unknown := given.keys() - cls.__dataclass_fields__.keys():
            raise LabError(f"A modular-addition run has no setting {min(unknown)!r}.")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def config(self) -> ModelConfig:
        return ModelConfig(
            vocab_size=self.p + 1, out_vocab=self.p, d_model=self.d_model, n_layers=1, n_heads=self.n_heads,
            n_kv_heads=self.n_heads, d_head=self.d_model // self.n_heads, d_mlp=self.d_mlp, context=3, tied=False,
            norm="none", positions="learned", act="relu",
        )  # fmt: skip


def words(p: int) -> list[str]:
    """The vocabulary: the numbers, and `=`."""
    return [*map(str, range(p)), "="]


def questions(p: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """All prompts [p * p, 3], a the slower index, and their answers [p * p]."""
    a, b = torch.cartesian_prod(torch.arange(p), torch.arange(p)).T
    return torch.stack([a, b, torch.full_like(a, p)], 1).to(device), ((a + b) % p).to(device)


def split(spec: ModularSpec) -> tuple[Tensor, Tensor]:
    """Indices into `questions` of the training and the test pairs, by the permutation of the paper's demo."""
    generator = torch.Generator().manual_seed(spec.split_seed)
    order = torch.randperm(spec.p**2, generator=generator)
    n_train = int(spec.p**2 * spec.train_share)
    return order[:n_train], order[n_train:]


def loss64(logits: Tensor, answers: Tensor) -> Tensor:
    """Mean cross-entropy in nats, in float64: in float32 it stalls at the smallest log-probability it can tell from 0."""
    return -logits.double().log_softmax(-1).gather(-1, answers[:, None]).mean()


def initial(spec: ModularSpec, device: torch.device | str = "cpu") -> Decoder:
    """Random weights, normal of 1 / sqrt(d_model) everywhere; drawn on the CPU, so the same on every device."""
    model = Decoder(spec.config())
    generator = torch.Generator().manual_seed(spec.seed)
    for p in model.parameters():
        nn.init.normal_(p, std=spec.d_model**-0.5, generator=generator)
    return model.to(device)


class Training:
    """Full-batch AdamW. On a GPU an update is one replay of a recorded graph, about half a millisecond."""

    def __init__(self, spec: ModularSpec, device: torch.device, graph: bool = True) -> None:
        self.spec, self.graph, self.done = spec, graph, 0
        self.model = initial(spec, device)
        self.tokens, self.answers = questions(spec.p, device)
        self.train, self.test = (part.to(device) for part in split(spec))
        self._inputs, self._targets = self.tokens[self.train], self.answers[self.train]
        cuda = device.type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=torch.tensor(spec.lr, device=device) if cuda else spec.lr,
            weight_decay=spec.weight_decay, betas=BETAS, capturable=cuda,
        )  # fmt: skip
        self._graph: Any = None
        self._stream = torch.cuda.Stream(device) if cuda else None
        self._plain = 0  # updates made one kernel at a time: a graph is recorded only after a few of them

    def step(self) -> None:
        """One update."""
        if self._graph is None:
            self._rate(min(1.0, (self.done + 1) / WARMUP))
            if self._stream is None:
                self._update()
            elif self._plain < WARMUP or not self.graph:
                self._stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self._stream):
                    self._update()
                torch.cuda.current_stream().wait_stream(self._stream)
            else:
                self._record()
            self._plain += 1
        if self._graph is not None:
            self._graph.replay()
        self.done += 1

    def _rate(self, share: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.spec.lr * share)
            else:
                group["lr"] = self.spec.lr * share

    def _update(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss64(self.model(self._inputs, last=True)[:, -1], self._targets).backward()
        self.optimiser.step()

    def _record(self) -> None:
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=self._stream):
            self._update()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Losses (nats) and shares of right answers on both halves, and the sum of squared weights."""
        logits = self.model(self.tokens, last=True)[:, -1]
        right = (logits.argmax(-1) == self.answers).double()
        row = {"weight_norm": float(sum(p.double().square().sum() for p in self.model.parameters()))}
        for name, part in (("train", self.train), ("test", self.test)):
            row[f"{name}_loss"] = float(loss64(logits[part], self.answers[part]))
            row[f"{name}_right"] = float(right[part].mean())
        return row


def seconds(spec: ModularSpec) -> float:
    """How long this training takes here, from a few updates made now."""
    training = Training(spec, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    for _ in range(2):
        training.step()
    began = time.perf_counter()
    training.evaluate()
    evaluated = time.perf_counter()
    training.step()
    stepped = time.perf_counter()
    return spec.steps * (stepped - evaluated + (evaluated - began) / spec.log_every)


def work(given: dict[str, Any], ctx: Context) -> None:
    """Run of kind "grokking": train, log, save; resumes from its newest checkpoint and stops when cancelled."""
    spec = ModularSpec.from_dict(given)
    training = Training(spec, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    tokenizer = write_tokenizer(ctx.path / "tokenizer", words(spec.p))
    if (checkpoint := ctx.latest()) is not None:
        training.done, _ = state.load(checkpoint.path, training.model, training.optimiser)
        ctx.note(f"resumed at epoch {training.done}")

    def save() -> None:
        with ctx.checkpoint(training.done) as directory:
            seen = training.done * len(training.train)
            state.save(directory, training.model, tokenizer, training.optimiser, training.done, seen)

    if training.done == 0:
        ctx.log(0, **training.evaluate())
        save()
    while training.done < spec.steps:
        if ctx.cancelled:
            save()
            ctx.note(f"cancelled at epoch {training.done}")
            return
        training.step()
        last = training.done == spec.steps
        if last or training.done % spec.log_every == 0:
            ctx.log(training.done, **training.evaluate())
        if last or training.done % spec.save_every == 0:
            save()
