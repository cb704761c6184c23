"""How long the exact sweep of heads at every position takes."""

import time

import torch

from lab import models, records
from lab.bench import bench
from lab.bench.interp import EIFFEL, ten_tokens, timed


def _pairs():
    from interp.prompts import prepare

    small, real = models.load("pocket"), models.load("smollm2-135m", dtype=torch.bfloat16)
    return (("pocket", small, ten_tokens(small)), ("smollm2", real, prepare(real, *EIFFEL, "Tokyo", "Paris")))


@bench("interp")
def headsweep() -> None:
    """Every head at every position: 40 x 10 of the bundled model, 270 x 10 of SmolLM2."""
    from interp.headsweep import by_position, preview, shape_by_position
    from interp.sweep import sweep

    cases, details = {}, {}
    for case, lm, pair in _pairs():
        cells, shape = by_position(lm.config, pair, "z"), shape_by_position(lm.config, pair, "z")
        cost = preview(lm.model, pair, "z", cells)
        first: list[float] = []

        def run(lm=lm, pair=pair, cells=cells, shape=shape, first=first) -> None:
            started = time.perf_counter()
            for result in sweep(lm.model, pair, "z", cells=cells, shape=shape):
                if result.done and not first:
                    first.append(time.perf_counter() - started)

        cases[case], runs = timed(run, 3)
        details[case] = {
            "runs": runs, "cells": len(cells), "first_results_s": first[0], "expected_s": cost.seconds,
            "expected_bytes": cost.bytes, "dtype": str(lm.model.dtype), "weights": lm.source,
        }  # fmt: skip
    records.write_cases(
        "interp.headsweep_s", cases, "s", bar={"pocket": 2.0, "smollm2": 25.0}, details=details,
        note="median of 3, head output z, every head x 10 tokens, exact, filling as it goes",
    )  # fmt: skip
