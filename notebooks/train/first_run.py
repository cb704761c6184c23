"""First run

What does a small model learn first, and can you watch it happen?

records: train.first_run.seconds_to_half, train.first_run.recall
start: Train a model that learns its first capitals while you watch, 1 min
order: 1
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="First run")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    page.header(
        "First run",
        "What does a small model learn first, and can you watch it happen?",
        station="train",
        aside=[page.share_button(mo, __file__)],
    )
    return mo, page


@app.cell
def _():
    # torch comes with these: the head of the page stands before they are there
    from lab import runs
    from lab.train import view
    from lab.train.spec import SCHEDULES, SIZES, TrainSpec

    return SCHEDULES, SIZES, TrainSpec, runs, view


@app.cell
def _(SCHEDULES, SIZES, mo, view):
    from lab.data import presets

    _shape = {f"{name}: {s[0]} layers, {s[1]} wide": name for name, s in SIZES.items()}
    _data = {f"{name}: {p.title}": name for name, p in presets.PRESETS.items()}
    size = mo.ui.dropdown(_shape, value=next(k for k, v in _shape.items() if v == view.FIRST_SIZE), label="size")
    data = mo.ui.dropdown(_data, value=next(k for k, v in _data.items() if v == view.FIRST.data), label="data")
    steps = mo.ui.number(10, 100_000, value=view.FIRST.steps, step=10, label="steps")
    batch = mo.ui.number(1, 1024, value=view.FIRST.batch, label="batch, sequences")
    context = mo.ui.dropdown(["32", "64", "128", "256"], value=str(view.FIRST.context), label="context, tokens")
    lr = mo.ui.number(1e-6, 1.0, value=view.FIRST.lr, step=5e-4, label="peak learning rate")
    more = mo.ui.dictionary(
        {
            "schedule": mo.ui.dropdown(list(SCHEDULES), value=view.FIRST.schedule, label="schedule"),
            "warmup": mo.ui.number(0, 10_000, value=view.FIRST.warmup, label="warm-up, steps"),
            "weight_decay": mo.ui.number(0.0, 1.0, value=view.FIRST.weight_decay, step=0.01, label="weight decay"),
            "clip": mo.ui.number(0.0, 100.0, value=view.FIRST.clip, step=0.1, label="clip gradients at (0: never)"),
            "seed": mo.ui.number(0, 10**6, value=view.FIRST.seed, label="seed"),
            "eval_every": mo.ui.number(1, 10_000, value=view.FIRST.eval_every, label="evaluate every, steps"),
            "save_every": mo.ui.number(1, 10_000, value=view.FIRST.save_every, label="checkpoint every, steps"),
            "sample": mo.ui.text(view.FIRST.sample, label="sample continues"),
        }
    )
    mo.vstack(
        [
            mo.hstack([size, data, context], justify="start", wrap=True, gap=1.2),
            mo.hstack([steps, batch, lr], justify="start", wrap=True, gap=1.2),
            mo.accordion(
                {"Optimiser, evaluation, seed": mo.hstack(list(more.elements.values()), justify="start", wrap=True, gap=1.2)}
            ),
        ],
        gap=0.6,
    )
    return batch, context, data, lr, more, size, steps


@app.cell
def _(TrainSpec, batch, context, data, lr, more, page, size, steps, view):
    from lab import paths
    from lab.models import Tokenizer

    vocab = page.guard(Tokenizer, paths.MODELS / "pocket").vocab_size
    spec = page.guard(
        TrainSpec.sized,
        size.value,
        data=data.value,
        steps=steps.value,
        batch=batch.value,
        context=int(context.value),
        lr=lr.value,
        generated_tokens=view.FIRST.generated_tokens,
        **more.value,
    )
    return spec, vocab


@app.cell
def _(mo, page, spec, view, vocab):
    start = mo.ui.run_button(kind="success", label=f"Train, {page.cost(view.seconds(spec, vocab))}")
    mo.hstack(
        [
            start,
            mo.Html(
                f'<span class="lab-cost">{page.count(spec.config(vocab).n_params())} parameters, '
                f"{page.count(spec.tokens())} tokens, {spec.flops(vocab):.2g} FLOPs. "
                "The time is that of one such step, measured here just now.</span>"
            ),
        ],
        justify="start",
        align="center",
        wrap=True,
        gap=1,
    )
    return (start,)


@app.cell
def _(mo, page, runs, view):
    from lab.page.watch import action
    from widgets.run_monitor import RunMonitor
    from widgets.scrubber import Scrubber

    # a live run is found again after a reload; else the newest one is shown
    _known = view.training_runs()
    _first = next((run.id for run in _known if run.live), _known[0].id if _known else "")
    get_run, set_run = mo.state(str(mo.query_params().get("run") or _first))

    # Cells that only draw on these take the bare widgets: one that names `monitor` or `scrub` runs again whenever
    # the page tells something.
    monitor_widget = RunMonitor(
        view.FIGURES, act=action(lambda: runs.get(monitor_widget.run)) if page.live(mo) else None
    )
    scrub_widget = Scrubber(title="checkpoint at step")
    monitor, scrub = mo.ui.anywidget(monitor_widget), mo.ui.anywidget(scrub_widget)
    overlaid = []  # ids chosen in the list of runs, kept while the list is made anew; not a cause of anything
    return get_run, monitor, monitor_widget, overlaid, scrub, scrub_widget, set_run


@app.cell
def _(page, runs, set_run, spec, start):
    if start.value:
        set_run(page.guard(runs.start, "train", spec.to_dict()).id)
    return


@app.cell
def _(get_run, mo, monitor, overlaid, view):
    from widgets.table import Table

    monitor.value["ended"]  # the list is read again when a run ends
    known = {run.id: run for run in view.training_runs()}
    current = known.get(get_run()) or next(iter(known.values()), None)
    table = mo.ui.anywidget(
        Table(
            [view.line(run) for run in known.values()],
            columns=view.COLUMNS,
            page=6,
            selected=list(dict.fromkeys([current.id, *overlaid[:4]])) if current else [],
        )
    )
    return current, known, table


@app.cell
def _(TrainSpec, current, known, mo, monitor_widget, overlaid, page, scrub_widget, table, view):
    from widgets.curves import Curves

    overlaid[:] = table.value["selected"]
    _picked = [known[id] for id in table.value["selected"] if id in known]
    shown = list({run.id: run for run in [*([current] if current else []), *_picked]}.values())
    if shown:
        curves = Curves(
            series=[{"id": run.id, "label": view.label(run)} for run in shown],
            panels=view.panels([TrainSpec.from_dict(run.spec) for run in shown]),
        )
        page.watch(mo, shown, curves, monitor_widget, scrub_widget)
    else:
        curves = page.guard(view.recorded)
    return curves, shown


@app.cell
def _(curves, mo, monitor, page, shown):
    mo.vstack(
        [
            monitor
            if shown
            else page.note(
                "Nothing was trained here yet. These are the recorded curves of the bundled models; press **Train** and "
                "yours are drawn as they come."
            ),
            curves,
        ],
        gap=0.8,
    )
    return


@app.cell
def _(known, mo, page, shown, table, view):
    mo.vstack(
        [
            mo.md("## Runs here\n\nChoose rows to lay their curves over the run above."),
            table,
            page.note(view.differences(shown), title="What differs") if len(shown) > 1 else mo.Html(""),
        ]
    ) if known else mo.Html("")
    return


@app.cell
def _(mo, scrub):
    prompt = mo.ui.text("The capital of France is", label="prompt", full_width=True)
    answer = mo.ui.text("Paris", label="answer", full_width=True)
    mo.vstack(
        [
            mo.md("## What it would say, layer by layer"),
            mo.hstack([prompt, answer], widths=[3, 1], gap=1),
            scrub,
        ],
        gap=0.7,
    )
    return answer, prompt


@app.cell
def _(answer, mo, page, prompt, scrub, shown):
    from interp.lenses.table import lens_table
    from lab import models

    scrub.value["value"]  # moving the handle runs this cell again; the widget knows where it stands before that too
    _step = scrub.widget.value
    name = f"run:{shown[0].id}@{_step}" if shown and _step is not None else "pocket"
    _lm = page.guard(models.load, name)
    mo.vstack(
        [
            page.guard(lens_table, _lm, prompt.value, answer.value),
            mo.Html(
                '<span class="lab-small">The logit lens: the stream after each layer, read as if it were the last. '
                "The shade is the probability of the token shown; the last column is that of the answer. "
                f"{page.open_in(mo, 'interp/patching', f'Patch {name}', model=name)}</span>"
            ),
        ],
        gap=0.7,
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## Try next

    - Ten times the learning rate, clipping off: which of loss, gradient norm and recall shows the trouble first?
    - `mixed` data with the same steps: what is learned late when facts share the model with sums and lists?
    - `tiny` against `small` at the same data: at which step does each cross half of the facts?
    - Move the handle to the checkpoint where recall rises: at which layer does the answer appear, and does that move?
    """)
    return


if __name__ == "__main__":
    app.run()
