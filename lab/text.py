"""Plain-text tables for terminals."""

from collections.abc import Collection


def columns(head: list[str], rows: list[list[str]], right: Collection[int] = ()) -> str:
    """A table with its columns lined up, those in `right` to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: list[str]) -> str:
        cells = (
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), "  ".join("-" * w for w in widths), *map(line, rows)])
