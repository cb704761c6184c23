"""Run a model with any set of its edges taken from another run, many sets at once.

A receiver's input is the sum of what all senders before it wrote. Taking the edge from sender s out of another run
means adding (its output there - its output here) to that one receiver's input and to nothing else. "Here" is what the
sender writes in this run, with whatever was replaced before it, so replacing every edge gives exactly the other run
and replacing none the clean one. The other run is the corrupted prompt (`counterfactual`, resample ablation), or its
values are `zero` or the `mean` over the batch.

Nothing that lies before the first changed receiver differs from the clean run, so on our own decoder a run starts in
that layer from the kept stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from interp.circuits.batch import Batch, Measure, measure
from interp.circuits.graph import Graph, Point
from interp.sites import Hook, chain, keep
from lab.errors import LabError
from lab.models.layers import tap

KINDS = {
    "counterfactual": "the corrupted prompt's value (resample)",
    "mean": "the mean over the prompts",
    "zero": "zero",
}
POSITIONS = {
    "all": "every position",
    "changed": "from the first difference on",
    "last": "the last position",
}
TOKENS = 2048  # in one forward
MEMORY = 512e6  # bytes of sender outputs in one forward


def sender_points(graph: Graph) -> Iterator[tuple[str, int, int]]:
    """Hook points where senders write, with the first sender there and how many: the embedding is block 0's input."""
    yield "blocks.0.hook_resid_pre", 0, 1
    at = 1
    for i in range(graph.n_layers):
        yield f"blocks.{i}.attn.hook_result", at, graph.n_heads
        at += graph.n_heads
        if graph.has_mlp:
            yield f"blocks.{i}.hook_mlp_out", at, 1
            at += 1


def record(graph: Graph, into: Tensor) -> dict[str, Hook]:
    """Hooks that write every sender's output into [sender, row, pos, d_model]."""

    def hook(start: int, count: int) -> Hook:
        def store(x: Tensor, name: str) -> None:
            into[start : start + count] = x.permute(2, 0, 1, 3) if x.dim() == 4 else x[None]

        return store

    return {name: hook(start, count) for name, start, count in sender_points(graph)}


