"""Check a kernel's source under Triton's interpreter, against float64."""

from dataclasses import dataclass

from .process import ask

# relative error a correct kernel stays under: a few roundings of the storage type
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass
class Check:
    """One input: relative errors ||got - float64|| / ||float64|| of the output and of the input's gradient."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    forward: float
    backward: float
    seconds: float

    @property
    def ok(self) -> bool:
        return max(self.forward, self.backward) <= TOLERANCE[self.dtype]


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
