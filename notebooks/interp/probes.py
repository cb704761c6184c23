"""Probes

What can be read off the residual stream, and does the model use what can be read?

exhibits: R9b
order: 10
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Probes")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "What can be read off the stream, and is it used?",
        "A linear probe at every layer, beside every control that could explain it away; then its directions are taken out of "
        "the stream and the model is asked again.",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.probes import linear, tasks

    lm = page.chosen(picker)
    title = mo.ui.dropdown(list(tasks.TASKS), value=next(iter(tasks.TASKS)), label="property")
    method = mo.ui.dropdown({v: k for k, v in linear.METHODS.items()}, value="class means", label="probe")
    mo.hstack([title, method], justify="start", align="center", wrap=True, gap=1.2)
    return linear, lm, method, tasks, title


@app.cell
def _(linear, lm, mo, page, tasks, title):
    limit = 120 if lm.config.n_layers < 12 else 80
    task = page.guard(tasks.task, title.value, limit)
    _entities = len({e.entity for e in task.examples})
    # the trained model and one with random weights, 14 tokens a prompt; then a handful of fits a layer
    _cost = 2 * 14 * len(task.examples) * lm.config.forward_flops(16) / 16 / 6e10 + 0.1 * lm.config.n_layers
    go = mo.ui.run_button(kind="success", label=f"Probe every layer, {page.cost(_cost, forwards=2 * len(task.examples))}")
    stop = mo.ui.run_button(label="Cancel")
    _e = task.examples[0]
    _where = f"at the last token of *{_e.subject}*" if _e.subject else "at the last token"
    mo.vstack(
        [
            mo.md(
                f"{len(task.examples)} prompts about {_entities} entities, {len(task.classes)} classes ({', '.join(task.classes)}). "
                f"“{_e.text}” is read {_where}; its class is {task.classes[_e.label]}."
            ),
            mo.hstack([go, stop], justify="start", align="center", gap=0.8),
        ],
        gap=0.6,
    )
    return go, limit, stop, task


@app.cell
def _(method, mo, task):
    from widgets.curves import Curves
    from widgets.intervals import Intervals
    from widgets.table import Table

    probed = {
        "real": "held-out entities",
        "random_model": "random weights",
        "shuffled": "shuffled labels",
        "seen": "seen entities",
        "control": "control task",
        "majority": "commonest class",
    }
    lines = Curves(
        panels=[{"key": "accuracy", "title": f"share of the {len(task.examples)} prompts classified right, {method.selected_key}", "zero": True}],
        series=[{"id": _k, "label": _v} for _k, _v in probed.items()],
        x_title="layer (0 is the embedding, then after each layer)",
    )
    spread = Intervals([], title="At the best layer: shares right, 95% intervals over entities")
    table = Table(
        [],
        [{"key": "layer"}, *({"key": _k, "title": _v, "kind": "num", "digits": 3} for _k, _v in probed.items()),
         {"key": "selectivity", "title": "selectivity", "kind": "num", "digits": 3}],
        page=9,
        name="probes",
    )  # fmt: skip

    _legend = mo.md(
        "*Held-out entities*, *random weights* and *shuffled labels* are scored on entities no probe was fitted to. *Seen entities* come "
        "back in another wording, and so they do in the *control task*, where each has a random label of its own; the difference is "
        "the selectivity."
    )
    mo.vstack([_legend, lines, spread, table], gap=0.8)
    return Curves, lines, probed, spread, table


@app.cell
def _(go, linear, lines, lm, method, mo, page, probed, spread, stop, table, task):
    def _measure(stopped=lambda: False):
        _acts = linear.activations(lm, task)
        _noise = linear.activations(linear.untrained(lm), task)
        _rows = []
        lines.clear()
        spread.rows = []
        table.update([])
        for _c in linear.curves(task, _acts, method.value, _noise):
            if stopped():  # another may be drawing by now; what is drawn stays
                return
            _at = len(_c.real) - 1
            _row = {_k: getattr(_c, _k)[_at].value for _k in probed if _k != "majority" and getattr(_c, _k)}
            _row["majority"] = task.majority
            lines.append([{"step": _at, "accuracy": _v, "run": _k} for _k, _v in _row.items()])
            _select = {"selectivity": _c.selectivity[_at]} if _c.selectivity else {}
            _rows.append({"layer": _c.layers[_at], **_row, **_select})
            table.update(_rows)
        _b = _c.best()
        spread.rows = [
            {"label": _v, "series": "share", "value": _i.value, "low": _i.low, "high": _i.high}
            for _k, _v in probed.items()
            if _k != "majority" and getattr(_c, _k) and (_i := getattr(_c, _k)[_b])
        ]
        spread.title = f"After layer {_c.layers[_b]}, the best by these same entities (so a little high): shares right, 95% intervals"

    if not page.live(mo):
        _measure()
    elif (go.value or lm.config.n_layers < 12) and not stop.value:  # a small model is probed at once

        def _work():
            _me = mo.current_thread()
            _measure(lambda: _me.should_exit)

        mo.Thread(target=_work, daemon=True).start()
    return


@app.cell
def _(lm, mo, page, task):
    _cost = 2 * 0.16 * 4 * 10 * len({e.entity for e in task.examples}) * lm.config.forward_flops(16) / 16 / 6e10 * min(9, lm.config.n_layers + 1)
    use_go = mo.ui.run_button(label=f"Change the stream at every layer, {page.cost(_cost)}")
    use_stop = mo.ui.run_button(label="Cancel")
    _parts = [
        mo.md(
            "## Is it used?\n\nThe model is asked for the property itself. At one layer and one token, the probe's directions are taken out "
            "of the stream (*erased*; the random control takes out as many), or the stream is *moved* by the difference of two class means."
        )
    ]
    if task.ask is None:
        _parts.append(page.note("This property has no question to put to the model; choose one about countries.", kind="info"))
    else:
        _parts.append(mo.hstack([use_go, use_stop], justify="start", align="center", gap=0.8))
    mo.vstack(_parts, gap=0.8)
    return use_go, use_stop


@app.cell
def _(Curves, method, mo, task):
    mo.stop(task.ask is None)
    _names = {
        "erased": "right, erased",
        "random": "right, random erased",
        "moved": "other class, moved",
        "moved_random": "other class, random move",
        "probe": "probe right",
    }
    _all = [{"id": _k, "label": _v} for _k, _v in _names.items()]
    _axis = "layer (0 is the embedding, then after each layer)"
    charts = {
        _w: Curves(_all, [{"key": "share", "title": f"share, changed at the {_t}, {method.selected_key}", "zero": True}], x_title=_axis)
        for _w, _t in (("last", "question's last token"), ("subject", "country's last token"))
    }

    mo.Html(
        "<style>.use-charts { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)) }</style>"
        '<div class="use-charts">' + "".join(f"<div>{mo.as_html(_c).text}</div>" for _c in charts.values()) + "</div>"
    )
    return (charts,)


@app.cell
def _(charts, lm, method, mo, page, task, use_go, use_stop):
    from interp.probes import use
    from lab.errors import LabError

    def _measure(stopped=lambda: False):
        _step = max(1, lm.config.n_layers // 8)
        _layers = range(0, lm.config.n_layers + 1, _step)
        for _chart in charts.values():
            _chart.clear()
        try:
            for _w, _chart in charts.items():
                for _u in use.used(lm, task, _layers, _w, method.value):
                    if stopped():  # another may be drawing by now; what is drawn stays
                        return
                    _values = {
                        "erased": _u.erased.value, "random": _u.random.value, "moved": _u.moved.value,
                        "moved_random": _u.moved_random.value, "probe": _u.probe_before,
                    }  # fmt: skip
                    _chart.append([{"step": _u.layer, "share": _v, "run": _k} for _k, _v in _values.items()])
        except LabError as _error:  # a model that does not know the answers
            for _c in charts.values():
                _c.panels = [{**_c.panels[0], "title": str(_error)}]

    if not page.live(mo):
        _measure()
    elif (use_go.value or lm.config.n_layers < 12) and not use_stop.value:

        def _work():
            _me = mo.current_thread()
            _measure(lambda: _me.should_exit)

        mo.Thread(target=_work, daemon=True).start()
    return


@app.cell
def _(mo):
    _text = [
        "## Beside the literature",
        "",
        "Hewitt and Liang (2019) ask what a probe could learn by itself: a control task gives every entity a random label, and only what the",
        "real task scores above it counts (selectivity). Elazar et al. (2021, *Amnesic probing*) ask whether the model needs what the probe",
        "reads, by taking it out. Marks and Tegmark (2023) find that class means make worse classifiers and better levers. The two",
        "pictures above differ by token: a property may be readable at the subject long after nobody reads it there.",
        "",
        "## What to try next",
        "",
        "- Take ridge regression in place of class means: it reads as well; does taking it out hurt as much?",
        "- Compare random weights with the trained model at the embedding: how much do the names alone give away?",
        "- Choose *which of two names comes next*: at which layer does the answer appear?",
        "- Take the direction to *Steering*: the same class means, added while the model writes.",
    ]
    mo.md("\n".join(_text))
    return


if __name__ == "__main__":
    app.run()
