"""The training loop: small runs in a notebook and the bundled models on a GPU are the same function.

Metrics a row: loss (nats a token), grad_norm (before clipping), lr, tokens_per_s, mfu, tokens; at evaluations also
val_<domain>, one share of right answers for each task whose domain is trained, and a text sample."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lab import paths
from lab.data import presets
from lab.data.mixture import Mixture
from lab.errors import LabError
from lab.models import Decoder, Tokenizer, load
from lab.profiling import hardware
from lab.train import probes, state
from lab.train.optim import adamw, learning_rate
from lab.train.spec import TrainSpec

if TYPE_CHECKING:
    from lab.runs.context import Context


def build(spec: TrainSpec, tokenizer: Tokenizer, device: torch.device) -> Decoder:
    """The model a run starts with, in float32: random weights, or a copy of a trained model's."""
    if spec.start is None:
        return Decoder(spec.config(tokenizer.vocab_size)).to(device).init_weights(spec.seed)
    source = load(spec.start, dtype=torch.float32, device=device)
    if source.tokenizer.inner.get_vocab() != tokenizer.inner.get_vocab():
        raise LabError(f"{spec.start} reads other tokens than the training sets are made of: start from pocket or a run.")
    model = Decoder(source.config).to(device)
    model.load_state_dict(source.model.state_dict())
    return model


def autocast(device: torch.device) -> AbstractContextManager:
    """bfloat16 matrix products on a GPU; float32 on a CPU."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def next_token_loss(model: Any, rows: Tensor) -> Tensor:
    """Mean cross-entropy (nats) of predicting `rows[:, 1:]` from `rows[:, :-1]`."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


def compiled(spec: TrainSpec, device: torch.device) -> Callable[[Any, Tensor], Tensor]:
    """The loss of one step: compiled on a GPU when the spec asks for it, with every shape fixed."""
    if not spec.compile or device.type != "cuda":
        return next_token_loss
    torch._dynamo.reset()  # a model compiled before must not make this one's shapes dynamic
    return torch.compile(next_token_loss, dynamic=False)


@contextmanager
def inference(model: Decoder, device: torch.device) -> Iterator[None]:
    """Evaluation: no dropout, the same precision as training."""
    model.eval()
    with torch.no_grad(), autocast(device):
        yield
    model.train()


def work(given: dict[str, Any], ctx: "Context") -> None:
    """Train as the spec says, resuming from the run's newest checkpoint; stops within a step when cancelled."""
    spec = TrainSpec.from_dict(given)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    peak = hardware.ceiling(device.type).flops_per_s(torch.bfloat16 if device.type == "cuda" else torch.float32)
    torch.manual_seed(spec.seed)  # after the ceiling, whose measurement draws random numbers
    tokenizer = Tokenizer(paths.MODELS / "pocket")
    if tokenizer.eos is None:
        raise LabError("The bundled tokenizer has no end-of-text token: restore data/models/pocket.")
    ctx.note(f"building the training set {spec.data!r}")
    train, held = presets.streams(spec.data, tokenizer.inner, tokenizer.eos, spec.generated_tokens, spec.seed)
    mixture = Mixture(train, spec.weights or presets.weights(spec.data), spec.context, spec.seed, device)

    model = build(spec, tokenizer, device)
    if spec.context > model.cfg.context:
        raise LabError(f"{spec.start} reads {model.cfg.context} tokens: choose a context no longer than that.")
    optimiser = adamw(model, spec)
    done, seen = 0, 0
    if (checkpoint := ctx.latest()) is not None:
        done, seen = state.load(checkpoint.path, model, optimiser)
        ctx.note(f"resumed at step {done}")
    step_loss = compiled(spec, device)

    per_step = spec.batch * spec.context
    flops = 3 * model.cfg.forward_flops(spec.context) * spec.batch
    # tasks that this mixture can teach; others would only cost time
    asked = {k: v for k, v in probes.questions(spec.eval_prompts).items() if k in mixture.names}
    model.train()

    def save(step: int) -> None:
        with ctx.checkpoint(step) as directory:
            state.save(directory, model, tokenizer, optimiser, step, seen)

    def evaluate(step: int) -> None:
        with inference(model, device):
            row = probes.evaluate(model, tokenizer, held, asked, spec.sample)
        ctx.log(step, **row)

    started, timed = time.perf_counter(), 0
    if done == 0:
        evaluate(0)
        started = time.perf_counter()
    while done < spec.steps:
        if ctx.cancelled:
            save(done)
            ctx.note(f"cancelled at step {done}")
            return
        rows = mixture.batch(done, spec.batch)
        rate = learning_rate(spec, done)
        for group in optimiser.param_groups:
            group["lr"] = rate
        with autocast(device):
            loss = step_loss(model, rows)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip or math.inf)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        done, seen, timed = done + 1, seen + per_step, timed + 1
        last = done == spec.steps
        saving = last or done % spec.save_every == 0
        if last or saving or done % spec.log_every == 0:  # what is saved has been looked at
            value = loss.item()  # waits for the device
            now = time.perf_counter()
            rate_now = timed / (now - started)
            ctx.log(done, loss=value, grad_norm=norm.item(), lr=rate, tokens=seen,
                    tokens_per_s=rate_now * per_step, mfu=rate_now * flops / peak)  # fmt: skip
            for what, number in (("loss", value), ("gradient norm", norm.item())):
                if not math.isfinite(number):  # the weights are lost with it
                    raise LabError(f"The {what} became {number} at step {done}: lower the learning rate or clip harder.")
            started, timed = now, 0
        if last or done % spec.eval_every == 0:
            evaluate(done)
        if saving:
            save(done)
        if saving or done % spec.eval_every == 0:
            started, timed = time.perf_counter(), 0  # evaluations do not count as training time
