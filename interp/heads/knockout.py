"""What is lost without a head: its output set to zero at every position, one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.metrics import at_least_fp32
from interp.sites import Hook
from lab.errors import LabError


@torch.no_grad()
def loss_without(model, ids: Tensor, answer: int, wrong: int) -> Tensor:
    """How much of the logit difference after a prompt [pos] goes with each head, [layer, head], in logits.

    Its total effect: later layers see that it is gone, and may make up for it. A layer's heads share one batch.
    """
    heads = model.cfg.n_heads
    rows = torch.arange(heads, device=ids.device)

    def difference(hooks: dict[str, Hook], count: int) -> Tensor:
        last = at_least_fp32(model(ids.expand(count, -1), hooks=hooks, last=True))[:, -1].double()
        return last[:, answer] - last[:, wrong]

    fired = []

    def cut(z: Tensor, name: str) -> Tensor:
        fired.append(name)
        out = z.clone()
        out[rows, :, rows] = 0
        return out

    names = [f"blocks.{i}.attn.hook_z" for i in range(model.cfg.n_layers)]
    whole = difference({}, 1)
    lost = torch.stack([whole - difference({name: cut}, heads) for name in names]).cpu()
    if fired != names:
        raise LabError("Not every head could be cut: some hook never fired, so there is no effect to report.")
    return lost
