"""Inference in small named functions: prefill, decode one token, sample, generate, score, and what each costs."""

from lab.infer.cost import Cost, step_cost
from lab.infer.generate import Token, generate
from lab.infer.sampling import probabilities, sample
from lab.infer.score import Completion, Scored, complete, score
from lab.infer.steps import decode_one, prefill
from lab.infer.text import TextStream

__all__ = [
    "Completion",
    "Cost",
    "Scored",
    "TextStream",
    "Token",
    "complete",
    "decode_one",
    "generate",
    "prefill",
    "probabilities",
    "sample",
    "score",
    "step_cost",
]
