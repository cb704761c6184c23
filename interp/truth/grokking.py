"""The bundled training of modular addition: its curves at every tenth epoch, its weights at a few.

    python -m interp.truth.grokking --out DIR            # trains it again, one to two minutes on a GPU
    python -m interp.truth.grokking --pack DIR           # writes data/models/grokking from what that left

Weights travel as eight-bit integers with one scale a row (`epochs.safetensors`), those of the last epoch as bfloat16:
`lab.models.load("grokking")`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from interp.truth import fourier
from interp.truth.modular import ModularSpec, Training, initial, split, words
from interp.truth.packed import pack, read, unpack
from interp.truth.words import write_tokenizer
from lab import paths
from lab.errors import LabError
from lab.models import Decoder, io

HOME = paths.MODELS / "grokking"
SCALARS = (
    "train_loss", "test_loss", "train_right", "test_right", "restricted_loss", "excluded_loss", "weight_norm",
    "gini_embedding", "gini_logit_map",
)  # fmt: skip
SPECTRA = ("embedding", "logit_map")
SPECTRA_EVERY = 5  # frames
#: Kept between the first epoch and the last: memorised, the circuit forms, the memory is cleaned away, understood.
SHIPPED = (500, 1000, 4000, 6000, 7000, 7500, 8500, 10_000)


@dataclass(frozen=True)
class Story:
    """A training and what was measured along it.

    `epochs` [frame]; `curves` name -> [frame] float64; `spectra` name -> norm at each frequency [frame / 5, k];
    `saved` are the epochs whose weights are there, of which the first is drawn anew and the last is the model itself.
    """

    directory: Path
    spec: ModularSpec
    keys: list[int]
    epochs: list[int]
    curves: dict[str, Tensor]
    spectra: dict[str, Tensor]
    saved: list[int]

    @cached_property
    def _weights(self) -> dict[str, Tensor]:
        return read(self.directory / "epochs.safetensors")

    def model(self, epoch: int) -> Decoder:
        """The model after that many updates, in float32."""
        if epoch not in self.saved:
            raise LabError(f"The weights of epoch {epoch} were not kept; there are {', '.join(map(str, self.saved))}.")
        if epoch == self.saved[0]:
            return initial(self.spec).requires_grad_(False).eval()
        if epoch == self.saved[-1]:
            return io.read(self.directory, torch.float32)
        return unpack(self.spec.config(), self._weights, self.saved.index(epoch) - 1)

    def at(self, name: str, epoch: int) -> float:
        """A curve's value at the frame nearest to an epoch."""
        frame = min(range(len(self.epochs)), key=lambda i: abs(self.epochs[i] - epoch))
        return float(self.curves[name][frame])

    @property
    def spectra_epochs(self) -> list[int]:
        return self.epochs[::SPECTRA_EVERY]


def story(directory: Path = HOME) -> Story:
    """The bundled training; LabError when its files are not there whole."""
    measured = read(directory / "metrics.safetensors")
    about = _about(directory)
    return Story(
        directory, ModularSpec.from_dict(about["spec"]), about["keys"], measured["epochs"].tolist(),
        {name: measured[name].double() for name in SCALARS}, {name: measured[name].double() for name in SPECTRA},
        about["saved"],
    )  # fmt: skip


def _about(directory: Path) -> dict[str, Any]:
    """How it was trained: the metadata of the metrics."""
    with safe_open(directory / "metrics.safetensors", "pt") as file:
        return json.loads(file.metadata()["training"])


# ---- making it


def train(spec: ModularSpec, device: torch.device, graph: bool = True) -> tuple[Decoder, list[int], Tensor]:
    """Train and keep the weights after every `log_every` updates: the model, the epochs, [frame, parameter]."""
    training = Training(spec, device, graph)
    frames = spec.steps // spec.log_every + 1
    kept = torch.empty(frames, sum(p.numel() for p in training.model.parameters()), device=device)
    epochs: list[int] = []
    for epoch in range(spec.steps + 1):
        if epoch:
            training.step()
        if epoch % spec.log_every == 0:
            flat = torch.cat([p.detach().flatten() for p in training.model.parameters()])
            kept[len(epochs)] = flat
            epochs.append(epoch)
        if epoch % (100 * spec.log_every) == 0:
            row = training.evaluate()
            print(f"epoch {epoch:6d}  train {row['train_loss']:.3e}  test {row['test_loss']:.3e}  right {row['test_right']:.3f}", flush=True)
    return training.model, epochs, kept


@torch.no_grad()
def fill(model: Decoder, flat: Tensor) -> Decoder:
    """Put the weights of one frame into the model."""
    at = 0
    for p in model.parameters():
        p.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()
    return model


