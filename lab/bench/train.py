"""The first run of the notebook, measured: how soon a small model knows its first facts, and how soon a run works."""

import os
import tempfile
import time

from lab import records, runs
from lab.bench import bench
from lab.errors import LabError


@bench("train")
def first_run() -> None:
    """Train the default first run as the notebook does, in a run of its own."""
    from lab.train import view

    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAB_RUNS"] = folder
        began = time.perf_counter()
        run = runs.start("train", view.FIRST.to_dict())
        while run.state == "starting":
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        if run.wait(1800) != "done":
            raise LabError(f"The first run did not finish: {run.error or run.state}.")
        rows = [row for row in run.metrics() if view.FIRST.data in row]
        started = run.status["started"]
    half = next((row for row in rows if row[view.FIRST.data] >= 0.5), None)
    if half is None:
        raise LabError("The first run never recalled half of its facts; look at its learning rate.")
    detail = {"spec": view.FIRST.to_dict(), "recall": [[row["step"], row[view.FIRST.data]] for row in rows]}
    records.write(
        "train.first_run.seconds_to_half", half["time"] - started, "s", bar=60.0,
        compared="a minute: what somebody watches without leaving", detail={"step": half["step"]},
        note="from the start of the process to the evaluation at which half of the held-out prompts are right",
    )  # fmt: skip
    records.write(
        "train.first_run.recall", rows[-1][view.FIRST.data], "share of held-out prompts", bar=0.9, better="higher",
        detail=detail,
    )  # fmt: skip
    records.write(
        "runs.start_s",
        seconds,
        "s",
        bar=1.0,
        note="from the call until the run's own process says it is running",
    )
