"""An attention-only model of two layers that grows an induction head (Elhage et al. 2021; Olsson et al. 2022).

What it reads is made up: segments of random words that come again, so the second time round every next word can be
copied; and a few words that are always followed by their partner, which the embedding alone can say. What it must
learn is known: a head of the first layer that looks at the previous word, a head of the second that finds where the
present word stood before and copies what came next, by keys that the first head wrote (K-composition).

    python -m interp.truth.induction --out DIR      # trains the bundled model again, about a minute
"""

from __future__ import annotations

import argparse
import json
import string
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from interp.heads import weights
from interp.truth.packed import pack, read, unpack
from interp.truth.words import write_tokenizer
from lab import jsonl, paths
from lab.errors import LabError
from lab.models import Decoder, ModelConfig, io
from lab.train import state

if TYPE_CHECKING:
    from lab.runs.context import Context

HOME = paths.MODELS / "induction"
PAIRS = 8
#: Words that are always followed by their partner, the partners, words that stand free, the start of a text.
LEADERS = [f"{c}1" for c in string.ascii_uppercase[:PAIRS]]
PARTNERS = [f"{c}2" for c in string.ascii_uppercase[:PAIRS]]
FREE = [*string.ascii_lowercase, *string.digits[:6]]
WORDS = [*LEADERS, *PARTNERS, *FREE, "<s>"]
BOS = len(WORDS) - 1
#: Checkpoints that are bundled beside the last one: before, while and after the head forms.
SHIPPED = (200, 400, 800)


@dataclass(frozen=True)
class InductionSpec:
    """One training; segments are `shortest` to `longest` words long and repeated until `length` words are full."""

    d_model: int = 64
    n_heads: int = 4
    length: int = 48
    shortest: int = 8
    longest: int = 24
    batch: int = 32
    lr: float = 5e-3
    weight_decay: float = 0.1
    steps: int = 2400
    seed: int = 2
    log_every: int = 20
    save_every: int = 100

    def __post_init__(self) -> None:
        if not 2 <= self.shortest <= self.longest < self.length:
            raise LabError(
                f"Segments of {self.shortest} to {self.longest} words do not come twice in {self.length}; make the text longer or them shorter."
            )
        if self.d_model % self.n_heads:
            raise LabError(f"{self.d_model} dimensions cannot be shared by {self.n_heads} heads evenly; choose a divisor.")
        if min(self.steps, self.batch, self.log_every, self.save_every) < 1:
            raise LabError("Steps, batch, and how often to log and to save, must be at least 1.")

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> InductionSpec:
        if unknown := given.keys() - cls.__dataclass_fields__.keys():
            raise LabError(f"An induction run has no setting {min(unknown)!r}.")
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def config(self) -> ModelConfig:
        return ModelConfig(
            vocab_size=len(WORDS), d_model=self.d_model, n_layers=2, n_heads=self.n_heads, n_kv_heads=self.n_heads,
            d_head=self.d_model // self.n_heads, d_mlp=0, context=self.length, tied=False, norm="none",
            positions="learned", act="none",
        )  # fmt: skip


# ---- what it reads


