"""`python -m lab fetch`: make models ready before somebody waits for them."""

import argparse
import sys

from lab.models import fetch, io
from lab.models.load import SMOLLM2, resolve

WIDTH = 28  # of the progress bar


def main(argv: list[str]) -> int:
    """Fetch, verify and convert; what is ready already costs nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m lab fetch", description="Get models ready: download, verify, convert."
    )
    parser.add_argument(
        "name", nargs="*", default=[SMOLLM2], help=f"default {SMOLLM2}; or a hub id like org/name"
    )
    for name in parser.parse_args(argv).name:
        if name == SMOLLM2 and fetch.complete(fetch.directory(name)):
            continue
        where = resolve(name, _bar if sys.stderr.isatty() else _lines())
        io.read_config(where)  # a sentence when the directory is no model
        print(f"{name} is ready in {where}")
    return 0


def _bar(fraction: float, text: str) -> None:
    """One line that redraws itself."""
    full = round(WIDTH * min(1.0, fraction))
    end = "\n" if fraction >= 1 else ""
    print(
        f"\r\033[K{'━' * full}{'─' * (WIDTH - full)} {fraction:4.0%}  {text}",
        end=end,
        file=sys.stderr,
        flush=True,
    )


def _lines() -> fetch.Progress:
    """A line whenever the text changes, for logs."""
    said = ""

    def tell(fraction: float, text: str) -> None:
        nonlocal said
        if text != said:
            said = text
            print(f"{fraction:4.0%}  {text}", file=sys.stderr, flush=True)

    return tell
