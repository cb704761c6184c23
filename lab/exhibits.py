"""Exhibits: what the plan promises, which notebook answers it, and the records behind it.

`data/exhibits.json` holds every row of the plan. A notebook says which rows it answers, and which records
carry its figures, in lines of its docstring:

    exhibits: R9, R9b
    records: interp.sweep_s, interp.faithfulness
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from lab import catalog, paths, records
from lab.text import columns

# A comma-separated list that may go on over indented lines.
_LINE = re.compile(r"^[ \t]*(exhibits|records):[ \t]*([^\n]*(?:(?<=,)\n[^\n]*)*)", re.MULTILINE)


def declared(notebook: Path) -> dict[str, list[str]]:
    """What a notebook's docstring declares: its `exhibits` and its `records`."""
    found: dict[str, list[str]] = {"exhibits": [], "records": []}
    for key, names in _LINE.findall(catalog.docstring(notebook)):
        found[key] += [name for part in names.split(",") if (name := part.strip().rstrip("."))]
    return found


def plan() -> list[dict[str, Any]]:
    """The rows of the plan: id, station, title, measures, records, and what a row in part `lacks`."""
    return json.loads((paths.DATA / "exhibits.json").read_text())


def listed() -> list[dict[str, Any]]:
    """Every exhibit with its notebook, the newest record of each of its ids, and where it stands.

    status: "missing" (no notebook), "not measured" (no record), "below its bar", "partly" (the row of the plan
    says what it still `lacks`), "works".
    """
    notebooks: dict[str, list[str]] = {}
    figures: dict[str, list[str]] = {}
    for path in sorted(paths.NOTEBOOKS.rglob("*.py")):
        says = declared(path)
        for id in says["exhibits"]:
            notebooks.setdefault(id, []).append(path.relative_to(paths.ROOT).as_posix())
            figures.setdefault(id, []).extend(says["records"])
    measured = {row["id"]: row for row in records.newest()}
    rows = []
    for exhibit in plan():
        id = exhibit["id"]
        names = list(dict.fromkeys([*exhibit["records"], *figures.get(id, [])]))
        found = [measured[name] for name in names if name in measured]
        if id not in notebooks:
            status = "missing"
        elif not found:
            status = "not measured"
        elif any(row["holds"] is False for row in found):
            status = "below its bar"
        else:
            status = "partly" if exhibit.get("lacks") or len(found) < len(names) else "works"
        keep = ("id", "value", "unit", "bar", "holds")
        rows.append(
            {
                "id": id,
                "station": exhibit["station"],
                "title": exhibit["title"],
                "measures": exhibit["measures"],
                "notebook": notebooks[id][0] if id in notebooks else None,
                "notebooks": notebooks.get(id, []),
                "records": [{key: row[key] for key in keep} for row in found],
                "unmeasured": [name for name in names if name not in measured],
                "lacks": exhibit.get("lacks"),
                "status": status,
            }
        )
    return rows


def main(argv: list[str]) -> int:
    """`python -m lab exhibits`."""
    parser = argparse.ArgumentParser(
        prog="python -m lab exhibits", description="The plan, and where it stands."
    )
    parser.add_argument("--json", action="store_true", help="a list of objects for programs")
    args = parser.parse_args(argv)
    rows = listed()
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    cells = [
        [
            row["id"],
            row["station"],
            row["status"],
            row["notebook"] or "",
            "; ".join(f"{r['id']} {records.figure(r['value'])} {r['unit']}" for r in row["records"][:1]),
            row["title"] if len(row["title"]) <= 60 else row["title"][:59] + "…",
        ]
        for row in rows
    ]
    print(columns(["id", "station", "status", "notebook", "headline record", "exhibit"], cells))
    there = [row for row in rows if row["status"] != "missing"]
    print(f"\n{len(there)} of {len(rows)} exhibits have a notebook; the others are missing.")
    for row in there:
        if row["lacks"]:
            print(f"{row['id']} still lacks: {row['lacks']}.")
    return 0
