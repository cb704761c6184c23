"""Causal tracing

Spoil the subject with noise, restore one hidden state, and see whether the fact comes back.

exhibits: R9b
order: 3
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Causal tracing")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo, default="pocket")
    page.header(
        "Where is a fact looked up?",
        "Noise on the subject's embeddings makes the model forget; one hidden state, restored, may make it remember. "
        "Causal tracing, after Meng, Bau, Andonian and Belinkov (2022).",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from lab.data import facts

    lm = page.chosen(picker)
    _told = {r.replace("_", " "): r for r in facts.RELATIONS}
    relation = mo.ui.dropdown(_told, value="capital", label="relation")
    return facts, lm, relation


@app.cell
def _(facts, mo, relation):
    _asked = {text.replace("{s}", "…"): i for i, text in enumerate(facts.PHRASINGS[relation.value])}
    _middle = next((t for t in _asked if not t.startswith("…") and len(t.split("…")[1]) > 8), next(iter(_asked)))
    phrasing = mo.ui.dropdown(_asked, value=_middle, label="asked as")
    samples = mo.ui.slider(1, 20, value=5, label="noise samples", show_value=True)
    sigmas = mo.ui.slider(0.5, 6, step=0.5, value=3, label="noise, σ of the embeddings", show_value=True)
    window = mo.ui.slider(1, 10, value=3, label="window, layers", show_value=True)
    return phrasing, samples, sigmas, window


@app.cell
def _(lm, mo, page, phrasing, relation):
    from interp.tracing import embedding_std, recall, recalled

    recalls = recalled(lm, relation.value, phrasing.value, limit=60)
    _names = {f"{r.subject}: {lm.tokenizer.pieces([r.answer_id])[0].strip()} ({r.p:.2f})": r for r in recalls}
    mo.stop(
        not recalls,
        page.note(
            f"{lm.name} recalls none of these facts; choose another relation, phrasing or model.", kind="warn"
        ),
    )
    sigma = embedding_std(lm.model, recalls)
    _good = max(_names, key=lambda n: _names[n].p * (_names[n].last - _names[n].first <= 1))
    fact = mo.ui.dropdown(_names, value=_good, label="fact")
    own = mo.ui.text(placeholder="The Space Needle is in the city of", label="prompt", full_width=True)
    subject = mo.ui.text(placeholder="The Space Needle", label="subject", full_width=True)
    return fact, own, recall, recalls, sigma, subject


@app.cell
def _(fact, mo, own, page, phrasing, recalls, relation, samples, sigmas, subject, window):
    mo.vstack(
        [
            mo.hstack([relation, phrasing, fact], justify="start", align="center", wrap=True, gap=0.8),
            mo.hstack([samples, sigmas, window], justify="start", align="center", wrap=True, gap=1.2),
            mo.accordion({"Trace your own prompt": mo.hstack([own, subject], widths=[2, 1], align="end")}),
            page.note(f"It recalls {page.count(len(recalls))} facts of this kind so phrased, of those asked.")
            if len(recalls) < 10
            else mo.Html(""),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(fact, lm, mo, own, page, recall, samples, sigma, sigmas, subject, window):
    from interp.tracing import Corruption
    from interp.tracing_view import ManyFacts, OneFact

    corruption = Corruption(sigmas.value * sigma, samples.value)
    _recall = page.guard(recall, lm, own.value, subject.value) if own.value.strip() else fact.value
    one = OneFact(lm, _recall, corruption, window.value)
    many = ManyFacts(lm, corruption, window.value)
    one_s = one.seconds
    one_go = mo.ui.run_button(label=f"Trace this fact, {page.cost(one_s, forwards=one.forwards)}")
    one_stop = mo.ui.run_button(label="Cancel")
    return many, one, one_go, one_s, one_stop


@app.cell
def _(lm, mo, one, one_go, one_s, one_stop):
    from widgets.tokens import Tokens

    _r = one.recall
    _marks = list(range(_r.first, _r.last + 1))
    _said = lm.tokenizer.pieces([_r.answer_id])[0].strip()
    _strip = Tokens([{"label": "the subject is marked", "pieces": _r.pieces, "ids": _r.ids, "marks": _marks, "note": f"says {_said!r} ({_r.p:.2f})"}])
    _maps = "".join(f"<div>{mo.as_html(m).text}</div>" for m in one.maps.values())
    mo.vstack(
        [
            _strip,
            *([] if one_s < 2 else [mo.hstack([one_go, one_stop], justify="start", gap=0.8)]),
            mo.Html(
                "<style>.tracing { display: grid; gap: 14px; grid-template-columns: minmax(0, 1fr) }"
                "@media (min-width: 1000px) { .tracing { grid-template-columns: repeat(3, minmax(0, 1fr)) } }</style>"
                f'<div class="tracing">{_maps}</div>'
            ),
        ],
        gap=0.8,
    )
    return


@app.cell
def _(mo, one, one_go, one_s, one_stop, page):
    if not page.live(mo):
        one.run()
    elif (one_go.value or one_s < 2) and not one_stop.value:

        def _trace():
            _me = mo.current_thread()
            one.run(lambda: _me.should_exit)

        mo.Thread(target=_trace, daemon=True).start()
    return


@app.cell
def _(many, mo, page, recalls):
    _most = len(recalls)
    count = mo.ui.slider(1, _most, value=min(30 if page.live(mo) else 6, _most), label="facts", show_value=True)
    _each = many.seconds(recalls[: min(8, _most)]) / min(8, _most)
    go = mo.ui.run_button(kind="success", label=f"Trace many facts, about {page.duration(_each)} each")
    stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.md("## Over many facts"),
            mo.hstack([count, go, stop], justify="start", align="center", wrap=True, gap=0.8),
            many.curves,
            many.table,
        ],
        gap=0.8,
    )
    return count, go, stop


@app.cell
def _(count, go, many, mo, page, recalls, stop):
    if not page.live(mo):
        many.run(recalls[: count.value])
    elif go.value and not stop.value:

        def _average():
            _me = mo.current_thread()
            many.run(recalls[: count.value], lambda: _me.should_exit)

        mo.Thread(target=_average, daemon=True).start()
    return


@app.cell
def _(mo, one, page, recalls):
    from interp.tracing_view import partner

    _other = page.guard(partner, one.recall, recalls)
    mo.vstack(
        [
            mo.md(
                "## Beside patching\n"
                "Noise takes the model where no prompt does. Patching asks the same of two real prompts: this fact's state is "
                "copied into the run of another. Where the two agree, the place does not depend on how the fact was spoiled "
                "(Zhang and Nanda 2024, *Towards best practices of activation patching*)."
            ),
            one.beside_patching(_other),
        ]
    )
    return


@app.cell
def _(mo):
    _ideas = [
        "Lower the noise to one σ: which facts survive it, and do the maps keep their shape?",
        "Widen the window: single MLPs restore little, several together a lot, until they overlap with the answer's place.",
        "Ask in a phrasing that begins with the subject: there is more room between the lookup and the answer.",
        "Choose subjects of several tokens: one restored token among spoiled ones may not be enough.",
        "Train a model in *First run* and open it here early: does recall sit at the same layer before it is any good?",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
