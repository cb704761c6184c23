"""How closely three implementations of one model agree, and our sweep beside the same sweep by nnsight."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lab import models, records
from lab.bench import bench
from lab.bench.interp import EIFFEL, TOKENS, timed, whole

RANDOM = {
    "llama": ("LlamaConfig", dict(num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen3": ("Qwen3Config", dict(num_key_value_heads=2, head_dim=16)),
    "gpt2": ("GPT2Config", dict(bos_token_id=0, eos_token_id=0)),
}
SHAPE: dict[str, Any] = dict(
    vocab_size=199, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=160, max_position_embeddings=64
)


@bench("interp")
def parity() -> None:
    """Every activation and patched logit of random Llama, Qwen3 and GPT-2 models and of SmolLM2, float32."""
    from interp.prompts import prepare

    cases: dict[str, float] = {}
    details: dict[str, Any] = {}
    for kind in RANDOM:
        with random_model(kind) as (path, pair):
            details[kind] = differences(path, pair)
            cases[kind] = max(found["max_abs"] for found in details[kind].values())
    lm = models.load("smollm2-135m", dtype=torch.float32)
    details["smollm2"] = differences(lm.name, prepare(lm, *EIFFEL, "Tokyo", "Paris"))
    cases["smollm2"] = max(max(found["logits"], found["relative"]) for found in details["smollm2"].values())
    records.write_cases(
        "interp.parity.max_abs", cases, "", bar=1e-4, details=details,
        note="our decoder, TransformerLens's bridge and nnsight, float32: every shared activation, and logits after patches of "
        "every site in three layers; of SmolLM2, whose streams reach 20,000, logits as they are and activations over the "
        "largest at their point",
    )  # fmt: skip


def differences(name: str, pair: Any) -> dict[str, dict[str, Any]]:
    """Of each backend from ours: the largest absolute and relative difference, and that of the logits."""
    from interp.backends import load
    from interp.backends import parity as compared

    tokens = torch.tensor([pair.clean_ids])
    ours = compared.see(load(name, "own", torch.float32).model, tokens, pair)
    found = {}
    for backend in ("bridge", "nnsight"):
        rows = compared.compare(ours, compared.see(load(name, backend, torch.float32).model, tokens, pair))
        worst = max(rows, key=lambda row: row.max_abs)
        found[backend] = {
            "max_abs": worst.max_abs, "at": worst.point, "relative": max(row.relative for row in rows),
            "logits": max(row.max_abs for row in rows if row.point == "logits" or row.kind == "patched logits"),
            "points": len(rows),
        }  # fmt: skip
    return found


@contextmanager
def random_model(kind: str) -> Iterator[tuple[str, Any]]:
    """A directory with a random model of a layout, and a pair of prompts of random tokens for it."""
    import transformers

    from interp.prompts import Pair, align

    name, more = RANDOM[kind]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**SHAPE | more)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    clean = torch.randint(1, SHAPE["vocab_size"], (TOKENS,)).tolist()
    corrupted = [clean[0], *torch.randint(1, SHAPE["vocab_size"], (2,)).tolist(), *clean[3:]]
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        _words(Path(directory))
        yield directory, Pair("", "", "", "", clean, corrupted, [], [], 5, 6, align(clean, corrupted))


def _words(directory: Path) -> None:
    import tokenizers

    words = {f"w{i}": i for i in range(SHAPE["vocab_size"])}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0")).save(str(directory / "tokenizer.json"))


@bench("interp")
def sweep_beside_nnsight() -> None:
    """SmolLM2, bf16, every layer x 10 tokens: ours over nnsight's, a layer's positions as invokes of one batched trace."""
    from interp.backends import nnsight_sweep
    from interp.prompts import prepare

    lm = models.load("smollm2-135m", dtype=torch.bfloat16)
    pair = prepare(lm, *EIFFEL, "Tokyo", "Paris")
    assert len(pair.clean_ids) == len(pair.corrupted_ids) == TOKENS
    before, _ = timed(lambda: whole(lm.model, pair), 3)
    ours = whole(lm.model, pair)
    model = nnsight_sweep.model(lm.path, torch.bfloat16)
    seconds, values = {}, {}
    for way in (nnsight_sweep.batched, nnsight_sweep.single):
        way(model, pair, layers=[0])  # the first trace of a line compiles it
        started = time.perf_counter()
        values[way.__name__] = way(model, pair, layers=range(lm.config.n_layers))
        seconds[way.__name__] = time.perf_counter() - started
    after, _ = timed(lambda: whole(lm.model, pair), 3)  # before and after: the machine may have changed
    mine = max(before, after)
    records.write(
        "interp.sweep_vs_nnsight", mine / seconds["batched"], "of nnsight's time", bar=0.4,
        compared=f"nnsight, {seconds['batched']:.1f} s in the same run",
        note="a layer's positions as invokes of one trace, clean streams kept from a trace before; both bf16, no gradients, same threads",
        detail={
            "ours_s": mine, "nnsight_batched_s": seconds["batched"], "nnsight_one_forward_a_cell_s": seconds["single"],
            "largest_difference_logits": max(float((ours.value - v).abs().max()) for v in values.values()),
        },
    )  # fmt: skip
