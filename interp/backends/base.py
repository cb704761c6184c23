"""What a model behind another library has in common with ours: hooks are arguments, silence is an error."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from interp.backends.shape import Shape
from interp.sites import Hook
from lab.errors import LabError

# what the field asks for by name, in the order of execution
CLASSIC = (
    "hook_embed", "hook_pos_embed",
    *(f"blocks.*.{point}" for point in (
        "hook_resid_pre", "hook_q_input", "hook_k_input", "hook_v_input", "ln1.hook_scale", "ln1.hook_normalized",
        "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_rot_q", "attn.hook_rot_k", "attn.hook_attn_scores",
        "attn.hook_pattern", "attn.hook_z", "attn.hook_result", "hook_attn_out", "hook_resid_mid", "hook_mlp_in",
        "ln2.hook_scale", "ln2.hook_normalized", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post", "hook_mlp_out",
        "hook_resid_post",
    )),
    "ln_final.hook_scale", "ln_final.hook_normalized",
)  # fmt: skip


def missing(names: Iterable[str], reasons: Mapping[str, str], otherwise: str) -> dict[str, str]:
    """Of the classic points, those no name stands for, each with its reason: the first pattern that fits, or `otherwise`."""
    have = list(names)
    lacking = [point for point in CLASSIC if not any(fnmatchcase(name, point) for name in have)]
    return {point: next((why for p, why in reasons.items() if fnmatchcase(point, p)), otherwise) for point in lacking}


# what only our own decoder has, in the words of a sentence
OURS = {
    "run_block": "blocks that run one at a time", "embed_tokens": "an embedding to start from", "model": "our decoder's parts",
    "head_weights": "matrices of heads by name", "mlp_weights": "matrices of MLPs by name", "norm_gain": "gains of norms by name",
    "W_E": "an embedding matrix by name", "W_U": "an unembedding matrix by name",
}  # fmt: skip


class NotHere(LabError, AttributeError):
    """A part a backend lacks: `hasattr` says no, and an analysis that takes it anyway ends with a sentence."""


class Backend(ABC):
    """A model called as `lab.models.Decoder` is: `model(tokens, hooks={name: fn}, last=False)`.

    Hook points carry TransformerLens's names. `cannot` maps patterns of names (`*` stands for anything) to the reason
    why this backend does not have them. The libraries hang hooks on their modules, so passes through one model wait
    for each other, and nothing is left behind when one ends.
    """

    library: str

    def __init__(self, module: nn.Module, cfg: Shape) -> None:
        self.cfg = cfg
        self.cannot: dict[str, str] = {}
        self._module = module
        self._names: list[str] = []
        self._known: set[str] = set()
        self._lock = threading.RLock()

    def _has(self, names: Iterable[str], others: Iterable[str] = ()) -> None:
        """Say which points there are: those listed, and `others` that hooks may name too."""
        self._names = list(names)
        self._known = {*self._names, *others}

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._module.parameters()

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def __getattr__(self, name: str) -> Any:
        if name in OURS:
            raise NotHere(f"This analysis needs {OURS[name]}, which {self.library} does not give; take the backend 'own'.")
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def hook_names(self) -> list[str]:
        """Every hook point that fires, in the order of execution."""
        return list(self._names)

    def check(self, tokens: Tensor, hooks: Mapping[str, Hook] | None = None) -> None:
        """Raise the LabError that says what is wrong with these inputs, if anything is."""
        if tokens.dim() != 2 or tokens.numel() == 0:
            raise LabError("The prompt is empty; give at least one token.")
        if tokens.shape[1] > self.cfg.context:
            raise LabError(f"The text is {tokens.shape[1]} tokens long and this model reads {self.cfg.context}; shorten it.")
        for name in hooks or ():
            if name not in self._known:
                why = self.why_not(name)
                raise LabError(
                    f"Through {self.library}, {name} cannot be reached: {why}"
                    if why
                    else f"This model has no hook point {name!r}; hook_names() lists those it has."
                )

    def why_not(self, name: str) -> str | None:
        """The reason this backend lacks a hook point, when it knows of it."""
        return next((why for pattern, why in self.cannot.items() if fnmatchcase(name, pattern)), None)

    def __call__(
        self, tokens: Tensor, hooks: Mapping[str, Hook] | None = None, cache: None = None, last: bool = False
    ) -> Tensor:
        """`[batch, pos]` token ids to `[batch, pos, vocab]` logits (`last`: of the last position alone).

        A hook on the last stream may leave fewer positions, as with our decoder; the logits are then theirs.
        """
        if cache is not None:
            raise LabError(f"This analysis needs a key-value cache, which {self.library} does not give; take the backend 'own'.")
        self.check(tokens, hooks)
        silent, read = set(hooks or ()), slice(None)
        end = f"blocks.{self.cfg.n_layers - 1}.hook_resid_post"

        def counted(fn: Hook) -> Hook:
            def run(activation: Tensor, name: str) -> Tensor | None:
                nonlocal read
                silent.discard(name)
                new = fn(activation, name)
                if new is not None and name == end and new.shape[1] < activation.shape[1]:
                    read = slice(new.shape[1])  # some forwards insist on as many positions as there are tokens
                    new = torch.cat([new, activation[:, new.shape[1] :]], dim=1)
                return new

            return run

        with self._lock:
            logits = self._forward(tokens, {name: counted(fn) for name, fn in (hooks or {}).items()})
        if silent:
            raise LabError(f"{min(silent)} never fired in {self.library}, so whatever it was to do was not done.")
        logits = logits[:, read]
        return logits[:, -1:] if last else logits

    @abstractmethod
    def _forward(self, tokens: Tensor, hooks: Mapping[str, Hook]) -> Tensor:
        """Logits under these hooks; called with the lock held."""

    def run_with_cache(
        self, tokens: Tensor, names: Callable[[str], bool] | None = None, hooks: Mapping[str, Hook] | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the activations at every hook point that `names` accepts (all, when None); hooks act first."""
        kept: dict[str, Tensor] = {}
        given = hooks or {}

        def keep(x: Tensor, name: str) -> Tensor | None:
            out = given[name](x, name) if name in given else None
            kept[name] = x if out is None else out
            return out

        wanted = {name: keep for name in self._names if names is None or names(name)}
        return self(tokens, hooks={**given, **wanted}), kept

    @abstractmethod
    def unembed(self, resid: Tensor) -> Tensor:
        """Residual stream to logits, through the final norm."""
