"""What an intervention writes, and into which run: the other run's value, zero, a mean, another prompt's, noise.

Denoising writes clean values into the corrupted run and asks what is enough to bring the answer back; noising writes
corrupted values into the clean run and asks what it cannot do without (Heimersheim and Nanda 2024, "How to use and
interpret activation patching"). An ablation writes a value that holds nothing of the prompt. All of them become a pair
and a baseline as `sweep`, `attribute` and `run_patched` take them: `corrupted` is the run that is written into, `clean`
holds what is written, and the share is 0 for the run as it is and 1 for the other run.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.baseline import Baseline, baseline
from interp.metrics import Scale
from interp.prompts import Pair, align
from interp.sites import SITES, keep
from lab.errors import LabError

WRITES = {
    "copy": "the other run's value",
    "zero": "zero",
    "mean": "the mean over prompts",
    "resample": "a random other prompt's value",
    "gaussian": "its own value plus noise",
}
FEWEST = 2  # prompts a mean is taken over


@dataclass(frozen=True)
class Treatment:
    """`into` is the run that is changed, `write` a key of WRITES. `prompts` are those of a mean or a resample;
    `seed` draws the other prompt and the noise, whose standard deviation is `sigmas` times that of the activation
    over its features, position by position."""

    into: str = "corrupted"
    write: str = "copy"
    prompts: tuple[str, ...] = ()
    seed: int = 0
    sigmas: float = 1.0

    def __post_init__(self) -> None:
        if self.into not in ("corrupted", "clean"):
            raise LabError(f"A run is 'corrupted' or 'clean', not {self.into!r}.")
        if self.write not in WRITES:
            raise LabError(f"There is no intervention called {self.write!r}; choose one of {', '.join(WRITES)}.")
        if not self.sigmas > 0:
            raise LabError("The noise must have a standard deviation above zero.")

    @property
    def restores(self) -> bool:
        """Whether a large share is an answer that returns; otherwise it is one that is lost."""
        return self.into == "corrupted"


@dataclass(frozen=True)
class Treated(Baseline):
    """A baseline in the roles above, that remembers the two prompts as they were given."""

    given: Pair
    treatment: Treatment

    def scale(self, pair: Pair, metric: str) -> Scale:
        """The metric of the pair as given; 0 is the run that is changed, 1 the other."""
        logits = (self.clean_logits, self.corrupted_logits)
        if self.treatment.restores:
            return Scale.between(metric, self.given.answer_id, self.given.wrong_id, *logits)
        scale = Scale.between(metric, self.given.answer_id, self.given.wrong_id, *reversed(logits))
        return replace(scale, clean=scale.corrupted, corrupted=scale.clean)


@dataclass(frozen=True)
class Ablated(Pair):
    """The prompt that runs, paired with itself: what is written differs at every position."""

    def differs(self, position: int) -> bool:
        return True


def flipped(pair: Pair) -> Pair:
    """The same two prompts with their roles exchanged."""
    back = {s: p for p, s in enumerate(pair.alignment) if s is not None}
    return replace(
        pair, clean=pair.corrupted, corrupted=pair.clean, answer=pair.wrong, wrong=pair.answer,
        clean_ids=pair.corrupted_ids, corrupted_ids=pair.clean_ids, clean_pieces=pair.corrupted_pieces,
        corrupted_pieces=pair.clean_pieces, answer_id=pair.wrong_id, wrong_id=pair.answer_id,
        alignment=[back.get(p) for p in range(len(pair.clean_ids))],
    )  # fmt: skip


def treat(lm, pair: Pair, treatment: Treatment, sites: Sequence[str]) -> tuple[Pair, Treated]:
    """The pair and the baseline of this intervention at these sites; LabError where it has no meaning."""
    base = baseline(lm.model, pair, sites)
    runs = pair if treatment.restores else flipped(pair)
    clean, corrupted = (base.clean, base.corrupted) if treatment.restores else (base.corrupted, base.clean)
    if treatment.write != "copy":
        names = [SITES[s].name(i) for s in sites for i in range(lm.config.n_layers)]
        written, covered = _written(lm, runs, corrupted, names, treatment)
        clean = {**corrupted, **written}
        runs = Ablated(
            **{**vars(runs), "clean_ids": runs.corrupted_ids, "clean_pieces": runs.corrupted_pieces,
               "alignment": [p if there else None for p, there in enumerate(covered)]}
        )  # fmt: skip
    other, own = (base.clean_logits, base.corrupted_logits) if treatment.restores else (base.corrupted_logits, base.clean_logits)
    return runs, Treated(clean, corrupted, other, own, pair, treatment)


def _written(
    lm, runs: Pair, acts: dict[str, Tensor], names: Sequence[str], treatment: Treatment
) -> tuple[dict[str, Tensor], list[bool]]:
    """Values by hook name, shaped as the run's own, and which positions have one."""
    every = [True] * len(runs.corrupted_ids)
    if treatment.write == "zero":
        return {name: torch.zeros_like(acts[name]) for name in names}, every
    if treatment.write == "gaussian":
        if any(name.endswith("hook_pattern") for name in names):
            raise LabError("An attention pattern plus noise is no pattern any more; choose another site or intervention.")
        return {name: acts[name] + treatment.sigmas * _noise(acts[name], name, treatment.seed) for name in names}, every
    others = _others(lm, treatment.prompts, {tuple(runs.corrupted_ids), tuple(runs.clean_ids)})
    if any(name.endswith("hook_pattern") for name in names):
        others = [ids for ids in others if len(ids) == len(every)]
    if treatment.write == "resample":
        others = random.Random(treatment.seed).sample(others, min(1, len(others)))
    if len(others) < (1 if treatment.write == "resample" else FEWEST):
        raise LabError(
            f"There are {len(others)} other prompts to take values from, and this intervention needs more; "
            "add prompts to the list, one a line (for attention patterns: of equally many tokens)."
        )
    return _mean(lm.model, others, runs.corrupted_ids, acts, names)


