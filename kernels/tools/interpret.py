"""Check a kernel's source under Triton's interpreter, against float64."""

from dataclasses import dataclass
from math import isfinite

from .process import ask

# relative error a correct kernel stays under: a few roundings of the storage type
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
# and how many times torch's own error is allowed: the interpreter cuts bfloat16 off where a GPU rounds to nearest
TIMES_TORCH = {"float32": 2, "float16": 2, "bfloat16": 4}


@dataclass
class Check:
    """One input: relative errors ||got - float64|| / ||float64|| of the output and of the input's gradient.

    The gradient of a nearly one-hot row is a small difference of large terms, so storage types lose more than a
    few roundings there: a few times what torch's own operator loses on the same input is allowed as well.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    forward: float
    backward: float
    seconds: float
    forward_torch: float
    backward_torch: float

    @property
    def ok(self) -> bool:
        few, times = TOLERANCE[self.dtype], TIMES_TORCH[self.dtype]
        pairs = ((self.forward, self.forward_torch), (self.backward, self.backward_torch))
        return all(mine <= max(few, times * torch if isfinite(torch) else 0) for mine, torch in pairs)


def cases(shape: tuple[int, int], dtype: str) -> list[dict]:
    """The shape asked for, and the inputs that break a careless softmax."""
    inf, nan = float("inf"), float("nan")
    return [
        {"name": "random", "shape": shape, "dtype": dtype},
        {"name": "one column", "shape": (5, 1), "dtype": dtype},
        {"name": "odd length", "shape": (3, 129), "dtype": dtype},
        {"name": "longer than one tile", "shape": (2, 40001), "dtype": dtype},
        {"name": "a value is -inf", "shape": (4, 37), "dtype": dtype, "plant": [((1, 5), -inf)]},
        {"name": "a whole row is -inf", "shape": (4, 37), "dtype": dtype, "plant": [((2,), -inf)]},
        {"name": "a value is NaN", "shape": (4, 37), "dtype": dtype, "plant": [((0, 3), nan)]},
        {"name": "very large values", "shape": (4, 37), "dtype": dtype, "plant": [((3,), 60000.0)]},
    ]


def interpret_source(
    source: str, entry: str, shape: tuple[int, int], dtype: str, seed: int, timeout: float = 60
) -> list[Check]:
    """Run `entry(x)` and its gradient on random inputs drawn from `seed`; KernelError points at the line."""
    answer = ask(
        "interpret", source, timeout, interpret=True, entry=entry, cases=cases(shape, dtype), seed=seed
    )
    return [Check(**{k: v for k, v in row.items() if k != "plant"}) for row in answer["cases"]]
