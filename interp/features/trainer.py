"""One dictionary learning from batches of activations: loss, step, scale, what is dead."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from interp.features.activations import Scale
from interp.features.dictionary import Dictionary
from interp.features.loss import LOSSES
from interp.features.spec import FeatureSpec
from lab.errors import LabError

START = {"jumprelu": 1e-2, "gated": 5e-2}  # weight of the sparsity loss before it is steered
STEER = 0.004  # how fast: the weight changes by at most this share a step


class Trainer:
    """Trains on scaled activations and hands out the dictionary for raw ones.

    The number of active features of "jumprelu" and "gated" is brought to `spec.k` by steering the weight of their
    sparsity loss, so that kinds are compared at the same L0.
    """

    def __init__(self, spec: FeatureSpec, read: Scale, written: Scale) -> None:
        self.spec, self.read, self.written = spec, read, written
        device = read.mean.device
        self.dictionary = Dictionary(spec.shape(len(read.mean), len(written.mean))).init_weights(spec.seed).to(device)
        fused = device.type == "cuda"
        self.optimiser = torch.optim.Adam(self.dictionary.parameters(), lr=spec.lr, betas=(0.9, 0.999), fused=fused)
        self.sparsity = START.get(spec.kind, 0.0)
        self.quiet = torch.zeros(spec.d_dict, device=device)  # positions since each feature fired
        self.l0 = torch.zeros((), device=device)
        self._dead: Tensor | None = None
        self.done = 0

    def step(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """One optimiser step on raw activations `[batch, d_in]`, `[batch, d_out]`; returns error, l0 and dead."""
        spec, d = self.spec, self.dictionary
        for group in self.optimiser.param_groups:
            group["lr"] = spec.rate(self.done)
        x, y = self.read.apply(x), self.written.apply(y)
        terms = LOSSES[spec.kind](d, x, y, self.sparsity, spec.aux, self._dead)
        terms.total.backward()
        with torch.no_grad():
            self._keep_on_sphere()
            torch.nn.utils.clip_grad_norm_(d.parameters(), 1.0)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            d.normalise()
            fired = terms.acts > 0
            self.quiet = torch.where(fired.any(0), 0.0, self.quiet + len(x))
            now = fired.sum(1).float().mean()
            self.l0 = now if self.done == 0 else 0.9 * self.l0 + 0.1 * now
        self.done += 1
        if self.done % 10 == 0:  # these wait for the device
            self._steer()
            self._find_dead()
        return {"error": terms.error.detach(), "l0": now, "dead": (self.quiet > spec.dead_after).float().mean()}

    def _keep_on_sphere(self) -> None:
        """Take the part of the decoder's gradient away that would only change the length of its rows."""
        w = self.dictionary.W_dec
        assert w.grad is not None
        w.grad -= (w.grad * w).sum(1, keepdim=True) * w

    def _steer(self) -> None:
        if self.sparsity:
            off = max(-1.0, min(1.0, float(self.l0) / self.spec.k - 1))
            self.sparsity *= math.exp(10 * STEER * off)

    def _find_dead(self) -> None:
        dead = self.quiet > self.spec.dead_after
        self._dead = dead if self.spec.kind == "topk" and bool(dead.any()) else None

    def folded(self) -> Dictionary:
        """The dictionary for raw activations: mean and size of input and output are moved into its weights.

        With x' = (x - m) / s and y = y' t + u: acts t = activate(x W_enc t/s + (b_enc - m W_enc / s) t), decoded by the
        same unit rows.
        """
        d, (m, s), (u, t) = self.dictionary, (self.read.mean, self.read.size), (self.written.mean, self.written.size)
        out = Dictionary(d.shape).to(m.device).requires_grad_(False)
        with torch.no_grad():
            out.W_enc.copy_(d.W_enc * (t / s))
            out.b_enc.copy_((d.b_enc - m @ d.W_enc / s) * t)
            out.W_dec.copy_(d.W_dec)
            out.b_dec.copy_(d.b_dec * t + u)
            if d.kind == "jumprelu":
                out.log_threshold.copy_(d.log_threshold + math.log(t))
            if d.kind == "gated":  # exp(r) (pre - b_enc) + b_mag, where pre and b_enc have been moved by the mean
                out.r_mag.copy_(d.r_mag)
                out.b_mag.copy_((d.b_mag - d.r_mag.exp() * (m @ d.W_enc) / s) * t)
        return out

    # ---- what an exact resume needs

    def state(self) -> dict[str, Tensor]:
        names = dict(self.dictionary.named_parameters())
        tensors = {f"weight.{name}": p.detach().cpu().contiguous() for name, p in names.items()}
        for name, p in names.items():
            for key, value in self.optimiser.state.get(p, {}).items():
                tensors[f"optimiser.{name}.{key}"] = value.detach().cpu().contiguous()
        return tensors | {
            "quiet": self.quiet.cpu(), "l0": self.l0.cpu(), "sparsity": torch.tensor(self.sparsity, dtype=torch.float64),
            "done": torch.tensor(self.done),
            "dead": self._dead.cpu() if self._dead is not None else torch.zeros(self.spec.d_dict, dtype=torch.bool),
        }  # fmt: skip

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from `state`; LabError when it belongs to another shape."""
        device = self.quiet.device
        for name, p in self.dictionary.named_parameters():
            kept = tensors.get(f"weight.{name}")
            if kept is None or kept.shape != p.shape:
                raise LabError("The checkpoint has another shape than this run: start a new run.")
            with torch.no_grad():
                p.copy_(kept)
            prefix = f"optimiser.{name}."
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            self.optimiser.state[p] = {k: v if k == "step" and device.type == "cpu" else v.to(device) for k, v in state.items()}
        self.quiet, self.l0 = tensors["quiet"].to(device), tensors["l0"].to(device)
        self.sparsity, self.done = float(tensors["sparsity"]), int(tensors["done"])
        self._dead = tensors["dead"].to(device) if bool(tensors["dead"].any()) else None