def _noise(activation: Tensor, name: str, seed: int) -> Tensor:
    """Standard normal noise times the standard deviation over the features; a name draws the same in every call."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}|{name}".encode()))
    drawn = torch.randn(activation.shape, generator=generator, dtype=torch.float32)
    return drawn.to(activation) * activation.std(-1, keepdim=True)


def _others(lm, prompts: Sequence[str], own: set[tuple[int, ...]]) -> list[list[int]]:
    """Token ids of the prompts that are neither of the pair's own; LabError for one the model cannot read."""
    found = []
    for text in prompts:
        ids = lm.tokenizer.encode(text)
        if len(ids) > lm.config.context:
            raise LabError(f"A prompt of the list is {len(ids)} tokens; {lm.name} reads at most {lm.config.context}. Shorten it.")
        if ids and tuple(ids) not in own:
            found.append(ids)
    return found


@torch.no_grad()
def _mean(
    model, prompts: Sequence[Sequence[int]], ids: list[int], acts: dict[str, Tensor], names: Sequence[str]
) -> tuple[dict[str, Tensor], list[bool]]:
    """Mean activations over prompts, each aligned to `ids` by its shared ends and its subject's last token."""
    sums = {name: torch.zeros_like(acts[name], dtype=torch.float64) for name in names}
    counts = torch.zeros(len(ids), dtype=torch.float64, device=model.device)
    for prompt in prompts:
        kept: dict[str, Tensor] = {}
        model(torch.tensor([list(prompt)], device=model.device), hooks=keep(names, kept), last=True)
        pairs = [(p, s) for p, s in enumerate(align(list(prompt), ids)) if s is not None]
        to, start = [p for p, _ in pairs], [s for _, s in pairs]
        counts[to] += 1
        for name in names:
            if name.endswith("hook_pattern"):
                sums[name] += kept[name][0]
            else:
                sums[name][to] += kept[name][0, start]
    divisor = counts.clamp_min(1)
    means = {}
    for name in names:
        shape = (-1, *[1] * (acts[name].dim() - 1))
        total = sums[name] / (len(prompts) if name.endswith("hook_pattern") else divisor.view(shape))
        means[name] = total.to(acts[name].dtype)
    return means, (counts > 0).tolist()
