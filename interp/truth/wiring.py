"""The circuit of a compiled program: which edges its weights use, read off the program and not off any experiment.

Nodes and edges are named as in `interp.circuits.graph`: senders `embed`, `a0.h1`, `m0`; receivers `a0.h1.q`, `m0`,
`logits`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from interp.truth.compile import Compiled
from interp.truth.parts import BOS, ONE, Direction, Head
from interp.truth.rasp import Expr, Select, Value, evaluate

Edge = tuple[str, str]


def writes(compiled: Compiled) -> dict[str, set[Direction]]:
    """The directions each sender writes, in the order of execution; parts the program leaves empty are not there."""
    found = {"embed": {d for d in compiled.directions if d == ONE or d.name in ("tokens", "indices")}}
    for layer, (heads, neurons) in enumerate(zip(compiled.heads, compiled.neurons)):
        for h, head in enumerate(heads):
            found[f"a{layer}.h{h}"] = {d for row in head.o for d in row}
        if neurons:
            found[f"m{layer}"] = {d for neuron in neurons for d in neuron.writes}
    return found


def reads(compiled: Compiled) -> dict[str, set[Direction]]:
    """The directions each receiver reads."""
    found: dict[str, set[Direction]] = {}
    for layer, (heads, neurons) in enumerate(zip(compiled.heads, compiled.neurons)):
        for h, head in enumerate(heads):
            for part, rows in (("q", head.q), ("k", head.k), ("v", head.v)):
                found[f"a{layer}.h{h}.{part}"] = {d for row in rows for d in row}
        if neurons:
            found[f"m{layer}"] = {d for neuron in neurons for d in neuron.reads}
    return found | {"logits": set(compiled.out)}


def wired(compiled: Compiled) -> set[Edge]:
    """Edges whose receiver reads a direction that the sender writes: all others carry nothing, whatever happens."""
    order = list(writes(compiled))
    written = writes(compiled)
    found = set()
    for receiver, read in reads(compiled).items():
        for sender in order:
            if (sender == receiver or _after(sender, receiver)) or not written[sender] & read:
                continue
            found.add((sender, receiver))
    return found


def _after(sender: str, receiver: str) -> bool:
    """Whether the sender comes too late to be read: heads come before the MLP of their layer."""
    def half(name: str) -> int:
        return {"embed": -1, "logits": 10**6}.get(name, 2 * int(name[1:].split(".")[0]) + (name[0] == "m") if name[1].isdigit() else -1)

    return half(sender) >= half(receiver)


def circuit(compiled: Compiled) -> set[Edge]:
    """The edges the program needs: those wired, less those whose loss no head would notice.

    A query or a key may be wired and idle: `select(tokens, tokens, true)` looks everywhere whatever it reads, and a
    head that always selects something never falls back on BOS. Such an edge is left out when, for every input, the
    head's hard attention is the same without it at every position after BOS.
    """
    return wired(compiled) - idle(compiled)


def idle(compiled: Compiled) -> set[Edge]:
    """Edges into queries and keys that are wired and never needed."""
    edges = {
        (sender, receiver): (head, receiver[-1])
        for layer, heads in enumerate(compiled.heads)
        for h, head in enumerate(heads)
        for sender, receiver in wired(compiled)
        if receiver in (f"a{layer}.h{h}.q", f"a{layer}.h{h}.k")
    }
    needed: set[Edge] = set()
    for xs in compiled.program.inputs():
        known: dict[Expr, list[Value]] = {}
        for edge, (head, part) in edges.items():
            if edge not in needed and any(_moved(compiled, head, part, edge[0], xs, known)):
                needed.add(edge)
    return set(edges) - needed


def _moved(compiled: Compiled, head: Head, part: str, sender: str, xs, known) -> Iterator[bool]:
    """At each position, whether the head looks elsewhere once the sender is cut from its query or key."""
    select: Select = head.expr.select
    lost = select.queries if part == "q" else select.keys
    keeps_sequence = compiled.places[lost.name][-1] != sender
    keeps_bos = sender != "embed"  # which writes `one`, read by queries, and BOS, read by keys
    keys, queries = evaluate(select.keys, xs, known), evaluate(select.queries, xs, known)
    for query in queries:
        scores = [float(select.holds(key, query)) for key in keys]
        cut = [score * keeps_sequence for score in scores]
        yield _hardest([head.to_bos, *scores]) != _hardest([head.to_bos * keeps_bos, *cut])


def _hardest(scores: list[float]) -> list[int]:
    return [i for i, score in enumerate(scores) if score == max(scores)]
