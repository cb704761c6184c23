"""Keep the front page's widget true: a thread of the tab that sets a trait only when it changed."""

import time
from collections.abc import Callable
from typing import Any

from lab import front, server

EVERY = 1.0  # seconds
SELDOM = 5  # turns between looks at what changes seldom


def feed(shell: Any, current_thread: Callable[[], Any]) -> None:
    """Feed the tab's `widgets.shell.Shell` until its cell is gone; a quiet lab sends nothing.

    `current_thread` is `mo.current_thread`; the tab's own names are cleared when it closes, so none is used here."""
    try:
        _follow(shell, current_thread())
    except Exception as error:  # whatever it is, the page must not look alive when it is not
        shell.trouble = f"This page no longer follows the lab ({type(error).__name__}: {error}); reload it."
        raise


def _follow(shell: Any, thread: Any) -> None:
    known: server.Child | None = None
    turn = 0
    while not thread.should_exit:
        now: dict[str, Any] = {"runs": front.recent_runs()}
        if turn % SELDOM == 0:
            now |= front.still()
            front.write_head()
        if server.here is None:
            child = server.child()
            if known not in (None, child):
                now["trouble"] = (
                    "The notebooks' server ended and was started again; open notebooks begin anew."
                )
            known = child
            now |= {"lab": child.lab, "models": child.models}
        else:
            now["lab"] = server.here
            if turn % SELDOM == 0:
                now["models"] = front.models()
        for name, value in now.items():
            if getattr(shell, name) != value:
                setattr(shell, name, value)
        turn += 1
        time.sleep(EVERY if now["lab"] else EVERY / 10)
