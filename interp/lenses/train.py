"""Training a tuned lens, as a run: the KL divergence from the model's own last layer, every layer at once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.lenses.tuned import TunedLens
from interp.metrics import at_least_fp32
from interp.sites import keep
from lab.data import presets
from lab.data.mixture import Mixture
from lab.data.packed import Stream
from lab.errors import LabError
from lab.models import LM, load

if TYPE_CHECKING:
    from lab.runs.context import Context

STATE = "train.safetensors"


@dataclass(frozen=True)
class LensSpec:
    """One training of a lens; `rank` None learns whole matrices. `batch` counts sequences of `context` tokens."""

    model: str = "pocket"
    data: str = "mixed"
    generated_tokens: int = 200_000
    rank: int | None = 32
    steps: int = 200
    batch: int = 4
    context: int = 64
    lr: float = 1e-2
    seed: int = 0
    eval_every: int = 50
    eval_rows: int = 16  # held-out sequences
    save_every: int = 50

    def __post_init__(self) -> None:
        for key in ("generated_tokens", "steps", "batch", "context", "eval_every", "eval_rows", "save_every"):
            if type(value := getattr(self, key)) is not int or value < 1:
                raise LabError(f"{key} is {value!r}: it must be a whole number of at least 1.")
        if self.rank is not None and (type(self.rank) is not int or self.rank < 1):
            raise LabError(f"rank is {self.rank!r}: give a whole number of at least 1, or none for whole matrices.")
        if not 0 < self.lr <= 1:
            raise LabError(f"A learning rate of {self.lr!r} is outside 0 to 1: 1e-2 suits lenses.")

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> LensSpec:
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise LabError(f"A tuned lens has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}.")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def texts(lm: LM, data: str, tokens: int, context: int, seed: int) -> tuple[Mixture, Tensor]:
    """What a lens learns from, and held-out rows [64, context] to judge it by, all in the model's own tokens."""
    mark = lm.tokenizer.eos if lm.tokenizer.eos is not None else lm.tokenizer.bos
    if mark is None:
        raise LabError(f"{lm.name} has no end-of-text token to part documents by; choose another model.")
    if context > lm.config.context:
        raise LabError(f"{lm.name} reads {lm.config.context} tokens: choose a context no longer than that.")
    train, held = presets.streams(data, lm.tokenizer.inner, mark, tokens, seed)
    weights = presets.weights(data)

    def mixed(streams: dict[str, Stream]) -> Mixture:
        return Mixture(streams, weights, context - 1, seed, lm.model.device)

    return mixed(train), mixed(held).batch(0, 64)


def divergences(model, rows: Tensor, lens: TunedLens | None = None) -> Iterator[Tensor]:
    """KL(last layer || lens) in nats, mean over the tokens of `rows` [batch, pos], one value a row of the lens.

    `lens` None is the logit lens. Only the lens is differentiated.
    """
    kept: dict[str, Tensor] = {}
    names = ["blocks.0.hook_resid_pre"] + [f"blocks.{i}.hook_resid_post" for i in range(model.cfg.n_layers - 1)]
    with torch.no_grad():
        final = at_least_fp32(model(rows, hooks=keep(names, kept))).log_softmax(-1)
        p = final.exp()
    for row, name in enumerate(names):
        stream = kept.pop(name)
        said = at_least_fp32(model.unembed(stream if lens is None else lens(stream, row))).log_softmax(-1)
        yield (p * (final - said)).sum(-1).mean()


@torch.no_grad()
def judged(model, rows: Tensor, lens: TunedLens | None = None, batch: int = 8) -> list[float]:
    """`divergences` of many rows, `batch` at a time."""
    parts = [[float(kl) for kl in divergences(model, part, lens)] for part in rows.split(batch)]
    sizes = torch.tensor([len(part) for part in rows.split(batch)], dtype=torch.float64)
    return (sizes / sizes.sum() @ torch.tensor(parts, dtype=torch.float64)).tolist()


def held_out(lm: LM, rows: int = 4, context: int = 64) -> Tensor:
    """A few held-out rows of the generated text, made in a moment."""
    return texts(lm, "mixed", 20_000, min(context, lm.config.context), 0)[1][:rows]


