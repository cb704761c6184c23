"""The circuit of a compiled program: which edges its weights use, read off the program and not off any experiment.

Nodes and edges are named as in `interp.circuits.graph`: senders `embed`, `a0.h1`, `m0`; receivers `a0.h1.q`, `m0`,
`logits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interp.truth.compile import Compiled
from interp.truth.parts import ONE, Direction, Head
from interp.truth.rasp import NUMERICAL, Expr, SelectorWidth, Value, evaluate
from lab.errors import LabError

Edge = tuple[str, str]


def wired(compiled: Compiled) -> set[Edge]:
    """Edges whose receiver reads a direction that the sender writes: all others carry nothing, whatever happens."""
    written = {"embed": {d for d in compiled.directions if d == ONE or d.name in ("tokens", "indices")}}
    found: set[Edge] = set()

    def read(receiver: str, rows: Iterable[Iterable[Direction]]) -> None:
        directions = {d for row in rows for d in row}
        found.update((sender, receiver) for sender, made in written.items() if made & directions)

    for layer, (heads, neurons) in enumerate(zip(compiled.heads, compiled.neurons)):
        for h, head in enumerate(heads):
            for part, rows in (("q", head.q), ("k", head.k), ("v", head.v)):
                read(f"a{layer}.h{h}.{part}", rows)
        written |= {f"a{layer}.h{h}": {d for row in head.o for d in row} for h, head in enumerate(heads)}
        if neurons:
            read(f"m{layer}", [neuron.reads for neuron in neurons])
            written[f"m{layer}"] = {d for neuron in neurons for d in neuron.writes}
    read("logits", [compiled.out])
    return found


def circuit(compiled: Compiled) -> set[Edge]:
    """The edges the program needs: those wired, less the idle ones."""
    return wired(compiled) - idle(compiled)


def idle(compiled: Compiled) -> set[Edge]:
    """Edges into queries and keys that are wired and whose loss changes the program's output for no input.

    `select(tokens, tokens, true)` looks everywhere whatever it reads, and a head that always selects something never
    falls back on BOS. Decided by the language alone: the head's hard attention is worked out without the edge, and
    the rest of the program is read with what the head then gives.
    """
    looking = {f"a{i}.h{h}.{part}": (head, part) for i, heads in enumerate(compiled.heads) for h, head in enumerate(heads) for part in "qk"}
    edges = {edge: looking[edge[1]] for edge in wired(compiled) if edge[1] in looking}
    needed: set[Edge] = set()
    for xs in compiled.program.inputs():
        known: dict[Expr, list[Value]] = {}
        evaluate(compiled.program.output, xs, known)
        for edge, (head, part) in edges.items():
            if edge not in needed and _matters(compiled, head, part, edge[0], xs, known):
                needed.add(edge)
    return set(edges) - needed


def _matters(compiled: Compiled, head: Head, part: str, sender: str, xs: Sequence[Value], known: dict[Expr, list[Value]]) -> bool:
    """Whether the program answers otherwise once the sender is cut from the head's query or key."""
    select = head.expr.select
    lost = select.queries if part == "q" else select.keys
    keeps_sequence = compiled.places[lost.name][-1] != sender
    keeps_bos = sender != "embed"  # which writes `one`, read by queries, and BOS, read by keys
    given = list(known[head.expr])
    for at, query in enumerate(known[select.queries]):
        scores = [float(select.holds(key, query)) for key in known[select.keys]]
        before = _hardest([head.to_bos, *scores])
        after = _hardest([head.to_bos * keeps_bos, *(score * keeps_sequence for score in scores)])
        if after != before:
            given[at] = _looking_at(head, after, known)
    if given == known[head.expr]:
        return False
    try:
        return evaluate(compiled.program.output, xs, {head.expr: given}) != known[compiled.program.output]
    except LabError:  # it no longer means anything
        return True


def _hardest(scores: Sequence[float]) -> list[int]:
    return [i for i, score in enumerate(scores) if score == max(scores)]


def _looking_at(head: Head, places: Sequence[int], known: dict[Expr, list[Value]]) -> Value:
    """What the head gives when it looks equally at these places, of which 0 is BOS."""
    expr = head.expr
    if isinstance(expr, SelectorWidth):
        return len(places) - 1 if 0 in places else len(known[expr])  # no share for BOS reads as the widest
    values = [known[expr.values][place - 1] for place in places if place]
    if expr.encoding == NUMERICAL:
        return sum(values) / len(places)  # type: ignore[arg-type]
    return values[0] if len(set(values)) == 1 and 0 not in places else None
