"""Attribution graphs

Which features, at which tokens, lead to the answer?

exhibits: R9b
records: interp.graphs.foretold
order: 12
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Attribution graphs")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Attribution graphs",
        "Which features, at which tokens, lead to the answer?",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.graphs.attribute import bundle

    lm = page.chosen(picker)
    dictionaries = page.guard(bundle, lm)
    prompt = mo.ui.text("The Eiffel Tower is located in the city of", label="prompt", full_width=True)
    budget = mo.ui.dropdown({"64 features": 64, "192 features": 192, "512 features": 512}, value="64 features", label="trace back")
    nodes = mo.ui.slider(0.2, 0.95, step=0.05, value=0.5, label="keep nodes with this share of the influence", show_value=True)
    edges = mo.ui.slider(0.3, 0.99, step=0.03, value=0.6, label="edges", show_value=True)
    mo.vstack(
        [
            mo.hstack([prompt, budget], widths=[4, 1], align="end", gap=1),
            mo.hstack([nodes, edges], justify="start", wrap=True, gap=1.5),
        ],
        gap=0.6,
    )
    return budget, dictionaries, edges, lm, nodes, prompt


@app.cell
def _(budget, dictionaries, lm, mo, page, prompt):
    from interp.graphs.attribute import attribute

    def _traced():
        ids = lm.tokens(prompt.value)[0].tolist()
        with mo.status.progress_bar(total=100, title="Tracing features back", remove_on_exit=True) as bar:
            at = 0
            for step in attribute(lm, ids, dictionaries, budget.value):
                bar.update(increment=int(100 * step[0]) - at)
                at = int(100 * step[0])
        return step[1]

    graph = page.guard(_traced)
    return (graph,)


@app.cell
def _(dictionaries, edges, graph, lm, nodes, page):
    from interp.describe.reading import text_for
    from interp.graphs.prune import prune, scores
    from interp.graphs.view import labels

    pruned = prune(graph, nodes.value, edges.value)
    score = scores(graph)
    words = labels(lm, graph, pruned.nodes, dictionaries, page.guard(text_for, lm, 32, 48, False))
    return pruned, score, words


@app.cell
def _(graph, lm, mo, page, pruned, score, words):
    from interp.graphs.view import picture

    view = mo.ui.anywidget(picture(lm, graph, pruned, words))
    mo.vstack(
        [
            view,
            page.note(
                f"{len(graph.find('feature')):,} features are active; {int(graph.traced.sum()) - len(graph.find('logit'))} were traced back, "
                f"with {score.traced:.0%} of the influence that flows through features. Of what begins somewhere, "
                f"{score.replacement:.0%} begins at tokens and the rest at errors, what the transcoders miss; "
                f"{score.completeness:.0%} of the inputs of nodes are not error. The picture shows {len(pruned.nodes)} nodes."
            ),
        ],
        gap=0.8,
    )
    return (view,)


@app.cell
def _(graph, lm, mo, pruned, view, words):
    from interp.graphs.view import around_table, name

    _picked = [int(i) for i in view.value["selected"] if i.isdigit()]
    _known = [i for i in _picked if i < len(graph.nodes)]
    _strongest = max((s for s, _, _, _ in pruned.edges if graph.nodes[s].kind == "feature"), key=lambda i: float(graph.influence()[i]), default=0)
    node = _known[-1] if _known else _strongest
    mo.vstack(
        [
            mo.md(f"## {name(lm, graph, node)}\n\n{words.get(node, '')}"),
            around_table(lm, graph, node, words),
        ]
    )
    return


@app.cell
def _(dictionaries, graph, lm, mo, page):
    from interp.graphs.view import checked

    _points, _r = checked(lm, graph, dictionaries)
    mo.vstack(
        [
            mo.md("## Does the model agree?"),
            page.note(
                "Each traced feature is turned off in the model itself, whose patterns, norms and MLPs may all react. "
                f"What the graph foretold correlates {_r:.2f} with what happens."
            ),
            _points,
        ],
        gap=0.8,
    )
    return


@app.cell
def _(mo):
    mo.md("""
    An edge is exact: with attention patterns and norm denominators held, what every source writes, carried by the heads, adds
    up to the target's pre-activation. What the graph leaves out is why a head looks
    where it looks. Method: Ameisen et al. 2025, *Circuit tracing*; transcoders: Dunefsky et al. 2024. Descriptions are those of
    *Neurons in words*.

    ## What to try next

    - Another landmark in the same city: which features are shared, and at which token do the two graphs meet?
    - A sum, "12 plus 34 equals": do features of digits or of whole numbers lead to the answer?
    - Follow the thickest edges down from the answer: at which layer does the path leave the last token for the subject?
    - More features traced: the share that begins at errors falls, and the foretelling need not get better.
    """)
    return


if __name__ == "__main__":
    app.run()
