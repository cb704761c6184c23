"""Following a behaviour backwards: who writes to the logits, then who writes what that head reads, and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from interp.circuits.batch import Batch, behaviour
from interp.circuits.edges import Study
from interp.circuits.graph import LOGITS
from interp.circuits.paths import path_patch
from interp.metrics import METRICS
from lab.errors import LabError
from widgets.heatmap import Heatmap

PARTS = {"q": "queries", "k": "keys", "v": "values"}
Stopped = Callable[[], bool]


class Walk:
    """One batch of a behaviour, and maps of what every sender is worth to chosen receivers.

    A map has a row a layer, a column a head and one for the MLP; a cell is the share of the metric lost when this
    sender's path into the receivers, and nothing else, is taken from the other run.
    """

    def __init__(self, lm, name: str, kind: str = "counterfactual", metric: str = "logit_diff", rows: int = 8) -> None:
        self.kind = kind
        self.batch: Batch = behaviour(lm, name, rows)
        self.study = Study(lm.model, self.batch, metric)
        self.graph = self.study.graph
        ends = self.study.values(torch.stack([self.graph.none(), self.graph.all()]), kind).mean(-1)
        self.clean, self.span = float(ends[0]), float(ends[0] - ends[1])
        if abs(self.span) < 1e-4:
            raise LabError(f"The {METRICS[metric].title} is the same in both runs; choose another behaviour or metric.")

    def receivers(self, layer: int, column: int, parts: Sequence[str]) -> list[str]:
        """Receivers of the node in a cell: an MLP, or a head's queries, keys and values."""
        if column == self.graph.n_heads:
            return [f"m{layer}"]
        if not parts:
            raise LabError("Nothing of the head is chosen; pick queries, keys or values.")
        shared = self.graph.n_kv_heads != self.graph.n_heads
        group = column * self.graph.n_kv_heads // self.graph.n_heads
        return [f"a{layer}.kv{group}.{p}" if shared and p != "q" else f"a{layer}.h{column}.{p}" for p in parts]

    def heat(self, receivers: Sequence[str], channel: str) -> Heatmap:
        """An empty map; cells no path leads from stay hatched."""
        columns = [f"h{i}" for i in range(self.graph.n_heads)] + (["MLP"] if self.graph.has_mlp else [])
        blank = torch.full((self.graph.n_layers, len(columns)), float("nan"))
        return Heatmap(
            blank.numpy(), col_labels=columns, row_title="layer", col_title="head, MLP",
            value_title=f"Into {told(receivers)}", channel=channel,
        )  # fmt: skip

    def candidates(self, receivers: Sequence[str]) -> int:
        """How many senders come before the last of these receivers."""
        return max(self.graph.receiver(name)[0].senders for name in receivers)

    def fill(
        self, heat: Heatmap, receivers: Sequence[str], through_mlps: bool = False, stopped: Stopped = lambda: False
    ) -> None:
        """Patch every sender's path by itself, latest first, and draw what is known; the embedding is told in words."""
        count = self.candidates(receivers)
        worth = torch.full((len(self.graph.senders),), float("nan"), dtype=torch.float64)
        for group in torch.arange(count).flip(0).split(self.study.sets_at_once):
            sets = torch.zeros(len(group), len(self.graph.senders), dtype=torch.bool)
            sets[torch.arange(len(group)), group] = True
            patched = path_patch(self.study, sets, receivers, self.kind, through_mlps).mean(-1)
            worth[group] = (self.clean - patched) / self.span
            heat.update(self.grid(worth).numpy())
            if stopped():
                break
        embedding = "" if worth[0].abs() < 5e-4 or worth[0].isnan() else f"; the embedding by itself {float(worth[0]):.1%}"
        heat.value_title = f"Into {told(receivers)}, share of the metric lost{embedding}"

    def grid(self, worth: Tensor) -> Tensor:
        """[layer, head or MLP] from values of senders."""
        return worth[1:].view(self.graph.n_layers, -1)

    def strongest(self, heat: Heatmap) -> list[int]:
        """The head with the largest cell; the MLP only where there is no head."""
        cells = torch.from_numpy(heat.values.copy())[:, : self.graph.n_heads].nan_to_num(0)
        row, column = divmod(int(cells.abs().argmax()), cells.shape[1])
        return [row, column]


def told(receivers: Sequence[str]) -> str:
    """The receivers in words."""
    if list(receivers) == [LOGITS]:
        return "the logits"
    node = ".".join(receivers[0].split(".")[:2])
    parts = [PARTS[r[-1]] for r in receivers if r[-2:] in (".q", ".k", ".v")]
    return f"{' and '.join(parts)} of {node}" if parts else node