def segments(rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Random words [rows, length] without repetition on purpose; after a leader comes its partner."""
    drawn = torch.tensor([*range(PAIRS), *range(2 * PAIRS, BOS)])  # partners come only by their leaders
    words = drawn[torch.randint(len(drawn), (rows, length), generator=generator)]
    for at in range(1, length):
        before = words[:, at - 1]
        words[:, at] = torch.where(before < PAIRS, before + PAIRS, words[:, at])
    return words


def repeated(rows: int, length: int, generator: torch.Generator) -> Tensor:
    """`<s>` and a segment of words that are all different, twice over: [rows, 1 + 2 * length]."""
    drawn = torch.tensor([*range(PAIRS), *range(2 * PAIRS, BOS)])
    once = torch.empty(rows, length, dtype=torch.long)
    for row in once:
        order = drawn[torch.randperm(len(drawn), generator=generator)].tolist()
        words = [w for word in order for w in ((word, word + PAIRS) if word < PAIRS else (word,))]
        row.copy_(torch.tensor(words[:length]))
    return torch.cat([torch.full((rows, 1), BOS), once, once], 1)


def batch(spec: InductionSpec, step: int) -> Tensor:
    """The texts of one step [batch, length + 1], each a segment of a length of its own repeated to the end."""
    generator = torch.Generator().manual_seed(spec.seed * 1_000_003 + step + 1)
    size = torch.randint(spec.shortest, spec.longest + 1, (spec.batch, 1), generator=generator)
    words = segments(spec.batch, spec.longest, generator)
    again = words.gather(1, torch.arange(spec.length)[None] % size)
    return torch.cat([torch.full((spec.batch, 1), BOS), again], 1)


# ---- what it has learned


@torch.no_grad()
def patterns(model: Decoder, tokens: Tensor) -> Tensor:
    """Attention of every head, [layer, batch, head, query, key]."""
    kept = model.run_with_cache(tokens, lambda n: n.endswith("hook_pattern"))[1]
    return torch.stack([kept[f"blocks.{i}.attn.hook_pattern"] for i in range(model.cfg.n_layers)])


def scores(pattern: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Previous-token and induction score of every head [layer, head] on `repeated` texts.

    The mean weight on the word before, and, in the second copy, on the word after the present one's first showing.
    """
    previous = pattern.diagonal(-1, -2, -1)[..., 1:].mean((1, 3))
    induction = pattern.diagonal(1 - length, -2, -1)[..., 2:].mean((1, 3))
    return previous, induction


def composition(model: Decoder) -> Tensor:
    """K-composition of every first-layer head with every second-layer head, [first, second], less what unrelated
    matrices have (Elhage et al. 2021)."""
    return weights.composition(model, "k")[1, :, 0].T - weights.chance(model)


def losses(logits: Tensor, tokens: Tensor, length: int) -> dict[str, float]:
    """Loss in nats a word of free words in the first and in the second copy, and of partners, from logits [b, pos, word]."""
    nats = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(tokens), -1)
    partner = (tokens[:, 1:] >= PAIRS) & (tokens[:, 1:] < 2 * PAIRS) & (tokens[:, :-1] < PAIRS)
    first = torch.zeros_like(partner)
    first[:, :length] = True
    late = torch.zeros_like(partner)
    late[:, length + 1 :] = True  # the word that opens the second copy cannot be foreseen
    parts = {"first_loss": first & ~partner, "second_loss": late & ~partner, "partner_loss": first & partner}
    return {name: float(nats[part].mean()) for name, part in parts.items()}


@torch.no_grad()
def ablated(model: Decoder, tokens: Tensor, heads: Sequence[tuple[int, int]]) -> Tensor:
    """Logits when the given heads, (layer, head), write nothing."""

    def silent(which: list[int]) -> Callable[[Tensor, str], Tensor]:
        def hook(z: Tensor, name: str) -> Tensor:
            z = z.clone()
            z[:, :, which] = 0
            return z

        return hook

    layers = {layer for layer, _ in heads}
    hooks = {f"blocks.{i}.attn.hook_z": silent([h for layer, h in heads if layer == i]) for i in layers}
    return model(tokens, hooks=hooks)


def probe(rows: int = 32, length: int = 16) -> Tensor:
    """The texts that models are judged by, the same every time."""
    return repeated(rows, length, torch.Generator().manual_seed(20))


def evaluate(model: Decoder, length: int = 16) -> dict[str, float]:
    """The heads' best scores, their composition, and the losses, on `probe`."""
    tokens = probe(length=length).to(model.device)
    previous, induction = scores(patterns(model, tokens), length)
    with torch.no_grad():
        row = losses(model(tokens), tokens, length)
        both = composition(model)[previous[0].argmax(), induction[1].argmax()]
    return {**row, "previous": float(previous[0].max()), "induction": float(induction[1].max()), "composition": float(both)}


def by_position(logits: Tensor, tokens: Tensor) -> Tensor:
    """Loss of every word after the first, mean over texts, nats: [pos - 1]."""
    flat = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return flat.view(len(tokens), -1).mean(0)


# ---- the bundled model


def bundled(step: int) -> Decoder:
    """The bundled model after that many steps, in float32; `SHIPPED` and the last are kept."""
    spec = InductionSpec()
    if step == spec.steps:
        return io.read(HOME, torch.float32)
    if step not in SHIPPED:
        raise LabError(f"The weights of step {step} were not kept; there are {', '.join(map(str, (*SHIPPED, spec.steps)))}.")
    return unpack(spec.config(), read(HOME / "steps.safetensors"), SHIPPED.index(step))


