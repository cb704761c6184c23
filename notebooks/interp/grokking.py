"""Grokking

When a model that knows every answer by heart suddenly understands, what has changed inside?

exhibits: R9b
records: interp.grokking.test_loss, interp.grokking.five_frequencies
order: 16
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Grokking")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    page.header(
        "When a model that knows every answer by heart understands",
        "One layer learns to add mod 113 from 30% of the sums. It memorises them in a few hundred updates and finds the "
        "rule thousands later (Power et al. 2022); what the rule looks like inside is known (Nanda et al. 2023).",
        station="interp",
        exhibits=("R9b",),
        aside=[page.share_button(mo, __file__)],
    )
    return mo, page


@app.cell
def _(page):
    from interp.truth import fourier
    from interp.truth import modular_view as view
    from interp.truth.grokking import story

    told = page.guard(story)
    return fourier, told, view


@app.cell
def _(mo, told, view):
    mo.vstack(
        [
            mo.ui.plotly(view.story(told)),
            mo.Html(
                '<span class="lab-small">Move the handle or press play. The circuit is there, and alone would answer right '
                "(restricted loss), long before the test loss falls: what hides it is the memory, which weight decay then "
                "takes away. Coloured bars are the frequencies the finished model answers by.</span>"
            ),
        ],
        gap=0.4,
    )
    return


@app.cell
def _(mo, told):
    from widgets.scrubber import Scrubber

    scrub = mo.ui.anywidget(
        Scrubber(
            told.saved,
            value=told.saved[-1],
            labels=[f"test loss {told.at('test_loss', e):.2g} nats" for e in told.saved],
            title="weights of epoch",
        )
    )
    mo.vstack([mo.md("## Inside, epoch by epoch"), scrub], gap=0.4)
    return Scrubber, scrub


@app.cell
def _(fourier, page, scrub, told):
    epoch = scrub.value["value"]
    model = page.guard(told.model, epoch)
    seen = fourier.look(model)
    return epoch, model, seen


@app.cell
def _(epoch, mo, model, seen, told, view):
    _examples, _titles = view.examples(seen, told.keys)
    _neurons = (
        mo.ui.plotly(view.maps(_examples, _titles, "activation")) if _titles else mo.md("No neuron is explained best by a key frequency yet.")
    )
    mo.vstack(
        [
            mo.md(f"### The numbers on their circles, epoch {epoch:,}"),
            mo.ui.plotly(view.circles(model.W_E[:-1], told.keys)),
            mo.md("### Attention from `=` to a; nearly all the rest goes to b"),
            mo.ui.plotly(
                view.maps(seen.attention, [f"head {h}" for h in range(seen.attention.shape[-1])], "weight", shared=1.0)
            ),
            mo.md("### Neurons as functions of a and b"),
            _neurons,
            mo.ui.plotly(view.fits(seen, told.keys)),
        ],
        gap=0.5,
    )
    return


@app.cell
def _(epoch, fourier, mo, seen, told, view):
    from widgets.table import Table

    _waves = fourier.waves_of_answer(seen.logits)
    _named = ", ".join(f"{float(_waves[k - 1]):.1f} cos(w{k}(a + b - c))" for k in told.keys)
    mo.vstack(
        [
            mo.md(
                f"## Is that all there is to it?\nAt epoch {epoch:,} the logits are {_named} and a rest: the waves explain "
                f"{fourier.explained(seen.logits, _waves):.1%} of their variance. All {seen.logits.shape[0] ** 2:,} pairs:"
            ),
            Table(
                view.account(seen, told.keys),
                columns=[
                    {"key": "what", "title": "what answers"},
                    {"key": "loss", "title": "loss", "unit": "nats", "kind": "num"},
                    {"key": "right", "title": "right", "unit": "share", "kind": "bar"},
                ],
                name="grokking-parts",
            ),
        ],
        gap=0.6,
    )
    return (Table,)


@app.cell
def _(Table, fourier, mo, told):
    from interp.truth.modular import questions, split

    _train, _test = split(told.spec)
    _first = ", ".join(f"({a}, {b})" for a, b, _ in questions(told.spec.p)[0][_train[:3]].tolist())
    _until = [i for i, e in enumerate(told.epochs) if e <= 25_000]
    _rows = [
        ("training and test pairs", "3,830 and 8,939", f"{len(_train):,} and {len(_test):,}"),
        ("first training pairs", "(21, 31), (30, 98), (47, 10)", _first),
        ("training loss at epoch 1,000", "below 1e-4", f"{told.at('train_loss', 1000):.1e}"),
        ("test loss at epoch 1,000", "above 20", f"{told.at('test_loss', 1000):.1f}"),
        ("test loss by epoch 25,000", "below 1e-3", f"{float(told.curves['test_loss'][_until].min()):.1e}"),
        (
            "five frequencies' share of the embedding",
            "almost all",
            f"{fourier.share_of_largest(told.spectra['embedding'][-1].square()):.1%}",
        ),
        ("frequencies the logits use", "about five", ", ".join(map(str, told.keys))),
    ]
    mo.vstack(
        [
            mo.md("## Beside the paper"),
            Table(
                [dict(zip(("what", "expected", "here"), row)) for row in _rows],
                columns=[{"key": "what"}, {"key": "expected"}, {"key": "here"}],
                name="grokking-figures",
            ),
        ],
        gap=0.4,
    )
    return


@app.cell
def _(mo):
    p = mo.ui.dropdown(["23", "29", "37", "59"], value="29", label="p")
    share = mo.ui.number(0.2, 0.9, value=0.6, step=0.05, label="share of the sums trained on")
    decay = mo.ui.number(0.0, 3.0, value=1.0, step=0.1, label="weight decay")
    lr = mo.ui.number(1e-4, 2e-2, value=3e-3, step=5e-4, label="learning rate")
    steps = mo.ui.number(100, 50_000, value=1200, step=100, label="epochs")
    seed = mo.ui.number(0, 10_000, value=0, label="seed")
    mo.vstack(
        [
            mo.md("## Watch it happen\nThe same in small, on this machine."),
            mo.hstack([p, share, decay, lr, steps, seed], justify="start", wrap=True, gap=1.2),
        ],
        gap=0.5,
    )
    return decay, lr, p, seed, share, steps


@app.cell
def _(decay, lr, mo, p, page, seed, share, steps):
    from interp.truth import modular

    spec = page.guard(
        modular.ModularSpec, p=int(p.value), train_share=share.value, d_model=64, d_mlp=256, lr=lr.value,
        weight_decay=decay.value, steps=steps.value, seed=seed.value, log_every=10, save_every=max(20, steps.value // 40),
    )  # fmt: skip
    start = mo.ui.run_button(kind="success", label=f"Train, {page.cost(modular.seconds(spec))}")
    start
    return modular, spec, start


@app.cell
def _(Scrubber, mo, page):
    from interp.truth.runs import of_kind
    from lab import runs
    from lab.page.watch import action
    from widgets.run_monitor import RunMonitor

    _known = of_kind("grokking")
    _live = next((run.id for run in _known if run.live), _known[0].id if _known else "")
    get_run, set_run = mo.state(str(mo.query_params().get("run") or _live))
    monitor = RunMonitor(
        (
            {"key": "train_loss", "label": "training loss", "unit": "nats"},
            {"key": "test_loss", "label": "test loss", "unit": "nats"},
            {"key": "test_right", "label": "right, never seen"},
        ),
        act=action(lambda: runs.get(monitor.run)) if page.live(mo) else None,
    )
    small_widget = Scrubber(title="checkpoint at epoch")
    small = mo.ui.anywidget(small_widget)
    return get_run, monitor, of_kind, runs, set_run, small, small_widget


@app.cell
def _(page, runs, set_run, spec, start):
    if start.value:
        set_run(page.guard(runs.start, "grokking", spec.to_dict()).id)
    return


@app.cell
def _(get_run, mo, monitor, of_kind, page, small_widget):
    from widgets.curves import Curves

    current = next((run for run in of_kind("grokking") if run.id == get_run()), None)
    if current:
        curves = Curves(
            series=[{"id": current.id, "label": f"p = {current.spec['p']}, {current.spec['train_share']:.0%} of the sums"}],
            panels=[
                {"key": "train_loss", "title": "Loss, training pairs", "unit": "nats", "log": True},
                {"key": "test_loss", "title": "Loss, pairs never seen", "unit": "nats", "log": True},
                {"key": "test_right", "title": "Right, pairs never seen", "unit": "share", "zero": True},
                {"key": "weight_norm", "title": "Sum of squared weights", "unit": "", "zero": True},
            ],
            x_title="epoch",
        )
        page.watch(mo, [current], curves, monitor, small_widget)
        _shown = mo.vstack([monitor, curves], gap=0.8)
    else:
        _shown = mo.Html("")
    _shown
    return (current,)


@app.cell
def _(current, mo, small):
    small if current else mo.Html("")  # in a cell of its own: the one that watches must not run again when it moves
    return


@app.cell
def _(current, fourier, mo, modular, page, small, view):
    from lab import models

    small.value["value"]  # moving the handle runs this again
    _step = small.widget.value
    if current and _step in {c.step for c in current.checkpoints()}:
        _model = page.guard(models.load, f"run:{current.id}@{_step}").model
        _last = page.guard(models.load, f"run:{current.id}").model
        _keys = fourier.key_frequencies(fourier.all_logits(_last))
        _spec = modular.ModularSpec.from_dict(current.spec)
        _row = fourier.progress(_model, *modular.split(_spec), _keys)
        _shown = mo.vstack(
            [
                mo.hstack(
                    [
                        mo.ui.plotly(view.bars(_row["embedding"].sqrt(), _keys, "norm of the embedding")),
                        mo.ui.plotly(view.circles(_model.W_E[:-1], _keys[:4])),
                    ],
                    widths=[2, 3],
                ),
                mo.Html(
                    '<span class="lab-small">Key frequencies by the newest checkpoint: '
                    f"{', '.join(map(str, _keys))}. Restricted loss {float(_row['restricted_loss']):.2g}, excluded loss "
                    f"{float(_row['excluded_loss']):.2g}, test loss {float(_row['test_loss']):.2g} nats. "
                    f"{page.open_in(mo, 'interp/compare', 'Compare checkpoints', model=f'run:{current.id}')}</span>"
                ),
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

    - Weight decay 0: the memory is perfect and nothing cleans it away. How long do you wait?
    - A larger share of the sums: at which share does understanding come at once, with no delay to see?
    - Move to the epoch where the restricted loss is below the test loss: which heads and neurons already carry the key frequencies?
    - Another seed: other frequencies are chosen. How many does it need?
    """)
    return


if __name__ == "__main__":
    app.run()
