"""Linear probes: a property read off the residual stream by a matrix, layer by layer, beside what chance would give.

A probe that scores well proves nothing by itself (Hewitt and Liang 2019, "Designing and interpreting probes with control
tasks"). So each is set beside the commonest class, shuffled labels, a model with random weights, and a control task:
every entity gets a random label that stays with it in every wording, learnt in one wording and tested in another. What
the real task scores above the control task in that same split is its selectivity. All other scores are on entities
that no probe was fitted to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interp.edit.rows import in_batches
from interp.probes.tasks import Task
from interp.sites import keep
from lab.errors import LabError
from lab.evals.stats import Interval, grouped
from lab.models import Decoder

METHODS = {"ridge": "ridge regression", "logistic": "logistic regression", "mass-mean": "class means"}
FOLDS = 5


def points(config) -> list[str]:
    """Hook points of the residual stream: the embedding, then after every layer."""
    return ["blocks.0.hook_resid_pre"] + [f"blocks.{i}.hook_resid_post" for i in range(config.n_layers)]


def read_at(rows, subjects: bool) -> Tensor:
    """The token each row is read at, [row]: the last of its subject, else the last of all.

    `Rows` never counts the first position as subject, so a subject that is that token alone leaves none marked.
    """
    if not subjects:
        return rows.ends
    width = rows.subject.shape[1]
    return torch.where(rows.subject.any(1), width - 1 - rows.subject.flip(1).int().argmax(1), 0)


@torch.no_grad()
def activations(lm, task: Task) -> Tensor:
    """The stream at every example's token, [example, 1 + layer, d_model], float32."""
    names = points(lm.config)
    out = torch.zeros(len(task.examples), len(names), lm.config.d_model)
    subjects = [e.subject for e in task.examples]
    for part, rows in in_batches(lm, [e.text for e in task.examples], subjects):
        kept: dict[str, Tensor] = {}
        rows.logits(keep(names, kept))
        at = read_at(rows, subjects[0] is not None)
        out[part] = torch.stack([kept[n][rows.index, at] for n in names], 1).float().cpu()
    return out


def untrained(lm, seed: int = 0):
    """The same architecture with random weights: what the wiring and the tokens alone give away."""
    from dataclasses import replace

    model = Decoder(lm.config).init_weights(seed).to(lm.model.device).eval().requires_grad_(False)
    return replace(lm, model=model)


