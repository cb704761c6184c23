"""Two models

What changed inside, between two models or from one checkpoint to the next?

exhibits: R9b
order: 14
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Two models")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Two models",
        "What changed inside, between two models or from one checkpoint to the next?",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.compare.difference import PRECISIONS
    from interp.compare.measures import MEASURES, questions
    from lab.models import available

    base = page.chosen(picker)
    _names = [info.name for info in available() if info.ready]
    other = mo.ui.dropdown(_names, value=base.name if base.name in _names else "pocket", label="second model")
    step = mo.ui.text(label="checkpoint of a run, step", placeholder="newest")
    held = mo.ui.dropdown(list(PRECISIONS), value="4 bits", label="its weights")
    measure = mo.ui.dropdown({m.title: k for k, m in MEASURES.items()}, value="estimated effect of each head", label="measure")
    many = mo.ui.slider(8, 48, step=8, value=16, label="pairs of prompts", show_value=True)
    mo.hstack([other, step, held, measure, many], justify="start", align="center", wrap=True, gap=1)
    return MEASURES, base, held, many, measure, other, questions, step


@app.cell
def _(MEASURES, base, held, many, measure, mo, other, page, questions, step):
    from interp.compare.difference import opened
    from interp.compare.view import Beside

    _name = f"{other.value}@{step.value.strip()}" if step.value.strip() and other.value.startswith("run:") else other.value
    _second = page.guard(opened, _name, held.value)
    candidates = questions(base, many.value)
    beside = page.guard(Beside, [base, _second], candidates, MEASURES[measure.value])
    beside_s = beside.seconds()
    go = mo.ui.run_button(kind="success", label=f"Measure, {page.cost(beside_s)}")
    stop = mo.ui.run_button(label="Cancel")
    mo.hstack([go, stop], justify="start", gap=0.8)
    return beside, beside_s, candidates, go, stop


@app.cell
def _(beside, mo):
    mo.Html(
        "<style>.three { display: grid; gap: 14px; grid-template-columns: minmax(0, 1fr) }"
        "@media (min-width: 820px) { .three { grid-template-columns: repeat(3, minmax(0, 1fr)) } }"
        ".two { display: grid; gap: 14px; grid-template-columns: minmax(0, 1fr); margin-top: 14px }"
        "@media (min-width: 1000px) { .two { grid-template-columns: minmax(0, 5fr) minmax(0, 6fr) } }</style>"
        '<div class="three">'
        + "".join(f"<div>{mo.as_html(w).text}</div>" for w in (beside.first, beside.second, beside.delta))
        + '</div><div class="two">'
        + "".join(f"<div>{mo.as_html(w).text}</div>" for w in (beside.intervals, beside.table))
        + "</div>"
    )
    return


@app.cell
def _(beside, beside_s, go, mo, page, stop):
    # quick ones are measured at once, long ones wait for the button; running again ends the thread before
    if not page.live(mo):
        beside.run()
    elif (go.value or beside_s < 10) and not stop.value:

        def _measure():
            _me = mo.current_thread()
            beside.run(lambda: _me.should_exit)

        mo.Thread(target=_measure, daemon=True).start()
    return


@app.cell
def _(mo):
    mo.md("""
    Both models read the same pairs of prompts, and a cell's difference is taken pair by pair. The interval is a bootstrap
    over pairs (Efron 1979), each cell by itself: among many cells a few will leave zero out by chance. Effects are
    attribution patching's (Nanda 2023), in logits.

    ## Along the checkpoints of a run
    """)
    return


@app.cell
def _(mo):
    from lab.train.view import label, training_runs

    films = [run for run in training_runs() if run.checkpoints()]
    chosen_run = mo.ui.dropdown({label(run): run.id for run in films}, value=label(films[0]), label="run") if films else None
    chosen_run or mo.Html("")
    return chosen_run, films


@app.cell
def _(MEASURES, base, candidates, chosen_run, films, measure, mo, page):
    from interp.compare.view import Reel
    from lab import runs
    from lab.models import load

    mo.stop(
        not films,
        page.note(
            "No run has left a checkpoint here yet. "
            + page.open_in(mo, "train/first_run", "Train a small model")
            + " in under a minute and come back: every checkpoint is measured, also while it still trains.",
        ),
    )
    _run = page.guard(runs.get, chosen_run.value)
    _config = page.guard(load, f"run:{_run.id}").config
    reel = Reel(_run, _config, candidates[:12], MEASURES[measure.value])
    mo.Html(
        '<div class="two">'
        f"<div>{mo.as_html(reel.scrubber).text}{mo.as_html(reel.heat).text}</div><div>{mo.as_html(reel.curves).text}</div></div>"
    )
    return (reel,)


@app.cell
def _(mo, page, reel):
    if page.live(mo):

        def _film():
            _me = mo.current_thread()
            reel.follow(lambda: _me.should_exit)

        mo.Thread(target=_film, daemon=True).start()
    else:
        while page.guard(reel.catch_up):
            pass
    return


@app.cell
def _(mo):
    mo.md("""
    ## What to try next

    - 8 bits, then 4, then 3: which heads give way first, and are they the ones that carry the answer?
    - The same run at two checkpoints: choose it above as the model and below as the second, with a step.
    - `bfloat16` against `float32`: how many cells does the interval call different, and by how much?
    """)
    return


if __name__ == "__main__":
    app.run()
