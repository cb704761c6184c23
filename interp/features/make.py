"""The bundled dictionaries of pocket, made again: `python -m interp.features.make`. Wants a GPU.

On pocket's own mixture of text: the autoencoder of a middle layer, two of other kinds beside it, one transcoder a layer,
and a sweep that shows what sparsity costs (`data/models/features/*.json`). Dictionaries of a stage learn side by side
from the same activations. Steps are set from the speed measured first, so that the stages fit the minutes given; a GPU
waits for Python most of the time, so stages may as well run at once, each in a process.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from interp.features import store
from interp.features.activations import Pool
from interp.features.metrics import Meter, Quality
from interp.features.spec import FeatureSpec
from interp.features.train import held_rows, mixture
from interp.features.trainer import Trainer
from lab import models
from lab.data.mixture import Mixture
from lab.data.packed import Stream
from lab.models import LM

LAYER = 3
BASE = FeatureSpec(
    layer=LAYER, data="pocket", generated_tokens=8_000_000, context=256, pool=512, batch=16_384, lr=1e-3, warmup=200,
    dead_after=4_000_000, width=0.005,
)  # fmt: skip
SWEEP = (
    *(BASE.changed(kind="topk", d_dict=d, k=k) for d in (512, 2048) for k in (4, 8, 16, 32, 64)),
    *(BASE.changed(kind=kind, d_dict=2048, k=k) for kind in ("jumprelu", "gated") for k in (8, 16, 32, 64)),
    *(BASE.changed(kind="topk", d_dict=2048, k=32, lr=lr) for lr in (3e-4, 3e-3)),
)
LONG = BASE.changed(d_dict=2048, k=32)
TRANSCODERS = tuple(BASE.changed(target="transcoder", layer=i, d_dict=512, k=32) for i in range(8))
#: stage -> its specs, positions each dictionary is to see, and its share of the time
STAGES: dict[str, tuple[Sequence[FeatureSpec], int, float]] = {
    "gated": ((LONG.changed(kind="gated"),), 100_000_000, 0.12),
    "others": (tuple(LONG.changed(kind=kind) for kind in ("topk", "jumprelu")), 100_000_000, 0.2),
    "transcoders-low": (TRANSCODERS[:4], 100_000_000, 0.2),
    "transcoders-high": (TRANSCODERS[4:], 100_000_000, 0.2),
    "sweep": (SWEEP, 40_000_000, 0.28),
}
BUNDLED = ("gated", "transcoders-low", "transcoders-high")  # the stages whose dictionaries are kept
TIMED = 24  # steps that measure the speed
CHECKED = 1024  # windows of held-out text a dictionary is measured on


def learn(
    lm: LM, text: tuple[Mixture, dict[str, Stream]], specs: Sequence[FeatureSpec], positions: int, seconds: float, windows: int
) -> list[tuple[Trainer, Quality]]:
    """Train dictionaries together on `positions` activations, fewer where the time does not suffice, and measure them."""
    mixed, held = text
    names = [name for spec in specs for name in spec.sites]
    pool = Pool(lm.model, mixed, names, specs[0].pool, specs[0].batch)
    scales = pool.scales()

    def trainers(steps: int) -> list[Trainer]:
        return [Trainer(s.changed(steps=steps), scales[s.sites[0]], scales[s.sites[1]]) for s in specs]

    def run(some: list[Trainer], steps: int) -> None:
        for step in range(steps):
            batch = pool.batch(step)
            for one in some:
                found = one.step(batch[one.spec.sites[0]], batch[one.spec.sites[1]])
            if steps > TIMED and step % (steps // 8) == 0:
                print(f"step {step}/{steps} error {float(found['error']):.4f} l0 {float(found['l0']):.1f} "
                      f"dead {float(found['dead']):.3f}", flush=True)  # fmt: skip
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    throwaway = trainers(10_000)
    run(throwaway, 3)
    started = time.perf_counter()
    run(throwaway, TIMED)
    each = (time.perf_counter() - started) / TIMED
    # what the timed steps did not pay for: filling the pool
    pool.batch(pool.steps_each)
    started = time.perf_counter()
    pool.batch(0)
    each += (time.perf_counter() - started) / pool.steps_each
    steps = max(BASE.warmup, min(positions // specs[0].batch, int(seconds / each)))
    print(f"{len(specs)} dictionaries, {each * 1e3:.1f} ms a step, {steps} steps, {steps * specs[0].batch / 1e6:.0f} M positions", flush=True)
    made = trainers(steps)
    run(made, steps)
    return [(one, measured(lm, one, held, windows)) for one in made]


def measured(lm: LM, trainer: Trainer, held: dict[str, Stream], windows: int) -> Quality:
    """Quality on held-out text mixed as pocket's training text."""
    meter = Meter(lm.model, trainer.folded(), trainer.written.mean)
    for rows in held_rows(held, trainer.spec, lm.model, windows):
        meter.add(rows)
    return meter.quality()


def told(trainer: Trainer, q: Quality) -> dict[str, Any]:
    """One point of the sweep, or the notes of a bundled dictionary."""
    spec = trainer.spec
    found = {"loss_recovered": q.recovered, "loss_recovered_from_mean": q.recovered_from_mean, **asdict(q)}
    return {
        "kind": spec.kind, "target": spec.target, "layer": spec.layer, "d_dict": spec.d_dict, "k": spec.k, "lr": spec.lr,
        "activations": trainer.done * spec.batch, **{key: round(value, 5) for key, value in found.items()},
    }  # fmt: skip


def named(spec: FeatureSpec) -> str:
    """The folder of a bundled dictionary."""
    if spec.target == "transcoder":
        return f"{spec.model}-transcoder-{spec.layer}"
    return f"{spec.model}-{spec.kind}"


def make(out: Path, stages: Sequence[str], minutes: float, share: float, format: str) -> None:
    """Train the stages and write what they made under `out`; `share` shrinks text, batches and pools, to try the command."""
    torch.set_float32_matmul_precision("high")
    lm = models.load("pocket", dtype=torch.bfloat16)
    small = {"batch": max(256, int(BASE.batch * share)), "pool": max(16, int(BASE.pool * share))}
    text = mixture(BASE, lm)
    out.mkdir(parents=True, exist_ok=True)
    for stage in stages:
        specs, positions, part = STAGES[stage]
        started = time.perf_counter()
        specs = [spec.changed(**small) for spec in specs]
        made = learn(lm, text, specs, int(positions * share), minutes * 60 * part, max(16, int(CHECKED * share)))
        rows = [told(trainer, q) for trainer, q in made]
        for row in rows:
            print(json.dumps(row), flush=True)
        (out / f"{stage}.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
        if stage in BUNDLED:
            for (trainer, _), row in zip(made, rows):
                store.save(trainer.folded(), out / named(trainer.spec), format, row | {"spec": trainer.spec.to_dict()})
        print(f"{stage}: {time.perf_counter() - started:.0f} s", flush=True)


def main(argv: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m interp.features.make", description="Make the bundled dictionaries again.")
    parser.add_argument("stage", nargs="*", default=list(STAGES), help=f"of {', '.join(STAGES)} (default: all)")
    parser.add_argument("--out", type=Path, default=store.BUNDLED)
    parser.add_argument("--minutes", type=float, default=6.0, help="training time of all stages together")
    parser.add_argument("--share", type=float, default=1.0, help="of the activations, to try the command")
    parser.add_argument("--format", default="int8", choices=store.FORMATS)
    args = parser.parse_args(argv)
    make(args.out, args.stage, args.minutes, args.share, args.format)


if __name__ == "__main__":
    main()
