"""Neurons in words

How much of a network can be told in short sentences, and how do you know?

exhibits: L6
records: interp.describe.legible
order: 13
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Neurons in words")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Neurons in words",
        "How much of a network can be told in short sentences, and how do you know?",
        station="interp",
        exhibits=("L6",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp import features
    from interp.describe.reading import Features, Neurons

    lm = page.chosen(picker)
    _found = [info.name for info in features.available() if info.shape.model == lm.name]
    _what = {"neurons of an MLP": ""} | {f"features of {name}": name for name in _found}
    kind = mo.ui.dropdown(_what, value="neurons of an MLP", label="units")
    layer = mo.ui.slider(0, lm.config.n_layers - 1, value=lm.config.n_layers - 1, label="layer", show_value=True)
    many = mo.ui.dropdown(["64", "256", "all"], value="64", label="how many")
    mo.hstack([kind, layer, many], justify="start", align="center", wrap=True, gap=1.2)
    return Features, Neurons, features, kind, layer, lm, many


@app.cell
def _(Features, Neurons, features, kind, layer, lm, many, mo, page):
    from interp.describe.reading import text_for
    from interp.describe.score import describe
    from interp.describe.work import chosen, rows

    source = (
        Features(page.guard(features.load, kind.value), kind.value) if kind.value else Neurons(layer.value)
    )
    _each = None if many.value == "all" else int(many.value)
    which = chosen(source.count(lm.config), _each)
    with mo.status.spinner(title=f"Describing {len(which)} {source.title}", remove_on_exit=True):
        seen = page.guard(text_for, lm, 128, 48, False)
        held = page.guard(text_for, lm, 64, 48, True)
        scored = page.guard(describe, source, lm, seen, held, which)
    found = rows(source, scored, which, seen.piece)
    return found, held, scored, seen, source, which


@app.cell
def _(found, mo, page, scored, source):
    from interp.describe.view import COLUMNS, spread, summary
    from widgets.table import Table

    _s = summary(found)
    units = mo.ui.anywidget(
        Table(
            [{"id": i, **row} for i, row in enumerate(found)],
            COLUMNS,
            page=9,
            sort=["score", "down"],
            selected=[int(scored.score.nan_to_num(-1).argmax())],
            name="descriptions",
        )
    )
    _silent = int(scored.silent.sum())
    mo.vstack(
        [
            page.note(
                f"Of {len(found)} {source.title}, **{_s['legible']:.0%}** are told by a short description: what it predicts on "
                f"held-out text correlates at least 0.5 with what the unit does. Mean score {_s['score']:.2f}; another unit's "
                f"description reaches {_s['control']:.2f}, a table of all tokens {_s['table']:.2f}."
                + (f" {_silent} were silent on the held-out text." if _silent else "")
            ),
            mo.ui.plotly(spread(found)),
            units,
        ],
        gap=0.8,
    )
    return COLUMNS, Table, spread, summary, units


@app.cell
def _(held, lm, mo, scored, source, units, which):
    from interp.describe.view import on_text

    _picked = units.value["selected"]
    unit = int(_picked[-1]) if _picked else int(scored.score.nan_to_num(-1).argmax())
    mo.vstack(
        [
            mo.md("## One unit on text it was not described from"),
            on_text(source, lm, int(which[unit]), scored.descriptions[unit], held),
        ]
    )
    return (unit,)


@app.cell
def _(mo):
    url = mo.ui.text(placeholder="http://localhost:8000/v1", label="server", full_width=True)
    served = mo.ui.text(placeholder="name of its model", label="model")
    ask = mo.ui.run_button(label="Ask it about this unit, 9 requests")
    mo.vstack(
        [
            mo.md(
                "## Another describer\n"
                "Any server with OpenAI's chat completions can describe and simulate in place of the local fit. "
                "Text and activations are sent to it; nothing else is."
            ),
            mo.hstack([url, served, ask], widths=[3, 2, 2], align="end", gap=0.8),
        ]
    )
    return ask, served, url


@app.cell
def _(ask, found, held, lm, mo, page, seen, served, source, unit, url, which):
    mo.stop(not ask.value)
    from dataclasses import replace

    from interp.describe.endpoint import Endpoint
    from interp.describe.score import judged

    _one = which[unit : unit + 1]
    with mo.status.spinner(title="Asking the server", remove_on_exit=True):
        _text, _score = page.guard(
            judged, page.guard(Endpoint, url.value.strip(), served.value.strip()), source, lm, _one, seen, replace(held, tokens=held.tokens[:8])
        )
    page.note(f"“{_text}” scores {_score:.2f} on eight excerpts; the local description of it scores {found[unit]['score'] or 0:.2f}.")
    return


@app.cell
def _(lm, mo, page):
    from interp.describe.view import seconds
    from lab import records

    start = mo.ui.run_button(
        kind="success", label=f"Describe every neuron, {page.cost(page.guard(seconds, lm))}"
    )
    _row = next((r for r in records.newest() if r["id"] == "interp.describe.legible.neurons"), None)
    mo.vstack(
        [
            mo.md("## At scale"),
            page.note(
                f"Recorded for all neurons of pocket: {_row['value']:.0%} legible ({_row['hardware']}, {_row['date'][:10]})."
            )
            if _row
            else mo.Html(""),
            start,
        ],
        gap=0.6,
    )
    return (start,)


@app.cell
def _(mo):
    from lab import runs

    def describing():
        return [run for run in runs.listed() if run.kind == "describe"]

    _known = describing()
    get_run, set_run = mo.state(_known[0].id if _known else "")
    return get_run, runs, set_run


@app.cell
def _(lm, page, runs, set_run, start):
    if start.value:
        set_run(page.guard(runs.start, "describe", {"model": lm.name}).id)
    return


@app.cell
def _(get_run, mo, page, runs):
    from lab.page.watch import action
    from widgets.curves import Curves
    from widgets.run_monitor import RunMonitor

    mo.stop(not get_run())
    run = page.guard(runs.get, get_run())
    _monitor = RunMonitor(
        ({"key": "legible", "label": "legible"}, {"key": "neurons_per_s", "label": "units", "unit": "/s"}),
        act=action(lambda: runs.get(get_run())) if page.live(mo) else None,
    )
    _curves = Curves(
        series=[{"id": run.id, "label": "this run"}],
        panels=[
            {"key": "legible", "title": "Legible", "unit": "share of neurons", "zero": True},
            {"key": "score", "title": "Mean score", "unit": "r", "zero": True},
        ],
        x="layer",
        x_title="layer",
    )
    page.watch(mo, [run], _curves, _monitor)
    again = mo.ui.button(label="Read the descriptions so far")
    monitor = mo.ui.anywidget(_monitor)
    mo.vstack([monitor, _curves, again], gap=0.8)
    return again, monitor, run


@app.cell
def _(COLUMNS, Table, again, mo, monitor, page, run, spread, summary):
    from interp.describe.work import described

    again.value, monitor.value["ended"]  # read again when asked, and when the run ends
    _rows = page.guard(described, run)
    mo.stop(not _rows)
    _s = summary(_rows)
    mo.vstack(
        [
            page.note(f"{len(_rows):,} described so far, {_s['legible']:.0%} legible."),
            mo.ui.plotly(spread(_rows)),
            Table(_rows, COLUMNS, page=12, sort=["score", "down"], name=f"descriptions-{run.id}"),
        ],
        gap=0.8,
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## What to try next

    - Move the layer from first to last: the share that short descriptions tell falls. Which kind of clause disappears first?
    - Features of an autoencoder against neurons: are they told better, or only more often silent?
    - Sort by *token table* and look for units far above their description: what they read is the token, but not a short list of them.
    - A unit with a high score whose simulation misses on *any text*: what did the description leave out?

    The method is Bills et al. 2023, *Language models can explain neurons in language models*; the local describer fits at most
    three clauses (tokens here, before, two before, or a kind of token) by matching pursuit.
    """)
    return


if __name__ == "__main__":
    app.run()
