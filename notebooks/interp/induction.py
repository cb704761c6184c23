"""Induction

How does a model copy what it has seen only once, and when does it learn to?

exhibits: R9b
records: interp.induction.score, interp.induction.loss_without_previous_head
order: 18
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Induction")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    page.header(
        "How does a model copy what it has seen only once?",
        "Two layers of attention read random words that come again. A head that looks one word back and a head that "
        "looks for it appear together, all at once (Elhage et al. 2021; Olsson et al. 2022).",
        station="interp",
        exhibits=("R9b",),
        aside=[page.share_button(mo, __file__)],
    )
    return mo, page


@app.cell
def _(mo, page):
    from interp.truth import induction
    from interp.truth import induction_view as view
    from widgets.scrubber import Scrubber

    _rows = {row["step"]: row for row in page.guard(induction.curves)}
    _steps = [*induction.SHIPPED, induction.InductionSpec().steps]
    scrub = mo.ui.anywidget(
        Scrubber(
            _steps,
            value=_steps[-1],
            labels=[f"second copy {_rows[s]['second_loss']:.2f} nats" for s in _steps],
            title="weights of step",
        )
    )
    return Scrubber, induction, scrub, view


@app.cell
def _(mo, view):
    text = mo.ui.text(view.example(), label="text", full_width=True)
    mo.vstack(
        [
            text,
            mo.Html(
                '<span class="lab-small">Words are a to z, 0 to 5, and A1 to H1, each always followed by its partner A2 to H2; '
                "&lt;s&gt; begins a text.</span>"
            ),
        ],
        gap=0.3,
    )
    return (text,)


@app.cell
def _(induction, mo, page, scrub, text):
    from lab import models
    from lab.models import LM
    from widgets.attention import Attention
    from widgets.bars import Bars

    step = scrub.value["value"]
    model = page.guard(induction.bundled, step)
    _known = page.guard(models.load, "induction")
    _lm = LM("induction", model, _known.tokenizer, _known.path, _known.source)
    _ids = page.guard(_lm.tokens, text.value)
    _pieces = _lm.tokenizer.pieces(_ids[0].tolist())
    _patterns = induction.patterns(model, _ids)[:, 0]
    _top = model(_ids, last=True)[0, -1].softmax(-1).topk(5)
    _n = model.cfg.n_heads
    _test = induction.probe(64)
    _previous, _found = induction.scores(induction.patterns(model, _test), 16)
    mo.vstack(
        [
            scrub,
            mo.hstack(
                [
                    Attention(
                        _patterns[0].numpy(), _pieces, selected=int(_previous[0].argmax()), labels=[f"0.{h}" for h in range(_n)],
                        title="Layer 0: who looks one word back?", query=len(_pieces) - 1,
                    ),
                    Attention(
                        _patterns[1].numpy(), _pieces, selected=int(_found[1].argmax()), labels=[f"1.{h}" for h in range(_n)],
                        title="Layer 1: who looks at what came next the last time?", query=len(_pieces) - 1,
                    ),
                ],
                widths="equal", gap=1.5, wrap=True,
            ),
            Bars(list(zip(_lm.tokenizer.pieces(_top.indices.tolist()), _top.values.tolist())), title="What comes next"),
        ],
        gap=0.8,
    )  # fmt: skip
    return model, step


@app.cell
def _(mo, step, view):
    mo.vstack(
        [
            mo.md(
                "## All at once\nPartners are learned first, by the embedding alone. Then nothing for a while; then scores and "
                "second copy move together."
            ),
            view.growth(step),
        ],
        gap=0.4,
    )
    return


@app.cell
def _(mo, model, view):
    heads = mo.ui.multiselect({f"{i}.{h}": (i, h) for i, h in view.labels(model)}, value=["0.2"], label="heads to silence")
    return (heads,)


@app.cell
def _(heads, induction, mo, model, step, view):
    from widgets.table import Table

    texts = induction.probe(64, view.LENGTH)
    with_all = induction.losses(model(texts), texts, view.LENGTH)
    mo.vstack(
        [
            mo.md(
                f"## Silence a head, step {step:,}\nWhole, the second copy costs {with_all['second_loss']:.2f} nats a word and a "
                f"partner {with_all['partner_loss']:.2f}; a guess among forty words costs 3.69."
            ),
            heads,
            mo.ui.plotly(view.silenced(model, texts, heads.value)),
            Table(
                view.heads(model, texts),
                columns=[
                    {"key": "head"},
                    {"key": "previous", "title": "previous-token score", "kind": "bar", "digits": 2},
                    {"key": "induction", "title": "induction score", "kind": "bar", "digits": 2},
                    {"key": "second", "title": "second copy without it", "unit": "nats", "kind": "bar", "digits": 2},
                    {"key": "partner", "title": "partners without it", "unit": "nats", "kind": "num", "digits": 2},
                ],
                name="induction-heads",
            ),
            view.composition(model),
            mo.Html(
                '<span class="lab-small">K-composition is measured on the weights alone (Elhage et al. 2021), less what random '
                "weights have: the heads that act together are found without running the model.</span>"
            ),
        ],
        gap=0.6,
    )  # fmt: skip
    return


@app.cell
def _(mo, page):
    from lab import records

    _named = {
        "interp.induction.score": "induction score of the best head, fresh texts",
        "interp.induction.loss_without_previous_head": "second copy with the previous-token head silenced",
    }
    _found = {row["id"]: row for row in records.newest()}
    _lines = "".join(
        f"<tr><td>{_what}</td><td class='n'>{_r['value']:.3g} {_r['unit']}</td><td class='n'>at least {_r['bar']:g}</td>"
        f"<td>{_r.get('compared') or ''}</td><td>{_r['date'][:10]}</td></tr>"
        for _id, _what in _named.items()
        if (_r := _found.get(_id))
    )
    mo.vstack(
        [
            mo.md("## Beside what is known"),
            mo.Html(
                "<table class='lab-table'><tr><th>what</th><th class='n'>measured</th><th class='n'>bar</th><th>compared</th>"
                f"<th>date</th></tr>{_lines}</table>"
            )
            if _lines
            else page.note("Nothing recorded yet: `python -m lab bench interp_truth` measures it here."),
        ],
        gap=0.4,
    )
    return


@app.cell
def _(induction, mo, page):
    _spec = induction.InductionSpec()
    n_heads = mo.ui.dropdown(["1", "2", "4", "8"], value=str(_spec.n_heads), label="heads a layer")
    decay = mo.ui.number(0.0, 2.0, value=_spec.weight_decay, step=0.1, label="weight decay")
    longest = mo.ui.slider(9, 40, value=_spec.longest, label="longest segment, words", show_value=True)
    steps = mo.ui.number(50, 20_000, value=800, step=50, label="steps")
    seed = mo.ui.number(0, 10_000, value=_spec.seed, label="seed")
    mo.vstack(
        [
            mo.md("## Grow one here"),
            mo.hstack([n_heads, decay, longest, steps, seed], justify="start", align="center", wrap=True, gap=1.2),
        ],
        gap=0.5,
    )
    return decay, longest, n_heads, seed, steps


@app.cell
def _(decay, induction, longest, mo, n_heads, page, seed, steps):
    spec = page.guard(
        induction.InductionSpec, n_heads=int(n_heads.value), weight_decay=decay.value, longest=longest.value,
        steps=steps.value, seed=seed.value, save_every=max(10, steps.value // 20),
    )  # fmt: skip
    start = mo.ui.run_button(kind="success", label=f"Train, {page.cost(induction.seconds(spec))}")
    start
    return spec, start


@app.cell
def _(Scrubber, mo, page):
    from interp.truth.runs import of_kind
    from lab import runs
    from lab.page.watch import action
    from widgets.run_monitor import RunMonitor

    _known = of_kind("induction")
    _live = next((run.id for run in _known if run.live), _known[0].id if _known else "")
    get_run, set_run = mo.state(str(mo.query_params().get("run") or _live))
    monitor = RunMonitor(
        (
            {"key": "second_loss", "label": "second copy", "unit": "nats/word"},
            {"key": "induction", "label": "induction score"},
            {"key": "previous", "label": "previous-token score"},
        ),
        act=action(lambda: runs.get(monitor.run)) if page.live(mo) else None,
    )
    mine_widget = Scrubber(title="checkpoint at step")
    mine = mo.ui.anywidget(mine_widget)
    return get_run, mine, mine_widget, monitor, of_kind, runs, set_run


@app.cell
def _(page, runs, set_run, spec, start):
    if start.value:
        set_run(page.guard(runs.start, "induction", spec.to_dict()).id)
    return


@app.cell
def _(get_run, mine_widget, mo, monitor, of_kind, page, view):
    from widgets.curves import Curves

    current = next((run for run in of_kind("induction") if run.id == get_run()), None)
    if current:
        _curves = Curves(series=[{"id": current.id, "label": current.id}], panels=view.PANELS)
        page.watch(mo, [current], _curves, monitor, mine_widget)
        _shown = mo.vstack([monitor, _curves], gap=0.8)
    else:
        _shown = mo.Html("")
    _shown
    return (current,)


@app.cell
def _(current, mine, mo):
    mine if current else mo.Html("")  # in a cell of its own: the one that watches must not run again when it moves
    return


@app.cell
def _(current, mine, mo, page, view):
    from lab.models import load

    mine.value["value"]  # moving the handle runs this again
    _step = mine.widget.value
    if current and _step in {c.step for c in current.checkpoints()}:
        _name = f"run:{current.id}@{_step}"
        _model = page.guard(load, _name).model
        _shown = mo.vstack(
            [
                view.composition(_model),
                mo.Html(f'<span class="lab-small">{page.open_in(mo, "interp/heads", "Look at its heads", model=_name)}</span>'),
            ],
            gap=0.5,
        )
    else:
        _shown = mo.Html("")
    _shown
    return


@app.cell
def _(mo):
    mo.md("""
    ## Try next

    - Silence all heads of layer 1 but one: how much of the copy does one induction head keep?
    - Silence 0.2 and look at the partners: why do they not suffer?
    - Move to step 400: the second copy is still a guess, but which score has begun to move?
    - One head a layer: does the circuit still form, and later or earlier?
    """)
    return


if __name__ == "__main__":
    app.run()
