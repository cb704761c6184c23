"""Checkpoints on disk: Hugging Face directories, safetensors only."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lab import paths
from lab.errors import LabError

from .config import ModelConfig
from .decoder import Decoder
from .tokenizer import Tokenizer


def read_config(directory: Path) -> ModelConfig:
    """The shape written in `config.json`."""
    file = directory / "config.json"
    if not file.exists():
        raise LabError(f"{directory} has no config.json; point at a Hugging Face model directory.")
    try:
        settings = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        raise LabError(f"{file} is not readable JSON; write the checkpoint again.") from None
    if not isinstance(settings, dict):
        raise LabError(f"{file} does not describe a model.")
    return ModelConfig.from_hf(settings)


def weight_files(directory: Path) -> list[Path]:
    """The safetensors of a checkpoint, one or several shards."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        try:
            names = sorted({Path(name).name for name in json.loads(index.read_text())["weight_map"].values()})
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise LabError(f"{index} is not a readable shard index; fetch the checkpoint again.") from None
        files = [directory / name for name in names]
    else:
        files = [directory / "model.safetensors"]
    for file in files:
        if not paths.there(file):
            pickled = any(directory.glob("*.bin")) or any(directory.glob("*.pt"))
            why = " (pickled weights are never opened: they can run code)" if pickled else ""
            raise LabError(f"{directory} has no {file.name}{why}; save the model as safetensors.")
    return files


def is_gpt2(weights: dict[str, torch.Tensor]) -> bool:
    return any(name.endswith("wte.weight") for name in weights)


def from_gpt2(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """GPT-2's tensors under our names: its linear layers are stored transposed, query, key and value in one."""
    names = {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.c_proj": "self_attn.o_proj",
             "mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"}  # fmt: skip
    whole = {"wte.weight": "model.embed_tokens.weight", "wpe.weight": "model.embed_positions.weight",
             "ln_f.weight": "model.norm.weight", "ln_f.bias": "model.norm.bias", "lm_head.weight": "lm_head.weight"}  # fmt: skip
    out: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        name = name.removeprefix("transformer.")
        if name in whole:
            out[whole[name]] = value
            continue
        _, layer, rest = name.split(".", 2)
        if rest in ("attn.bias", "attn.masked_bias"):  # the causal mask, which some files store
            continue
        part, kind = rest.rsplit(".", 1)
        value = value.T.contiguous() if kind == "weight" and value.dim() == 2 else value
        if part == "attn.c_attn":
            for which, piece in zip("qkv", value.chunk(3)):
                out[f"model.layers.{layer}.self_attn.{which}_proj.{kind}"] = piece.contiguous()
        else:
            out[f"model.layers.{layer}.{names.get(part, part)}.{kind}"] = value
    return out


def read(directory: Path, dtype: torch.dtype | None = None, device: str | torch.device = "cpu") -> Decoder:
    """A decoder from a Hugging Face directory, in `dtype` or as stored; raises LabError for anything damaged."""
    cfg = read_config(directory)
    weights: dict[str, torch.Tensor] = {}
    for file in weight_files(directory):
        try:
            with safe_open(file, "pt", device=str(device)) as f:
                weights |= {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - not a mapping
        except (SafetensorError, OSError) as e:
            raise LabError(f"{file.name} in {directory} is cut short or damaged ({e}); fetch or write it again.") from None
    weights = from_gpt2(weights) if is_gpt2(weights) else weights
    if dtype is not None:
        weights = {name: w.to(dtype) for name, w in weights.items()}
    if cfg.tied:
        weights["lm_head.weight"] = weights.get("model.embed_tokens.weight", torch.empty(0))
    if not any(name.startswith(f"model.layers.{cfg.n_layers - 1}.") for name in weights):  # before a million are made
        raise LabError(f"The checkpoint in {directory} lacks model.layers.{cfg.n_layers - 1}; it is incomplete or of another architecture.")
    with torch.device("meta"):
        model = Decoder(cfg)
    wanted = {name: p.shape for name, p in model.state_dict().items()}
    for name, shape in wanted.items():
        if name not in weights:
            raise LabError(f"The checkpoint in {directory} lacks {name}; it is incomplete or of another architecture.")
        if weights[name].shape != shape:
            raise LabError(
                f"{name} in {directory} is {list(weights[name].shape)} and config.json says {list(shape)}; they do not belong together."
            )
    # older llama checkpoints store the rotary frequencies, which follow from config.json
    more = [name for name in weights if name not in wanted and not name.endswith("rotary_emb.inv_freq")]
    if more:
        raise LabError(f"The checkpoint in {directory} holds {more[0]}, which this decoder has no place for; it would compute something else.")
    model.load_state_dict({name: weights[name] for name in wanted}, assign=True)
    if cfg.tied:
        model.lm_head.weight = model.model.embed_tokens.weight  # type: ignore[assignment,union-attr]
    return model.requires_grad_(False).eval()


def write(model: Decoder, tokenizer: Tokenizer | None, directory: Path, dtype: torch.dtype | None = None) -> None:
    """Write config, weights and tokenizer into `directory`, each flushed to disk."""
    directory.mkdir(parents=True, exist_ok=True)
    state = {name: p.detach().to("cpu", dtype or p.dtype).contiguous() for name, p in model.state_dict().items()}
    if model.cfg.tied:
        del state["lm_head.weight"]
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
    extra = {}
    if tokenizer is not None:
        tokenizer.save(directory)
        extra = {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}
    settings = model.cfg.to_hf(dtype or model.dtype, **extra)
    (directory / "config.json").write_text(json.dumps(settings, indent=2))
    for file in directory.iterdir():
        with file.open("rb") as f:
            os.fsync(f.fileno())


def save(model: Decoder, tokenizer: Tokenizer | None, directory: Path | str, dtype: torch.dtype | None = None) -> Path:
    """Write a checkpoint aside and rename it into place, so that it is there whole or not at all."""
    directory = Path(directory)
    if directory.exists():
        raise LabError(f"{directory} exists already; choose another name or delete it first.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = directory.parent / f".{directory.name}-{uuid.uuid4().hex[:8]}"
    try:
        write(model, tokenizer, aside, dtype)
        aside.rename(directory)
    except OSError as e:
        shutil.rmtree(aside, ignore_errors=True)
        raise LabError(f"The checkpoint could not be written to {directory}: {e.strerror or e}.") from None
    return directory
