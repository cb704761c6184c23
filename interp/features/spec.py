"""What the training of a dictionary is: every choice in one dataclass that travels as a plain dict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from interp.features.dictionary import TARGETS, Shape
from lab.data import presets
from lab.errors import LabError


@dataclass(frozen=True)
class FeatureSpec:
    """One training run of a sparse autoencoder or transcoder. `batch` counts positions (activations)."""

    model: str = "pocket"  # a name `lab.models.load` knows
    layer: int = 3
    target: str = "resid_post"  # a key of interp.features.TARGETS
    kind: str = "topk"
    d_dict: int = 1024
    k: int = 32  # active features a position: exactly (topk), or the mean that is steered for
    data: str = "mixed"  # a name in lab.data.presets, or "file:<path>"
    generated_tokens: int = 400_000
    context: int = 128  # tokens of each window of text
    pool: int = 64  # windows whose positions are shuffled together
    steps: int = 400
    batch: int = 1024
    lr: float = 1e-3
    warmup: int = 20  # steps
    decay: float = 0.2  # share of the steps at the end in which the rate falls to zero
    aux: float = 1 / 32  # weight of the auxiliary loss of dead features (topk)
    dead_after: int = 200_000  # positions without firing after which a feature counts as dead
    width: float = 0.01  # of the kernel that estimates a threshold's gradient (jumprelu), in lengths of the input
    seed: int = 0
    log_every: int = 5  # steps
    eval_every: int = 100
    eval_windows: int = 48  # of held-out text
    save_every: int = 200

    def __post_init__(self) -> None:
        whole = ("d_dict", "k", "generated_tokens", "context", "pool", "steps", "batch", "dead_after", "log_every",
                 "eval_every", "eval_windows", "save_every")  # fmt: skip
        for key in whole:
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LabError(f"{key} is {value!r}: it must be a whole number of at least 1.")
        for key, low, high in (("lr", 1e-9, 1), ("warmup", 0, self.steps), ("decay", 0, 1), ("aux", 0, 10), ("width", 1e-6, 10)):
            if not low <= getattr(self, key) <= high:
                raise LabError(f"{key} is {getattr(self, key)!r}: it must lie between {low} and {high}.")
        if self.batch > self.pool * self.context:
            raise LabError(
                f"A batch of {self.batch:,} positions is more than the {self.pool * self.context:,} that are shuffled "
                "together: enlarge the pool."
            )
        self.shape(1, 1)
        presets.weights(self.data)

    def shape(self, d_in: int, d_out: int) -> Shape:
        """The dictionary's shape for activations of these widths."""
        return Shape(self.kind, d_in, d_out, self.d_dict, self.k, self.layer, self.target, self.model, self.width)

    @property
    def sites(self) -> tuple[str, str]:
        """Names of the hook points read and written."""
        read, written, _ = TARGETS[self.target]
        return f"blocks.{self.layer}.{read}", f"blocks.{self.layer}.{written}"

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> FeatureSpec:
        """From JSON; LabError for a field that does not exist."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise LabError(f"A dictionary's spec has no field {unknown[0]!r}: it has {', '.join(sorted(known))}.")
        try:
            return cls(**given)
        except TypeError as error:
            raise LabError(f"The dictionary's spec is not valid: {error}.") from None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def changed(self, **changes: Any) -> FeatureSpec:
        """A copy with other values, checked again."""
        return replace(self, **changes)

    def positions(self) -> int:
        """Activations the whole run sees."""
        return self.steps * self.batch

    def rate(self, step: int) -> float:
        """Learning rate of a step (counted from 0): linear warm-up, flat, linear to zero."""
        up = (step + 1) / self.warmup if step < self.warmup else 1.0
        down = (self.steps - step) / (self.decay * self.steps) if self.decay else 1.0
        return self.lr * min(up, down, 1.0)
