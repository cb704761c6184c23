"""Patching

Run a corrupted prompt, put back one activation from the clean run, and see how much of the answer returns.

exhibits: R9, R9b
records: interp.sweep_s.smollm2, interp.sweep_s.pocket, interp.sweep_vs_transformerlens
start: Make the Eiffel Tower move to Tokyo, 1 min
order: 0
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
    from interp.sites import SITES
    from interp.view import HEADS, STREAMS

    lm = page.chosen(picker)
    _right = presets(lm)
    known = {p.title: p for p in _right or fitting(lm, CURATED)}
    fact = mo.ui.dropdown(list(known), value=next(iter(known)), label="fact")
    swap = mo.ui.switch(label="swap")
    metric = mo.ui.dropdown({m.title: k for k, m in METRICS.items()}, value="logit difference", label="metric")
    stream = mo.ui.dropdown({SITES[s].title: s for s in STREAMS}, value=SITES["resid_pre"].title, label="site")
    heads = mo.ui.dropdown({SITES[s].title: s for s in HEADS}, value=SITES["z"].title, label="heads")
    _untaught = page.note(
        f"{lm.name} gets none of the known facts right, so there is little to find; train it longer or choose another model.",
        kind="warn",
    )
    _controls = mo.hstack([fact, swap, stream, metric], justify="start", align="center", wrap=True, gap=0.8)
    _controls if _right else mo.vstack([_controls, _untaught])
    return fact, heads, known, lm, metric, stream, swap


@app.cell
def _(fact, known, mo, swap):
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
            )
        }
    )
    return answer, clean, corrupted, first_token, wrong


@app.cell
def _(answer, clean, corrupted, first_token, lm, metric, mo, page, wrong):
    from interp.prompts import prepare
    from interp.view import Board

    pair = page.guard(
        prepare, lm, clean.value, corrupted.value, answer.value, wrong.value, first_token.value
    )
    board = page.guard(Board, lm, pair, metric.value, page.live(mo))
    return board, pair


@app.cell
def _(board, lm, mo, page, pair, stream):
    from interp.sweep import grid, seconds_needed

    _cells = page.guard(grid, lm.config, pair, stream.value)
    sweep_s = seconds_needed(lm.model, pair, stream.value)
    go = mo.ui.run_button(
        kind="success", label=f"Sweep exactly, {page.cost(sweep_s, forwards=len(_cells))}"
    )
    stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            board.strips(),
            *(page.note(warning, kind="warn") for warning in pair.warnings),
            mo.hstack([go, stop], justify="start", align="center", gap=0.8),
        ],
        gap=0.8,
    )
    return go, grid, seconds_needed, stop, sweep_s


@app.cell
def _(board, grid, heads, lm, mo, page, pair, seconds_needed, stream):
    _cells = page.guard(grid, lm.config, pair, heads.value)
    heads_s = seconds_needed(lm.model, pair, heads.value)
    heads_go = mo.ui.run_button(
        label=f"Sweep heads exactly, {page.cost(heads_s, forwards=len(_cells))}"
    )
    heads_stop = mo.ui.run_button(label="Cancel")
    _head_controls = mo.hstack(
        [heads, heads_go, heads_stop], justify="start", align="center", wrap=True, gap=0.8
    )
    _heads = mo.vstack([_head_controls, board.map(heads.value)], gap=0.8)
    mo.Html(
        "<style>.patching { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); align-items: start }"
        "@media (min-width: 1000px) { .patching { grid-template: auto 1fr / minmax(0, 13fr) minmax(0, 8fr) }"
        ".patching > :nth-child(2) { grid-area: 1 / 2 / span 2; position: sticky; top: 12px } }</style>"
        f'<div class="patching"><div>{mo.as_html(board.map(stream.value)).text}</div>'
        f"<div>{mo.as_html(board.panel).text}</div><div>{_heads.text}</div></div>"
    )
    return heads_go, heads_s, heads_stop


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
def _(board, go, mo, page, stop, stream, sweep_s):
    # a small model is swept at once, a large one waits for the button; running again ends the thread before
    if not page.live(mo):
        board.sweep(stream.value)
        board.write_out(stream.value)
    elif (go.value or sweep_s < 0.5) and not stop.value:

        def _sweep():
            _me = mo.current_thread()
            board.sweep(stream.value, lambda: _me.should_exit)

        mo.Thread(target=_sweep, daemon=True).start()
    return


@app.cell
def _(board, heads, heads_go, heads_s, heads_stop, mo, page):
    if not page.live(mo):
        board.sweep(heads.value)
        board.write_out(heads.value)
    elif (heads_go.value or heads_s < 0.5) and not heads_stop.value:

        def _sweep():
            _me = mo.current_thread()
            board.sweep(heads.value, lambda: _me.should_exit)

        mo.Thread(target=_sweep, daemon=True).start()
    return


@app.cell
def _(board, lm, mo):
    _row, _column = board.first_cell("z")
    head = _column
    layer = mo.ui.slider(0, lm.config.n_layers - 1, value=_row, label="layer", show_value=True)
    run = mo.ui.radio(["corrupted", "clean"], value="clean", label="run", inline=True)
    mo.vstack(
        [
            mo.md(
                "## Where the heads look\n"
                f"It opens at the head with the largest estimate, layer {_row}, head {_column}."
            ),
            mo.hstack([layer, run], justify="start", gap=1.5),
        ]
    )
    return head, layer, run


@app.cell
def _(head, layer, lm, pair, run):
    from interp.patching import attention_patterns
    from widgets.attention import Attention

    _ids, _pieces = (
        (pair.clean_ids, pair.clean_pieces) if run.value == "clean" else (pair.corrupted_ids, pair.corrupted_pieces)
    )
    Attention(
        attention_patterns(lm, _ids, layer.value).float().numpy(),
        _pieces,
        selected=min(head, lm.config.n_heads - 1),
        title=f"Attention in layer {layer.value}, {run.value} run",
        query=len(_ids) - 1,
    )
    return


@app.cell
def _(mo, page):
    from lab import records

    _named = {
        "interp.sweep_s.smollm2": "SmolLM2-135M, bf16, every layer and position, 10 tokens",
        "interp.sweep_s.pocket": "pocket, the same",
        "interp.sweep_vs_transformerlens": "our time over TransformerLens's for that sweep, in one run",
    }
    _found = {row["id"]: row for row in records.newest()}
    _lines = "".join(
        f"<tr><td>{_what}</td><td class='n'>{_r['value']:.3g} {_r['unit']}</td><td class='n'>at most {_r['bar']:g}</td>"
        f"<td>{_r['hardware']}</td><td>{_r['date'][:10]}</td></tr>"
        for _id, _what in _named.items()
        if (_r := _found.get(_id))
    )
    mo.vstack(
        [
            mo.md(
                "## Beside the reference\n"
                "The usual sweep runs the whole model once a cell. Here a row joins at the layer it is patched in, and only "
                "tokens from the patched one on are computed again: the same numbers, checked cell by cell in float64 against "
                "one forward each, and against TransformerLens at every site."
            ),
            mo.Html(
                "<table class='lab-table'><tr><th>what</th><th class='n'>measured</th><th class='n'>bar</th><th>on</th>"
                f"<th>date</th></tr>{_lines}</table>"
            )
            if _lines
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
        "Train a model in *First run* and open its checkpoint here.",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
