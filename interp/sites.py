"""Where a model can be patched, and the hooks that do it.

A patch copies one activation of the clean run into the corrupted run. Sites carry TransformerLens's
hook names. Hooks are built per forward pass and passed to it; nothing is left on the module, so two
threads may patch one model at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import LabError

Hook = Callable[[Tensor, str], Tensor | None]
Alignment = Sequence[int | None]


@dataclass(frozen=True)
class Site:
    """A kind of activation. `heads` is "" for streams [batch, pos, d_model], else what its second axis counts:
    query heads, key-value heads, or the neurons of an MLP."""

    key: str
    title: str
    point: str
    heads: str = ""

    def name(self, layer: int) -> str:
        return self.point.format(layer=layer)

    def n_heads(self, config) -> int:
        return {"": 0, "query": config.n_heads, "kv": config.n_kv_heads, "neuron": config.d_mlp}[self.heads]

    @property
    def noun(self) -> str:
        """What one of `heads` is called."""
        return "neuron" if self.heads == "neuron" else "head"

    def view(self, activation: Tensor) -> Tensor:
        """The activation as [.., pos, (head,) width]; writing to it writes to `activation`."""
        if self.key == "pattern":
            return activation.transpose(-3, -2)
        return activation.unsqueeze(-1) if self.heads == "neuron" else activation


SITES: dict[str, Site] = {
    site.key: site
    for site in (
        Site("resid_pre", "residual stream (pre)", "blocks.{layer}.hook_resid_pre"),
        Site("resid_mid", "residual stream (mid)", "blocks.{layer}.hook_resid_mid"),
        Site("resid_post", "residual stream (post)", "blocks.{layer}.hook_resid_post"),
        Site("attn_out", "attention output", "blocks.{layer}.hook_attn_out"),
        Site("mlp_out", "MLP output", "blocks.{layer}.hook_mlp_out"),
        Site("z", "head output z", "blocks.{layer}.attn.hook_z", "query"),
        Site("q", "head query q", "blocks.{layer}.attn.hook_q", "query"),
        Site("k", "head key k", "blocks.{layer}.attn.hook_k", "kv"),
        Site("v", "head value v", "blocks.{layer}.attn.hook_v", "kv"),
        Site("pattern", "head attention pattern", "blocks.{layer}.attn.hook_pattern", "query"),
        Site("neuron", "single neuron", "blocks.{layer}.mlp.hook_post", "neuron"),
    )
}


@dataclass(frozen=True)
class Patch:
    """One cell to write: a position of the prompt that runs, a head (or neuron), or a head at a position.

    `position=None` means every position that has a partner in the clean prompt.
    """

    site: str
    layer: int
    position: int | None = None
    head: int | None = None

    def check(self, config, alignment: Alignment) -> None:
        """Raise LabError when the model or the prompt has no such cell."""
        if self.site not in SITES:
            raise LabError(f"There is no site called {self.site!r}; choose one of {', '.join(SITES)}.")
        site = SITES[self.site]
        if not 0 <= self.layer < config.n_layers:
            raise LabError(
                f"Layer {self.layer} does not exist: this model has layers 0 to {config.n_layers - 1}."
            )
        if site.heads and not (self.head is not None and 0 <= self.head < site.n_heads(config)):
            raise LabError(
                f"{site.title.capitalize()} needs a {site.noun} from 0 to {site.n_heads(config) - 1}; got {self.head}."
            )
        if not site.heads and self.head is not None:
            raise LabError(f"The {site.title} has no heads; leave the head out.")
        if self.position is not None:
            if not 0 <= self.position < len(alignment):
                raise LabError(
                    f"Position {self.position} is outside the corrupted prompt, which has {len(alignment)} tokens."
                )
            if alignment[self.position] is None:
                raise LabError(
                    f"Position {self.position} of the corrupted prompt has no partner in the clean prompt; "
                    "choose an aligned token."
                )

    def label(self) -> str:
        head = "" if self.head is None else f", {SITES[self.site].noun} {self.head}"
        where = "" if self.position is None else f", position {self.position}"
        return f"{SITES[self.site].title}, layer {self.layer}{head}{where}"


@dataclass(frozen=True)
class Receipt:
    """What a patch did: how often its hook fired, and ‖new - old‖ / ‖old‖ over the cells it wrote."""

    patch: Patch
    site: str
    fired: int
    changed: float


class Intervention:
    """Patches of one forward pass as hooks, and afterwards their receipts.

    `source` maps a hook name to the clean activation without its batch dimension; `alignment[p]` is the clean
    position that belongs to corrupted position p. Patch i is written into batch row `rows[i]` (default: all
    patches into row 0). `start` says how many leading tokens the batch leaves out.
    """

    def __init__(
        self,
        patches: Sequence[Patch],
        source: Mapping[str, Tensor],
        alignment: Alignment,
        rows: Sequence[int] | None = None,
        start: int = 0,
    ) -> None:
        self.patches = list(patches)
        self._source = source
        self._fired = [0] * len(self.patches)
        self._changed: list[Tensor | None] = [None] * len(self.patches)
        self._rows = list(rows) if rows is not None else [0] * len(self.patches)
        self._alignment = alignment
        self._start = start
        names: dict[str, list[int]] = {}
        for i, patch in enumerate(self.patches):
            names.setdefault(SITES[patch.site].name(patch.layer), []).append(i)
        self.hooks: dict[str, Hook] = {name: self._hook(which) for name, which in names.items()}

    def _hook(self, which: list[int]) -> Hook:
        aligned = [(p, s) for p, s in enumerate(self._alignment) if s is not None and p >= self._start]
        owner, row, to, source_at, head = [], [], [], [], []
        for j, i in enumerate(which):
            patch = self.patches[i]
            pairs = aligned
            if patch.position is not None:
                partner = self._alignment[patch.position]
                assert partner is not None  # Patch.check has refused these
                pairs = [(patch.position, partner)]
            for p, s in pairs:
                owner.append(j)
                row.append(self._rows[i])
                to.append(p - self._start)
                source_at.append(s)
                head.append(patch.head or 0)
        site = SITES[self.patches[which[0]].site]

        def write(activation: Tensor, name: str) -> Tensor:
            device = activation.device
            r, t, s, h, o = (torch.tensor(x, device=device, dtype=torch.long) for x in (row, to, source_at, head, owner))
            new, source = activation.clone(), self._source[name]
            view, clean = site.view(new), site.view(source)
            if site.key == "pattern" and clean.shape[-1] != view.shape[-1]:
                raise LabError(
                    "Attention patterns can only be copied between prompts with equally many tokens; "
                    "choose another site or another pair."
                )
            at = (r, t, h) if site.heads else (r, t)
            wanted = clean[(s, h) if site.heads else s].to(view.dtype)
            old = view[at]
            sums = torch.zeros(2, len(which), device=device, dtype=torch.float64)
            sums[0].index_add_(0, o, (wanted - old).double().square().sum(-1))
            sums[1].index_add_(0, o, old.double().square().sum(-1))
            view[at] = wanted
            relative = (sums[0] / sums[1].clamp_min(1e-300)).sqrt()
            for j, i in enumerate(which):
                self._fired[i] += 1
                self._changed[i] = relative[j]
            return new

        return write

    def receipts(self) -> list[Receipt]:
        """One receipt a patch, in the given order; an error when any hook never fired."""
        silent = [p.label() for p, n in zip(self.patches, self._fired) if n == 0]
        if silent:
            raise LabError(f"A patch never fired, so there is no effect to report: {'; '.join(silent)}.")
        changed = [float(c) for c in self._changed if c is not None]
        return [
            Receipt(p, SITES[p.site].name(p.layer), n, c)
            for p, n, c in zip(self.patches, self._fired, changed)
        ]


def sites_of(model) -> list[str]:
    """The sites this model has hook points for (one without MLPs lacks theirs)."""
    points = set(model.hook_names())
    return [key for key, site in SITES.items() if site.name(0) in points]


def chain(*hooks: Mapping[str, Hook] | None) -> dict[str, Hook]:
    """Several hook dictionaries as one; at a shared point they run in the order given."""
    merged: dict[str, Hook] = {}
    for group in hooks:
        for name, hook in (group or {}).items():
            merged[name] = _both(merged[name], hook) if name in merged else hook
    return merged


def _both(first: Hook, second: Hook) -> Hook:
    def run(activation: Tensor, name: str) -> Tensor | None:
        changed = first(activation, name)
        again = second(activation if changed is None else changed, name)
        return changed if again is None else again

    return run


def keep(names: Iterable[str], into: dict[str, Tensor]) -> dict[str, Hook]:
    """Hooks that store activations under their names, leaving the pass as it is."""

    def store(activation: Tensor, name: str) -> None:
        into[name] = activation

    return dict.fromkeys(names, store)
