"""Any model that TransformerLens's bridge can wrap."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from interp.backends.base import Backend, missing
from interp.backends.shape import Shape
from interp.sites import Hook
from lab.errors import LabError

# points TransformerLens computes only when a switch is on: what their names end with, and the switch
SWITCHED = {
    "attn.hook_result": "set_use_attn_result",
    "hook_q_input": "set_use_split_qkv_input",
    "hook_k_input": "set_use_split_qkv_input",
    "hook_v_input": "set_use_split_qkv_input",
    "hook_mlp_in": "set_use_hook_mlp_in",
}
MID, MLP_IN = "hook_resid_mid", "hook_mlp_in"
REASONS = {
    "hook_pos_embed": "positions are not added to the embedding.",
    "*.hook_resid_mid": "no stream between attention and MLP that a write would change is found.",
    "*.attn.hook_rot_*": "positions are not rotated by a step that TransformerLens hooks.",
    "*.mlp.hook_pre_linear": "the MLP has no gate; take mlp.hook_pre.",
}
OTHERWISE = "TransformerLens's adapter of this architecture does not compute it."


class Bridge(Backend):
    """A transformers model inside a `TransformerBridge`, with the weights as they are (no folding, no centring)."""

    library = "TransformerLens"

    def __init__(self, module: nn.Module, tokenizer: Any = None) -> None:
        """Takes the module over: TransformerLens renames its parts for good, so give a copy of a shared one."""
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import PreTrainedTokenizerFast

        super().__init__(module, Shape.of(module))
        inner = tokenizer.inner if tokenizer is not None else _no_words()
        words = PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(inner), pad_token=inner.id_to_token(0))
        kind = type(module).__name__
        try:
            self._bridge = TransformerBridge.boot_transformers(
                getattr(module.config, "_name_or_path", "") or kind, hf_model=module, tokenizer=words, dtype=self.dtype
            )
        except (ValueError, KeyError, AttributeError, NotImplementedError, RuntimeError) as error:
            raise LabError(f"TransformerLens has no bridge for {kind} ({_short(error)}); take nnsight.") from None
        self._bridge.eval().requires_grad_(False)
        self._survey()

    def _survey(self) -> None:
        """Which points fire, found out by firing them, and why others do not."""
        fired: dict[str, None] = {}
        offered = [name for name in self._bridge.hook_dict if _classic(name)]

        def mark(activation: Tensor, name: str) -> None:
            if isinstance(activation, Tensor):
                fired.setdefault(name)

        tokens = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        refused: dict[str, str] = {}
        with torch.no_grad():
            for setter in dict.fromkeys(SWITCHED.values()):
                try:
                    self._switch(setter, True)
                    self._switch(setter, False)
                except (NotImplementedError, ValueError) as error:
                    refused |= {f"*{end}": _short(error) for end, s in SWITCHED.items() if s == setter}
            takes = [name for name in offered if not any(name.endswith(end[1:]) for end in refused)]
            self._forward(tokens, dict.fromkeys((n for n in takes if not n.endswith(MID)), mark))
            middle = self._written_through([n.replace(MLP_IN, MID) for n in fired if n.endswith(MLP_IN)], tokens)
        places = list(fired)
        for name in middle:
            places.insert(places.index(name.replace(MID, MLP_IN)), name)
        self._has(places)
        self.cannot = missing(places, refused | REASONS, OTHERWISE)

    def _written_through(self, names: list[str], tokens: Tensor) -> list[str]:
        """Of these streams between attention and MLP, those where a write reaches the end of the block."""
        seen: dict[str, Tensor] = {}

        def moved(x: Tensor, name: str) -> Tensor:
            seen[name] = 2 * x + 1
            return seen[name]

        def keep(x: Tensor, name: str) -> None:
            seen[name] = x.clone()

        ends = [name.replace(MID, end) for name in names for end in ("hook_mlp_out", "hook_resid_post")]
        if not set(ends) <= set(self._bridge.hook_dict):
            return []
        self._forward(tokens, dict.fromkeys(names, moved) | dict.fromkeys(ends, keep))

        def holds(name: str) -> bool:
            mid, out, post = (seen[name.replace(MID, point)].float() for point in (MID, "hook_mlp_out", "hook_resid_post"))
            return torch.allclose(post, mid + out, rtol=0.05, atol=0.05)

        return [name for name in names if holds(name)]

    def _switch(self, setter: str, on: bool) -> None:
        getattr(self._bridge, setter)(on)

    def _forward(self, tokens: Tensor, hooks: Mapping[str, Hook]) -> Tensor:
        """TransformerLens shows a block's middle stream to hooks as the norm's input, so that what they return misses the
        residual connection: here they write into the tensor that both read, where that tensor first appears."""
        given = {name: fn for name, fn in hooks.items() if not name.endswith((MID, MLP_IN))}
        for name in hooks:
            if name.endswith((MID, MLP_IN)):
                first = name.replace(MID, MLP_IN)
                given[first] = _middle(hooks.get(first.replace(MLP_IN, MID)), hooks.get(first))
        switches = {setter for name in given for end, setter in SWITCHED.items() if name.endswith(end)}

        def named(fn: Hook, name: str) -> Any:
            def run(activation: Tensor, hook: Any) -> Tensor:
                new = fn(activation, name)
                # some points show a reshaped copy: what is seen must go back in, or gradients go round it
                return activation if new is None else new

            return run

        for setter in switches:
            self._switch(setter, True)
        try:
            return self._bridge.run_with_hooks(tokens, fwd_hooks=[(name, named(fn, name)) for name, fn in given.items()])
        finally:
            for setter in switches:
                self._switch(setter, False)

    def unembed(self, resid: Tensor) -> Tensor:
        with self._lock:
            return self._bridge.unembed(self._bridge.ln_final(resid))


def _middle(stream: Hook | None, branch: Hook | None) -> Hook:
    """One hook at the MLP's entry for the stream there and for the MLP's own reading of it."""

    def run(activation: Tensor, name: str) -> Tensor | None:
        if stream is not None:
            shown = activation.clone()
            new = stream(shown, name.replace(MLP_IN, MID))
            activation.copy_(shown if new is None else new)
        return branch(activation, name) if branch is not None else None

    return run


def _classic(name: str) -> bool:
    """The names the field knows; the ins and outs of every part are the bridge's own and say the same again."""
    return name.rpartition(".")[2].startswith("hook_") and not re.search(r"\.hook_(in|out)$|attn_in$|attn\.hook_._input$", name)


def _short(error: BaseException) -> str:
    """The first sentence of a library's message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0].removesuffix(".") + "."


def _no_words() -> Any:
    """A tokenizer for models that come without one: TransformerLens asks for it and token ids do not need it."""
    import tokenizers

    return tokenizers.Tokenizer(tokenizers.models.WordLevel({"_": 0}, unk_token="_"))
