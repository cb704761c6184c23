"""A RASP program as the weights of a transformer: a model whose every part is known (Lindner et al. 2023).

The model is our own decoder with learned positions, ReLU, no norm, no biases, and attention in both directions. Each
part stands in the first layer where what it reads is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.truth.parts import BOS, ONE, Direction, Head, Neuron, Row, domain, head, neurons, width_at
from interp.truth.rasp import CATEGORICAL, Aggregate, Expr, Program, SelectorWidth, Value, indices, tokens
from lab.errors import LabError
from lab.models import Decoder, ModelConfig


@dataclass(frozen=True)
class Compiled:
    """A program and the model that runs it.

    `directions` name the residual stream's dimensions; `heads[layer]` and `neurons[layer]` are its parts; `places`
    says which parts make each sequence, as nodes of a circuit, the last one the sequence itself.
    """

    program: Program
    model: Decoder
    directions: list[Direction]
    heads: list[list[Head]]
    neurons: list[list[Neuron]]
    places: dict[str, tuple[str, ...]]

    @property
    def labels(self) -> list[str]:
        return [d.label for d in self.directions]

    @property
    def out(self) -> list[Direction]:
        """The directions of the logits."""
        return _space(self.program.output, self.directions)

    def encode(self, xs: Sequence[Value]) -> Tensor:
        """BOS and the tokens as ids, [1, 1 + len(xs)]; LabError for an input the program is not meant for."""
        self.program.check(xs)
        return torch.tensor([[0, *(1 + self.program.vocab.index(x) for x in xs)]])

    def decode(self, logits: Tensor) -> list[Value]:
        """[pos, out] to the program's output: after BOS, one value a position, None where no value is on."""
        if self.program.output.encoding != CATEGORICAL:
            return ["BOS", *(float(x) for x in logits[1:, 0])]
        on, which = logits[1:].max(-1)
        return ["BOS", *(self.out[int(i)].value if p > 0.5 else None for p, i in zip(on, which))]

    @torch.no_grad()
    def run(self, xs: Sequence[Value]) -> list[Value]:
        """What the model answers."""
        return self.decode(self.model(self.encode(xs))[0])


def compile_program(program: Program, dtype: torch.dtype = torch.float32) -> Compiled:
    """LabError for a program that cannot be compiled, with the reason."""
    steps = program.steps()
    values = domain(program.vocab, program.length, steps)
    if "BOS" in program.vocab:
        raise LabError("BOS stands for the beginning of the sequence; call that token something else.")
    directions = [ONE, BOS]
    for expr in (tokens, indices, *steps):
        if isinstance(expr, SelectorWidth):
            directions.append(width_at(expr))
        named = expr.encoding == CATEGORICAL
        directions += [Direction(expr.name, v) for v in values[expr]] if named else [Direction(expr.name)]

    def space(expr: Expr) -> list[Direction]:
        return _space(expr, directions)

    heads: list[list[Head]] = []
    mlps: list[list[Neuron]] = []
    after = {tokens: -1, indices: -1}  # the half layer that made it: attention 2 i, MLP 2 i + 1
    places: dict[str, tuple[str, ...]] = {"tokens": ("embed",), "indices": ("embed",)}
    for expr in steps:
        half = 1 + max(after[read] for read in expr.inputs)
        looks = isinstance(expr, Aggregate | SelectorWidth)
        half += half % 2 if looks else 1 - half % 2
        layer = half // 2
        while len(heads) <= layer:
            heads.append([])
            mlps.append([])
        made: list[str] = []
        if isinstance(expr, Aggregate | SelectorWidth):
            made.append(f"a{layer}.h{len(heads[layer])}")
            heads[layer].append(head(expr, space))
        if not isinstance(expr, Aggregate):
            made.append(f"m{layer}")
            mlps[layer] += neurons(expr, space, values)
            half = 2 * layer + 1
        after[expr], places[expr.name] = half, tuple(made)
    if not steps:
        raise LabError("The program returns what it was given; there is nothing to compile.")
    model = _assemble(program, directions, heads, mlps, dtype)
    return Compiled(program, model, directions, heads, mlps, places)


def _space(expr: Expr, directions: Sequence[Direction]) -> list[Direction]:
    """The directions of a sequence, BOS left out."""
    return [d for d in directions if d.name == expr.name and d != BOS]


def _assemble(program: Program, directions, heads: list[list[Head]], mlps: list[list[Neuron]], dtype) -> Decoder:
    n_heads = max(1, *(len(layer) for layer in heads))
    d_head = max((h.size for layer in heads for h in layer), default=1)
    at = {d: i for i, d in enumerate(directions)}
    out = _space(program.output, directions)
    cfg = ModelConfig(
        vocab_size=1 + len(program.vocab), d_model=len(directions), n_layers=len(heads), n_heads=n_heads,
        n_kv_heads=n_heads, d_head=d_head, d_mlp=max(1, *(len(layer) for layer in mlps)), context=1 + program.length,
        tied=False, norm="none", positions="learned", act="relu", causal=False, out_vocab=len(out),
    )  # fmt: skip
    model = Decoder(cfg).to(dtype).requires_grad_(False)
    weights = {name: torch.zeros_like(p) for name, p in model.state_dict().items()}

    def put(name: str, row: int, vector: Row, column: bool = False) -> None:
        matrix = weights[name].T if column else weights[name]
        for direction, value in vector.items():
            matrix[row, at[direction]] = value

    for i, token in enumerate([BOS, *(Direction("tokens", v) for v in program.vocab)]):
        put("model.embed_tokens.weight", i, {token: 1.0, ONE: 1.0})
    for i in range(program.length):
        put("model.embed_positions.weight", i + 1, {Direction("indices", i): 1.0})
    for i, d in enumerate(out):
        put("lm_head.weight", i, {d: 1.0})
    for layer, (layer_heads, layer_neurons) in enumerate(zip(heads, mlps)):
        base = f"model.layers.{layer}"
        for h, one in enumerate(layer_heads):
            for part, rows in (("q", one.q), ("k", one.k), ("v", one.v), ("o", one.o)):
                for i, row in enumerate(rows):
                    put(f"{base}.self_attn.{part}_proj.weight", h * d_head + i, row, column=part == "o")
        for i, neuron in enumerate(layer_neurons):
            put(f"{base}.mlp.up_proj.weight", i, neuron.reads)
            put(f"{base}.mlp.down_proj.weight", i, neuron.writes, column=True)
    model.load_state_dict(weights)
    return model
