"""What a training run is: every choice in one dataclass that travels as a plain dict."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from lab.data import presets
from lab.errors import LabError
from lab.models import ModelConfig

SCHEDULES = ("cosine", "wsd", "constant")

#: layers, width, heads, width of the feed-forward
SIZES: dict[str, tuple[int, int, int, int]] = {
    "tiny": (2, 64, 2, 192),
    "draft": (3, 128, 2, 344),
    "small": (4, 128, 2, 344),
    "medium": (6, 192, 3, 512),
    "pocket": (8, 320, 5, 864),
}


@dataclass(frozen=True)
class TrainSpec:
    """One training run. Sizes in tokens unless said; `batch` counts sequences of `context` tokens."""

    data: str = "mixed"  # a name in lab.data.presets, or "file:<path>"
    weights: dict[str, float] | None = None  # of the domains; None takes the preset's
    generated_tokens: int = 400_000  # how much templated text is made; it is then drawn from again and again
    n_layers: int = 4
    d_model: int = 128
    n_heads: int = 2
    n_kv_heads: int = 2
    d_mlp: int = 344
    context: int = 128
    rope_theta: float = 10_000.0
    start: str | None = None  # a model to start from (a name `lab.models.load` knows) in place of random weights
    steps: int = 600
    batch: int = 16
    lr: float = 3e-3
    warmup: int = 30  # steps
    schedule: str = "cosine"
    decay: float = 0.2  # share of the steps in which wsd falls to its end
    final_lr: float = 0.1  # share of the peak at the end
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0  # largest gradient norm; 0 leaves gradients as they are
    seed: int = 0
    compile: bool = False  # torch.compile, on a GPU
    log_every: int = 1  # steps
    eval_every: int = 50
    eval_prompts: int = 128  # of each task
    save_every: int = 200
    sample: str = "The capital of France is"  # continued at every evaluation

    def __post_init__(self) -> None:
        whole = ("generated_tokens", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_mlp", "context", "steps",
                 "batch", "log_every", "eval_every", "eval_prompts", "save_every")  # fmt: skip
        for key in whole:
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LabError(f"{key} is {value!r}: it must be a whole number of at least 1.")
        if self.d_model % self.n_heads or (self.d_model // self.n_heads) % 2:
            raise LabError(f"A width of {self.d_model} does not split into {self.n_heads} heads of an even size.")
        if self.n_heads % self.n_kv_heads:
            raise LabError(f"{self.n_heads} query heads cannot share {self.n_kv_heads} key-value heads evenly.")
        if self.schedule not in SCHEDULES:
            raise LabError(f"There is no schedule {self.schedule!r}: choose one of {', '.join(SCHEDULES)}.")
        if not 0 < self.lr <= 10:
            raise LabError(f"A learning rate of {self.lr!r} is outside 0 to 10: 3e-3 suits small models.")
        if not (0 <= self.warmup < self.steps or self.warmup == 0):
            raise LabError(f"{self.warmup} warm-up steps do not fit into {self.steps} steps: shorten the warm-up.")
        for key, low, high in (("decay", 0, 1), ("final_lr", 0, 1), ("beta1", 0, 0.9999), ("beta2", 0, 0.99999),
                               ("weight_decay", 0, 10), ("clip", 0, 1e9)):  # fmt: skip
            if not low <= getattr(self, key) <= high:
                raise LabError(f"{key} is {getattr(self, key)!r}: it must lie between {low} and {high}.")
        known = presets.weights(self.data)
        if self.weights is not None and (
            not set(self.weights) <= set(known) or not any(w > 0 for w in self.weights.values())
        ):
            raise LabError(f"The weights must name some of {', '.join(known)}, one of them above zero.")

    @classmethod
    def sized(cls, size: str, **changes: Any) -> "TrainSpec":
        """A spec with the shape of one of `SIZES`."""
        if size not in SIZES:
            raise LabError(f"There is no size {size!r}: choose one of {', '.join(SIZES)}.")
        layers, width, heads, mlp = SIZES[size]
        return cls(n_layers=layers, d_model=width, n_heads=heads, n_kv_heads=heads, d_mlp=mlp, **changes)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "TrainSpec":
        """From JSON; LabError for a field that does not exist."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise LabError(f"A training spec has no field {unknown[0]!r}: it has {', '.join(sorted(known))}.")
        try:
            return cls(**given)
        except TypeError as error:
            raise LabError(f"The training spec is not valid: {error}.") from None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def changed(self, **changes: Any) -> "TrainSpec":
        """A copy with other values, checked again."""
        return replace(self, **changes)

    def config(self, vocab_size: int) -> ModelConfig:
        """The model's shape."""
        return ModelConfig(
            vocab_size=vocab_size,
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            d_head=self.d_model // self.n_heads,
            d_mlp=self.d_mlp,
            context=self.context,
            rope_theta=self.rope_theta,
        )

    def tokens(self) -> int:
        """Tokens the whole run sees."""
        return self.steps * self.batch * self.context

    def flops(self, vocab_size: int) -> int:
        """FLOPs of the whole run: forward, and a backward pass of twice that."""
        return 3 * self.config(vocab_size).forward_flops(self.context) * self.batch * self.steps
