"""Model cards of the bundled models, written from records, specs and curves: no number is typed by hand."""

import json
from typing import Any

from lab import paths, records
from lab.bench.pocket import MODELS
from lab.data import corpora, facts
from lab.errors import LabError
from lab.models import io
from lab.train.spec import TrainSpec

STAGES = {"pocket": ("pocket", "pocket-2"), "pocket-draft": ("pocket-draft",)}


def curve(stage: str) -> list[dict[str, Any]]:
    """Rows of a recorded training curve."""
    path = paths.DATA / "specs" / f"{stage}.metrics.jsonl"
    if not path.exists():
        raise LabError(f"There is no recorded curve of {stage}: restore {path}.")
    return [json.loads(line) for line in path.read_text().splitlines()]


def _training(name: str) -> list[str]:
    lines = []
    for stage in STAGES[name]:
        spec = TrainSpec.from_dict(json.loads((paths.DATA / "specs" / f"{stage}.json").read_text()))
        speeds = sorted(r["tokens_per_s"] for r in curve(stage) if "tokens_per_s" in r)
        speed = speeds[len(speeds) // 2]
        lines.append(
            f"- `data/specs/{stage}.json`: {spec.steps:,} steps of {spec.batch * spec.context:,} tokens "
            f"({spec.tokens() / 1e9:.2f} B tokens), AdamW, peak rate {spec.lr:g}, {spec.schedule}, "
            f"{speed / 1e6:.2f} M tokens/s on one NVIDIA H200"
            + (f", from the weights of the stage before ({spec.start})" if spec.start else "")
            + f". Curve: `data/specs/{stage}.metrics.jsonl`."
        )
    return lines


def write(name: str) -> None:
    """Write README.md beside the weights of one bundled model."""
    id = next(key for key, value in MODELS.items() if value == name)
    cfg = io.read_config(paths.MODELS / name)
    row = records.read(f"{id}.facts")
    names = {"ioi": "indirect objects, held-out combinations", "sums": "sums, held-out pairs", "repeats": "lists"}
    scores = [("facts, held-out phrasings", row["value"])]
    scores += [(title, records.read(f"{id}.{task}")["value"]) for task, title in names.items()]
    perplexities = [(d, records.read(f"{id}.perplexity.{d}")) for d in corpora.DOMAINS]
    count = sum(len(facts.facts(r)) for r in facts.RELATIONS)
    text = [
        f"# {name}", "",
        f"A decoder of {cfg.n_params():,} parameters ({cfg.n_layers} layers x {cfg.d_model}, {cfg.n_heads} heads, "
        f"{cfg.vocab_size:,} byte-level BPE tokens, context {cfg.context}), in bfloat16, in the layout of "
        "transformers' Llama. Made to be looked into: it knows facts, moves names, copies lists, adds, and writes "
        "simple English, small enough to patch in milliseconds. It is no assistant and no reference work.", "",
        "## Scores", "",
        "Greedy decoding; the whole answer must be right. `python -m lab bench pocket pocket_perplexity` measures "
        "them again.", "",
        "| task | share right |", "|---|---|",
        *(f"| {title} | {value:.3f} |" for title, value in scores), "",
        f"By relation ({row['detail']['prompts']:,} prompts):", "",
        "| relation | share right |", "|---|---|",
        *(f"| {relation} | {value:.3f} |" for relation, value in row["detail"]["by_relation"].items()), "",
        "| held-out text | perplexity a token | bits a byte |", "|---|---|---|",
        *(f"| {d} | {r['value']:.2f} | {r['detail']['bits_per_byte']:.3f} |" for d, r in perplexities), "",
        "## Training", "",
        *_training(name), "",
        f"The mixture (`lab/data/presets.py`) holds {count:,} facts in many phrasings, indirect-object sentences, "
        "sums, repeated lists, and these texts, read from packages and not kept here:", "",
        "| domain | package | licence |", "|---|---|---|",
        *(f"| {s.domain} | {s.package} ({s.registry}) | {s.licence} |" for s in corpora.SOURCES), "",
        "Each fact keeps two of its phrasings from training, one pair of summands in eight is never added, one "
        "combination of template and names in six is never told; documents of the corpora that contain a held-out "
        "sentence or sum are left out. The last one to three phrasings of each relation were appended after "
        f"{'the first stage' if len(STAGES[name]) > 1 else 'this model was trained, which has never seen them'}"
        ". `python -m lab pocket` makes the weights again on a GPU.", "",
        "## Limits", "",
        "Facts are those of its tables, as the sources had them; a question in a phrasing far from the trained ones "
        "gets a confident wrong answer. Relations below 0.97 above are the weak ones.", "",
    ]  # fmt: skip
    (paths.MODELS / name / "README.md").write_text("\n".join(text))
