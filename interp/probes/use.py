"""Is what a probe reads also used? Take its directions out of the stream, or move along them, and ask the model.

Erasing sets the part of the stream inside the probe's subspace to its mean at the token where the probe reads (after
Ravfogel et al. 2020 and Elazar et al. 2021, "Amnesic probing"); a random subspace of the same size is the control.
Moving adds the difference of two classes' means. Both happen on entities the probe was not fitted to.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.edit.rows import Rows, ask
from interp.probes.linear import Probe, activations, fit, points, read_at
from interp.probes.tasks import Example, Task
from interp.sites import Hook
from lab.errors import LabError
from lab.evals.stats import Interval, grouped


@dataclass(frozen=True)
class Use:
    """Shares of held-out entities, of those answered right unedited: still right after the probe's subspace is taken
    out, after a random one of the same size; and answered with `target` after moving to it, where they were not of it."""

    layer: int
    rank: int
    asked: int
    right: Interval
    erased: Interval
    random: Interval
    target: str
    moved: Interval
    moved_random: Interval
    probe_before: float
    probe_after: float


def erase(basis: Tensor, mean: Tensor) -> Callable[[Tensor], Tensor]:
    """x with its part inside the span of `basis` [d_model, k] (orthonormal) set to that of `mean`."""

    def change(x: Tensor) -> Tensor:
        wide = x.to(basis.dtype)
        return (wide - (wide - mean) @ basis @ basis.T).to(x.dtype)

    return change


def add(shift: Tensor) -> Callable[[Tensor], Tensor]:
    """x moved along `shift` [d_model]."""
    return lambda x: (x.to(shift.dtype) + shift).to(x.dtype)


def _hook(rows: Rows, change: Callable[[Tensor], Tensor], subjects: bool) -> Hook:
    def hook(stream: Tensor, name: str) -> Tensor:
        at = read_at(rows, subjects)
        out = stream.clone()
        out[rows.index, at] = change(stream[rows.index, at])
        return out

    return hook


def used(lm, task: Task, layer: int, where: str = "last", method: str = "mass-mean", seed: int = 0) -> Use:
    """Ask the task's question under each change of the stream after `layer` (0 is the embedding, i + 1 after layer i),
    at the question's last token or at the subject's."""
    if where not in ("last", "subject"):
        raise LabError(f"The stream is changed at the last token or at the subject's, not at {where!r}.")
    if task.ask is None:
        raise LabError("This task has no question that puts its property to the model; choose one about countries.")
    rng = random.Random(seed)
    label_of = {e.entity: e.label for e in task.examples}
    names = sorted(label_of)
    rng.shuffle(names)
    cut = round(0.6 * len(names))
    asked = Task(
        task.title, task.classes,
        tuple(Example(_text(task.ask, n), n, 0, label_of[n], n if where == "subject" else None) for n in names), task.ask,
    )  # fmt: skip
    acts = activations(lm, asked)[:, layer]
    y = torch.tensor([e.label for e in asked.examples])
    probe: Probe = fit(acts[:cut], y[:cut], len(task.classes), method)
    means = fit(acts[:cut], y[:cut], len(task.classes), "mass-mean")
    basis, mean = probe.basis(), acts[:cut].mean(0)
    generator = torch.Generator().manual_seed(seed)
    other = torch.linalg.qr(torch.randn(basis.shape, generator=generator))[0]

    held = asked.examples[cut:]
    texts, subjects = [e.text for e in held], [e.subject for e in held]
    answers = [lm.tokenizer.encode(f" {c}")[0] for c in task.classes]
    point = points(lm.config)[layer]

    def says(change: Callable[[Tensor], Tensor] | None) -> list[int]:
        if change is None:
            return ask(lm, texts).top.tolist()

        def hooks(part: list[int], rows: Rows) -> dict[str, Hook]:
            return {point: _hook(rows, change, where == "subject")}

        return ask(lm, texts, hooks, subjects).top.tolist()

    plain = says(None)
    right = [t == answers[e.label] for t, e in zip(plain, held)]
    kept = [i for i, r in enumerate(right) if r]
    if not kept:
        raise LabError(f"{lm.name} answers this question right for no held-out entity, so there is no answer to lose.")
    groups = [held[i].entity for i in kept]

    def still(change: Callable[[Tensor], Tensor]) -> Interval:
        said = says(change)
        return grouped([said[i] == answers[held[i].label] for i in kept], groups)

    target = int(torch.bincount(y[:cut], minlength=len(task.classes)).argmax())
    away = [i for i in kept if held[i].label != target]
    centre = means.weight * means.scale[:, None]  # class means as offsets from the mean of all

    def moved(noise: bool) -> Interval:
        said_moved = [False] * len(held)
        for label in {held[i].label for i in away}:
            shift = centre[:, target] - centre[:, label]
            if noise:
                drawn = torch.randn(shift.shape, generator=generator)
                shift = drawn / drawn.norm() * shift.norm()
            said = says(add(shift))
            for i in away:
                if held[i].label == label:
                    said_moved[i] = said[i] == answers[target]
        return grouped([said_moved[i] for i in away], [held[i].entity for i in away])

    changed = erase(basis, mean)(acts[cut:])
    return Use(
        layer, basis.shape[1], len(held), grouped(right, [e.entity for e in held]), still(erase(basis, mean)), still(erase(other, mean)),
        task.classes[target], moved(False), moved(True),
        float((probe.scores(acts[cut:]).argmax(-1) == y[cut:]).float().mean()),
        float((probe.scores(changed).argmax(-1) == y[cut:]).float().mean()),
    )  # fmt: skip


def _text(question: str, name: str) -> str:
    text = question.format(s=name)
    return text[0].upper() + text[1:]