def _reading_seconds(model, learning: bool) -> float:
    """Seconds a token and layer take to be read through the unembedding, with gradients if learning, timed now."""
    stream = torch.randn(1, 16, model.cfg.d_model, dtype=model.dtype, device=model.device)
    best = math.inf
    for _ in range(2):  # the first pays for set-up
        started = time.perf_counter()
        with torch.set_grad_enabled(learning):
            x = stream.clone().requires_grad_(learning)
            value = at_least_fp32(model.unembed(x)).log_softmax(-1).square().mean()
            if learning:
                torch.autograd.grad(value, x)
        best = min(best, time.perf_counter() - started)
    return best / 16


def judging_seconds(model, tokens: int) -> float:
    """How long `judged` takes for both lenses."""
    return 2 * _reading_seconds(model, False) * tokens * (model.cfg.n_layers + 1)


def training_seconds(model, spec: LensSpec) -> float:
    """How long a training takes, its evaluations left out."""
    return _reading_seconds(model, True) * spec.steps * spec.batch * spec.context * (model.cfg.n_layers + 1)


def work(given: dict[str, Any], ctx: Context) -> None:
    """Run of kind "tuned_lens". Rows of metrics: `loss` (mean over layers, nats) and, at evaluations, `kl_<row>` of
    the lens and `logit_<row>` of the logit lens on held-out text, with their means `held` and `logit_lens`."""
    spec = LensSpec.from_dict(given)
    lm = load(spec.model, dtype=torch.float32)
    model = lm.model
    ctx.note(f"making the text {spec.data!r}")
    mixture, held = texts(lm, spec.data, spec.generated_tokens, spec.context, spec.seed)
    held = held[: spec.eval_rows]
    lens = TunedLens(model.cfg.n_layers, model.cfg.d_model, spec.rank, spec.seed).to(model.device)
    optimiser = torch.optim.Adam(lens.parameters(), lr=spec.lr, betas=(0.9, 0.98))
    done = 0
    if (checkpoint := ctx.latest()) is not None:
        done = _resume(lens, optimiser, load_file(checkpoint.path / STATE))
        ctx.note(f"resumed at step {done}")
    plain = judged(model, held)

    def save(step: int) -> None:
        with ctx.checkpoint(step) as directory:
            lens.save(directory, model=spec.model, data=spec.data, step=step)
            save_file(_state(lens, optimiser, step), directory / STATE)

    def evaluate(step: int) -> None:
        kl = judged(model, held, lens)
        row = {f"kl_{i}": v for i, v in enumerate(kl)} | {f"logit_{i}": v for i, v in enumerate(plain)}
        ctx.log(step, held=sum(kl) / len(kl), logit_lens=sum(plain) / len(plain), **row)

    if done == 0:
        evaluate(0)
    while done < spec.steps:
        if ctx.cancelled:
            save(done)
            return
        for group in optimiser.param_groups:  # falls to nothing along a cosine: the last steps average the noise away
            group["lr"] = spec.lr * 0.5 * (1 + math.cos(math.pi * done / spec.steps))
        loss = _step(model, lens, mixture.batch(done, spec.batch))
        optimiser.step()
        done += 1
        ctx.log(done, loss=loss)
        if done % spec.eval_every == 0 or done == spec.steps:
            evaluate(done)
        if done % spec.save_every == 0 or done == spec.steps:
            save(done)


def _step(model, lens: TunedLens, rows: Tensor) -> float:
    """Gradients of the lens's parameters, a layer at a time, and the mean loss."""
    params = list(lens.parameters())
    for p in params:
        p.grad = torch.zeros_like(p)
    total, count = 0.0, 0
    for kl in divergences(model, rows, lens):
        for p, grad in zip(params, torch.autograd.grad(kl, params)):  # the model's weights get none: others share them
            p.grad += grad  # type: ignore[operator]
        total, count = total + kl.item(), count + 1
    return total / count


def _state(lens: TunedLens, optimiser: torch.optim.Optimizer, step: int) -> dict[str, Tensor]:
    out = {"step": torch.tensor(step)}
    for name, p in lens.named_parameters():
        out[f"lens.{name}"] = p.detach().cpu().contiguous()
        for key, value in optimiser.state.get(p, {}).items():
            out[f"optimiser.{name}.{key}"] = value.detach().cpu().contiguous()
    return out


def _resume(lens: TunedLens, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> int:
    lens.load_state_dict({k.removeprefix("lens."): v for k, v in tensors.items() if k.startswith("lens.")})
    for name, p in lens.named_parameters():
        at = f"optimiser.{name}."
        optimiser.state[p] = {
            k.removeprefix(at): v if k.endswith(".step") else v.to(p.device) for k, v in tensors.items() if k.startswith(at)
        }
    return int(tensors["step"])
