"""The exact sweep: patch every cell on its own and measure what comes back.

One forward per cell repeats work, and three kinds of it are left out here, exactly:
- A row patched at layer l equals the corrupted run up to there: it starts from the corrupted stream at layer l and
  joins one growing batch, so the cost is about half of all layers and the batch stays one large matrix product.
- Attention is causal: tokens before the patched one stay as they are in the corrupted run, so a chunk of rows carries
  only tokens from its first patched position on and reads the earlier ones from the corrupted run's keys and values.
- Where the clean activation is bit for bit the corrupted one (before the first difference), the patched run is the
  corrupted run.
A model that cannot run block by block (`interp.backends`) gets whole passes of many rows, for the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from interp.baseline import Baseline, baseline, cached_key
from interp.metrics import Scale
from interp.prompts import Pair
from interp.sites import SITES, Intervention, Patch
from lab.errors import LabError
from lab.models import KVCache

TOKENS_PER_CHUNK = 512  # enough for the matrix products to run at full speed, few enough to show results early
KEYS_PER_CHUNK = 64 * TOKENS_PER_CHUNK  # keys that the rows of a chunk see, copied once: memory of a long prompt
LOGITS_AT_ONCE = 2**22  # 16 MB in fp32, and some copies
TOP = 5


@dataclass(frozen=True)
class Cell:
    """One square of the grid; `start` is the first token of the corrupted prompt that its patch can change."""

    row: int
    column: int
    patch: Patch
    start: int

    @property
    def layer(self) -> int:
        """Where the patched run parts from the corrupted one; not the row where a layer has many rows."""
        return self.patch.layer


@dataclass
class Sweep:
    """A grid of patches [layer, position or head] and what each gave; NaN where not (yet) measured.

    `share` 0 is the corrupted run and 1 the clean one; `value` is the metric; `changed` the receipts; `top_ids` and
    `top_probs` [.., TOP] the answers of each patched run. `done` and `total` count tokens times layers.
    """

    site: str
    axis: str
    scale: Scale
    share: Tensor
    value: Tensor
    changed: Tensor
    top_ids: Tensor
    top_probs: Tensor
    total: int
    done: int = 0
    seconds: float = 0.0
    filled: list[tuple[int, int]] = field(default_factory=list)

    @property
    def fraction(self) -> float:
        return self.done / self.total if self.total else 1.0


def axis_of(site: str) -> str:
    """The second axis a site is swept over, "position" or "head"; layers are the first."""
    if site not in SITES:
        raise LabError(f"There is no site called {site!r}; choose one of {', '.join(SITES)}.")
    return "head" if SITES[site].heads else "position"


def grid(config, pair: Pair, site: str) -> list[Cell]:
    """Every cell that can be patched; positions without a partner are left out."""
    layers = range(config.n_layers)
    if axis_of(site) == "head":
        if site == "pattern" and not pair.equal_length:
            raise LabError(
                "Attention patterns can only be copied between prompts with equally many tokens; "
                "choose another site or another pair."
            )
        last = len(pair.alignment) - 1
        first = next((p for p in range(last) if pair.differs(p) or pair.alignment[p] != p), last)
        return [
            Cell(i, h, Patch(site, i, head=h), first) for i in layers for h in range(SITES[site].n_heads(config))
        ]
    return [
        Cell(i, p, Patch(site, i, position=p), p)
        for i in layers
        for p, partner in enumerate(pair.alignment)
        if partner is not None
    ]


def chunks(cells: Sequence[Cell], length: int) -> list[list[Cell]]:
    """Cells in groups of at most TOKENS_PER_CHUNK tokens (or one cell) and KEYS_PER_CHUNK keys: neighbouring starts
    together, deep layers first."""
    out: list[list[Cell]] = []
    for cell in sorted(cells, key=lambda c: (c.start, -c.layer)):
        rows = len(out[-1]) + 1 if out else 0
        if not out or rows * (length - out[-1][0].start) > TOKENS_PER_CHUNK or rows * length > KEYS_PER_CHUNK:
            out.append([])
        out[-1].append(cell)
    return out


def work(groups: list[list[Cell]], config, length: int) -> int:
    """Tokens times layers that these chunks carry."""
    return sum((config.n_layers - cell.layer) * (length - group[0].start) for group in groups for cell in group)


def sweep(
    model, pair: Pair, site: str = "resid_pre", metric: str = "logit_diff", base: Baseline | None = None,
    cells: Sequence[Cell] | None = None, shape: tuple[int, int] | None = None,
) -> Iterator[Sweep]:  # fmt: skip
    """Yield one Sweep again and again while it fills, after every block of every chunk.

    To cancel, stop iterating: what was measured stays valid. `base` saves the two unpatched runs when they are at
    hand (it must hold this site). `cells` of a grid of this `shape` instead of the whole grid of the site.
    """
    started = time.perf_counter()
    cells = grid(model.cfg, pair, site) if cells is None else cells
    if not prefix_stays(model.cfg):
        cells = [replace(cell, start=0) for cell in cells]
    base = base or baseline(model, pair, (site,))
    changes = relative_changes(cells, pair, base)
    same = [cell for cell in cells if changes[cell] == 0]
    todo = [cell for cell in cells if changes[cell] != 0]
    groups = chunks(todo, len(pair.alignment))
    shape = shape or (model.cfg.n_layers, SITES[site].n_heads(model.cfg) or len(pair.alignment))
    blank = torch.full(shape, float("nan"), dtype=torch.float64)
    result = Sweep(
        site, axis_of(site), base.scale(pair, metric), blank, blank.clone(), blank.clone(),
        torch.zeros(*shape, TOP, dtype=torch.long), torch.zeros(*shape, TOP),
        total=work(groups, model.cfg, len(pair.alignment)),
    )  # fmt: skip
    for cell, change in changes.items():
        result.changed[cell.row, cell.column] = change
    if same:
        _fill(result, same, base.corrupted_logits[None])
    yield result
    run = _chunk if hasattr(model, "run_block") else _whole
    for group in groups:
        for _ in run(model, pair, base, group, result):
            result.seconds = time.perf_counter() - started
            yield result


def prefix_stays(config) -> bool:
    """Are tokens before a patched one what they are in the corrupted run, with keys that a hook can read? Not where
    attention looks ahead, nor where keys are normalised and then not rotated."""
    return getattr(config, "causal", True) and not (
        getattr(config, "qk_norm", False) and config.positions != "rope"
    )


def _chunk(model, pair: Pair, base: Baseline, cells: list[Cell], result: Sweep) -> Iterator[None]:
    """Carry these cells through the model as one growing batch; stops for breath after every block."""
    start = cells[0].start
    prefix = _Prefix(base, model.cfg, start) if start else None
    order: list[Cell] = []
    rows: Tensor | None = None
    for layer in range(min(c.layer for c in cells), model.cfg.n_layers):
        joining = [c for c in cells if c.layer == layer]
        with torch.no_grad():
            if joining:
                stream = base.corrupted[SITES["resid_pre"].name(layer)][start:]
                fresh = stream.expand(len(joining), *stream.shape)
                rows = fresh if rows is None else torch.cat([rows, fresh])
            places = range(len(order), len(order) + len(joining))
            act = Intervention([c.patch for c in joining], base.clean, pair.alignment, places, start)
            rows = model.run_block(layer, rows, hooks=act.hooks, cache=prefix)
        assert rows is not None
        order += joining
        act.receipts()  # raises when a patch did not fire
        result.done += rows.shape[0] * rows.shape[1]
        if layer == model.cfg.n_layers - 1:
            with torch.no_grad():
                for part in _slices(len(order), model.cfg.vocab_size):
                    _fill(result, order[part], model.unembed(rows[part, -1:])[:, 0])
        yield


def _whole(model, pair: Pair, base: Baseline, cells: list[Cell], result: Sweep) -> Iterator[None]:
    """The same cells in whole passes, for a model whose blocks cannot be run one at a time."""
    length = len(pair.alignment)
    rows = max(1, TOKENS_PER_CHUNK // length)
    for at in range(0, len(cells), rows):
        part = cells[at : at + rows]
        act = Intervention([c.patch for c in part], base.clean, pair.alignment, range(len(part)))
        with torch.no_grad():
            tokens = torch.tensor([pair.corrupted_ids] * len(part), device=model.device)
            logits = model(tokens, hooks=act.hooks, last=True)[:, 0]
            for places in _slices(len(part), model.cfg.vocab_size):
                _fill(result, part[places], logits[places])
        act.receipts()
        result.done += sum((model.cfg.n_layers - c.layer) * (length - cells[0].start) for c in part)
        yield


def _slices(rows: int, width: int) -> list[slice]:
    """Rows in pieces of at most LOGITS_AT_ONCE logits."""
    step = max(1, LOGITS_AT_ONCE // width)
    return [slice(at, min(at + step, rows)) for at in range(0, rows, step)]


class _Prefix(KVCache):
    """The corrupted run's keys and values of the first `start` tokens, shared by every row of a batch."""

    def __init__(self, base: Baseline, config, start: int) -> None:
        self.length, self.pad = start, None
        key, layers = cached_key(config), config.n_layers
        self.keys = [base.corrupted[key.format(layer=i)][:start].transpose(0, 1) for i in range(layers)]
        self.values = [base.corrupted[SITES["v"].name(i)][:start].transpose(0, 1) for i in range(layers)]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        before = (self.keys[layer], self.values[layer])
        new = [torch.cat([old.expand(len(x), *old.shape), x], dim=2) for old, x in zip(before, (k, v))]
        return new[0], new[1]


