"""Recorded bandwidth of a kernel, as rows and as points under the roofline."""

from typing import Any

from lab import records
from lab.profiling.hardware import data_sheet

PEERS = {"ours": "this kernel", "torch": "torch", "compile": "torch.compile"}


def recorded(kernel: str) -> list[dict[str, Any]]:
    """Newest measurement of each case of `kernels.<kernel>.bandwidth_fraction`, shortest rows first; empty when
    it was never measured. Each holds direction, dtype, cols, bytes, flops, seconds by peer, and hardware."""
    prefix = f"kernels.{kernel}.bandwidth_fraction."
    rows = [row for row in records.newest() if row["id"].startswith(prefix)]
    cases = [
        {**row["detail"], "fraction": row["value"], "hardware": row["hardware"], "date": row["date"]}
        for row in rows
    ]
    return sorted(cases, key=lambda case: case["cols"])


def points(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One point a case and peer for `widgets.roofline.Roofline`."""
    return [
        {
            "label": title,
            "intensity": case["flops"] / case["bytes"],
            "flops_per_s": case["flops"] / case["seconds"][peer],
            "group": title,
            "note": f"{case['bytes'] / case['seconds'][peer] / 1e12:.2f} TB/s",
        }
        for case in cases
        for peer, title in PEERS.items()
    ]


def ceilings(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The data sheet of the card the cases were measured on, and the bandwidth its copy reached then.

    A card that is not in the table has only the copy's slope; its flat roof stands out of the way.
    """
    copy = {"name": "copy, measured", "bytes_per_s": cases[0]["copy_bytes_per_s"]}
    sheet = data_sheet(cases[0]["hardware"])
    if sheet is None:
        return [{**copy, "flops_per_s": max(case["flops"] / case["seconds"]["ours"] for case in cases) * 10}]
    peak = sheet.flops_per_s("float32")  # softmax runs on the vector units
    name = {"name": "data sheet", "flops_per_s": peak, "bytes_per_s": sheet.bandwidth}
    return [name, {**copy, "flops_per_s": peak}]


def tiles(kernel: str, cols: int) -> list[dict[str, Any]]:
    """Launch settings tried on the GPU for rows of `cols` values (forward, bfloat16), fastest first."""
    id = f"kernels.{kernel}.tile_loss.{cols}"
    rows = [row for row in records.newest() if row["id"] == id]
    if not rows:
        return []
    detail = rows[0]["detail"]
    tried = [{**row, "chosen": ""} for row in detail["swept"]] + [{**detail["chosen"], "chosen": "by the launcher"}]
    return sorted(tried, key=lambda row: row["seconds"])
