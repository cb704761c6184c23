"""Features

Which directions in a layer mean something, and what happens when one of them is taken away or pushed?

exhibits: R9b
records: interp.sae.loss_recovered, interp.sae.l0, interp.sae.dead_fraction
start: Type a sentence and see which features of pocket fire on it, 1 min
order: 11
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Features")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    page.header(
        "What is a layer made of?",
        "A sparse dictionary writes a layer's activations as few of many directions. Type a sentence, choose a feature, "
        "take it away, push it.",
        station="interp",
        exhibits=("R9b",),
        aside=[page.share_button(mo, __file__)],
    )
    return mo, page


@app.cell
def _(mo, page):
    from interp import features
    from interp.features import dashboard, effects, plots, store, view
    from interp.features import runs as training
    from interp.features.text import rows_of

    _known = features.available()
    _names = {info.title if info.name.startswith("run:") else f"{info.shape.model}: {info.title}": info.name for info in _known}
    _asked = str(mo.query_params().get("dictionary") or "pocket-gated")
    _first = next((title for title, name in _names.items() if name == _asked), next(iter(_names), None))
    mo.stop(not _names, page.note("There are no dictionaries here yet: train one below, or restore data/models/features.", kind="warn"))
    choice = mo.ui.dropdown(_names, value=_first, label="dictionary")
    typed = mo.ui.text("The Eiffel Tower is located in the city of", label="sentence", full_width=True)
    mo.hstack([choice, typed], widths=[2, 3], gap=1.2, align="end")
    return choice, dashboard, effects, plots, rows_of, store, training, typed, view


@app.cell
def _(choice, mo, page, view):
    explorer = page.guard(view.Explorer, choice.value)
    dictionary, lm = explorer.dictionary, explorer.lm
    mo.Html(view.described(explorer))
    return dictionary, explorer, lm


@app.cell
def _(dashboard, dictionary, explorer, lm, mo, page, rows_of, typed):
    from widgets.heatmap import Heatmap

    found = page.guard(dashboard.sentence, lm, dictionary, page.guard(rows_of, lm, typed.value), explorer.firings)
    mo.stop(
        not found.features,
        page.note("No feature fires on this sentence that is rare enough to tell something; write a longer one.", kind="warn"),
    )
    _fires = {row["id"]: row["name"] for row in explorer.table.rows}
    upwards = found.features[::-1]  # the map's first row is at the bottom
    opening = max(found.features, key=lambda f: float(found.acts[found.features.index(f), -1]))
    heat = mo.ui.anywidget(
        Heatmap(
            found.acts.flip(0).numpy(),
            [f"{f}: {_fires.get(f, '')[:16]}" for f in upwards],
            found.pieces,
            row_title="feature: what it mostly fires on",
            col_title="token",
            value_title="Features that fire on the sentence; choose one",
            selected=[[upwards.index(opening), len(found.pieces) - 1]],
        )
    )
    get_feature, set_feature = mo.state(opening)
    seen = {}  # the choices acted upon, so that a redrawn widget does not choose again; not a cause of anything
    heat
    return found, get_feature, heat, opening, seen, set_feature, upwards


@app.cell
def _(heat, opening, seen, set_feature, upwards):
    _cells = heat.value["selected"]
    _now = upwards[_cells[-1][0]] if _cells and _cells[-1][0] < len(upwards) else None
    if _now is not None and _now != seen.setdefault("heat", opening):
        seen["heat"] = _now
        set_feature(_now)
    return


@app.cell
def _(all_features, seen, set_feature):
    _picked = all_features.value["selected"]
    if _picked and _picked[-1] != seen.get("table"):
        seen["table"] = _picked[-1]
        set_feature(_picked[-1])
    return


@app.cell
def _(dashboard, dictionary, effects, explorer, found, get_feature, lm, mo, page, plots, view):
    from widgets.bars import Bars

    feature = get_feature()
    if page.live(mo):
        explorer.show(feature)
    else:  # all of the sentence's features, to be leafed through
        explorer.show(*[feature, *(f for f in found.features if f != feature)])
    _up, _down = page.guard(dashboard.effects, lm, dictionary, feature, 6)
    _side = mo.vstack(
        [
            Bars(_up, unit="logit a unit of activation", title="It raises"),
            Bars(_down, unit="logit a unit of activation", title="It lowers"),
        ],
        gap=0.8,
    )
    mo.vstack(
        [
            mo.md(f"## Feature {feature}"),
            mo.Html(view.beside(mo.ui.anywidget(explorer.excerpts), _side, "2.2fr 1fr")),
            mo.Html(
                view.beside(
                    mo.ui.plotly(plots.spread(explorer.firings, feature)),
                    mo.Html(view.neighbours(explorer, effects.nearest(dictionary, feature))),
                )
            ),
        ],
        gap=0.8,
    )
    return Bars, feature


@app.cell
def _(Bars, effects, explorer, feature, lm, mo, page, view):
    _rows = explorer.excerpts.entries[0]["groups"][0]["rows"]
    mo.stop(not _rows, page.note("This feature fires nowhere in the text read; read more of it below."))
    _cut = page.guard(
        effects.ablate, lm, explorer.dictionary, feature, explorer.firings.text.tokens[[r["row"] for r in _rows]],
        [r["at"] for r in _rows],
    )  # fmt: skip
    _told, _before, _after = view.removed(explorer, feature, _rows, _cut)
    mo.vstack(
        [
            mo.md("## Without it"),
            mo.Html(
                view.beside(
                    mo.Html(_told),
                    Bars(_after, compare=_before, title="Next token after its strongest excerpt", names=("with it", "without it")),
                )
            ),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(mo, typed):
    amount = mo.ui.slider(-3, 3, value=1.5, step=0.25, show_value=True, debounce=True, label="push, largest activations")
    prompt = mo.ui.text(typed.value, label="prompt", full_width=True)
    mo.vstack([mo.md("## More of it"), mo.hstack([prompt, amount], widths=[2, 1], gap=1.2, align="end")], gap=0.6)
    return amount, prompt


@app.cell
def _(Bars, amount, dictionary, effects, explorer, feature, lm, mo, page, prompt, view):
    _most = float(explorer.firings.most()[feature])
    _plain = page.guard(effects.generate, lm, prompt.value, 24)
    _pushed = page.guard(effects.generate, lm, prompt.value, 24, effects.addition(dictionary, feature, amount.value * _most))
    _told, _before, _after = view.pushed(lm, prompt.value, _plain, _pushed)
    mo.Html(
        view.beside(
            mo.Html(_told), Bars(_after, compare=_before, title="Next token after the prompt", names=("as it is", "pushed"))
        )
    )
    return


@app.cell
def _(explorer, mo, page, view):
    _s = view.reading_seconds(explorer.dictionary, view.MORE)
    more = mo.ui.run_button(label=f"Read {view.MORE:,} tokens, {page.cost(_s)}")
    stop = mo.ui.run_button(label="Cancel")
    all_features = mo.ui.anywidget(explorer.table)
    mo.vstack(
        [
            mo.md("## All features"),
            mo.md("Sort by any column; choose a row to see the feature above. The text is none that a dictionary was trained on."),
            mo.hstack([more, stop], justify="start", gap=0.8),
            all_features,
        ],
        gap=0.8,
    )
    return all_features, more, stop


@app.cell
def _(explorer, mo, more, page, stop, view):
    import time

    # a first part of the text was read before anything was shown; more of it is read while one looks
    _positions = view.MORE if more.value else view.SOON
    if not page.live(mo):
        explorer.read(view.SOON // 2)
    elif not stop.value:

        def _read():
            _me = mo.current_thread()
            if not more.value:
                time.sleep(view.PAUSE_S)  # the page is painted first
            explorer.read(_positions, lambda: _me.should_exit)

        mo.Thread(target=_read, daemon=True).start()
    return


@app.cell
def _(mo, page, plots, training, view):
    _points = plots.sweep()
    _mine = [p for p in map(training.point, training.training_runs()) if p]
    _figure = plots.frontier(_points, _mine)
    mo.vstack(
        [
            mo.md("## What sparsity costs"),
            mo.md(
                "The dictionary's output takes the activation's place and the model goes on with it. Loss recovered is 1 when the "
                "loss on held-out text stays as it was, and 0 when it becomes that of zeros. TopK: Gao et al. 2024; JumpReLU and "
                "gated: Rajamanoharan et al. 2024."
            ),
            mo.ui.plotly(_figure) if _points else page.note("The recorded sweep is missing: `python -m interp.features.make sweep` measures it."),
            mo.Html(view.recorded()),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(mo):
    crowd = mo.ui.slider(16, 96, value=48, step=16, show_value=True, label="true features in 16 dimensions")
    truth_kind = mo.ui.dropdown({"TopK": "topk", "JumpReLU": "jumprelu", "gated": "gated"}, value="TopK", label="kind")
    mo.vstack(
        [
            mo.md("## Where the truth is known"),
            mo.md(
                "Activations made of known directions, more of them than dimensions and few at a time (Elhage et al. 2022): a "
                "dictionary that sees the activations alone must find the directions."
            ),
            mo.hstack([crowd, truth_kind], justify="start", align="center", gap=1.2, wrap=True),
        ],
        gap=0.6,
    )
    return crowd, truth_kind


@app.cell
def _(crowd, mo, training, truth_kind):
    toy_spec = training.toy_spec(truth_kind.value, crowd.value)
    slow = truth_kind.value != "topk"
    recover = mo.ui.run_button(label=f"Recover them, {toy_spec.steps:,} steps, about 6 s")
    recover if slow else mo.Html("")
    return recover, slow, toy_spec


@app.cell
def _(crowd, mo, plots, recover, slow, toy_spec):
    from interp.features import toy

    mo.stop(slow and not recover.value)
    _truth = toy.Superposition(features=crowd.value, width=16, density=2.0 / crowd.value)
    with mo.status.progress_bar(total=toy_spec.steps, title="Training", remove_on_exit=True) as _bar:
        _trail = []
        for _step, _d in toy.recover(_truth, toy_spec):
            _bar.update(increment=_step - (_trail[-1][0] if _trail else 0))
            _trail.append((_step, toy.mean_max_cosine(_d, _truth.directions())))
    mo.ui.plotly(plots.recovery(_trail, toy.cosines(_d, _truth.directions())))
    return


@app.cell
def _(mo, store, training):
    _t = {title: key for key, (_, _, title) in store.TARGETS.items()}
    subject = mo.ui.dropdown(training.trainable(), value=training.FIRST.model, label="model")
    kind = mo.ui.dropdown({"TopK": "topk", "JumpReLU": "jumprelu", "gated": "gated"}, value="TopK", label="kind")
    target = mo.ui.dropdown(_t, value=store.TARGETS[training.FIRST.target][2], label="of")
    layer = mo.ui.number(0, 63, value=training.FIRST.layer, label="layer")
    width = mo.ui.dropdown([str(2**n) for n in range(7, 13)], value=str(training.FIRST.d_dict), label="features")
    k = mo.ui.number(1, 512, value=training.FIRST.k, label="active a token")
    steps = mo.ui.number(10, 100_000, value=training.FIRST.steps, step=10, label="steps")
    rate = mo.ui.number(1e-5, 0.1, value=training.FIRST.lr, step=1e-4, label="learning rate")
    mo.vstack(
        [
            mo.md("## Train one"),
            mo.md("On generated facts, names, sums and lists. It goes on when this page is closed, and joins the choice above."),
            mo.hstack([subject, kind, target, layer], justify="start", wrap=True, gap=1.2),
            mo.hstack([width, k, steps, rate], justify="start", wrap=True, gap=1.2),
        ],
        gap=0.6,
    )
    return k, kind, layer, rate, steps, subject, target, width


@app.cell
def _(k, kind, layer, mo, page, rate, steps, subject, target, training, width):
    spec = page.guard(
        training.FIRST.changed, model=subject.value, kind=kind.value, target=target.value, layer=layer.value, d_dict=int(width.value), k=k.value,
        steps=steps.value, lr=rate.value, warmup=min(training.FIRST.warmup, steps.value),
    )  # fmt: skip
    page.guard(training.check, spec)
    train = mo.ui.run_button(kind="success", label=f"Train, {page.cost(training.seconds(spec))}")
    mo.hstack([train, mo.Html(f'<span class="lab-cost">{page.count(spec.positions())} activations</span>')], justify="start", align="center")
    return spec, train


@app.cell
def _(mo, page, training):
    from lab import runs
    from lab.page.watch import action
    from widgets.run_monitor import RunMonitor

    _known = training.training_runs()
    get_run, set_run = mo.state(next((run.id for run in _known if run.live), _known[0].id if _known else ""))
    monitor_widget = RunMonitor(training.FIGURES, act=action(lambda: runs.get(monitor_widget.run)) if page.live(mo) else None)
    monitor = mo.ui.anywidget(monitor_widget)
    return get_run, monitor, monitor_widget, runs, set_run


@app.cell
def _(page, runs, set_run, spec, train):
    if train.value:
        set_run(page.guard(runs.start, "sae", spec.to_dict()).id)
    return


@app.cell
def _(get_run, mo, monitor, monitor_widget, page, training):
    from widgets.curves import Curves

    _known = {run.id: run for run in training.training_runs()}
    _current = _known.get(get_run())
    if _current:
        _shown = [_current, *(run for run in list(_known.values())[:4] if run.id != _current.id)][:3]
        _curves = Curves(series=[{"id": run.id, "label": training.label(run)} for run in _shown], panels=training.PANELS)
        page.watch(mo, _shown, _curves, monitor_widget)
        _out = mo.vstack([monitor, _curves], gap=0.8)
    else:
        _out = page.note("No dictionary was trained here yet; press **Train** and its curves are drawn as they come.")
    _out
    return


@app.cell
def _(mo):
    _ideas = [
        "Type two sentences that differ in one name: which features change, and which stay?",
        "Push a feature of a city by 2 on a prompt about another city; then push its neighbour instead.",
        "Train with 4 active features and with 64: where does the loss recovered stop growing, and do excerpts become clearer?",
        "Train a transcoder of the same layer: its features read what the MLP reads. *Attribution graphs* connects them.",
        "Sort all features by density: what do those that fire on every second token say?",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