def curves() -> list[dict[str, Any]]:
    """What was measured while the bundled model was trained, a row every twentieth step."""
    return jsonl.read(HOME / "metrics.jsonl")


# ---- training


def train(
    spec: InductionSpec,
    model: Decoder,
    optimiser: torch.optim.Optimizer,
    done: int,
    each: Callable[[int], bool],
) -> None:
    """Updates `done` + 1 to the last; `each(step)` is told after every one and stops the training by True.

    The learning rate rises over 50 steps and falls to zero over the last quarter.
    """
    for step in range(done, spec.steps):
        rate = min(1.0, (step + 1) / 50, 4 * (spec.steps - step) / spec.steps)
        for group in optimiser.param_groups:
            group["lr"] = spec.lr * rate
        tokens = batch(spec, step).to(model.device)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if each(step + 1):
            return


def start(spec: InductionSpec, device: torch.device | str = "cpu") -> tuple[Decoder, torch.optim.Optimizer]:
    """Random weights, normal of 1 / sqrt(d_model), and AdamW."""
    model = Decoder(spec.config())
    generator = torch.Generator().manual_seed(spec.seed)
    for p in model.parameters():
        nn.init.normal_(p, std=spec.d_model**-0.5, generator=generator)
    model = model.to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=spec.lr, weight_decay=spec.weight_decay, betas=(0.9, 0.98))


def seconds(spec: InductionSpec) -> float:
    """How long this training takes here, from a few updates made now."""
    model, optimiser = start(spec, "cuda" if torch.cuda.is_available() else "cpu")
    began, times = time.perf_counter(), []

    def each(step: int) -> bool:
        times.append(time.perf_counter() - began)
        return step == 6

    train(spec, model, optimiser, 0, each)
    began = time.perf_counter()
    evaluate(model)
    return spec.steps * ((times[-1] - times[1]) / 4 + (time.perf_counter() - began) / spec.log_every)


def work(given: dict[str, Any], ctx: Context) -> None:
    """Run of kind "induction": train, log, save; resumes from its newest checkpoint and stops when cancelled."""
    spec = InductionSpec.from_dict(given)
    model, optimiser = start(spec, "cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = write_tokenizer(ctx.path / "tokenizer", WORDS)
    done = 0
    if (checkpoint := ctx.latest()) is not None:
        done, _ = state.load(checkpoint.path, model, optimiser)
        ctx.note(f"resumed at step {done}")

    def save(step: int) -> None:
        with ctx.checkpoint(step) as directory:
            state.save(directory, model, tokenizer, optimiser, step, step * spec.batch * spec.length)

    def each(step: int) -> bool:
        last = step == spec.steps
        if last or step % spec.log_every == 0:
            ctx.log(step, **evaluate(model))
        if last or step % spec.save_every == 0 or ctx.cancelled:
            save(step)
        return ctx.cancelled

    if done == 0:
        ctx.log(0, **evaluate(model))
        save(0)
    train(spec, model, optimiser, done, each)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m interp.truth.induction")
    parser.add_argument("--out", type=Path, required=True, help="a folder that does not exist yet")
    parser.add_argument("--seed", type=int, default=InductionSpec.seed)
    args = parser.parse_args(argv)
    spec = InductionSpec(seed=args.seed)
    model, optimiser = start(spec)
    rows, kept = [{"step": 0, **evaluate(model)}], []

    def each(step: int) -> bool:
        if step % spec.log_every == 0:
            rows.append({"step": step, **evaluate(model)})
        if step in SHIPPED:
            kept.append({name: p.detach().clone() for name, p in model.state_dict().items()})
        if step % 200 == 0:
            print(json.dumps(rows[-1]), flush=True)
        return False

    train(spec, model, optimiser, 0, each)
    io.save(model, None, args.out, dtype=torch.bfloat16)
    write_tokenizer(args.out, WORDS)
    save_file(pack(kept), args.out / "steps.safetensors")
    lines = [json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()}) for row in rows]
    (args.out / "metrics.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
