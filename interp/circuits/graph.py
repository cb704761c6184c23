"""A model as a graph: who writes to the residual stream (senders), who reads from it (receivers), and every edge.

Every sender adds its output to the residual stream and every later receiver reads the sum, so each pair of them is an
edge that can be cut on its own (Elhage et al. 2021, "A mathematical framework"; Conmy et al. 2023). Senders are
`embed`, `a{layer}.h{head}`, `m{layer}`; receivers are `a{layer}.h{head}.q`, `.k`, `.v`, `m{layer}` and `logits`.
Where query heads share keys and values, those receivers belong to the group: `a{layer}.kv{group}.k`.

A set of edges is a bool tensor [n_edges]. Edges that enter at one hook point lie together, receiver by receiver and
sender by sender, so a slice of that tensor is the matrix [receiver, sender] the hook multiplies with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lab.errors import LabError

Edge = tuple[str, str]
EMBED, LOGITS = "embed", "logits"


@dataclass(frozen=True)
class Point:
    """Receivers that read at one hook point, and how many senders (the first so many) lie before it.

    Edge `start + i * senders + s` runs from sender s to receiver i. `per_head`: activations there have a head axis.
    """

    hook: str
    receivers: tuple[str, ...]
    layer: int
    senders: int
    start: int
    per_head: bool

    @property
    def size(self) -> int:
        return len(self.receivers) * self.senders

    def of(self, edges: Tensor) -> Tensor:
        """The slice of an edge tensor [.., n_edges] that enters here, [.., receiver, sender]."""
        part = edges[..., self.start : self.start + self.size]
        return part.reshape(*edges.shape[:-1], len(self.receivers), self.senders)


class Graph:
    """Nodes and edges of a decoder of this shape; attention-only models have no `m` nodes."""

    def __init__(self, cfg) -> None:
        self.n_layers, self.n_heads, self.n_kv_heads = cfg.n_layers, cfg.n_heads, cfg.n_kv_heads
        self.has_mlp = cfg.d_mlp > 0
        self.senders: list[str] = [EMBED]
        self.points: list[Point] = []
        self.n_edges = 0
        grouped = self.n_kv_heads != self.n_heads
        for i in range(self.n_layers):
            for part, heads in (("q", self.n_heads), ("k", self.n_kv_heads), ("v", self.n_kv_heads)):
                kind = "kv" if grouped and part != "q" else "h"
                names = [f"a{i}.{kind}{h}.{part}" for h in range(heads)]
                self._add(f"blocks.{i}.hook_{part}_input", names, i, per_head=True)
            self.senders += [f"a{i}.h{h}" for h in range(self.n_heads)]
            if self.has_mlp:
                self._add(f"blocks.{i}.hook_mlp_in", [f"m{i}"], i)
                self.senders.append(f"m{i}")
        self._add(f"blocks.{self.n_layers - 1}.hook_resid_post", [LOGITS], self.n_layers)

    def _add(self, hook: str, receivers: list[str], layer: int, per_head: bool = False) -> None:
        point = Point(hook, tuple(receivers), layer, len(self.senders), self.n_edges, per_head)
        self.points.append(point)
        self.n_edges += point.size

    # ---- names

    @cached_property
    def receivers(self) -> list[str]:
        """Every receiver, in the order of execution."""
        return [name for point in self.points for name in point.receivers]

    @cached_property
    def nodes(self) -> list[str]:
        """Every node: the senders and `logits`."""
        return [*self.senders, LOGITS]

    @cached_property
    def _sender_at(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.senders)}

    @cached_property
    def _receiver_at(self) -> dict[str, tuple[Point, int]]:
        return {name: (point, i) for point in self.points for i, name in enumerate(point.receivers)}

    def sender(self, name: str) -> int:
        """Place of a sender; LabError for a name this model does not have."""
        if name not in self._sender_at:
            raise LabError(f"This model has no sender {name!r}; senders are {EMBED}, a<layer>.h<head> and m<layer>.")
        return self._sender_at[name]

    def receiver(self, name: str) -> tuple[Point, int]:
        """Hook point of a receiver and its place there; LabError for a name this model does not have."""
        if name not in self._receiver_at:
            example = self.receivers[1] if len(self.receivers) > 1 else LOGITS
            raise LabError(f"This model has no receiver {name!r}; receivers are named like {example}, m0 and {LOGITS}.")
        return self._receiver_at[name]

    def owners(self, receiver: str) -> tuple[str, ...]:
        """The nodes a receiver belongs to: one, or every query head of a group that shares keys and values."""
        if match := re.fullmatch(r"a(\d+)\.kv(\d+)\.[kv]", receiver):
            layer, group = map(int, match.groups())
            size = self.n_heads // self.n_kv_heads
            return tuple(f"a{layer}.h{h}" for h in range(group * size, (group + 1) * size))
        return (receiver.rpartition(".")[0] if receiver.endswith((".q", ".k", ".v")) else receiver,)

    # ---- edges

    def index(self, edge: Edge) -> int:
        """Place of an edge; LabError when its sender does not come before its receiver."""
        s = self.sender(edge[0])
        point, i = self.receiver(edge[1])
        if s >= point.senders:
            raise LabError(f"There is no edge from {edge[0]} to {edge[1]}: the sender comes later.")
        return point.start + i * point.senders + s

    def edge(self, index: int) -> Edge:
        point = next(p for p in self.points if index < p.start + p.size)
        i, s = divmod(index - point.start, point.senders)
        return self.senders[s], point.receivers[i]

    def edges(self) -> Iterator[Edge]:
        """Every edge, in the order of the tensors."""
        for point in self.points:
            for name in point.receivers:
                for sender in self.senders[: point.senders]:
                    yield sender, name

    def mask(self, edges: Iterable[Edge]) -> Tensor:
        """These edges as a bool tensor [n_edges]."""
        out = torch.zeros(self.n_edges, dtype=torch.bool)
        out[[self.index(edge) for edge in edges]] = True
        return out

    def named(self, mask: Tensor) -> list[Edge]:
        """The edges of a bool tensor."""
        return [self.edge(i) for i in mask.nonzero().flatten().tolist()]

    def all(self) -> Tensor:
        return torch.ones(self.n_edges, dtype=torch.bool)

    def none(self) -> Tensor:
        return torch.zeros(self.n_edges, dtype=torch.bool)

    def from_nodes(self, nodes: Collection[str]) -> Tensor:
        """Every edge that one of these nodes sends: the circuit that keeps nodes whole."""
        sends = torch.tensor([name in nodes for name in self.senders])
        return torch.cat([sends[: p.senders].repeat(len(p.receivers)) for p in self.points])

    def of_senders(self) -> Tensor:
        """Place of the sender of every edge, [n_edges]."""
        return torch.cat([torch.arange(p.senders).repeat(len(p.receivers)) for p in self.points])

    # ---- dead ends

    def prune(self, mask: Tensor) -> Tensor:
        """Drop edges that lie on no path from `embed` to `logits` within `mask`."""
        fed = {EMBED}  # in order of execution, so one pass finds everything that is fed
        kept = mask.clone()
        for point in self.points:
            rows = point.of(kept)
            rows &= torch.tensor([name in fed for name in self.senders[: point.senders]])
            kept[point.start : point.start + point.size] = rows.flatten()
            for name, row in zip(point.receivers, rows):
                if row.any():
                    fed.update(self.owners(name))
        read = {LOGITS}
        for point in reversed(self.points):
            rows = point.of(kept)
            rows &= torch.tensor([[not read.isdisjoint(self.owners(name))] for name in point.receivers])
            kept[point.start : point.start + point.size] = rows.flatten()
            read.update(self.senders[s] for s in rows.any(0).nonzero().flatten().tolist())
        return kept

    def touched(self, mask: Tensor) -> list[str]:
        """Nodes with an edge in `mask`, in the order of execution."""
        names = {sender for sender, _ in self.named(mask)}
        for _, receiver in self.named(mask):
            names.update(self.owners(receiver))
        return [name for name in self.nodes if name in names]