def measure(spec: ModularSpec, model: Decoder, kept: Tensor) -> tuple[list[int], dict[str, Tensor]]:
    """The key frequencies of the last frame, and every progress measure of every frame by them."""
    train_part, test_part = (part.to(kept.device) for part in split(spec))
    keys = fourier.key_frequencies(fourier.all_logits(fill(model, kept[-1])))
    rows = []
    with torch.no_grad():
        for flat in kept:
            row = fourier.progress(fill(model, flat), train_part, test_part, keys)
            rows.append({name: value.float().cpu() for name, value in row.items()})
    out = {name: torch.stack([row[name] for row in rows]) for name in SCALARS}
    for name in SPECTRA:
        out[name] = torch.stack([row[name] for row in rows[::SPECTRA_EVERY]]).sqrt().half()
    return keys, out


def candidates(spec: ModularSpec) -> list[int]:
    """The epochs a training writes out, of which a few are chosen to be shipped."""
    early = [e for e in (200, 800) if e < spec.steps]
    return sorted({*early, *range(0, spec.steps + 1, max(spec.log_every, spec.steps // 60 // spec.log_every * spec.log_every))})


def grokked(epochs: Sequence[int], curves: dict[str, Tensor]) -> bool:
    """Whether it memorised by epoch 1,000 and understood by 25,000, as the paper's runs do."""
    e = torch.tensor(epochs)
    memorised = (e <= 1000) & (curves["train_loss"] < 1e-4) & (curves["test_loss"] > 20)
    return bool(memorised.any()) and bool(((e <= 25_000) & (curves["test_loss"] < 1e-3)).any())


def record(out: Path, spec: ModularSpec, graph: bool = True) -> bool:
    """Train once, measure, and write `seed-<n>/`; returns whether it grokked."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.perf_counter()
    model, epochs, kept = train(spec, device, graph)
    trained = time.perf_counter()
    keys, measured = measure(spec, model, kept)
    print(f"seed {spec.seed}: {trained - began:.1f} s to train, {time.perf_counter() - trained:.1f} s to measure, keys {keys}, "
          f"five frequencies hold {fourier.share_of_largest(measured['embedding'][-1].float().square()):.4f} of the embedding")  # fmt: skip
    saved = candidates(spec)
    directory = out / f"seed-{spec.seed}"
    directory.mkdir(parents=True)
    at = [epochs.index(e) for e in saved]
    save_file({**pack(fill(model, flat).state_dict() for flat in kept[at]), "last": kept[-1].cpu()}, directory / "epochs.safetensors")
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    about = {
        "spec": spec.to_dict(), "keys": keys, "saved": saved, "hardware": hardware, "torch": torch.__version__,
        "seconds": round(trained - began, 1),
    }  # fmt: skip
    _write_metrics(directory, {"epochs": torch.tensor(epochs), **measured}, about)
    return grokked(epochs, measured)


def ship(source: Path, epochs: Sequence[int] = SHIPPED, home: Path = HOME) -> None:
    """Choose the epochs that travel with the repository out of what `record` left."""
    about = _about(source)
    spec = ModularSpec.from_dict(about["spec"])
    at = [about["saved"].index(e) for e in epochs]
    if home.exists():
        raise LabError(f"{home} exists already; move it away first.")
    weights = read(source / "epochs.safetensors")
    io.save(fill(Decoder(spec.config()), weights.pop("last")), None, home, dtype=torch.bfloat16)
    write_tokenizer(home, words(spec.p))
    save_file({name: w[at].contiguous() for name, w in weights.items()}, home / "epochs.safetensors")
    _write_metrics(home, read(source / "metrics.safetensors"), {**about, "saved": [0, *epochs, spec.steps]})


def _write_metrics(directory: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    save_file(tensors, directory / "metrics.safetensors", metadata={"training": json.dumps(about)})


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m interp.truth.grokking", description=__doc__)
    parser.add_argument("--out", type=Path, help="train, and write here")
    parser.add_argument("--pack", type=Path, help="a seed-<n> folder that --out left: ship it")
    parser.add_argument("--epochs", type=int, nargs="*", default=SHIPPED, help="with --pack: the epochs that are kept")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="tried in this order until one groks")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--plain", action="store_true", help="launch the kernels of every update one by one")
    parser.add_argument("--p", type=int, default=113)
    args = parser.parse_args(argv)
    if args.pack:
        return ship(args.pack, args.epochs)
    if not args.out:
        parser.error("say --out or --pack")
    for seed in args.seeds:
        if record(args.out, ModularSpec(p=args.p, steps=args.steps, seed=seed), not args.plain):
            return None
    raise LabError("None of these seeds memorised by epoch 1,000 and understood by 25,000.")


if __name__ == "__main__":
    main(sys.argv[1:])
