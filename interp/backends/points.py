"""Where TransformerLens's hook points are in a torch module, found by its structure and checked by running it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Read = Callable[[Any], Tensor]
Write = Callable[[Any, Tensor], Any]
Event = tuple[str, str]  # the path of a module, and its "input" or "output"


def first(value: Any) -> Any:
    """The tensor a port carries: itself, or the first element of a tuple or of a transformers output."""
    while not isinstance(value, Tensor):
        if not isinstance(value, tuple | list | dict) or not value:
            return None
        value = value[0] if isinstance(value, tuple | list) else next(iter(value.values()))
    return value


def replaced(value: Any, new: Tensor) -> Any:
    """`value` with its first tensor exchanged."""
    if isinstance(value, Tensor):
        return new
    if isinstance(value, dict):
        key = next(iter(value))
        changed = copy.copy(value)
        changed[key] = replaced(value[key], new)
        return changed
    return type(value)((replaced(value[0], new), *value[1:]))


@dataclass(frozen=True)
class Point:
    """A hook point: a port of a module, or of an operation inside its forward (`ops`, nnsight's names).

    `read` gives the activation as TransformerLens shapes it, `write` the port's value with that activation in it.
    `before` is the module port it comes just before, where it is not a port itself.
    """

    name: str
    at: str
    port: str = "output"
    ops: tuple[str, ...] = ()
    read: Read = first
    write: Write = replaced
    before: Event | None = None

    @property
    def direct(self) -> bool:
        """Does a hook see the very tensor that flows on, so that nothing need be written back?"""
        return self.read is first

    def order(self, when: dict[Event, int]) -> tuple[int, int] | None:
        """When a pass reaches it, None when it does not."""
        event = self.before or (self.at, self.port)
        return (when[event], 0 if self.before else 1) if event in when else None


def heads(d_head: int) -> tuple[Read, Write]:
    """Heads side by side in the last dimension: `[batch, pos, head * d_head]` as `[batch, pos, head, d_head]`."""
    return lambda x: x.unflatten(-1, (-1, d_head)), lambda x, new: new.flatten(-2)


def part(which: int, of: int, d_head: int) -> tuple[Read, Write]:
    """One of several equal parts of the last dimension, in heads: GPT-2 makes q, k and v in one product."""

    def read(x: Tensor) -> Tensor:
        return x.chunk(of, dim=-1)[which].unflatten(-1, (-1, d_head))

    def write(x: Tensor, new: Tensor) -> Tensor:
        parts = list(x.chunk(of, dim=-1))
        parts[which] = new.flatten(-2)
        return torch.cat(parts, dim=-1)

    return read, write


def turned(which: int) -> tuple[Read, Write]:
    """One of a pair shaped `[batch, head, pos, d_head]`."""

    def write(pair: tuple[Tensor, Tensor], new: Tensor) -> tuple[Tensor, ...]:
        return tuple(new.transpose(1, 2) if i == which else x for i, x in enumerate(pair))

    return lambda pair: pair[which].transpose(1, 2), write


@dataclass(frozen=True)
class Stack:
    """The blocks of a model and what stands around them; paths, "" where there is none."""

    blocks: tuple[str, ...]
    embed: str
    norm: str
    head: str


def stack(module: nn.Module) -> Stack | None:
    """The longest list of equal blocks that a model has, None when it has none."""
    lists = {
        name: m for name, m in module.named_modules()
        if isinstance(m, nn.ModuleList) and len(m) and len({type(block) for block in m}) == 1
    }  # fmt: skip
    if not lists:
        return None
    name = max(lists, key=lambda n: (len(lists[n]), -n.count(".")))
    parent_name = name.rpartition(".")[0]
    parent = module.get_submodule(parent_name)
    children = [n for n, _ in parent.named_children()]
    after = children[children.index(name.rpartition(".")[2]) + 1 :]
    norm = next((n for n in after if "norm" in type(getattr(parent, n)).__name__.lower()), "")
    paths = {id(m): n for n, m in module.named_modules()}

    def path(getter: str) -> str:
        try:
            return paths.get(id(getattr(module, getter)()), "")
        except (AttributeError, NotImplementedError):
            return ""

    join = f"{parent_name}." if parent_name else ""
    return Stack(
        tuple(f"{name}.{i}" for i in range(len(lists[name]))), path("get_input_embeddings"),
        join + norm if norm else "", path("get_output_embeddings"),
    )  # fmt: skip


def of_model(module: nn.Module, found: Stack, d_head: int, names_in: Callable[[str], tuple[str, ...]]) -> Iterator[Point]:
    """The points this structure promises, in no particular order; `names_in` lists a module's operations."""
    if found.embed:
        yield Point("hook_embed", found.embed)
    for i, path in enumerate(found.blocks):
        yield from _of_block(module.get_submodule(path), f"blocks.{i}", path, d_head, names_in)
    if found.norm:
        yield from _of_norm(module.get_submodule(found.norm), "ln_final", found.norm, names_in)


def _of_block(block: nn.Module, at: str, path: str, d_head: int, names_in: Callable[[str], tuple[str, ...]]) -> Iterator[Point]:
    has = dict(block.named_modules())
    yield Point(f"{at}.hook_resid_pre", path, "input")
    yield Point(f"{at}.hook_resid_post", path)
    attention = next((n for n in ("self_attn", "attn", "attention", "mixer") if n in has), None)
    mlp = "mlp" if "mlp" in has else None
    one, two = (next((n for n in pair if n in has), None) for pair in (("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2")))
    if one:
        yield from _of_norm(has[one], f"{at}.ln1", f"{path}.{one}", names_in)
    if two:
        yield from _of_norm(has[two], f"{at}.ln2", f"{path}.{two}", names_in)
        yield Point(f"{at}.hook_mlp_in", f"{path}.{two}", "input")
        # the stream between attention and MLP is the first sum the block assigns after attention
        sums = [n for n in names_in(path) if n.startswith("hidden_states_")]
        if len(sums) > 1:
            yield Point(f"{at}.hook_resid_mid", path, ops=(sums[1],), before=(f"{path}.{two}", "input"))
    if attention:
        yield Point(f"{at}.hook_attn_out", f"{path}.{attention}")
        yield from _of_attention(has[attention], f"{at}.attn", f"{path}.{attention}", d_head, names_in)
    if mlp:
        yield Point(f"{at}.hook_mlp_out", f"{path}.{mlp}")
        inner = dict(has[mlp].named_children())
        for name, child, port in (
            ("hook_pre", "gate_proj", "output"), ("hook_pre_linear", "up_proj", "output"), ("hook_post", "down_proj", "input"),
            ("hook_pre", "c_fc", "output"), ("hook_post", "c_proj", "input"),
            ("hook_pre", "dense_h_to_4h", "output"), ("hook_post", "dense_4h_to_h", "input"),
        ):  # fmt: skip
            if child in inner:
                yield Point(f"{at}.mlp.{name}", f"{path}.{mlp}.{child}", port)


def _of_attention(attention: nn.Module, at: str, path: str, d_head: int, names_in: Callable[[str], tuple[str, ...]]) -> Iterator[Point]:
    inner, names = dict(attention.named_children()), names_in(path)
    for i, key in enumerate(("q", "k", "v")):
        if f"{key}_proj" in inner:
            yield Point(f"{at}.hook_{key}", f"{path}.{key}_proj", "output", (), *heads(d_head))
        elif "c_attn" in inner:
            yield Point(f"{at}.hook_{key}", f"{path}.c_attn", "output", (), *part(i, 3, d_head))
    out = next((n for n in ("o_proj", "c_proj", "dense", "out_proj") if n in inner), None)
    if out is None or not d_head:
        return
    yield Point(f"{at}.hook_z", f"{path}.{out}", "input", (), *heads(d_head))
    before = (f"{path}.{out}", "input")
    for i, key in enumerate(("q", "k")):
        if "apply_rotary_pos_emb_0" in names:
            yield Point(f"{at}.hook_rot_{key}", path, "output", ("apply_rotary_pos_emb_0",), *turned(i), before)
    calls = [n for n in names if n.startswith("attention_interface_")]
    if calls:  # the function that is called looks the same in every model: softmax, dropout (idle), product with v
        yield Point(f"{at}.hook_pattern", path, "output", (calls[-1], "nn_functional_dropout_0"), before=before)


def _of_norm(norm: nn.Module, at: str, path: str, names_in: Callable[[str], tuple[str, ...]]) -> Iterator[Point]:
    """RMSNorm casts the normalised stream back before it scales it: that value has a name."""
    if "hidden_states_to_1" in names_in(path):
        yield Point(f"{at}.hook_normalized", path, ops=("hidden_states_to_1",), before=(path, "output"))


def ports(module: nn.Module) -> list[Point]:
    """The input and output of every part, named by its path: what any torch module has."""
    paths = [name for name, _ in module.named_modules() if name]
    return [Point(f"{path}.{port}", path, port) for path in paths for port in ("input", "output")]


def watch(module: nn.Module, run: Callable[[], Any]) -> dict[Event, int]:
    """When a pass first reaches each module's input and output."""
    when: dict[Event, int] = {}

    def note(event: Event) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            when.setdefault(event, len(when))

        return hook

    handles = []
    for path, part_ in module.named_modules():
        handles.append(part_.register_forward_pre_hook(note((path, "input"))))
        handles.append(part_.register_forward_hook(note((path, "output"))))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return when
