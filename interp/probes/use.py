"""Is what a probe reads also used? Take its directions out of the stream, or move along them, and ask the model.

Erasing sets the part of the stream inside the probe's subspace to its mean at the token where the probe reads (after
Ravfogel et al. 2020 and Elazar et al. 2021, "Amnesic probing"); a random subspace of the same size is the control.
Moving adds the difference of two classes' means. Both happen on entities the probe was not fitted to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.edit.rows import Rows, ask
from interp.probes.linear import activations, fit, points, read_at
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


def _hook(rows: Rows, change: Callable[[Tensor], Tensor], subjects: bool) -> Hook:
    def hook(stream: Tensor, name: str) -> Tensor:
        at = read_at(rows, subjects)
        out = stream.clone()
        out[rows.index, at] = change(stream[rows.index, at])
        return out

    return hook


def used(
    lm, task: Task, layers: Sequence[int], where: str = "last", method: str = "mass-mean", seed: int = 0
) -> Iterator[Use]:
    """Ask the task's question under each change of the stream after each of `layers` (0 is the embedding, i + 1 after
    layer i), at the question's last token or at the subject's."""
    if where not in ("last", "subject"):
        raise LabError(f"The stream is changed at the last token or at the subject's, not at {where!r}.")
    if task.ask is None:
        raise LabError("This task has no question that puts its property to the model; choose one about countries.")
    label_of = {e.entity: e.label for e in task.examples}
    names = random.Random(seed).sample(sorted(label_of), len(label_of))
    cut, classes, at_subject = round(0.6 * len(names)), len(task.classes), where == "subject"
    asked = replace(
        task, examples=tuple(Example(_text(task.ask, n), n, 0, label_of[n], n if at_subject else None) for n in names)
    )
    held = asked.examples[cut:]
    texts, subjects = [e.text for e in held], [e.subject for e in held]
    answers = [lm.tokenizer.encode(f" {c}")[0] for c in task.classes]
    right = [t == answers[e.label] for t, e in zip(ask(lm, texts).top.tolist(), held)]
    kept = [i for i, r in enumerate(right) if r]
    if not kept:
        raise LabError(f"{lm.name} answers this question right for no held-out entity, so there is no answer to lose.")
    every = activations(lm, asked)
    y = torch.tensor([e.label for e in asked.examples])
    target = int(torch.bincount(y[:cut], minlength=classes).argmax())
    away = [i for i in kept if held[i].label != target]
    labels = torch.tensor([e.label for e in held])
    generator = torch.Generator().manual_seed(seed)

    def says(point: str, change: Callable[[list[int]], Callable[[Tensor], Tensor]]) -> list[int]:
        def hooks(part: list[int], rows: Rows) -> dict[str, Hook]:
            return {point: _hook(rows, change(part), at_subject)}

        return ask(lm, texts, hooks, subjects).top.tolist()

    def share(said: list[int], among: list[int], wanted: Callable[[int], int]) -> Interval:
        return grouped([said[i] == answers[wanted(i)] for i in among], [held[i].entity for i in among])

    for layer in layers:
        acts, point = every[:, layer], points(lm.config)[layer]
        probe = fit(acts[:cut], y[:cut], classes, method)
        means = fit(acts[:cut], y[:cut], classes, "mass-mean")
        basis, mean = probe.basis(), acts[:cut].mean(0)
        other = torch.linalg.qr(torch.randn(basis.shape, generator=generator))[0]
        centre = (means.weight * means.scale[:, None]).T  # [class, d_model], from the mean of all
        shift = centre[target] - centre[labels]
        noise = torch.randn(shift.shape, generator=generator)
        noise *= shift.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True)
        still = [share(says(point, lambda _, b=b, m=mean: erase(b, m)), kept, lambda i: held[i].label) for b in (basis, other)]  # type: ignore[misc]
        moved = [share(says(point, lambda part, s=s: _add(s[part])), away, lambda _: target) for s in (shift, noise)]  # type: ignore[misc]
        after = erase(basis, mean)(acts[cut:])
        reads = [float((probe.scores(x).argmax(-1) == labels).float().mean()) for x in (acts[cut:], after)]
        yield Use(
            layer, basis.shape[1], len(held), grouped(right, [e.entity for e in held]), still[0], still[1],
            task.classes[target], moved[0], moved[1], reads[0], reads[1],
        )  # fmt: skip


def _add(shift: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: (x.to(shift.dtype) + shift).to(x.dtype)


def _text(question: str, name: str) -> str:
    text = question.format(s=name)
    return text[0].upper() + text[1:]
