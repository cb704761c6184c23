"""Live views: a thread tails run directories and sets the traits of widgets; no cell runs again for it."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lab import jsonl
from lab.errors import LabError
from lab.page.parts import live
from lab.runs import LIVE, Run
from widgets.curves import Curves
from widgets.run_monitor import RunMonitor
from widgets.scrubber import Scrubber

_POLL_S = 0.25  # while it runs
_IDLE_S = 1.5  # after it ended: somebody may resume it, here or in a terminal


class View:
    """What is shown of one run; `update` reads what is new on the disk into the widgets."""

    def __init__(
        self, run: Run, curves: Curves, monitor: RunMonitor | None = None, scrubber: Scrubber | None = None
    ) -> None:
        self.run, self.curves, self.monitor, self.scrubber = run, curves, monitor, scrubber
        self._tail = jsonl.Tail(run.path / "metrics.jsonl")
        self._pace: deque[tuple[int, float]] = deque(maxlen=60)  # (step, time) of the latest rows
        self._values: dict[str, Any] = {}
        self._samples: list[dict[str, Any]] = []
        if scrubber is not None:
            with scrubber.hold_sync():
                scrubber.value, scrubber.steps = None, []
        if monitor is not None:
            steps = _spec(run).get("steps", 0)
            with monitor.hold_sync():
                monitor.run, monitor.label, monitor.steps = (
                    run.id,
                    run.id,
                    steps if isinstance(steps, int) else 0,
                )
                monitor.state, monitor.message, monitor.step = "", "", 0
                monitor.seconds, monitor.left, monitor.values, monitor.samples = 0.0, None, {}, []

    def update(self) -> bool:
        """Returns whether the run is still live."""
        state = self.run.state  # before the rows: what ended has written everything
        rows = self._tail.rows()
        self.curves.append(rows, series=self.run.id)
        if self.monitor is not None and self.monitor.run == self.run.id:  # it may show another run by now
            self._tell(self.monitor, state, rows)
        if self.scrubber is not None:
            marks = [checkpoint.step for checkpoint in self.run.checkpoints()]
            if marks != self.scrubber.steps:
                with self.scrubber.hold_sync():
                    self.scrubber.steps = marks
                    if self.scrubber.value is None and marks:
                        self.scrubber.value = marks[-1]
        return state in LIVE

    def _tell(self, monitor: RunMonitor, state: str, rows: list[jsonl.Row]) -> None:
        for row in rows:
            self._values |= {k: v for k, v in row.items() if isinstance(v, (int, float)) and k != "time"}
            if "sample" in row:
                prompt, text = self._split(row["sample"])
                self._samples = [*self._samples[-7:], {"step": row["step"], "prompt": prompt, "text": text}]
            if "time" in row:
                self._pace.append((row["step"], row["time"]))
        with monitor.hold_sync():
            if rows:
                monitor.values, monitor.samples = dict(self._values), list(self._samples)
                monitor.step = int(self._values.get("step", 0))
            if state != monitor.state:
                monitor.state = state
                monitor.message = self.run.error or ""
            if state in LIVE or not monitor.seconds:
                monitor.seconds = round(self._seconds(state, rows), 1)
            monitor.left = self._left(monitor.steps - monitor.step) if state == "running" else None

    def _split(self, sample: str) -> tuple[str, str]:
        """The prompt a sample was written for, and what the model wrote."""
        prompt = str(_spec(self.run).get("sample", ""))
        return (prompt, sample[len(prompt) :]) if sample.startswith(prompt) else ("", sample)

    def _left(self, steps: int) -> float | None:
        """Seconds that many steps take at the pace of the latest rows, evaluations and checkpoints included."""
        if len(self._pace) < 2 or steps <= 0:
            return None
        (first, began), (last, now) = self._pace[0], self._pace[-1]
        return (now - began) / (last - first) * steps if last > first else None

    def _seconds(self, state: str, rows: list[jsonl.Row]) -> float:
        try:
            status = self.run.status
        except LabError:
            return 0.0
        end = time.time() if state in LIVE else status.get("ended") or (rows[-1].get("time", 0.0) if rows else 0.0)
        return max(0.0, end - status.get("started", end))


def _spec(run: Run) -> dict[str, Any]:
    """What the run was asked to do; nothing when somebody damaged it, which its `error` says."""
    try:
        return run.spec
    except LabError:
        return {}


def watch(mo: Any, runs: Sequence[Run], curves: Curves, monitor: RunMonitor | None = None,
          scrubber: Scrubber | None = None) -> None:  # fmt: skip
    """Show `runs` in `curves`, one series each (its id), and the first of them in `monitor` and `scrubber`.

    What is on the disk is shown at once. On a served page a thread then follows it until the cell runs again or
    the page is closed; in an export or a test there is no thread.
    """
    views = [
        View(run, curves, monitor if i == 0 else None, scrubber if i == 0 else None)
        for i, run in enumerate(runs)
    ]
    for view in views:
        _safely(view.update, monitor)
    if views and live(mo):
        mo.Thread(target=_follow, args=(mo, views, monitor), daemon=True).start()


def _follow(mo: Any, views: list[View], monitor: RunMonitor | None) -> None:
    thread = mo.current_thread()
    while not thread.should_exit:
        busy = [_safely(view.update, monitor) for view in views]
        time.sleep(_POLL_S if any(busy) else _IDLE_S)


def _safely(update: Callable[[], bool], monitor: RunMonitor | None) -> bool:
    """A file somebody damaged becomes the monitor's sentence; the other runs go on."""
    try:
        return update()
    except LabError as error:
        if monitor is not None:
            monitor.message = str(error)
        return False


def action(find: Callable[[], Run]) -> Callable[[str], str | None]:
    """What the monitor's buttons do: "cancel" or "resume" the run that `find` gives, which may be gone by then;
    returns a sentence when it cannot."""

    def act(what: str) -> str | None:
        try:
            run = find()
            run.cancel() if what == "cancel" else run.resume()
        except LabError as error:
            return str(error)
        return None

    return act
