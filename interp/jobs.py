"""Sweeps that somebody asked for, one after another on one thread, each to be cancelled by itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Jobs:
    """`work` runs `run(name, stopped)` for every name asked for; a name already waiting or done is not run again."""

    def __init__(self, run: Callable[[str, Callable[[], bool]], None]) -> None:
        self._run = run
        self._waiting: deque[str] = deque()
        self._known: set[str] = set()
        self._cancelled: set[str] = set()
        self._changed = threading.Condition()

    def ask(self, name: str, again: bool = False) -> None:
        """Queue a job; `again` runs one that is done or was cancelled once more."""
        with self._changed:
            if name not in self._waiting and (again or name not in self._known):
                self._known.add(name)
                self._waiting.append(name)
                self._changed.notify()

    def cancel(self, name: str) -> None:
        """Take a job off the queue, or stop it if it runs."""
        with self._changed:
            if name in self._waiting:
                self._waiting.remove(name)
            self._cancelled.add(name)

    def work(self, stopped: Callable[[], bool]) -> None:
        """Run what is asked for until told to stop."""
        while not stopped():
            with self._changed:
                if not self._waiting and not self._changed.wait(0.2):
                    continue
                name = self._waiting.popleft()
                self._cancelled.discard(name)
            self._run(name, lambda: stopped() or name in self._cancelled)  # noqa: B023 - called within its turn
