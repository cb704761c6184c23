"""Patching

Run a corrupted prompt, put back one activation from the clean run, and see how much of the answer returns.

exhibits: R9, R9b
records: interp.sweep_s.smollm2, interp.headsweep_s.smollm2, interp.sweep_s.pocket, interp.sweep_vs_transformerlens
start: Make the Eiffel Tower move to Tokyo, 1 min
order: 1
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Patching")


@app.cell
def _():
    import marimo as mo

    from lab import models, page

    page.start(mo)
    _real = next(info for info in models.available() if info.name == "smollm2-135m")
    picker = page.model_picker(mo, default=_real.name if _real.ready else "pocket")
    page.header(
        "Where does the model keep the Eiffel Tower?",
        "Run a corrupted prompt, put back one activation from the clean run, and see how much of the answer returns. "
        "Click a cell.",
        station="interp",
        exhibits=("R9", "R9b"),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.metrics import METRICS
    from interp.presets import CURATED, fitting, presets
    from interp.setting import HEADS, STREAMS
    from interp.sites import SITES, sites_of

    lm = page.chosen(picker)
    _right = presets(lm)
    known = {p.title: p for p in _right or fitting(lm, CURATED)}
    _there = sites_of(lm.model)
    fact = mo.ui.dropdown(list(known), value=next(iter(known)), label="fact")
    swap = mo.ui.switch(label="swap")
    metric = mo.ui.dropdown({m.title: k for k, m in METRICS.items()}, value="logit difference", label="metric")
    stream = mo.ui.dropdown({SITES[s].title: s for s in STREAMS if s in _there}, value=SITES["resid_pre"].title, label="site")
    heads = mo.ui.dropdown({SITES[s].title: s for s in HEADS if s in _there}, value=SITES["z"].title, label="heads")
    each = mo.ui.switch(label="at every position")
    _untaught = page.note(
        f"{lm.name} gets none of the known facts right, so there is little to find; train it longer or choose another model.",
        kind="warn",
    )
    _controls = mo.hstack([fact, swap, stream, metric], justify="start", align="center", wrap=True, gap=0.8)
    _controls if _right else mo.vstack([_controls, _untaught])
    return each, fact, heads, known, lm, metric, stream, swap


@app.cell
def _(mo):
    from interp.ablation import WRITES

    _runs = {"the corrupted run (what restores the answer?)": "corrupted", "the clean run (what can it not do without?)": "clean"}
    into = mo.ui.dropdown(_runs, value=next(iter(_runs)), label="into")
    write = mo.ui.dropdown({title: key for key, title in WRITES.items()}, value=WRITES["copy"], label="write")
    seed = mo.ui.number(0, 10_000, value=0, label="seed")
    sigmas = mo.ui.number(0.1, 10, step=0.1, value=1, label="noise, σ")
    prompts = mo.ui.text_area(label="prompts for means and resampling, one a line; empty: those of the facts above", rows=3, full_width=True)
    return into, prompts, seed, sigmas, write


@app.cell
def _(fact, into, known, mo, prompts, seed, sigmas, swap, write):
    _p = known[fact.value]
    _one, _two = (_p.clean, _p.answer), (_p.corrupted, _p.wrong)
    if swap.value:
        _one, _two = _two, _one
    clean = mo.ui.text(_one[0], label="clean", full_width=True)
    corrupted = mo.ui.text(_two[0], label="corrupted", full_width=True)
    answer = mo.ui.text(_one[1].strip(), label="answer")
    wrong = mo.ui.text(_two[1].strip(), label="answer")
    first_token = mo.ui.checkbox(label="of an answer that is several tokens, use the first")
    mo.accordion(
        {
            "Write your own prompts": mo.vstack(
                [
                    mo.hstack([clean, answer], widths=[4, 1], align="end"),
                    mo.hstack([corrupted, wrong], widths=[4, 1], align="end"),
                    first_token,
                ]
            ),
            "Intervene otherwise: the other direction, zero, means, resampling, noise": mo.vstack(
                [
                    mo.hstack([write, into, seed, sigmas], justify="start", align="center", wrap=True, gap=0.8),
                    prompts,
                ]
            ),
        }
    )
    return answer, clean, corrupted, first_token, wrong


@app.cell
def _(answer, clean, corrupted, first_token, lm, mo, page, wrong):
    from interp.prompts import prepare

    pair = page.guard(
        prepare, lm, clean.value, corrupted.value, answer.value, wrong.value, first_token.value
    )
    _steps = {"every layer": 1, "every 2nd layer": 2, "every 4th layer": 4, "every 8th layer": 8}
    step = mo.ui.dropdown(_steps, value="every layer" if len(pair.alignment) <= 64 else "every 4th layer", label="measure")
    return pair, step


@app.cell
def _(into, known, lm, metric, mo, page, pair, prompts, seed, sigmas, step, write):
    from interp.ablation import Treatment
    from interp.view import Board

    _lines = [line for line in prompts.value.splitlines() if line.strip()]
    _others = _lines or [text for p in known.values() for text in (p.clean, p.corrupted)]
    treatment = page.guard(Treatment, into.value, write.value, tuple(_others), int(seed.value), float(sigmas.value))
    board = page.guard(Board, lm, pair, metric.value, page.live(mo), treatment, step.value)
    return (board,)


@app.cell
def _(board, mo, page, pair, step, stream):
    _cost = page.guard(board.cost, stream.value)
    sweep_s = _cost.seconds
    go = mo.ui.run_button(
        kind="success", label=f"Sweep exactly, {page.cost(sweep_s, forwards=_cost.forwards, bytes=_cost.bytes)}"
    )
    stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.Html(f'<div style="max-height: 320px; overflow: auto">{mo.as_html(board.strips()).text}</div>'),
            *(page.note(warning, kind="warn") for warning in pair.warnings),
            mo.hstack([go, stop, *([step] if len(pair.alignment) > 64 else [])], justify="start", align="center", gap=0.8),
        ],
        gap=0.8,
    )
    return go, stop, sweep_s


@app.cell
def _(board, each, heads, mo, page, stream):
    heads_map = heads.value + "@" if each.value and heads.value != "neuron" else heads.value
    _shown = page.guard(board.map, heads_map)
    _cost = page.guard(board.cost, heads_map)
    heads_s = _cost.seconds
    heads_go = mo.ui.run_button(
        label=f"Sweep {'neurons' if heads.value == 'neuron' else 'heads'} exactly, {page.cost(heads_s, forwards=_cost.forwards, bytes=_cost.bytes)}"
    )
    heads_stop = mo.ui.run_button(label="Cancel")
    _head_controls = mo.hstack(
        [heads, each, heads_go, heads_stop], justify="start", align="center", wrap=True, gap=0.8
    )
    _heads = mo.vstack([_head_controls, _shown], gap=0.8)
    mo.Html(
        "<style>.patching { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); align-items: start }"
        "@media (min-width: 1000px) { .patching { grid-template: auto 1fr / minmax(0, 13fr) minmax(0, 8fr) }"
        ".patching > :nth-child(2) { grid-area: 1 / 2 / span 2; position: sticky; top: 12px } }</style>"
        f'<div class="patching"><div>{mo.as_html(board.map(stream.value)).text}</div>'
        f"<div>{mo.as_html(board.panel).text}</div><div>{_heads.text}</div></div>"
    )
    return heads_go, heads_map, heads_s, heads_stop


@app.cell
def _(board, mo, page, stream):
    board.open(stream.value)
    if page.live(mo):

        def _serve():
            _me = mo.current_thread()
            board.serve(lambda: _me.should_exit)

        mo.Thread(target=_serve, daemon=True).start()
    return


@app.cell
def _(board, mo, page):
    if page.live(mo):

        def _work():
            _me = mo.current_thread()
            board.jobs.work(lambda: _me.should_exit)

        mo.Thread(target=_work, daemon=True).start()
    return


@app.cell
def _(board, go, heads_go, heads_map, heads_s, heads_stop, mo, page, stop, stream, sweep_s):
    # a small model is swept at once, a large one waits for the button
    for _map, _go, _stop, _s in ((stream.value, go, stop, sweep_s), (heads_map, heads_go, heads_stop, heads_s)):
        if not page.live(mo):
            board.sweep(_map)
            board.write_out(_map)
        elif _stop.value:
            board.jobs.cancel(_map)
        elif _go.value or _s < 0.5:
            board.jobs.ask(_map, again=_go.value)
    return


@app.cell
def _(board, lm, mo):
    _row, _column = board.first_cell("z")
    head = _column
    layer = mo.ui.slider(0, lm.config.n_layers - 1, value=_row, label="layer", show_value=True)
    run = mo.ui.radio(["corrupted", "clean", "patched"], value="clean", label="run", inline=True)
    mo.vstack(
        [
            mo.md(
                "## Where the heads look\n"
                f"It opens at the head with the largest estimate, layer {_row}, head {_column}; the patched run follows the cells chosen above."
            ),
            mo.hstack([layer, run], justify="start", gap=1.5),
        ]
    )
    return head, layer, run


@app.cell
def _(board, head, layer, page, run):
    page.guard(board.attention, layer.value, run.value, head)
    return


@app.cell
def _(mo, page):
    from lab import records
    from widgets.table import Table

    _named = {
        "interp.sweep_s.smollm2": "SmolLM2-135M, bf16, every layer and position, 10 tokens",
        "interp.sweep_s.pocket": "pocket, the same",
        "interp.headsweep_s.smollm2": "SmolLM2-135M, every head at every position",
        "interp.headsweep_s.pocket": "pocket, the same",
        "interp.attribution_s.smollm2": "SmolLM2-135M, the estimate of every cell of every site",
        "interp.sweep_vs_transformerlens": "our time over TransformerLens's for the first sweep, in one run",
    }
    _found = {row["id"]: row for row in records.newest()}
    _rows = [
        {"what": _what, "value": _r["value"], "unit": _r["unit"], "bar": _r["bar"], "on": _r["hardware"], "date": _r["date"][:10]}
        for _id, _what in _named.items()
        if (_r := _found.get(_id))
    ]
    _columns = [
        {"key": "what"}, {"key": "value", "title": "measured", "kind": "num", "digits": 3}, {"key": "unit"},
        {"key": "bar", "title": "at most", "kind": "num", "digits": 2}, {"key": "on"}, {"key": "date"},
    ]  # fmt: skip
    mo.vstack(
        [
            mo.md(
                "## Beside the reference\n"
                "The usual sweep runs the whole model once a cell. Here a row joins at the layer it is patched in, and only "
                "tokens from the patched one on are computed again: the same numbers, checked cell by cell in float64 against "
                "one forward each, and against TransformerLens at every site."
            ),
            Table(_rows, _columns, name="patching-beside-the-reference")
            if _rows
            else page.note("Nothing recorded yet: `python -m lab bench interp` measures it here."),
        ]
    )
    return


@app.cell
def _(mo):
    _ideas = [
        "Drag over the whole column of the subject's last token, then over its lower half alone: how few layers are enough?",
        "Choose the MLP output as the site: the fact is looked up in the layers at the subject, and few heads carry it to the end.",
        "Set the metric to probability: a cell that returns the logit difference need not return the answer.",
        "Take the indirect-object pair: the sentences differ in one name, and other heads light up.",
        "Intervene otherwise, into the clean run: what is enough to bring an answer back need not be what it cannot do without.",
        "Write zero, a mean, another prompt's value: how much of what a head does depends on what stands in its place?",
        "Train a model in *First run* and open its checkpoint here.",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
