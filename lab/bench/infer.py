"""Records of inference: decoding against the bandwidth ceiling, prefill against the arithmetic one."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab import records
from lab.bench import bench

if TYPE_CHECKING:
    import torch

    from lab.infer.measure import Measured
    from lab.models import Decoder, ModelConfig
    from lab.profiling.hardware import Ceiling

CPU_MODELS = {"pocket": "pocket", "smollm2": "smollm2-135m"}
CONTEXT = 128  # tokens in the cache while decoding on a CPU, and of a prefill


def shapes() -> "dict[str, ModelConfig]":
    """Shapes whose weights may be random where only time counts (SmolLM2's from their model cards)."""
    from lab.models import ModelConfig

    return {
        "smollm2": ModelConfig(49_152, 576, 30, 9, 3, 64, 1536, context=8192, rope_theta=1e5),
        "smollm2_1.7b": ModelConfig(49_152, 2048, 24, 32, 32, 64, 8192, context=8192, rope_theta=1.3e5),
    }


@bench("infer")
def on_this_cpu() -> None:
    """Decode and prefill of the two models on the CPU, beside a copy and a matrix product measured around them."""
    from lab import models
    from lab.infer.measure import best_ceiling, time_step
    from lab.profiling import hardware

    speed, share_moved, share_computed, details = {}, {}, {}, {}
    for case, name in CPU_MODELS.items():
        model = models.load(name, device="cpu").model
        before = hardware.measure("cpu", hardware.machine().cpu)
        decode = time_step(model, 1, CONTEXT, goes=60)
        prefill = time_step(model, CONTEXT, goes=15)
        ceiling = best_ceiling(before)
        speed[case] = decode.tokens_per_s
        share_moved[case] = decode.bytes_per_s / ceiling.bandwidth
        share_computed[case] = prefill.flops_per_s / ceiling.flops_per_s(model.dtype)
        details[case] = _detail(decode, prefill, ceiling, model.dtype)
    records.write_cases("infer.decode.tokens_per_s", speed, "token/s", better="higher", details=details)
    records.write_cases(
        "infer.decode.bandwidth_fraction",
        share_moved,
        "of measured copy",
        better="higher",
        compared="bytes/s of a copy too big for caches, measured in the same minute",
        details=details,
        note="weights that fit a cache (pocket, 22 MB) may pass the ceiling of memory",
    )
    records.write_cases(
        "infer.prefill.flops_fraction",
        share_computed,
        "of measured matrix product",
        better="higher",
        compared="FLOP/s of a square matrix product in the same dtype, measured in the same minute",
        details=details,
    )


@bench("infer")
def against_transformers() -> None:
    """Our forward over transformers' on SmolLM2, 32 prompts of 10 tokens, goes alternating."""
    import torch
    from transformers import AutoModelForCausalLM

    from lab import models

    lm = models.load("smollm2-135m", device="cpu")
    theirs = AutoModelForCausalLM.from_pretrained(lm.path, dtype=lm.model.dtype).eval()
    tokens = torch.randint(lm.config.vocab_size, (32, 10))
    sides: dict[str, Callable[[torch.Tensor], object]] = {
        "ours": lm.model,
        "theirs": lambda t: theirs(t, use_cache=False),
    }
    times: dict[str, list[float]] = {side: [] for side in sides}
    work = dict.fromkeys(sides, 0.0)
    with torch.inference_mode():
        error = (lm.model(tokens).float() - theirs(tokens, use_cache=False).logits.float()).abs().max()
        for go in range(16):
            for side in sorted(sides, reverse=bool(go % 2)):  # each goes first as often as the other
                began, worked = time.perf_counter(), time.process_time()
                sides[side](tokens)
                times[side].append(time.perf_counter() - began)
                work[side] += time.process_time() - worked
    records.write(
        "models.forward_vs_transformers",
        work["ours"] / work["theirs"],
        "ratio",
        bar=1.0,
        compared="transformers, the same weights, dtype and tokens, no cache",
        note="processor time of 16 alternating goes: what other programs take does not count; wall times in the detail",
        detail={
            "ours_s": times["ours"],
            "theirs_s": times["theirs"],
            "fastest_wall_ratio": min(times["ours"]) / min(times["theirs"]),
            "dtype": str(lm.model.dtype).removeprefix("torch."),
            "largest_logit_difference": float(error),
        },
    )


@bench("infer", gpu=True)
def on_a_gpu() -> None:
    """Decode (CUDA graph) and prefill on the GPU, after the logits have been checked against float64."""
    import torch

    from lab.infer.measure import time_step
    from lab.profiling import hardware

    ceiling = hardware.ceiling("cuda")
    moved, computed, speed, details = {}, {}, {}, {}
    for case, model in _gpu_models():
        error = _logit_error(model)
        context = min(1024, model.cfg.context // 2)
        points = {
            f"decode, batch {batch}": time_step(model, 1, context, batch, goes=30, graph=True)
            for batch in (1, 8, 64)
        }
        points["decode, batch 1, no graph"] = time_step(model, 1, context, 1, goes=15)
        points |= {
            f"prefill, {batch} x {context}": time_step(model, context, 0, batch, goes=10) for batch in (1, 16)
        }
        decode, prefill = points["decode, batch 1"], points[f"prefill, 16 x {context}"]
        moved[case] = decode.bytes_per_s / ceiling.bandwidth
        speed[case] = decode.tokens_per_s
        computed[case] = prefill.flops_per_s / 1e12
        details[case] = {
            "points": {name: _point(m) for name, m in points.items()},
            "ceiling": {
                "name": ceiling.name,
                "flops_per_s": ceiling.flops_per_s(model.dtype),
                "bytes_per_s": ceiling.bandwidth,
            },
            "logit_error": error,
            "dtype": str(model.dtype).removeprefix("torch."),
            "context": context,
        }
        del model
        torch.cuda.empty_cache()
    note = "random weights in the model's shape, except pocket; CUDA graph of one step; logits checked against float64"
    records.write_cases(
        "infer.gpu.decode.bandwidth_fraction", moved, "of data-sheet bandwidth", better="higher",
        compared=ceiling.source, details=details, note=note,
    )  # fmt: skip
    records.write_cases(
        "infer.gpu.decode.tokens_per_s", speed, "token/s", better="higher", details=details, note=note
    )
    records.write_cases(
        "infer.gpu.prefill.tflops", computed, "TFLOP/s", better="higher", compared=ceiling.source, details=details, note=note
    )  # fmt: skip


def _gpu_models():
    """(case, model in bfloat16 on the GPU), one at a time."""
    import torch

    from lab import models, paths
    from lab.models import Decoder

    if (paths.MODELS / "pocket" / "config.json").exists():
        yield "pocket", models.load("pocket", dtype=torch.bfloat16, device="cuda").model
    for case, cfg in shapes().items():
        with torch.device("cuda"):
            model = Decoder(cfg).init_weights(0).to(torch.bfloat16).eval()
        yield case, model


def _logit_error(model: "Decoder") -> dict[str, float]:
    """Largest logit difference against float64 on the same GPU, relative to the largest logit: in bfloat16, in
    float32, and of cached against whole reading in float32. Raises when float32 is not exact to 1e-4."""
    import copy

    import torch

    from lab.infer import decode_one, prefill
    from lab.models import KVCache

    tokens = torch.randint(model.cfg.vocab_size, (2, 24), device="cuda")
    with torch.inference_mode():
        exact = copy.deepcopy(model).double()(tokens)
        single = copy.deepcopy(model).float()
        cache = KVCache(model.cfg, 2, 24, torch.float32, "cuda")
        prefill(single, tokens[:, :-1], cache)
        found = {
            "bfloat16": model(tokens),
            "float32": single(tokens),
            "float32_cached": torch.cat(
                [exact[:, :-1].float(), decode_one(single, tokens[:, -1], cache)[:, None]], 1
            ),
        }
        errors = {
            name: float((x.double() - exact).abs().max() / exact.abs().max()) for name, x in found.items()
        }
    if errors["float32"] > 1e-4 or errors["float32_cached"] > 1e-4 or errors["bfloat16"] > 0.1:
        raise RuntimeError(f"the GPU's logits are wrong: {errors}")
    return errors


def _detail(decode: "Measured", prefill: "Measured", ceiling: "Ceiling", dtype: "torch.dtype") -> dict:
    return {
        "points": {"decode": _point(decode), "prefill": _point(prefill)},
        "ceiling": {
            "name": ceiling.name,
            "flops_per_s": ceiling.flops_per_s(dtype),
            "bytes_per_s": ceiling.bandwidth,
        },
        "dtype": str(dtype).removeprefix("torch."),
    }


def _point(m: "Measured") -> dict[str, float]:
    return {
        "batch": m.batch, "new": m.new, "past": m.past, "seconds": m.seconds, "bytes": m.cost.bytes,
        "flops": m.cost.flops, "intensity": m.cost.intensity, "flops_per_s": m.flops_per_s, "bytes_per_s": m.bytes_per_s,
    }  # fmt: skip
