"""Circuits

Which few of a model's edges carry a behaviour, and how much is that claim worth?

exhibits: R9b
records: interp.circuit.eap_ig_r.pocket, interp.circuit.faithfulness.pocket
start: Find the circuit that hands the gift to the right person, then break it, 3 min
order: 8
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Circuits")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Which edges carry the answer?",
        "Every head and MLP adds to one stream and every later one reads the sum, so each pair is an edge that can be cut "
        "by itself. Score them all, keep the few that matter, and see what the claim is worth.",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.circuits.batch import BEHAVIOURS, suited
    from interp.circuits.edges import KINDS, POSITIONS
    from interp.circuits.view import SCORE, Board, precise
    from interp.metrics import METRICS

    lm = page.guard(precise, page.chosen(picker))
    behaviour = mo.ui.dropdown({text: key for key, text in BEHAVIOURS.items()}, value=BEHAVIOURS[page.guard(suited, lm)], label="behaviour")
    kind = mo.ui.dropdown({text: key for key, text in KINDS.items()}, value=KINDS["counterfactual"], label="a cut edge reads")
    metric = mo.ui.dropdown({m.title: k for k, m in METRICS.items()}, value="logit difference", label="metric")
    method = mo.ui.dropdown({text: key for key, (text, _) in SCORE.items()}, value=SCORE["eap_ig"][0], label="score")
    mo.hstack([behaviour, kind, metric, method], justify="start", align="center", wrap=True, gap=0.8)
    return Board, KINDS, METRICS, POSITIONS, behaviour, kind, lm, method, metric


@app.cell
def _(Board, behaviour, kind, lm, method, metric, mo, page):
    board = page.guard(Board, lm, behaviour.value, kind.value, metric.value, method.value)
    live = page.live(mo)
    quick = not live or board.score_cost.seconds < 3
    if quick:
        board.score()
    _cost = board.score_cost
    score = mo.ui.run_button(
        label=f"Score {board.graph.n_edges:,} edges, {page.cost(_cost.seconds, forwards=_cost.forwards, bytes=_cost.bytes)}",
        disabled=quick,
    )
    score_stop = mo.ui.run_button(label="Cancel")
    mo.vstack([board.strips(), *([] if quick else [mo.hstack([score, score_stop], justify="start")])], gap=0.8)
    return board, live, quick, score, score_stop


@app.cell
def _(board):
    board.picture
    return


@app.cell
def _(board, live, mo, quick, score, score_stop):
    # a small model is measured at once, a large one when asked; running again ends the thread before
    if not live:
        board.measure()
        board.compare()
    elif (quick or score.value) and not score_stop.value:

        def _work():
            _me = mo.current_thread()
            if not quick:
                board.score()
            if not _me.should_exit:
                board.measure(lambda: _me.should_exit)
            if not _me.should_exit:
                board.compare(stopped=lambda: _me.should_exit)

        mo.Thread(target=_work, daemon=True).start()
    return


@app.cell
def _(board, mo, page):
    every = mo.ui.run_button(
        label=f"Cut {board.most:,} edges one by one, {page.cost(board.exact_cost.seconds, forwards=board.exact_cost.forwards)}"
    )
    every_stop = mo.ui.run_button(label="Cancel")
    _right = mo.vstack([board.scatter, mo.hstack([every, every_stop], justify="start")])
    mo.vstack(
        [
            mo.md(
                "## How many are enough, and is the score right?\n"
                "Left, only the strongest edges stay and all others are cut, then the other way round "
                "(Wang et al. 2022; Marks et al. 2024; areas as in MIB, Mueller et al. 2025). Right, the score "
                "(Syed et al. 2023; Hanna et al. 2024) against what cutting that one edge does."
            ),
            mo.Html(
                "<style>.two { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); align-items: start }"
                "@media (min-width: 1100px) { .two { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) } }</style>"
                f'<div class="two"><div>{mo.as_html(board.faithful).text}</div><div>{_right.text}</div></div>'
            ),
        ]
    )
    return every, every_stop


@app.cell
def _(board, every, every_stop, live, mo):
    if live and every.value and not every_stop.value:

        def _compare():
            _me = mo.current_thread()
            board.compare(True, lambda: _me.should_exit)

        mo.Thread(target=_compare, daemon=True).start()
    return


@app.cell
def _(board, mo, page):
    threshold = mo.ui.slider(steps=[0.001, 0.002, 0.005, 0.01, 0.02, 0.05], value=0.01, show_value=True, label="an edge may cost, share of the metric")
    search = mo.ui.run_button(label=f"Search {board.most:,} edges, {page.cost(board.search_cost.seconds, forwards=board.search_cost.forwards)} at most")
    search_stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.md(
                "## Found edge by edge\n"
                "ACDC (Conmy et al. 2023) goes from the logits down and cuts for good every edge whose loss is small, given "
                "all cuts before it."
            ),
            mo.hstack([threshold, search, search_stop], justify="start", align="center", wrap=True, gap=0.8),
            board.search,
        ]
    )
    return search, search_stop, threshold


@app.cell
def _(board, live, mo, search, search_stop, threshold):
    if live and search.value and not search_stop.value:
        _threshold = threshold.value

        def _search():
            _me = mo.current_thread()
            board.discover(_threshold, lambda: _me.should_exit)

        mo.Thread(target=_search, daemon=True).start()
    return


@app.cell
def _(KINDS, METRICS, POSITIONS, board, mo, page, quick):
    from interp.circuits.faithfulness import sizes
    from interp.circuits.protocol import LEVELS

    _steps = sizes(board.graph, (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7))
    source = mo.ui.radio({"the strongest": "top", "ACDC's": "acdc"}, value="the strongest", label="edges", inline=True)
    size = mo.ui.slider(steps=_steps, value=_steps[6], show_value=True, label="how many")
    kinds = mo.ui.multiselect({text: key for key, text in KINDS.items()}, value=list(KINDS.values()), label="a cut edge reads")
    places = mo.ui.multiselect({text: key for key, text in POSITIONS.items()}, value=list(POSITIONS.values())[:2], label="cut at")
    levels = mo.ui.multiselect({text: key for key, text in LEVELS.items()}, value=list(LEVELS.values()), label="cut")
    ask = mo.ui.run_button(label=f"Ask, {page.cost(board.protocol_cost.seconds, forwards=board.protocol_cost.forwards)}")
    read = mo.ui.multiselect({m.title: k for k, m in METRICS.items()}, value=["logit difference"], label="metric")
    mo.vstack(
        [
            mo.md(
                "## What the claim is worth\n"
                "One circuit, and every protocol that papers use for it (Miller et al. 2024): what stands in for a cut edge, "
                "where, edges or whole nodes, which metric. Intervals are 95%, bootstrapped over the prompts."
            ),
            mo.hstack([source, size, *([] if quick else [ask])], justify="start", align="center", wrap=True, gap=1.5),
            mo.hstack([kinds, places, levels, read], justify="start", align="center", wrap=True, gap=0.8),
            board.protocol,
        ]
    )
    return ask, kinds, levels, places, read, size, source


@app.cell
def _(ask, board, mo, page, size, source):
    ask.value  # a large model is scored while this page waits: the circuit is looked up again when somebody asks
    mo.stop(board.scores is None, page.note("Score the edges above, then ask."))
    circuit = page.guard(board.circuit, source.value, size.value)
    return (circuit,)


@app.cell
def _(ask, board, circuit, kinds, levels, live, mo, places, quick, read):
    mo.stop(not (quick or ask.value) or not (kinds.value and places.value and levels.value and read.value))
    _chosen = (circuit, kinds.value, places.value, levels.value, read.value)
    if not live:
        board.ask(*_chosen)
    else:

        def _ask():
            _me = mo.current_thread()
            board.ask(*_chosen, lambda: _me.should_exit)

        mo.Thread(target=_ask, daemon=True).start()
    return


@app.cell
def _(board, circuit, mo, page):
    prompt = mo.ui.text(board.batch.texts[0][0], label="goes on from", full_width=True)
    stand_in = mo.ui.radio({"their mean": "mean", "zero": "zero"}, value="their mean", label="cut edges read", inline=True)
    cut = mo.ui.run_button(kind="success", label=f"Break it: {int(circuit.sum()):,} edges, {page.cost(40 * board.seconds_a_set)}")
    cut_stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.md(
                "## Explain, then break\n"
                "A circuit that explains a behaviour should keep it alone and take it along when it goes, and leave the rest "
                "be. Ordinary text has no corrupted partner, so cut edges read a constant here."
            ),
            mo.hstack([prompt, stand_in], widths=[2, 1], align="end"),
            mo.hstack([cut, cut_stop], justify="start"),
            board.table,
        ]
    )
    return cut, cut_stop, prompt, stand_in


@app.cell
def _(board, circuit, cut, cut_stop, live, mo, prompt, stand_in):
    if live and cut.value and not cut_stop.value:
        _what = (circuit, prompt.value, stand_in.value)

        def _cut():
            _me = mo.current_thread()
            board.break_it(*_what, lambda: _me.should_exit)

        mo.Thread(target=_cut, daemon=True).start()
    return


@app.cell
def _(mo, page):
    from lab import records
    from widgets.table import Table

    _named = {
        "interp.circuit.eap_r.pocket": "EAP against every edge replaced by itself, Pearson's r",
        "interp.circuit.eap_ig_r.pocket": "EAP-IG against the same",
        "interp.circuit.faithfulness.pocket": "indirect object: faithfulness of the strongest tenth of the edges",
        "interp.circuit.protocol_span.pocket": "the same circuit: widest distance between two protocols",
        "interp.circuit.score_s.pocket": "scoring every edge of pocket",
    }
    _found = {row["id"]: row for row in records.newest()}
    _rows = [
        {"what": _what, "measured": _r["value"], "unit": _r["unit"], "bar": _r.get("bar"), "on": _r["hardware"], "date": _r["date"][:10]}
        for _id, _what in _named.items()
        if (_r := _found.get(_id))
    ]
    mo.vstack(
        [
            mo.md(
                "## Beside the truth\n"
                "Replacing no edge gives the clean run bit for bit, replacing all of them the other run; random sets are checked "
                "against plain loops over heads in float64, and the search against one that removes an edge at a time."
            ),
            Table(_rows, [{"key": "what"}, {"key": "measured", "kind": "num"}, {"key": "unit"}, {"key": "bar", "kind": "num"}, {"key": "on"}, {"key": "date"}])
            if _rows
            else page.note("Nothing recorded yet: `python -m lab bench interp` measures it here."),
        ]
    )
    return


@app.cell
def _(mo, page, picker):
    _name = picker.value["value"]
    _ideas = [
        "Choose a fact instead of the indirect object: MLPs take over from heads.",
        "Find the circuit with the mean in place of the corrupted prompt: other edges matter, and breaking it leaves more of the rest.",
        "Score with one gradient and replace every edge: which edges does a single gradient miss?",
        f"{page.open_in(mo, 'interp/paths', 'Paths', model=_name)}: follow one head's queries back to who writes them.",
        f"{page.open_in(mo, 'interp/tracr', 'Compiled programs', model=_name)}: the same search where the circuit is known.",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
