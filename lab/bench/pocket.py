"""What the bundled models can do, measured from the shipped weights on the CPU.

Facts are asked only in phrasings they were never trained in, sums only of pairs never trained, indirect objects
only in combinations of template and names never trained."""

import math

import torch

from lab import models, records
from lab.bench import bench
from lab.data import corpora, facts, ioi, presets, repeats, sums
from lab.models import LM
from lab.train import probes

MODELS = {"pocket": "pocket", "pocket_draft": "pocket-draft"}  # name in records, name to load
BARS = {"facts": 0.97, "ioi": 0.99, "sums": 0.95}  # of pocket; the draft only has to be quick
WINDOWS = 32  # of the context's length, in each domain


def _share(lm: LM, questions: list[probes.Question]) -> float:
    right = probes.answered(lm.model, lm.tokenizer, questions, batch=256)
    return sum(right) / len(right)


@bench("pocket")
def facts_names_sums() -> None:
    """Shares of right answers, greedy decoding, whole answers."""
    for id, name in MODELS.items():
        lm = models.load(name, dtype=torch.float32, device="cpu")
        bars = BARS if name == "pocket" else {}
        by_relation, right, asked = {}, 0.0, 0
        for relation in facts.RELATIONS:
            prompts = [(p.text, p.answer) for p in facts.scored(relation)]
            by_relation[relation] = share = _share(lm, prompts)
            right, asked = right + share * len(prompts), asked + len(prompts)
        worst = min(by_relation, key=lambda r: by_relation[r])
        records.write(
            f"{id}.facts", right / asked, "share", bars.get("facts"), "higher",
            note=f"{asked:,} prompts in held-out phrasings; worst relation: {worst}, {by_relation[worst]:.3f}",
            detail={"prompts": asked, "by_relation": by_relation},
        )  # fmt: skip
        shares = {
            "ioi": [(p.text, p.answer) for p in ioi.prompts(2_000)],
            "sums": [sums.prompt(a, b) for a, b in sums.pairs(held=True)],
            "repeats": repeats.prompts(500),
        }
        for task, prompts in shares.items():
            records.write(
                f"{id}.{task}", _share(lm, prompts), "share", bars.get(task), "higher",
                detail={"prompts": len(prompts)},
            )  # fmt: skip


@bench("pocket_perplexity")
def perplexity() -> None:
    """Perplexity a token on held-out documents; fetches the corpora (about 250 MB) where they are not cached."""
    if not corpora.built():
        corpora.build()
    for id, name in MODELS.items():
        lm = models.load(name, dtype=torch.float32, device="cpu")
        assert lm.tokenizer.eos is not None
        cases, details = {}, {}
        for domain in corpora.DOMAINS:
            stream = presets.stream("pocket", domain, True, lm.tokenizer.inner, lm.tokenizer.eos, 0, 0)
            nats = probes.loss(lm.model, stream, windows=WINDOWS)
            part = stream.tokens[:200_000]  # the mark between documents is predicted too, and is no byte of text
            each = sum(len(lm.tokenizer.token_bytes(int(t))) for t in part if t != stream.mark) / len(part)
            cases[domain] = math.exp(nats)
            details[domain] = {"bits_per_byte": nats / math.log(2) / each, "bytes_per_token": each, "windows": WINDOWS}
        records.write_cases(f"{id}.perplexity", cases, "per token", details=details)
