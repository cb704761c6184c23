"""Sweeps that somebody asked for, one after another on one thread, each to be cancelled by itself."""

from __future__ import annotations

import queue
from collections.abc import Callable


class Jobs:
    """`work` runs `run(name, stopped)` for every name asked for; a name already waiting or done is not run again."""

    def __init__(self, run: Callable[[str, Callable[[], bool]], None]) -> None:
        self._run = run
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._known: set[str] = set()
        self._cancelled: set[str] = set()

    def ask(self, name: str, again: bool = False) -> None:
        """Queue a job; `again` runs one that is done or was cancelled once more."""
        if again or name not in self._known:
            self._known.add(name)
            self._cancelled.discard(name)
            self._waiting.put(name)

    def cancel(self, name: str) -> None:
        self._cancelled.add(name)

    def work(self, stopped: Callable[[], bool]) -> None:
        """Run what is asked for until told to stop."""
        while not stopped():
            try:
                name = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            if name not in self._cancelled:
                self._run(name, lambda: stopped() or name in self._cancelled)  # noqa: B023 - called within its turn
