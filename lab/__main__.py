"""`python -m lab <command>`: each command is a module with `main(argv)`, imported when it is called."""

import importlib
import os
import sys

COMMANDS = {
    "runs": ("lab.runs.cli", "list, show, cancel, resume, compare, delete runs"),
    "records": ("lab.records", "measurements, newest per id"),
    "exhibits": ("lab.exhibits", "the plan, and where it stands"),
    "bench": ("lab.bench", "measure the records anew; --gpu for those that need one"),
    "fetch": ("lab.models.cli", "get a model ready: download, verify, convert"),
    "share": ("lab.share", "write the lab as offline HTML files"),
    "serve": ("lab.server", "serve the lab on one port"),
    "pocket": ("lab.train.pocket", "train the bundled models again"),
}


def usage() -> str:
    lines = [f"  {name:<10}{what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(["usage: python -m lab <command> [--help]", "", *lines])


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0
    command, *rest = argv
    if command not in COMMANDS:
        print(f"There is no command {command!r}.\n{usage()}", file=sys.stderr)
        return 2
    from lab.errors import LabError

    try:
        return importlib.import_module(COMMANDS[command][0]).main(rest) or 0
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader (`| head`) has gone; keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
