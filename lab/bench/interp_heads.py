"""How much room direct logit attribution needs, against making what every head and neuron writes; how much closer to the
model than the logit lens the bundled tuned lens is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab import models, records
from lab.bench import bench
from lab.models import Decoder, ModelConfig

POSITIONS = 4
GPT2_SMALL = ModelConfig(
    vocab_size=50_257, d_model=768, n_layers=12, n_heads=12, n_kv_heads=12, d_head=64, d_mlp=3072, context=1024,
    norm="layer", positions="learned", act="gelu", bias=True,
)  # fmt: skip


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes; views of tensors that were there before do not count."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.old = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.bytes = 0
        self.shape: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self.old and x.nbytes > self.bytes:
                self.bytes, self.shape = x.nbytes, tuple(x.shape)
        return out


def naive(model: Decoder, tokens: Tensor, answers: Tensor, wrongs: Tensor) -> tuple[Tensor, Tensor]:
    """Heads [n, pos, layer, head] and neurons [n, pos, layer, neuron] by the definition: what each writes, stacked over
    the layers as TransformerLens's `stack_head_results` and `stack_neuron_results` do, normed by the frozen scale,
    times the difference of the unembeddings."""
    cfg = model.cfg
    with torch.no_grad():
        _, acts = model.run_with_cache(
            tokens, lambda n: n.endswith(("mlp.hook_post", "attn.hook_z")) or n == "ln_final.hook_scale"
        )
        scale = acts["ln_final.hook_scale"]
        towards = (model.W_U[:, answers] - model.W_U[:, wrongs]).permute(1, 2, 0) * model.norm_gain("ln_final")

        def said(writes: list[Tensor]) -> Tensor:  # [layer, n, pos, one, d_model]
            stack = torch.stack(writes)
            normed = (stack - stack.mean(-1, keepdim=True)) / scale[..., None]
            return torch.einsum("lnpod,npd->nplo", normed, towards)

        heads, neurons = [], []
        for layer in range(cfg.n_layers):
            z = acts.pop(f"blocks.{layer}.attn.hook_z")
            heads.append(torch.einsum("bphe,hed->bphd", z, model.head_weights(layer).W_O))
            neurons.append(acts.pop(f"blocks.{layer}.mlp.hook_post")[..., None] * model.mlp_weights(layer).W_out)
        return said(heads), said(neurons)


def largest(model: Decoder, work: Callable[[], Any]) -> tuple[Any, Largest]:
    """What the work gives, and the largest tensor it made on the way."""
    with Largest(model) as mode:
        out = work()
    return out, mode


@bench("interp_heads")
def dla_room() -> None:
    """Every head and neuron at every position of a short text, at the size of GPT-2 small, random weights."""
    from interp.lenses.direct import direct

    model = Decoder(GPT2_SMALL).init_weights(0).eval()
    tokens, answers, wrongs = torch.randint(50_257, (3, 1, POSITIONS), generator=torch.Generator().manual_seed(0))
    ours, small = largest(model, lambda: direct(model, tokens, answers, wrongs, range(POSITIONS)))
    (heads, neurons), large = largest(model, lambda: naive(model, tokens, answers, wrongs))
    off = max(float((ours.heads - heads).abs().max()), float((ours.neurons - neurons).abs().max()))
    size = float(neurons.abs().max())
    assert off < 1e-4 * max(size, 1.0), f"the two ways differ by {off} where values reach {size}"
    records.write(
        "interp.dla.max_tensor_ratio", large.bytes / small.bytes, "x", bar=100, better="higher",
        note=f"largest tensor made, naive over ours: heads and neurons at {POSITIONS} positions, GPT-2 small's size",
        detail={"naive_bytes": large.bytes, "naive_shape": large.shape, "ours_bytes": small.bytes,
                "ours_shape": small.shape, "largest_difference": off},
    )  # fmt: skip


@bench("interp_heads")
def lens_distance() -> None:
    """KL from the model's own answer on held-out generated text, tuned lens over logit lens, in the worst layer."""
    from interp.lenses import train, tuned

    lm = models.load("pocket", dtype=torch.float32)
    held = train.held_out(lm, rows=16)
    lens = tuned.load("bundled:pocket", lm.model)
    plain, better = train.judged(lm.model, held), train.judged(lm.model, held, lens)
    records.write(
        "interp.lens.tuned_over_logit", max(b / p for b, p in zip(better, plain)), "x", bar=0.6,
        note=f"worst of {len(plain)} layers, {held.numel():,} held-out tokens, rank {lens.rank}",
        detail={"tuned_nats": better, "logit_nats": plain},
    )  # fmt: skip
