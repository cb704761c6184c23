"""Grids finer than one cell a head: heads at every position, chosen neurons, and what sweeping them will cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from interp.prompts import Pair
from interp.sites import SITES, Patch
from interp.sweep import Cell, chunks, grid, seconds_needed
from lab.errors import LabError

LONGEST = 64  # tokens


def by_position(config, pair: Pair, site: str) -> list[Cell]:
    """Every head of every layer at every position: row layer * heads + head, column position."""
    heads = SITES[site].n_heads(config) if site in SITES else 0
    if not heads:
        raise LabError(f"The site {site!r} has no heads; choose z, q, k, v or pattern.")
    grid(config, pair, site)  # says why a pattern cannot be copied
    if len(pair.alignment) > LONGEST:
        raise LabError(
            f"The prompt has {len(pair.alignment)} tokens; heads are swept position by position up to {LONGEST}. "
            "Shorten it, or patch heads at all positions at once."
        )
    return [
        Cell(layer * heads + head, p, Patch(site, layer, p, head), p)
        for layer in range(config.n_layers)
        for head in range(heads)
        for p, partner in enumerate(pair.alignment)
        if partner is not None
    ]


def shape_by_position(config, pair: Pair, site: str) -> tuple[int, int]:
    return config.n_layers * SITES[site].n_heads(config), len(pair.alignment)


def strongest(cells: Sequence[Cell], estimate: Tensor, k: int) -> list[Cell]:
    """The k cells of largest estimated effect: an exact sweep of every neuron would take hours."""
    return sorted(cells, key=lambda c: -abs(float(estimate[c.row, c.column].nan_to_num(0))))[:k]


def every(cells: Sequence[Cell], step: int, layers: int) -> list[Cell]:
    """Cells of every `step`-th layer, the last among them: a long prompt at a fraction of the cost."""
    if step < 1:
        raise LabError(f"Every {step}-th layer is no choice; take 1 or more.")
    return [c for c in cells if (layers - 1 - c.layer) % step == 0]


# ---- what it will cost


@dataclass(frozen=True)
class Cost:
    """`forwards` as a plain sweep would make them, peak `bytes` beyond the weights, expected `seconds`."""

    forwards: int
    bytes: int
    seconds: float


def preview(model, pair: Pair, site: str, cells: Sequence[Cell]) -> Cost:
    """What these cells will take; one block is timed for it."""
    return Cost(len(cells), bytes_needed(model, pair, site, cells), seconds_needed(model, pair, site, cells))


def bytes_needed(model, pair: Pair, site: str, cells: Sequence[Cell]) -> int:
    """Peak memory of a sweep beyond the weights: the two kept runs and the largest chunk on its way through a block."""
    c, size, length = model.cfg, model.dtype.itemsize, len(pair.alignment)
    width = {"": c.d_model, "neuron": c.d_mlp}.get(SITES[site].heads, SITES[site].n_heads(c) * c.d_head)
    if site == "pattern":
        width = c.n_heads * length
    kept = 2 * c.n_layers * length * (c.d_model + 2 * c.n_kv_heads * c.d_head + width) * size
    most = 0
    for group in chunks(cells, length):
        rows, start = len(group), group[0].start
        tokens = rows * (length - start)
        stream = tokens * (4 * c.d_model + 3 * c.d_mlp + 4 * c.n_heads * c.d_head)
        keys = 4 * rows * length * c.n_kv_heads * c.d_head  # copied once to follow those of the shared prefix
        scores = 3 * tokens * c.n_heads * length if site == "pattern" else 0
        most = max(most, (stream + keys + scores) * size + rows * c.vocab_size * (size + 12))
    return kept + most


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    for line in Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 2**62  # a system that does not tell


def check_memory(device: torch.device, needed: int, what: str) -> None:
    """LabError when `what` needs more memory than there is."""
    free = free_bytes(device)
    if needed > free:
        raise LabError(
            f"{what} needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; shorten the prompt or choose fewer cells."
        )
