"""The optimiser (AdamW) and the course of its learning rate."""

import math

import torch
from torch import nn

from lab.train.spec import TrainSpec


def learning_rate(spec: TrainSpec, step: int) -> float:
    """Learning rate of a step (counted from 0): linear warm-up, then cosine, wsd (flat, then linear) or flat."""
    if step < spec.warmup:
        return spec.lr * (step + 1) / spec.warmup
    done = (step - spec.warmup) / max(1, spec.steps - 1 - spec.warmup)  # 0 after warm-up, 1 at the last step
    done = min(done, 1.0)
    if spec.schedule == "cosine":
        share = 0.5 * (1 + math.cos(math.pi * done))
    elif spec.schedule == "wsd" and spec.decay > 0:
        share = min(1.0, (1 - done) / spec.decay)
    else:
        return spec.lr
    return spec.lr * (spec.final_lr + (1 - spec.final_lr) * share)


def adamw(model: nn.Module, spec: TrainSpec) -> torch.optim.AdamW:
    """AdamW; matrices decay, norms do not. Fused on a GPU."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": spec.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = matrices[0].is_cuda
    return torch.optim.AdamW(groups, lr=spec.lr, betas=(spec.beta1, spec.beta2), fused=fused)
