"""The bundled models, made again: corpora, token streams, training, model cards.

`python -m lab pocket` does everything in order; each stage can be asked for alone. Training wants a GPU: steps
are set from the speed measured first, so that all stages fit the minutes given. `pocket` has two stages: the second
starts from the weights of the first. Specs and curves that made the shipped weights are in `data/specs`."""

import argparse
import json
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from lab import jsonl, paths, records
from lab.data import corpora, presets
from lab.errors import LabError
from lab.models import Tokenizer, io
from lab.profiling import hardware
from lab.runs import checkpoints
from lab.runs.context import Context
from lab.train import loop
from lab.train.optim import adamw
from lab.train.spec import TrainSpec

#: stage -> the model it makes, its share of the time
STAGES = {"pocket-draft": ("pocket-draft", 0.08), "pocket": ("pocket", 0.48), "pocket-2": ("pocket", 0.44)}
SPECS = paths.DATA / "specs"
MEASURED = 40  # steps timed to learn the speed


def spec(name: str) -> TrainSpec:
    """The spec in the repository."""
    path = SPECS / f"{name}.json"
    if not path.exists():
        raise LabError(f"There is no spec of {name}: restore {path}.")
    return TrainSpec.from_dict(json.loads(path.read_text()))


def _stream(domain: str, held: bool, tokens: int, seed: int) -> int:
    tokenizer = Tokenizer(paths.MODELS / "pocket")
    assert tokenizer.eos is not None
    return len(presets.stream("pocket", domain, held, tokenizer.inner, tokenizer.eos, tokens, seed))


def streams(of: TrainSpec) -> None:
    """Make every stream of a spec, domains side by side; what is cached already is only read."""
    sizes = presets.sizes(of.data, of.generated_tokens)
    with ProcessPoolExecutor(len(sizes)) as pool:
        jobs = {d: pool.submit(_stream, d, False, n, of.seed) for d, n in sizes.items()}
        for domain, job in jobs.items():
            print(f"{domain}: {job.result():,} tokens", flush=True)


def step_seconds(of: TrainSpec) -> float:
    """Seconds of one training step on this machine, on random tokens."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer(paths.MODELS / "pocket")
    model = loop.build(of, tokenizer, device)
    optimiser = adamw(model, of)
    step_loss = loop.compiled(of, device)
    started = 0.0
    for i in range(MEASURED + 10):
        if i == 10:  # compiled and warm
            if device.type == "cuda":
                torch.cuda.synchronize()
            started = time.perf_counter()
        rows = torch.randint(tokenizer.vocab_size, (of.batch, of.context + 1), device=device)
        with loop.autocast(device):
            loss = step_loss(model, rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), of.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / MEASURED


def fitted(of: TrainSpec, seconds: float) -> TrainSpec:
    """The spec with as many steps as fit into the time."""
    each = step_seconds(of)
    steps = max(int(seconds / each), of.warmup + 1)
    print(f"{each * 1e3:.1f} ms a step, {of.batch * of.context / each:,.0f} tokens/s: {steps} steps", flush=True)
    return of.changed(steps=steps)


def install(stage: str, of: TrainSpec, run: Path) -> None:
    """Copy a finished stage into the repository: bf16 weights, spec and curve."""
    newest = checkpoints.listed(run / "checkpoints")[-1]
    if newest.step != of.steps:
        raise LabError(f"{stage} stopped at step {newest.step} of {of.steps}: run the command again to go on.")
    model = io.read(newest.path, device="cpu")
    io.write(model, Tokenizer(paths.MODELS / "pocket"), paths.MODELS / STAGES[stage][0], torch.bfloat16)
    (SPECS / f"{stage}.json").write_text(json.dumps(of.to_dict(), indent=1) + "\n")
    shutil.copyfile(run / "metrics.jsonl", SPECS / f"{stage}.metrics.jsonl")
    record(stage, jsonl.read(run / "metrics.jsonl"))


def record(stage: str, rows: list[jsonl.Row]) -> None:
    """How fast a stage trained, the median of its curve, and the held-out losses it ended with."""
    final = {key: value for row in rows for key, value in row.items() if key.startswith("val_")}
    detail = {"tokens": max(row.get("tokens", 0) for row in rows), "final": final}
    peak = hardware.ceiling("cuda" if torch.cuda.is_available() else "cpu")
    of_peak = f"share of {peak.flops_per_s('bfloat16') / 1e12:.4g} TFLOP/s bf16"
    for key, unit in (("mfu", of_peak), ("tokens_per_s", "tokens/s")):
        values = sorted(row[key] for row in rows if key in row)
        records.write(
            f"train.{key}.{stage.replace('-', '_')}", values[len(values) // 2], unit, better="higher", detail=detail,
            command="python -m lab pocket train", note=f"median of data/specs/{stage}.metrics.jsonl",
        )  # fmt: skip


def make(minutes: float) -> None:
    """Train every stage within the minutes given and install it; an interrupted stage goes on when called again."""
    if not torch.cuda.is_available():
        raise LabError("The bundled models need a GPU to be trained in minutes: run this where torch sees one.")
    for stage, (_, share) in STAGES.items():
        run = paths.cache() / "runs" / stage
        kept = run / "spec.json"
        if (run / "installed").exists():
            continue
        if kept.exists():
            of = TrainSpec.from_dict(json.loads(kept.read_text()))
        else:
            of = fitted(spec(stage), minutes * 60 * share)
            run.mkdir(parents=True)
            kept.write_text(json.dumps(of.to_dict()))
        streams(of)
        print(f"{stage}: {of.tokens() / 1e6:,.0f} M tokens", flush=True)
        ctx = Context(run)
        loop.work(of.to_dict(), ctx)
        ctx.close()
        install(stage, of, run)
        (run / "installed").touch()
    shutil.rmtree(paths.cache() / "runs")


def main(argv: list[str]) -> int:
    """`python -m lab pocket`."""
    parser = argparse.ArgumentParser(prog="python -m lab pocket", description="Make the bundled models again.")
    parser.add_argument("stage", nargs="?", default="all", choices=("all", "corpora", "train", "cards"))
    parser.add_argument("--minutes", type=float, default=14.0, help="training time of all stages together")
    args = parser.parse_args(argv)
    if args.stage in ("all", "corpora") and not corpora.built():
        corpora.build(lambda line: print(line, flush=True))
    if args.stage in ("all", "train"):
        make(args.minutes)
    if args.stage in ("all", "cards"):
        from lab.bench import pocket as scores
        from lab.train import card

        command = records.command_now.set("python -m lab bench pocket pocket_perplexity")
        scores.facts_names_sums()
        scores.perplexity()
        records.command_now.reset(command)
        for name in scores.MODELS.values():
            card.write(name)
    return 0
