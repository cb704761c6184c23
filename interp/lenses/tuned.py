"""The tuned lens: before a layer is read as if it were the last, a learned affine map takes it into the last layer's
terms (Belrose et al. 2023). Row 0 is the embedding, row i the stream after block i - 1; the last row is the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lab import paths, runs
from lab.errors import LabError

BUNDLED = paths.DATA / "lenses"


class TunedLens(nn.Module):
    """One translator a row: x + x A + b, A being of `rank` (x B C) or, with None, a whole matrix.

    A new one changes nothing: it is the logit lens.
    """

    def __init__(self, rows: int, d_model: int, rank: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.rank = rank
        generator = torch.Generator().manual_seed(seed)
        if rank is not None:
            self.into = nn.Parameter(torch.randn(rows, d_model, rank, generator=generator) * d_model**-0.5)
        self.out = nn.Parameter(torch.zeros(rows, rank or d_model, d_model))
        self.bias = nn.Parameter(torch.zeros(rows, d_model))

    @property
    def rows(self) -> int:
        """Rows that are translated: the last layer needs none."""
        return len(self.bias)

    def forward(self, stream: Tensor, row: int) -> Tensor:
        """`stream` [.., d_model] of a row in the terms of the last layer."""
        if row >= self.rows:
            return stream
        x = stream.to(self.bias.dtype)
        moved = (x if self.rank is None else x @ self.into[row]) @ self.out[row]
        return (x + moved + self.bias[row]).to(stream.dtype)

    def save(self, directory: Path, **about: Any) -> None:
        """Write `lens.safetensors` (bf16) and `lens.json`, which holds `about` too."""
        weights = {name: p.detach().to(torch.bfloat16).cpu().contiguous() for name, p in self.named_parameters()}
        save_file(weights, directory / "lens.safetensors")
        shape = {"rows": self.rows, "d_model": self.bias.shape[1], "rank": self.rank}
        (directory / "lens.json").write_text(json.dumps(shape | about, indent=1) + "\n")


def read(directory: Path, model) -> TunedLens:
    """The lens in a directory, on the model's device; LabError when it is damaged or belongs to another model."""
    try:
        about = json.loads((directory / "lens.json").read_text())
        weights = load_file(directory / "lens.safetensors")
        lens = TunedLens(about["rows"], about["d_model"], about["rank"])
        lens.load_state_dict({name: w.float() for name, w in weights.items()})
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise LabError(f"The tuned lens in {directory} cannot be read ({error}); train it again.") from None
    if (lens.rows, about["d_model"]) != (model.cfg.n_layers, model.cfg.d_model):
        raise LabError(
            f"The tuned lens in {directory} is of {lens.rows} layers x {about['d_model']}, this model of "
            f"{model.cfg.n_layers} x {model.cfg.d_model}; choose the lens trained on it."
        )
    return lens.to(model.device).requires_grad_(False)


def load(name: str, model) -> TunedLens:
    """By the name `found` gives: "bundled:<model>", "run:<id>" (its newest checkpoint) or "run:<id>@<step>"."""
    kind, _, rest = name.partition(":")
    if kind == "bundled":
        return read(BUNDLED / rest, model)
    if kind != "run":
        raise LabError(f"There is no tuned lens {name!r}; lenses are called bundled:<model> or run:<id>.")
    run_id, _, step = rest.partition("@")
    checkpoints = runs.get(run_id).checkpoints()
    chosen = [c for c in checkpoints if step in ("", str(c.step))]
    if not chosen:
        steps = ", ".join(str(c.step) for c in checkpoints) or "none yet"
        raise LabError(f"Run {run_id} has no such checkpoint of its lens; it has {steps}.")
    return read(chosen[-1].path, model)


def found(lm) -> dict[str, str]:
    """Lenses for this model by what to call them: the bundled one, then runs, newest first."""
    out = {}
    if (BUNDLED / lm.name / "lens.json").exists():
        out["bundled"] = f"bundled:{lm.name}"
    for run in of(lm.name):
        if checkpoints := run.checkpoints():
            out[f"{run.id}, step {checkpoints[-1].step}"] = f"run:{run.id}"
    return out


def of(model: str) -> list[runs.Run]:
    """Runs that train a lens for the model of this name, newest first."""
    mine = []
    for run in runs.listed():
        try:
            if run.kind == "tuned_lens" and run.spec.get("model") == model:
                mine.append(run)
        except LabError:
            continue  # damaged: `python -m lab runs` says how
    return mine
