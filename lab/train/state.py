"""Training state on disk: optimiser moments, random generators and the step, in `train.safetensors`.

The data position is the step itself (see lab.data.mixture), so these are all that an exact resume needs besides
the float32 weights in `model.safetensors`."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from lab.errors import LabError
from lab.models import Decoder, Tokenizer, io

FILE = "train.safetensors"


def save(directory: Path, model: Decoder, tokenizer: Tokenizer, optimiser: torch.optim.Optimizer, step: int,
         tokens: int) -> None:  # fmt: skip
    """Write a checkpoint that loads as a model and resumes as a run."""
    io.write(model, tokenizer, directory)
    tensors = {"step": torch.tensor(step), "tokens": torch.tensor(tokens), "rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["rng.cuda"] = torch.cuda.get_rng_state()
    for name, p in model.named_parameters():
        for key, value in optimiser.state.get(p, {}).items():
            tensors[f"optimiser.{name}.{key}"] = value.detach().cpu().contiguous()
    save_file(tensors, directory / FILE)


def load(directory: Path, model: Decoder, optimiser: torch.optim.Optimizer) -> tuple[int, int]:
    """Put a checkpoint back; returns the steps done and the tokens seen. LabError when it does not fit."""
    try:
        weights = load_file(directory / "model.safetensors")
        tensors = load_file(directory / FILE)
    except (OSError, SafetensorError) as error:
        raise LabError(f"The checkpoint {directory} cannot be resumed ({error}): choose an earlier one.") from None
    _fill(model, weights, directory)
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng.cuda"])
    for name, p in model.named_parameters():
        keys = [k for k in tensors if k.startswith(f"optimiser.{name}.")]
        optimiser.state[p] = {
            k.rsplit(".", 1)[1]: tensors[k] if k.endswith(".step") and not p.is_cuda else tensors[k].to(p.device)
            for k in keys
        }
    return int(tensors["step"]), int(tensors["tokens"])


def _fill(model: nn.Module, weights: dict[str, torch.Tensor], directory: Path) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name not in weights or weights[name].shape != p.shape:
                raise LabError(f"The checkpoint {directory} has another shape than this run: start a new run.")
            p.copy_(weights[name])
