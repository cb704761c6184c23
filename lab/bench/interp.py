"""How long patching takes: exact sweeps, the estimate of all sites, and the same sweep by TransformerLens."""

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from lab import models, records
from lab.bench import bench
from lab.data import facts
from lab.errors import LabError
from lab.models import LM

TOKENS = 10
EIFFEL = ("The great Tokyo Tower is located in the city of", "The Eiffel Tower is located in the city of")


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, list[float]]:
    """Median seconds of `repeats` runs after one that warms up, and all of them."""
    work()
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent), spent


def whole(model, pair, site: str = "resid_pre"):
    """A sweep run to its end."""
    from interp.sweep import sweep

    *_, result = sweep(model, pair, site)
    return result


def ten_tokens(lm: LM):
    """A pair of fact prompts that this model answers and that are TOKENS long each."""
    from interp.presets import Preset, known

    for phrasing in range(8):
        for relation in ("landmark", "capital", "language"):
            asked = facts.pairs(relation, phrasing, limit=100)
            candidates = [Preset("", a.text, b.text, a.answer, b.answer) for a, b in asked]
            for _, pair in known(lm, candidates):
                if len(pair.clean_ids) == len(pair.corrupted_ids) == TOKENS:
                    return pair
    raise LabError(f"{lm.name} answers no pair of fact prompts of {TOKENS} tokens; train it again.")


@bench("interp")
def sweeps() -> None:
    """Every layer and position of the bundled model and of SmolLM2, exactly."""
    cases, details = {}, {}
    for case, lm, pair in (("pocket", *_pocket()), ("smollm2", *_smollm2())):
        cases[case], runs = timed(lambda: whole(lm.model, pair), 5)  # noqa: B023 - used within its turn
        details[case] = {
            "runs": runs, "dtype": str(lm.model.dtype), "weights": lm.source,
            "clean": pair.clean, "corrupted": pair.corrupted,
        }  # fmt: skip
    records.write_cases(
        "interp.sweep_s", cases, "s", bar={"pocket": 0.3, "smollm2": 4.0}, details=details,
        note="median of 5, residual stream, every layer x 10 tokens",
    )  # fmt: skip


def _pocket():
    lm = models.load("pocket")
    return lm, ten_tokens(lm)


def _smollm2():
    from interp.prompts import prepare

    lm = models.load("smollm2-135m", dtype=torch.bfloat16)
    pair = prepare(lm, *EIFFEL, "Tokyo", "Paris")
    assert len(pair.clean_ids) == len(pair.corrupted_ids) == TOKENS
    return lm, pair


@bench("interp")
def smollm2() -> None:
    """SmolLM2: the estimate, and the sweep beside TransformerLens's own of the same cells."""
    from interp.attribution import agreement, attribute

    lm, pair = _smollm2()
    seconds, _ = timed(lambda: whole(lm.model, pair), 3)
    ours = whole(lm.model, pair)
    estimate_s, runs = timed(lambda: attribute(lm.model, pair), 3)
    estimate = attribute(lm.model, pair)
    compared = ("resid_pre", "attn_out", "mlp_out", "z")  # every site would take minutes
    agreed = {site: agreement(estimate[site], whole(lm.model, pair, site).share) for site in compared}
    records.write(
        "interp.attribution_s.smollm2", estimate_s, "s", bar=1.0,
        note=f"median of 3, bf16, every cell of {len(estimate)} sites",
        detail={"runs": runs, "correlation_with_exact": agreed, "weights": lm.source},
    )  # fmt: skip
    loop_s, batched_s, theirs = transformer_lens(lm, pair)
    seconds = max(seconds, timed(lambda: whole(lm.model, pair), 3)[0])  # before and after: the machine may have changed
    records.write(
        "interp.sweep_vs_transformerlens", seconds / loop_s, "of TransformerLens's time", bar=0.15,
        compared=f"TransformerLens, {loop_s:.1f} s in the same run",
        note="transformer_lens.patching.get_act_patch_resid_pre, 300 forwards of one row; both bf16, no gradients, same threads",
        detail={
            "ours_s": seconds, "transformerlens_s": loop_s, "largest_difference_logits": float((ours.value - theirs).abs().max()),
            "transformerlens_ten_rows_a_forward_s": batched_s, "ratio_to_ten_rows_a_forward": seconds / batched_s,
        },
    )  # fmt: skip


def transformer_lens(lm: LM, pair) -> tuple[float, float, torch.Tensor]:
    """Seconds of TransformerLens's sweep, of the same with a layer's positions as one batch, and its values."""
    from transformer_lens import patching
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(lm.path, dtype=torch.bfloat16, attn_implementation="eager")
    bridge = TransformerBridge.boot_transformers(str(lm.path), hf_model=copy.deepcopy(model), dtype=torch.bfloat16)
    clean, corrupted = (torch.tensor([ids]) for ids in (pair.clean_ids, pair.corrupted_ids))

    def metric(logits: torch.Tensor) -> torch.Tensor:
        last = logits[:, -1].float()
        return (last[:, pair.answer_id] - last[:, pair.wrong_id]).squeeze(0)

    def diagonal(activation: torch.Tensor, hook) -> torch.Tensor:
        rows = torch.arange(TOKENS)
        activation = activation.clone()
        activation[rows, rows] = cache[hook.name][0, rows]
        return activation

    with torch.no_grad():
        _, cache = bridge.run_with_cache(clean)
        metric(bridge(corrupted))
        started = time.perf_counter()
        values = patching.get_act_patch_resid_pre(bridge, corrupted, cache, metric)
        loop_s = time.perf_counter() - started
        batch = corrupted.expand(TOKENS, -1)
        started = time.perf_counter()
        for layer in range(lm.config.n_layers):
            metric(bridge.run_with_hooks(batch, fwd_hooks=[(f"blocks.{layer}.hook_resid_pre", diagonal)]))
        batched_s = time.perf_counter() - started
    return loop_s, batched_s, values
