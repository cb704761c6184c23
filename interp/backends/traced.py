"""Any torch module, through nnsight."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from interp.backends import points
from interp.backends.base import Backend, missing
from interp.backends.points import Point
from interp.backends.shape import Shape
from interp.sites import Hook
from lab.errors import LabError

REASONS = {
    "hook_pos_embed": "none is added, or the same to a whole batch (transformer.wpe.output).",
    "*.hook_scale": "torch's norms do not hand out the scale they divide by.",
    "*.hook_normalized": "torch's LayerNorm normalises, scales and shifts in one call.",
    "*.hook_attn_scores": "transformers masks the scores by adding to them; take attn.hook_pattern.",
    "*.hook_?_input": "one norm feeds q, k and v of all heads, so no head has an input of its own.",
    "*.attn.hook_result": "one product writes all heads at once; take attn.hook_z.",
    "*.attn.hook_rot_*": "positions are not rotated here.",
    "*.mlp.hook_pre_linear": "the MLP has no gate; take mlp.hook_pre.",
    "*.hook_resid_mid": "attention and MLP do not follow one another on one stream here.",
}
OTHERWISE = "not where others have it; modules are there by path (<module path>.output)."


def library() -> Any:
    """nnsight, imported with the settings beside this file unless the user has some."""
    os.environ.setdefault("NNSIGHT_CONFIG", str(Path(__file__).with_name("nnsight.yaml")))
    import nnsight

    return nnsight


class Traced(Backend):
    """A torch module inside `NNsight`: hook points where its structure is known, and every module's ports by path.

    Ports are named `<module path>.input` and `.output` and carry the first tensor of what goes in or comes out.
    `hook_names()` lists them where the structure says nothing.
    """

    library = "nnsight"

    def __init__(self, module: nn.Module, tokenizer: Any = None) -> None:
        """Takes the module over: nnsight replaces every forward for good, so give a copy of a shared one."""
        stack = points.stack(module)
        super().__init__(module, Shape.of(module, len(stack.blocks) if stack else 0))
        self._keywords = {"use_cache": False} if hasattr(getattr(module, "config", None), "use_cache") else {}
        probe = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        with torch.no_grad():
            try:
                self._when = points.watch(module, lambda: module(probe, **self._keywords))
            except Exception as error:  # whatever a foreign forward raises
                raise LabError(f"{type(module).__name__} does not run on token ids alone ({error}).") from None
            self._envoy = library().NNsight(module)
            promised = list(points.of_model(module, stack, self.cfg.d_head, self._operations)) if stack else []
            named = self._firing(promised, probe)
        self._ends = [module.get_submodule(p) for p in (stack.norm, stack.head) if p] if stack else []
        self._points = {p.name: p for p in sorted(named + self._reached(points.ports(module)), key=self._order)}
        self._has([p.name for p in sorted(named, key=self._order)] or self._points, self._points)
        self.cannot = missing(self._names, REASONS, OTHERWISE) if named else {
            "blocks.*": "no list of equal blocks was found; modules are there by path (<module path>.output)."
        }  # fmt: skip

    def _operations(self, path: str) -> tuple[str, ...]:
        """The operations inside a module's forward, none where it has no Python source."""
        from nnsight.intervention.source import SourceNotAvailable

        try:
            return self._envoy.get(path).source.names
        except SourceNotAvailable:
            return ()

    def _order(self, point: Point) -> tuple[int, int]:
        order = point.order(self._when)
        assert order is not None
        return order

    def _reached(self, found: Sequence[Point]) -> list[Point]:
        return [p for p in found if p.order(self._when) is not None]

    def _firing(self, promised: Sequence[Point], probe: Tensor) -> list[Point]:
        """Of the points promised, those that a pass reaches and that are what their names say."""
        seen: dict[str, Tensor] = {}

        def look(x: Tensor, name: str) -> None:
            seen[name] = x

        fine = sorted(self._reached(promised), key=self._order)
        try:
            self._trace(probe, [(point, look) for point in fine])
        except Exception:  # an operation by that name that is no such thing: which, is found one kind at a time
            kinds: dict[str, bool] = {}
            for point in fine:
                kind = re.sub(r"\d+", "*", point.name, count=1)
                if kind not in kinds:
                    kinds[kind] = self._takes(probe, point)
            fine = [p for p in fine if kinds[re.sub(r"\d+", "*", p.name, count=1)]]
            self._trace(probe, [(point, look) for point in fine])
        return [p for p in fine if isinstance(seen.get(p.name), Tensor) and _consistent(p.name, seen)]

    def _takes(self, probe: Tensor, point: Point) -> bool:
        try:
            self._trace(probe, [(point, lambda x, name: None)])
        except Exception:  # nnsight and the traced module raise whatever they like: any of it means "not here"
            return False
        return True

    def _forward(self, tokens: Tensor, hooks: Mapping[str, Hook]) -> Tensor:
        steps = sorted(((self._points[name], fn) for name, fn in hooks.items()), key=lambda step: self._order(step[0]))
        out = points.first(self._trace(tokens, steps))
        if out is None:
            raise LabError(f"{type(self._module).__name__} returns no tensor, so there are no logits to read.")
        return out

    def _trace(self, tokens: Tensor, steps: Sequence[tuple[Point, Hook]]) -> Any:
        """One pass. The body of the `with` runs beside it and waits at each point for the pass to arrive."""
        result: list[Any] = []
        envoy = self._envoy
        with envoy.trace(tokens, **self._keywords):
            for point, hook in steps:
                _fire(envoy, point, hook)
            result.append(envoy.output)
        return result[0]

    def unembed(self, resid: Tensor) -> Tensor:
        if len(self._ends) != 2:
            raise LabError(f"{type(self._module).__name__} has no final norm and unembedding that are known here, so no layer can be read out.")
        with self._lock:
            norm, head = self._ends
            return head(norm(resid))


def _fire(envoy: Any, point: Point, hook: Hook) -> None:
    node = envoy.get(point.at)
    for op in point.ops:
        node = getattr(node.source, op)
    value = node.input if point.port == "input" else node.output
    activation = point.read(value)
    new = hook(activation, point.name)
    if new is None and point.direct:
        return
    value = point.write(value, activation if new is None else new)
    if point.port == "input":
        node.input = value
    else:
        node.output = value


def _consistent(name: str, seen: Mapping[str, Tensor]) -> bool:
    """A sum that is not the sum of its parts is not what its name says: post-norms, multipliers, parallel blocks."""
    block, _, kind = name.rpartition(".")

    def near(total: str, *parts: str) -> bool:
        names = [f"{block}.{p}" for p in (total, *parts)]
        if not seen.keys() >= set(names):
            return False
        whole, *rest = (seen[name].float() for name in names)
        return torch.allclose(whole, torch.stack(rest).sum(0), rtol=2e-2, atol=2e-2)

    match kind:
        case "hook_resid_mid" | "hook_mlp_in":
            return near("hook_resid_mid", "hook_mlp_in") and near("hook_resid_mid", "hook_resid_pre", "hook_attn_out")
        case "hook_attn_out" | "hook_mlp_out":
            return near("hook_resid_post", "hook_resid_pre", "hook_attn_out", "hook_mlp_out")
    return True
