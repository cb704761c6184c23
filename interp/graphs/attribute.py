"""The exact graph of direct effects in a model whose MLPs are written in features (Ameisen et al. 2025, "Circuit
tracing"; Dunefsky et al. 2024).

Each MLP's output is split into what its transcoder's active features write and an error, what the transcoder misses.
With attention patterns and the denominators of the norms held as they are in this run, everything between the features
is linear: the pre-activation of a feature is the sum of what every earlier feature, error and token embedding writes,
carried to it by the heads, and a constant. An edge is one such term, so the edges into a node add up to it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from interp.features import Dictionary, transcoders
from interp.sites import Hook
from lab.errors import LabError
from lab.models import Decoder

ROWS = 32  # targets traced back in one pass
MOST = 6000  # features active on a prompt, at most: the matrix of edges has that squared


@dataclass(frozen=True)
class Node:
    """kind "token" (an embedding), "error", "feature" (`index` in its layer's transcoder) or "logit" (`index` a token)."""

    kind: str
    layer: int  # of a token -1, of a logit the number of layers
    position: int
    index: int = 0


@dataclass
class AttributionGraph:
    """`nodes`, sources before what they can reach; `edges` [target, source]: how much the source adds to the target's
    pre-activation, or to its logit. Rows of tokens and errors are zero: they are where the graph begins; so are those
    of features not `traced` back.

    `value` [node]: activation of a feature, centred logit of a token, 1 elsewhere. `constant` [node]: what biases add.
    `target` [node]: the pre-activation or centred logit that the row sums to. `weight` [node]: of logits their
    probability, 0 elsewhere.
    """

    nodes: list[Node]
    edges: Tensor
    value: Tensor
    constant: Tensor
    target: Tensor
    weight: Tensor
    tokens: list[int]
    traced: Tensor
    active: list[Tensor] = field(default_factory=list)  # [layer] of [feature node, (position, index)]

    def shares(self) -> Tensor:
        """|edges| with every traced row made to sum to one: what share of a node's inputs comes from where."""
        size = self.edges.abs()
        return size / size.sum(1, keepdim=True).clamp_min(1e-300)

    def influence(self) -> Tensor:
        """[node]: the part of the logits, by their probability, that flows through each node along all paths."""
        flow, shares = self.weight.clone(), self.shares()
        for i in self.traced.nonzero()[:, 0].flip(0).tolist():  # later nodes first: edges run from earlier to later
            flow += flow[i] * shares[i]
        return flow

    def find(self, kind: str) -> list[int]:
        return [i for i, node in enumerate(self.nodes) if node.kind == kind]


@dataclass(frozen=True)
class _Frozen:
    """One run of the model: what it reads and writes at its MLPs, its patterns and norm denominators."""

    read: list[Tensor]  # [layer] of [pos, d]
    written: list[Tensor]
    kept: dict[str, Tensor]  # patterns and scales by hook name, [1, ...]
    logits: Tensor  # [vocab], at the last position


def bundle(lm) -> list[Dictionary]:
    """One transcoder a layer of this model; LabError when there is none, or when one is gated: its features do not pass
    on a change of their pre-activation one to one, which `check.predicted` counts on."""
    found = transcoders(lm.name)
    if len(found) != lm.config.n_layers:
        raise LabError(f"{lm.name} has no transcoder for every layer; choose pocket, or train them in the Features notebook.")
    if any(d.kind == "gated" for d in found):
        raise LabError("Attribution graphs are made with TopK or JumpReLU transcoders; choose such ones.")
    return found


@torch.no_grad()
def frozen(model: Decoder, tokens: Sequence[int]) -> _Frozen:
    keep: dict[str, Tensor] = {}
    names = [n for n in model.hook_names() if n.endswith(("hook_pattern", "hook_scale", "ln2.hook_normalized", "hook_mlp_out"))]

    def store(x: Tensor, name: str) -> None:
        keep[name] = x

    logits = model(torch.tensor([list(tokens)], device=model.device), hooks=dict.fromkeys(names, store))
    layers = range(model.cfg.n_layers)
    return _Frozen(
        [keep[f"blocks.{i}.ln2.hook_normalized"][0] for i in layers], [keep[f"blocks.{i}.hook_mlp_out"][0] for i in layers],
        {n: x for n, x in keep.items() if n.endswith(("hook_pattern", "hook_scale"))}, logits[0, -1],
    )  # fmt: skip


def attribute(
    lm, tokens: Sequence[int], dictionaries: Sequence[Dictionary], features: int = 192, top: int = 5, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[float, AttributionGraph]]:
    """Yield (share done, graph) while the graph grows: the `top` logits are traced back, then, a batch at a time, the
    features with the most influence on them, `features` in all.

    Computed in `dtype` on a copy of the weights: rounding of bfloat16 would be edges. LabError for a prompt that is too
    long, and for a model whose stream biases or learned positions write to.
    """
    if lm.config.bias or lm.config.positions == "learned":
        raise LabError(f"{lm.name} adds biases or learned positions to its stream, which are no node of this graph; choose a model without.")
    model = Decoder(lm.config).to(lm.model.device, dtype)
    model.load_state_dict(lm.model.state_dict())
    model.requires_grad_(False)
    dictionaries = [_copied(d, model) for d in dictionaries]
    run = frozen(model, tokens)
    graph, recon = _nodes(model, run, dictionaries, tokens, top)
    features = min(features, len(graph.find("feature")))
    _fill(model, run, dictionaries, graph, recon, graph.find("logit"))
    left, done = set(graph.find("feature")), 0
    yield 0.0, graph
    while done < features:
        flow = graph.influence()
        part = sorted(left, key=lambda i: -float(flow[i]))[: min(ROWS, features - done)]
        _fill(model, run, dictionaries, graph, recon, part)
        left -= set(part)
        done += len(part)
        yield done / features, graph


def _copied(dictionary: Dictionary, model: Decoder) -> Dictionary:
    out = Dictionary(dictionary.shape).to(model.device, model.dtype)
    out.load_state_dict(dictionary.state_dict())
    return out.requires_grad_(False)


@torch.no_grad()
def _nodes(model, run: _Frozen, dictionaries: Sequence[Dictionary], tokens: Sequence[int], top: int) -> tuple[AttributionGraph, list[Tensor]]:
    n, layers = len(tokens), model.cfg.n_layers
    nodes = [Node("token", -1, p, int(t)) for p, t in enumerate(tokens)]
    values, targets, active, recon = [1.0] * n, [0.0] * n, [], []
    for layer, (dictionary, x) in enumerate(zip(dictionaries, run.read)):
        pre = dictionary.pre(x)
        acts = dictionary.activate(pre)
        at = acts.nonzero()
        active.append(at)
        recon.append(dictionary.decode(acts))
        nodes += [Node("error", layer, p) for p in range(n)]
        nodes += [Node("feature", layer, p, i) for p, i in at.tolist()]
        chosen = (at[:, 0], at[:, 1])
        values += [1.0] * n + acts[chosen].tolist()
        targets += [0.0] * n + pre[chosen].tolist()
    count = sum(len(a) for a in active)
    if count > MOST:
        raise LabError(f"{count:,} features are active on this prompt and the graph holds {MOST:,}: shorten it.")
    logits = run.logits.double()
    probs = logits.softmax(-1).topk(top)
    nodes += [Node("logit", layers, n - 1, int(t)) for t in probs.indices]
    centred = (logits - logits.mean())[probs.indices]
    values += centred.tolist()
    targets += centred.tolist()
    size = len(nodes)
    weight = torch.zeros(size, dtype=torch.float64)
    weight[-top:] = probs.values
    empty = torch.zeros(size, dtype=torch.float64)
    return AttributionGraph(
        nodes, torch.zeros(size, size, dtype=torch.float64), torch.tensor(values, dtype=torch.float64), empty,
        torch.tensor(targets, dtype=torch.float64), weight, list(tokens), torch.zeros(size, dtype=torch.bool), active,
    ), recon  # fmt: skip


def _fill(model, run: _Frozen, dictionaries, graph: AttributionGraph, recon: Sequence[Tensor], part: Sequence[int]) -> None:
    """Trace these targets back: one row of a batch each, one backward pass for all of them."""
    rows, layers = len(part), model.cfg.n_layers
    seen: dict[str, Tensor] = {}
    leaves: dict[str, Tensor] = {}

    def leaf(x: Tensor, name: str) -> Tensor:
        leaves[name] = x.detach().requires_grad_()
        return leaves[name]

    def hold(x: Tensor, name: str) -> Tensor:
        return run.kept[name].expand(rows, *run.kept[name].shape[1:])

    def note(x: Tensor, name: str) -> None:
        seen[name] = x

    hooks: dict[str, Hook] = {"hook_embed": leaf, **dict.fromkeys(run.kept, hold)}
    hooks |= {f"blocks.{i}.hook_mlp_out": leaf for i in range(layers)}
    hooks |= {f"blocks.{i}.ln2.hook_normalized": note for i in range(layers)}
    hooks["ln_final.hook_normalized"] = note
    with torch.enable_grad():
        model(torch.tensor([graph.tokens], device=model.device).expand(rows, -1), hooks=hooks)
        total = torch.zeros((), dtype=model.dtype)
        for row, i in enumerate(part):
            total = total + _value(model, dictionaries, graph.nodes[i], seen, row)
        grads = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values()), allow_unused=True)))
    with torch.no_grad():
        lines = torch.zeros(rows, len(graph.nodes), dtype=torch.float64)
        written = torch.zeros(rows, dtype=torch.float64)  # by the transcoders' decoder biases
        embed = leaves["hook_embed"][0]
        lines[:, : len(embed)] = torch.einsum("rpd,pd->rp", _or_zero(grads["hook_embed"], leaves["hook_embed"]), embed).double()
        at = len(embed)
        for layer, (dictionary, out, whole) in enumerate(zip(dictionaries, recon, run.written)):
            name = f"blocks.{layer}.hook_mlp_out"
            grad = _or_zero(grads[name], leaves[name])
            lines[:, at : at + len(whole)] = torch.einsum("rpd,pd->rp", grad, whole - out.to(whole.dtype)).double()
            at += len(whole)
            where, acts = graph.active[layer], graph.value[at : at + len(graph.active[layer])]
            reach = torch.einsum("rfd,fd->rf", grad[:, where[:, 0]], dictionary.W_dec[where[:, 1]].to(grad.dtype))
            lines[:, at : at + len(where)] = reach.double() * acts
            written += torch.einsum("rpd,d->r", grad, dictionary.b_dec.to(grad.dtype)).double()
            at += len(where)
        graph.edges[part] = lines
        graph.traced[part] = True
        at_rest = [graph.nodes[i] for i in part]
        biases = [float(dictionaries[n.layer].b_enc[n.index]) if n.kind == "feature" else 0.0 for n in at_rest]
        graph.constant[part] = written + torch.tensor(biases, dtype=torch.float64)


def _or_zero(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad


def _value(model, dictionaries, node: Node, seen: dict[str, Tensor], row: int) -> Tensor:
    """The target as a function of the stream: pre-activation without its bias, or centred logit."""
    if node.kind == "logit":
        normal = seen["ln_final.hook_normalized"][row, node.position] * model.norm_gain("ln_final")
        return normal @ (model.W_U[:, node.index] - model.W_U.mean(1))
    x = seen[f"blocks.{node.layer}.ln2.hook_normalized"][row, node.position]
    return x @ dictionaries[node.layer].W_enc[:, node.index].to(x.dtype)