def at_ends(ends: Tensor | None) -> Hook:
    """A hook on the last stream that leaves the positions to be read alone: the others are never unembedded."""

    def pick(x: Tensor, name: str) -> Tensor | None:
        if ends is None:
            return None
        rows = torch.arange(len(x), device=x.device)
        return x[rows, ends.repeat(len(x) // len(ends))][:, None]

    return pick


class Study:
    """One model, one batch, one metric: every run with replaced edges starts here.

    `measure` takes the place of the named metric (logits [.., row, position, vocab] -> [.., row]); then `ends=None`
    reads all positions. `means` [sender, d_model] are those of a larger batch, if this is a part of one.
    """

    def __init__(
        self,
        model,
        batch: Batch,
        metric: str = "logit_diff",
        measured: Measure | None = None,
        everywhere: bool = False,
        means: Tensor | None = None,
    ) -> None:
        self.model, self.metric = model, metric
        self.batch = batch.to(model.device)
        self.graph = Graph(model.cfg)
        self.ends = None if everywhere else self.batch.ends
        if not getattr(model.cfg, "causal", True) and not bool((batch.ends == batch.length - 1).all()):
            raise LabError("This model looks at every position, so padding would count; use prompts of one length.")
        self._means = means
        self._starts: list[Tensor] = []
        self.clean, self.clean_logits = self._senders(self.batch.clean, streams=True)
        self.measure = measured or measure(self.batch, metric, self.clean_logits)
        self._others: dict[str, Tensor] = {}

    @torch.no_grad()
    def _senders(self, tokens: Tensor, streams: bool = False) -> tuple[Tensor, Tensor]:
        cfg, model = self.model.cfg, self.model
        out = torch.empty(len(self.graph.senders), *tokens.shape, cfg.d_model, dtype=model.dtype, device=model.device)
        kept: dict[str, Tensor] = {}
        names = [f"blocks.{i}.hook_resid_pre" for i in range(cfg.n_layers)]
        end = self.graph.points[-1].hook
        watch = keep([*names, end], kept) if streams else {}
        logits = model(tokens, hooks=chain(record(self.graph, out), watch, {end: at_ends(self.ends)}))
        if streams:
            self._starts = [kept[name] for name in [*names, end]]
        return out, logits

    def other(self, kind: str) -> Tensor:
        """What senders write in the other run, [sender, row, pos, d_model]."""
        if kind not in KINDS:
            raise LabError(f"There is no ablation called {kind!r}; choose one of {', '.join(KINDS)}.")
        if kind not in self._others:
            if kind == "zero":
                other = torch.zeros_like(self.clean)
            elif kind == "mean":
                other = self.means[:, None, None].expand_as(self.clean)
            else:
                other, _ = self._senders(self.batch.corrupted)
            self._others[kind] = other
        return self._others[kind]

    @cached_property
    def means(self) -> Tensor:
        """Mean output of every sender over all tokens of both prompts of every pair, [sender, d_model]."""
        if self._means is not None:
            return self._means
        real = torch.arange(self.batch.length, device=self.batch.ends.device) <= self.batch.ends[:, None]
        both = torch.cat([self.clean[:, real], self.other("counterfactual")[:, real]], 1)
        return both.mean(1)

    def where(self, positions: str) -> Tensor:
        """Positions at which edges are replaced, bool [row, pos]."""
        if positions not in POSITIONS:
            raise LabError(f"There are no positions {positions!r}; choose one of {', '.join(POSITIONS)}.")
        if positions == "changed":
            return self.batch.changed()
        at = torch.arange(self.batch.length, device=self.batch.ends.device)[None]
        return (at == self.batch.ends[:, None]) if positions == "last" else (at >= 0).expand(len(self.batch), -1)

    # ---- runs

    @torch.no_grad()
    def logits(self, replaced: Tensor, kind: str = "counterfactual", positions: str = "all") -> Tensor:
        """Logits [set, row, read position, vocab] with these edges, bool [set, n_edges], taken from the other run."""
        out = self.clean_logits.repeat(len(replaced), 1, 1, 1)  # where nothing is replaced it stays the clean run, bit for bit
        busy = replaced.any(-1).nonzero().flatten()
        for start in range(0, len(busy), self.sets_at_once):
            group = busy[start : start + self.sets_at_once]
            out[group] = self._run(replaced[group].to(self.clean.device), kind, positions)
        return out

    def values(self, replaced: Tensor, kind: str = "counterfactual", positions: str = "all") -> Tensor:
        """The metric [set, row] with these edges, bool [set, n_edges], taken from the other run; float64."""
        parts = [self.measure(self.logits(p, kind, positions)).double() for p in replaced.split(self.sets_at_once)]
        return torch.cat(parts).cpu()

    def value(self, replaced: Tensor, kind: str = "counterfactual", positions: str = "all") -> float:
        """The metric, averaged over the batch, with one set of edges replaced."""
        return float(self.values(replaced[None], kind, positions).mean())

    @property
    def sets_at_once(self) -> int:
        tokens = self.batch.clean.numel()
        outputs = self.clean.numel() * self.clean.element_size()
        return max(1, min(TOKENS // max(1, tokens), int(MEMORY // outputs)))

    def _run(self, replaced: Tensor, kind: str, positions: str) -> Tensor:
        sets = len(replaced)
        rows, vocab = len(self.batch), self.clean_logits.shape[-1]
        ours = hasattr(self.model, "run_block")
        start = next(p.layer for p in self.graph.points if bool(p.of(replaced).any())) if ours else 0
        where = self.where(positions)
        difference = (self.other(kind) - self.clean) * where[None, ..., None]
        end = self.graph.points[-1].hook
        hooks = chain(Cut(self.graph, replaced, self.other(kind), where, start, difference).hooks(), {end: at_ends(self.ends)})
        if not ours:
            logits = self.model(self.batch.clean.repeat(sets, 1), hooks=hooks)
        else:
            stream = self._starts[start].repeat(sets, 1, 1)
            for layer in range(start, self.graph.n_layers):
                stream = self.model.run_block(layer, stream, hooks)
            if start == self.graph.n_layers:  # only what the logits read is changed: the last block need not run again
                stream = tap(hooks, end, stream)
            logits = self.model.unembed(stream)
        return logits.view(sets, rows, -1, vocab)


class Cut:
    """Hooks of one forward pass over `sets` copies of a batch, each with its own edges replaced.

    `replaced` bool [set, n_edges]; `other` [sender, row, pos, d_model] or broadcastable; `where` bool [row, pos].
    `difference`, if given, is other - clean for the senders before layer `start`, and 0 where nothing is replaced:
    they are known beforehand. All others are compared with `other` as they write.
    """

    def __init__(
        self, graph: Graph, replaced: Tensor, other: Tensor, where: Tensor, start: int = 0, difference: Tensor | None = None
    ) -> None:
        self.graph, self.replaced, self.other, self.where = graph, replaced, other, where
        self.known = difference
        self.first = 0 if difference is None else next(p.senders for p in graph.points if p.layer >= start)
        self.points = [p for p in graph.points if bool(p.of(replaced).any())]
        used = torch.zeros(len(graph.senders), dtype=torch.bool, device=replaced.device)
        for point in self.points:
            used[: point.senders] |= point.of(replaced).any(0).any(0)
        self.writers = [
            (name, at, count)
            for name, at, count in sender_points(graph)
            if at >= self.first and bool(used[at : at + count].any())
        ]
        self.count = max((at + count for _, at, count in self.writers), default=self.first) - self.first
        self.live: Tensor | None = None

    def hooks(self) -> dict[str, Hook]:
        writes = {name: self._write(at, count) for name, at, count in self.writers}
        return chain(writes, {point.hook: self._read(point) for point in self.points})

    def _write(self, at: int, count: int) -> Hook:
        def store(x: Tensor, name: str) -> None:
            sets, (rows, length) = len(self.replaced), self.where.shape
            if self.live is None:
                self.live = x.new_zeros(sets, self.count, rows, length, x.shape[-1])
            here = x.reshape(sets, rows, *x.shape[1:])
            here = here.permute(0, 3, 1, 2, 4) if x.dim() == 4 else here[:, None]
            self.live[:, at - self.first : at - self.first + count] = (self.other[at : at + count] - here) * self.where[..., None]

        return store

    def _read(self, point: Point) -> Hook:
        wanted = point.of(self.replaced)

        def add(x: Tensor, name: str) -> Tensor:
            (sets, receivers), (rows, length) = wanted.shape[:2], self.where.shape
            weights = wanted.to(x.dtype)
            total = x.new_zeros(sets, receivers, rows * length * x.shape[-1])
            before, after = weights[..., : self.first], weights[..., self.first :]
            columns = before.any(0).any(0).nonzero().flatten()
            if len(columns):
                assert self.known is not None
                total += (before[..., columns].flatten(0, 1) @ self.known[columns].flatten(1)).view_as(total)
            if bool(after.any()):
                assert self.live is not None  # its senders have written
                n = min(after.shape[-1], self.count)
                total += torch.bmm(after[..., :n], self.live[:, :n].flatten(2))
            change = total.view(sets, receivers, rows, length, -1).permute(0, 2, 3, 1, 4).flatten(0, 1)
            return x + (change if point.per_head else change[:, :, 0])

        return add


def exact(
    study: Study,
    kind: str = "counterfactual",
    edges: Tensor | None = None,
    progress: Callable[[int, int], bool] | None = None,
) -> Tensor:
    """What each edge is worth by itself: the metric of the clean run minus that with the one edge replaced.

    float64 [n_edges], NaN for edges not in `edges` (place numbers; None: all). `progress(done, total)` is called as it
    goes and stops it by returning False; what was measured stays.
    """
    chosen = torch.arange(study.graph.n_edges) if edges is None else edges.sort().values
    out = torch.full((study.graph.n_edges,), float("nan"), dtype=torch.float64)
    clean = study.value(study.graph.none())
    done = 0
    for point in study.graph.points:  # receivers of one layer together: they start from the same stream
        mine = chosen[(chosen >= point.start) & (chosen < point.start + point.size)]
        for group in mine.split(study.sets_at_once):
            if not len(group):
                continue
            sets = torch.zeros(len(group), study.graph.n_edges, dtype=torch.bool)
            sets[torch.arange(len(group)), group] = True
            out[group] = clean - study.values(sets, kind).mean(-1)
            done += len(group)
            if progress is not None and not progress(done, len(chosen)):
                return out
    return out
