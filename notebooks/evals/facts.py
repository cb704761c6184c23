"""Facts

Which facts does a model know, how sure is the score, and what did it say where it was wrong?

exhibits: L3
records: evals.facts.pocket, evals.facts.smollm2
start: Read every answer of two models to the same questions, 1 min
order: 1
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Facts")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo, default="pocket")
    page.header(
        "Facts",
        "Which facts does a model know, how sure is the score, and what did it say where it was wrong?",
        station="evals",
        exhibits=("L3",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, picker):
    from lab import models
    from lab.evals import GRADERS, facts, stored
    from lab.evals.view import Board, ask, latest

    first = picker.value["value"]
    _others = [info.name for info in models.available() if info.name != first] or [first]
    _usual = next((n for n in ("smollm2-135m", "pocket") if n in _others), _others[0])
    against = mo.ui.dropdown(_others, value=_usual, label="against")
    return Board, GRADERS, against, ask, facts, first, latest, stored


@app.cell
def _(Board, GRADERS, against, first, mo, stored):
    board = Board([first, against.value])
    grader = mo.ui.dropdown(
        {"begins with the answer": "starts", "likeliest of eight": "choice", "letter for letter": "exact"},
        value="begins with the answer",
        label="grader",
    )
    each = mo.ui.slider(
        2, 24, value=stored.PER_RELATION, step=2, label="bundled facts a relation", show_value=True
    )
    assert set(grader.options.values()) == set(GRADERS)

    def spec():
        return {"models": board.names, "per_relation": each.value, "grader": grader.value, "seed": 0}

    return board, each, grader, spec


@app.cell
def _(against, each, facts, grader, mo):
    _asked = len(facts.task(each.value).samples)
    go = mo.ui.run_button(kind="success", label=f"Evaluate both, {_asked} questions each")
    mo.hstack([against, grader, each, go], justify="start", align="center", wrap=True, gap=1.2)
    return (go,)


@app.cell
def _(board, go, latest, mo, page, spec, stored):
    from lab import runs

    # the run just started, else what these models answered last, else what is stored
    _run = page.guard(runs.start, "eval", spec()) if go.value else latest(board.names)
    if _run is not None and page.live(mo):

        def _follow():
            _me = mo.current_thread()
            board.follow(_run, lambda: _me.should_exit)

        mo.Thread(target=_follow, daemon=True).start()
        _source = mo.ui.anywidget(board.monitor)
    else:
        page.guard(board.show, {name: page.guard(stored.results, name) for name in board.names})
        _missing = [name for name in board.names if not board.results[name]]
        _source = (
            page.note(f"Nothing is stored for {' and '.join(_missing)}: press the button to ask.")
            if _missing
            else mo.Html(
                '<p class="lab-small">Results stored with the lab, made by <code>python -m lab bench evals</code>.</p>'
            )
        )
    _source
    return


@app.cell
def _(board, mo):
    mo.vstack(
        [
            mo.hstack([board.scores, board.difference], widths=[1, 1], gap=1, align="stretch", wrap=True),
            board.reader,
        ],
        gap=0.9,
    )
    return


@app.cell
def _(board, mo):
    mo.vstack(
        [
            mo.md("## Where the points go"),
            mo.hstack([board.groups, board.failures], widths=[1, 1], gap=1, align="start", wrap=True),
        ]
    )
    return


@app.cell
def _(mo):
    own_prompt = mo.ui.text("The largest city in Australia is", label="prompt", full_width=True, debounce=100)
    own_answer = mo.ui.text("Sydney", label="answer", debounce=100)
    own_go = mo.ui.run_button(label="Ask both")

    def own():
        return own_prompt.value, own_answer.value

    mo.vstack(
        [
            mo.md("## Ask it yourself"),
            own_prompt,
            mo.hstack([own_answer, own_go], justify="start", align="center", gap=1.2),
        ]
    )
    return own, own_go


@app.cell
def _(ask, board, mo, own, own_go, page):
    mo.stop(not own_go.value)
    with mo.status.spinner("Asking both", remove_on_exit=True):
        _answered = page.guard(ask, board.names, *own())
    _answered
    return


@app.cell
def _(mo):
    mo.md("""
    **How it is scored.** Both models go on greedily from the same text, up to twelve tokens or the end of the line. The
    grader looks at how the completion begins, without case, accents, punctuation and a leading article. Bundled facts are
    asked in phrasings in which pocket never saw them; general knowledge is in no table of ours. Two models answer the same
    questions, so their difference is taken question by question: a bootstrap over pairs, and McNemar's exact test on those
    that only one gets right.

    ## What to try next
    - Filter to what only one of the two gets right: is it the fact or the phrasing?
    - Choose *likeliest of eight*: how many of the failures were knowledge, how many only form?
    - Train a model of your own in *First run* and put it against pocket.
    """)
    return


if __name__ == "__main__":
    app.run()