def _fill(result: Sweep, cells: list[Cell], logits: Tensor) -> None:
    """Write down what these cells gave; logits [cell, vocab], or [1, vocab] when all gave the same."""
    value = result.scale.value(logits).double()
    at = (torch.tensor([c.row for c in cells]), torch.tensor([c.column for c in cells]))
    result.value[at] = value.cpu()
    result.share[at] = result.scale.share(value).cpu()
    top = logits.float().softmax(-1).topk(TOP)
    result.top_ids[at] = top.indices.cpu()
    result.top_probs[at] = top.values.cpu()
    result.filled += [(c.row, c.column) for c in cells]


def relative_changes(cells: Sequence[Cell], pair: Pair, base: Baseline) -> dict[Cell, float]:
    """‖clean - corrupted‖ / ‖corrupted‖ over what each cell writes: the receipts of single patches, known before."""
    pairs = [(p, s) for p, s in enumerate(pair.alignment) if s is not None]
    to, start = [p for p, _ in pairs], [s for _, s in pairs]
    place = {p: i for i, p in enumerate(to)}
    norms: dict[str, Tensor] = {}
    for site, name in {(SITES[c.patch.site], SITES[c.patch.site].name(c.layer)) for c in cells}:
        new, old = site.view(base.clean[name])[start].double(), site.view(base.corrupted[name])[to].double()
        norms[name] = torch.stack([(new - old).square().sum(-1), old.square().sum(-1)]).cpu()  # [2, pair, (head)]
    found = {}
    for cell in cells:
        both = norms[SITES[cell.patch.site].name(cell.layer)]
        if cell.patch.head is not None:
            both = both[..., cell.patch.head]
        both = both.sum(1) if cell.patch.position is None else both[:, place[cell.patch.position]]
        found[cell] = float((both[0] / both[1].clamp_min(1e-300)).sqrt())
    return found


