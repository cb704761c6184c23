"""Runs of kind "sae": a dictionary trained on a model's activations.

Metrics a row: error (about the share of the variance missed, in training), mse (mean squared error a dimension, raw units), l0,
dead, sparsity, lr, activations, activations_per_s; at evaluations, on held-out text: val_loss_recovered, val_explained,
val_l0, val_dead, val_loss (nats a token, with the dictionary in place)."""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.features import store
from interp.features.activations import Pool, Scale
from interp.features.metrics import Quality, quality
from interp.features.spec import FeatureSpec
from interp.features.trainer import Trainer
from lab import models
from lab.data import presets
from lab.data.mixture import Mixture
from lab.data.packed import Stream
from lab.errors import LabError

if TYPE_CHECKING:
    from lab.runs.context import Context

STATE = "train.safetensors"
ROWS = 16  # windows of held-out text run at a time


def mixture(spec: FeatureSpec, lm: models.LM) -> tuple[Mixture, dict[str, Stream]]:
    """The text a dictionary is trained on, in the model's tokens, and its held-out part by domain."""
    if spec.context > lm.config.context:
        raise LabError(f"{lm.name} reads {lm.config.context} tokens: choose a context no longer than that.")
    mark = lm.tokenizer.eos if lm.tokenizer.eos is not None else lm.tokenizer.bos
    if mark is None:
        raise LabError(f"{lm.name} has no token that ends a text: choose another model.")
    train, held = presets.streams(spec.data, lm.tokenizer.inner, mark, spec.generated_tokens, spec.seed)
    return Mixture(train, presets.weights(spec.data), spec.context, spec.seed, lm.model.device), held


def held_rows(held: dict[str, Stream], spec: FeatureSpec, model, count: int) -> Iterator[Tensor]:
    """`count` windows `[.., context + 1]` of held-out text, mixed as the training text is."""
    mixed = Mixture(held, presets.weights(spec.data), spec.context, spec.seed + 1, model.device)
    for step in range(math.ceil(count / ROWS)):
        yield mixed.batch(step, min(ROWS, count - step * ROWS))


def evaluate(trainer: Trainer, model, held: dict[str, Stream]) -> Quality:
    """Quality on held-out text."""
    spec = trainer.spec
    return quality(model, trainer.folded(), held_rows(held, spec, model, spec.eval_windows), trainer.written.mean)


def save(trainer: Trainer, scales: dict[str, Scale], directory: Path, found: Quality | None = None) -> None:
    """A checkpoint that loads as a dictionary and resumes as a run; `found` is what was last measured of it."""
    notes = {"spec": trainer.spec.to_dict(), "step": trainer.done}
    if found is not None:
        notes |= {"loss_recovered": found.recovered, **asdict(found)}
    store.save(trainer.folded(), directory, "float32", notes)
    tensors = trainer.state()
    for name, scale in scales.items():
        tensors |= {f"scale.{name}.mean": scale.mean.cpu(), f"scale.{name}.size": torch.tensor(scale.size, dtype=torch.float64)}
    save_file(tensors, directory / STATE)


def resume(directory: Path, spec: FeatureSpec, device: torch.device) -> tuple[Trainer, dict[str, Scale]]:
    """What `save` wrote; LabError when it is damaged or of another shape."""
    try:
        tensors = load_file(directory / STATE)
        scales = {
            name: Scale(tensors[f"scale.{name}.mean"].to(device), float(tensors[f"scale.{name}.size"])) for name in spec.sites
        }
    except (OSError, KeyError, SafetensorError) as error:
        raise LabError(f"The checkpoint {directory} cannot be resumed ({error}): choose an earlier one.") from None
    trainer = Trainer(spec, scales[spec.sites[0]], scales[spec.sites[1]])
    trainer.restore(tensors)
    return trainer, scales


def work(given: dict[str, Any], ctx: "Context") -> None:
    """Train as the spec says, resuming from the run's newest checkpoint; stops within a step when cancelled."""
    spec = FeatureSpec.from_dict(given)
    lm = models.load(spec.model)
    if spec.layer >= lm.config.n_layers or spec.layer < 0:
        raise LabError(f"Layer {spec.layer} does not exist: {lm.name} has layers 0 to {lm.config.n_layers - 1}.")
    device = lm.model.device
    ctx.note(f"building the text {spec.data!r}")
    mixed, held = mixture(spec, lm)
    pool = Pool(lm.model, mixed, spec.sites, spec.pool, spec.batch)
    if (checkpoint := ctx.latest()) is not None:
        trainer, scales = resume(checkpoint.path, spec, device)
        ctx.note(f"resumed at step {trainer.done}")
    else:
        scales = pool.scales()
        trainer = Trainer(spec, scales[spec.sites[0]], scales[spec.sites[1]])
    unit = trainer.written.size**2 / len(trainer.written.mean)  # of the error, as a mean over dimensions

    q: Quality | None = None

    def keep() -> None:
        with ctx.checkpoint(trainer.done) as directory:
            save(trainer, scales, directory, q)

    started, timed = time.perf_counter(), 0
    while trainer.done < spec.steps:
        if ctx.cancelled:
            keep()
            ctx.note(f"cancelled at step {trainer.done}")
            return
        batch = pool.batch(trainer.done)
        found = trainer.step(batch[spec.sites[0]], batch[spec.sites[1]])
        timed += 1
        step, last = trainer.done, trainer.done == spec.steps
        if last or step % spec.log_every == 0:
            error = float(found["error"])
            now = time.perf_counter()
            ctx.log(step, error=error, mse=error * unit, l0=float(found["l0"]), dead=float(found["dead"]), sparsity=trainer.sparsity,
                    lr=spec.rate(step - 1), activations=step * spec.batch,
                    activations_per_s=timed * spec.batch / (now - started))  # fmt: skip
            if not math.isfinite(error):
                raise LabError(f"The error became {error} at step {step}: lower the learning rate.")
            started, timed = now, 0
        if last or step % spec.eval_every == 0:
            q = evaluate(trainer, lm.model, held)
            ctx.log(step, val_loss_recovered=q.recovered, val_explained=q.explained, val_l0=q.l0, val_dead=q.dead,
                    val_loss=q.spliced)  # fmt: skip
        if last or step % spec.save_every == 0:
            keep()
        if last or step % spec.eval_every == 0 or step % spec.save_every == 0:
            started, timed = time.perf_counter(), 0