@dataclass(frozen=True)
class Probe:
    """Scores are `(x - mean) / scale @ weight + bias`, [.., class]."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor

    def scores(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale @ self.weight + self.bias

    def basis(self) -> Tensor:
        """Orthonormal directions of the stream that the differences between classes are read from, [d_model, classes - 1]."""
        directions = self.weight / self.scale[:, None]
        directions = directions - directions.mean(1, keepdim=True)
        u, s, _ = torch.linalg.svd(directions.double(), full_matrices=False)
        return u[:, s > 1e-8 * s[0]][:, : self.weight.shape[1] - 1].to(self.weight.dtype)


def fit(x: Tensor, y: Tensor, classes: int, method: str = "ridge", strength: float = 1.0) -> Probe:
    """A probe of activations [example, d_model] for labels [example].

    "ridge": least squares to one-hot targets with penalty `strength` times the examples; "logistic": multinomial, the
    penalty a hundredth of `strength`, by L-BFGS; "mass-mean": each class by its mean (Marks and Tegmark 2023), nearest mean wins.
    """
    if method not in METHODS:
        raise LabError(f"There is no probe {method!r}; choose one of {', '.join(METHODS)}.")
    mean = x.mean(0)
    scale = (x - mean).square().mean().sqrt().clamp_min(1e-8).expand(x.shape[1])  # one number: directions keep their angles
    z = (x - mean) / scale
    one_hot = torch.nn.functional.one_hot(y, classes).to(x.dtype)
    if method == "mass-mean":
        counts = one_hot.sum(0).clamp_min(1)
        means = (one_hot.T @ z / counts[:, None]).T  # [d_model, class]
        bias = torch.where(one_hot.sum(0) > 0, -0.5 * means.square().sum(0), torch.full_like(counts, -torch.inf))
        return Probe(means, bias, mean, scale)
    bias = one_hot.mean(0)
    if method == "ridge":
        # in the space of examples when there are fewer of them than features
        n, d = z.shape
        lam = strength * n
        if n < d:
            weight = z.T @ torch.linalg.solve(z @ z.T + lam * torch.eye(n), one_hot - bias)
        else:
            weight = torch.linalg.solve(z.T @ z + lam * torch.eye(d), z.T @ (one_hot - bias))
        return Probe(weight, bias, mean, scale)
    weight = torch.zeros(x.shape[1], classes, requires_grad=True)
    offset = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, offset], max_iter=40, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(z @ weight + offset, y) + 0.01 * strength * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(closure)
    return Probe(weight.detach(), offset.detach(), mean, scale)


def folds(groups: Sequence[str], count: int = FOLDS, seed: int = 0) -> Tensor:
    """A fold for every example, whole groups together, [example]."""
    names = sorted(set(groups))
    random.Random(seed).shuffle(names)
    of = {name: i % count for i, name in enumerate(names)}
    return torch.tensor([of[g] for g in groups])


def cross_validated(x: Tensor, y: Tensor, groups: Sequence[str], classes: int, method: str) -> Tensor:
    """Whether each example is classified right by a probe that saw none of its group, [example]."""
    fold = folds(groups)
    right = torch.zeros(len(y), dtype=torch.bool)
    for k in range(int(fold.max()) + 1):
        test = fold == k
        right[test] = fit(x[~test], y[~test], classes, method).scores(x[test]).argmax(-1) == y[test]
    return right


@dataclass
class Curves:
    """Accuracy by layer (row 0 is the embedding), each with its interval over entities; lists grow as layers are done.

    `real`, `shuffled`, `random_model`: entities held out. `seen` and `control`: the same entities in another wording,
    with their own labels and with random ones; empty for tasks of a single wording.
    """

    task: Task
    method: str
    layers: list[str]
    real: list[Interval] = field(default_factory=list)
    shuffled: list[Interval] = field(default_factory=list)
    random_model: list[Interval] = field(default_factory=list)
    seen: list[Interval] = field(default_factory=list)
    control: list[Interval] = field(default_factory=list)

    @property
    def fraction(self) -> float:
        return len(self.real) / len(self.layers)

    @property
    def selectivity(self) -> list[float]:
        return [a.value - b.value for a, b in zip(self.seen, self.control)]

    def best(self) -> int:
        """Row of the highest accuracy on held-out entities."""
        return max(range(len(self.real)), key=lambda i: self.real[i].value)


def curves(task: Task, acts: Tensor, method: str = "ridge", random_acts: Tensor | None = None, seed: int = 0) -> Iterator[Curves]:
    """Probe every layer of `acts` [example, 1 + layer, d_model]; yields after each."""
    y = torch.tensor([e.label for e in task.examples])
    entities = [e.entity for e in task.examples]
    classes, rng = len(task.classes), random.Random(seed)
    names = sorted(set(entities))
    label_of = {e.entity: e.label for e in task.examples}
    permuted = dict(zip(names, rng.sample([label_of[n] for n in names], len(names))))
    drawn = dict(zip(names, rng.choices([label_of[n] for n in names], k=len(names))))
    shuffled, control = (torch.tensor([of[e] for e in entities]) for of in (permuted, drawn))
    wording = torch.tensor([e.wording for e in task.examples])
    result = Curves(task, method, ["embed"] + [str(i) for i in range(acts.shape[1] - 1)])

    def score(right: Tensor, which: Sequence[str] = entities) -> Interval:
        return grouped(right.tolist(), which)

    for layer in range(acts.shape[1]):
        x = acts[:, layer]
        result.shuffled.append(score(cross_validated(x, shuffled, entities, classes, method)))
        if random_acts is not None:
            result.random_model.append(score(cross_validated(random_acts[:, layer], y, entities, classes, method)))
        if int(wording.max()) > 0:
            train, test = wording == 0, wording == 1
            there = [e for e, t in zip(entities, test.tolist()) if t]
            for labels, into in ((y, result.seen), (control, result.control)):
                probe = fit(x[train], labels[train], classes, method)
                into.append(score(probe.scores(x[test]).argmax(-1) == labels[test], there))
        result.real.append(score(cross_validated(x, y, entities, classes, method)))
        yield result