def seconds_needed(model, pair: Pair, site: str, cells: Sequence[Cell] | None = None) -> float:
    """Expected duration of a sweep: its tokens times layers, at the rate of one block (or pass) timed just now."""
    length = len(pair.alignment)
    cells = grid(model.cfg, pair, site) if cells is None else cells
    if not hasattr(model, "run_block"):
        rows = max(1, TOKENS_PER_CHUNK // length)
        return _pass_s(model, rows, length) * len(cells) / rows
    groups = chunks(cells, length)
    rows = max(1, max(len(group) for group in groups) // 2)  # a growing batch is half full on average
    stream = torch.randn(rows, length, model.cfg.d_model).to(model.device, model.dtype)
    with torch.no_grad():
        model.run_block(0, stream)  # the first call pays for set-up
        started = time.perf_counter()
        model.run_block(0, stream)
    return (time.perf_counter() - started) / (rows * length) * work(groups, model.cfg, length)


def _pass_s(model, rows: int, length: int) -> float:
    """Seconds of a whole pass, the second one: the first pays for set-up."""
    tokens = torch.zeros(rows, length, dtype=torch.long, device=model.device)
    with torch.no_grad():
        model(tokens[:1], last=True)
        started = time.perf_counter()
        model(tokens, last=True)
    return time.perf_counter() - started
