"""Paths

Who writes what this head reads? Follow a behaviour back from the logits, one reader at a time.

exhibits: R9b
order: 8
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Paths")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Who writes what this head reads?",
        "Take one sender's path into one reader from the corrupted prompt and freeze every other path. Start at the logits, "
        "click the head that writes to them, and see who writes to that head.",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.circuits.batch import BEHAVIOURS, suited
    from interp.circuits.edges import KINDS
    from interp.circuits.view import precise
    from interp.circuits.walk import PARTS, Walk

    lm = page.guard(precise, page.chosen(picker))
    behaviour = mo.ui.dropdown({text: key for key, text in BEHAVIOURS.items()}, value=BEHAVIOURS[page.guard(suited, lm)], label="behaviour")
    kind = mo.ui.dropdown({text: key for key, text in KINDS.items()}, value=KINDS["counterfactual"], label="a replaced path reads")
    through = mo.ui.switch(label="through MLPs, as in the IOI paper")
    mo.hstack([behaviour, kind, through], justify="start", align="center", wrap=True, gap=0.8)
    return PARTS, Walk, behaviour, kind, lm, through


@app.cell
def _(Walk, behaviour, kind, lm, mo, page, through):
    walk = page.guard(Walk, lm, behaviour.value, kind.value)
    live = page.live(mo)
    quick = not live or lm.config.n_layers <= 12
    _first = walk.heat(["logits"], "logits")
    if quick:
        walk.fill(_first, ["logits"], through.value)
        _first.selected = [walk.strongest(_first)]
    first = mo.ui.anywidget(_first)
    return first, live, quick, walk


@app.cell
def _(first, mo, quick, through, walk):
    # a large model's map fills while the page is there, and waits for a click
    if not quick:

        def _fill():
            _me = mo.current_thread()
            walk.fill(first.widget, ["logits"], through.value, lambda: _me.should_exit)

        mo.Thread(target=_fill, daemon=True).start()
    return


@app.cell
def _(PARTS, first, mo, walk):
    from interp.metrics import METRICS

    _parts = {text: key for key, text in PARTS.items()}
    part = mo.ui.radio(_parts, value="queries", label="of a head, patch its", inline=True)
    part_again = mo.ui.radio(_parts, value="values", label="of a head, patch its", inline=True)
    mo.md(
        f"The share of the {METRICS[walk.study.metric].title} that is lost, averaged over {len(walk.batch)} pairs such as "
        f"*{walk.batch.texts[0][0]}* against *{walk.batch.texts[0][1]}*. Into the logits this is direct patching."
    )
    return part, part_again


@app.cell
def _(first, lm, mo, page, part, walk):
    mo.stop(not first.value["selected"], mo.vstack([mo.md("click a head or an MLP"), first], gap=0.4))
    readers = page.guard(walk.receivers, *first.value["selected"][-1], [part.value])
    _count = walk.candidates(readers)
    second = mo.ui.anywidget(walk.heat(readers, "second"))
    _left = mo.vstack([mo.md("click a head or an MLP"), first], gap=0.4)
    _right = mo.vstack([mo.hstack([part, mo.md(f"{_count} senders")], justify="start", gap=1.5), second], gap=0.4)
    mo.Html(
        "<style>.two { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr) }"
        "@media (min-width: 1000px) { .two { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) } }</style>"
        f'<div class="two"><div>{_left.text}</div><div>{_right.text}</div></div>'
    )
    return readers, second


@app.cell
def _(live, mo, readers, second, through, walk):
    if not live:
        walk.fill(second.widget, readers, through.value)
    else:

        def _fill():
            _me = mo.current_thread()
            walk.fill(second.widget, readers, through.value, lambda: _me.should_exit)

        mo.Thread(target=_fill, daemon=True).start()
    return


@app.cell
def _(live, mo, page, part_again, second, walk):
    _cells = second.value["selected"] or ([] if live else [walk.strongest(second.widget)])
    if _cells:
        readers_again = page.guard(walk.receivers, *_cells[-1], [part_again.value])
        third = mo.ui.anywidget(walk.heat(readers_again, "third"))
        _shown = [part_again, third]
    else:
        readers_again, third = None, None
        _shown = [page.note("Click a cell above to go one reader further back.")]
    mo.vstack([mo.md("## And one further back"), *_shown])
    return readers_again, third


@app.cell
def _(live, mo, readers_again, third, through, walk):
    mo.stop(third is None)
    if not live:
        walk.fill(third.widget, readers_again, through.value)
    else:

        def _fill():
            _me = mo.current_thread()
            walk.fill(third.widget, readers_again, through.value, lambda: _me.should_exit)

        mo.Thread(target=_fill, daemon=True).start()
    return


@app.cell
def _(first, lm, mo, walk):
    from interp.patching import attention_patterns
    from widgets.attention import Attention

    _layer, _head = first.value["selected"][-1] if first.value["selected"] else walk.strongest(first.widget)
    _ids = walk.batch.clean[0, : int(walk.batch.ends[0]) + 1].tolist()
    mo.vstack(
        [
            mo.md("## Where the head you clicked looks"),
            Attention(
                attention_patterns(lm, _ids, _layer).float().numpy(),
                lm.tokenizer.pieces(_ids),
                selected=min(_head, lm.config.n_heads - 1),
                title=f"Attention in layer {_layer}, first clean prompt",
                query=len(_ids) - 1,
            ),
        ]
    )
    return


@app.cell
def _(mo, page, picker):
    _name = picker.value["value"]
    _ideas = [
        "Follow the queries: in the IOI paper (Wang et al. 2022) heads that read the repeated name tell the last heads where not to look.",
        "Switch *through MLPs*: what reached the reader by way of an MLP now counts as direct.",
        "Take the values instead: they say what is copied, queries and keys from where.",
        f"{page.open_in(mo, 'interp/circuits', 'Circuits', model=_name)}: all edges at once.",
    ]
    mo.md(
        "\n".join(
            [
                "## Beside the reference",
                "Two passes as in Wang et al. (2022) and Goldowsky-Dill et al. (2023): one with every head and MLP frozen but the "
                "sender, to see what the reader gets; one with only that put in place. Checked in float64 against the same two "
                "passes written out head by head.",
                "## What to try next",
                *(f"- {_idea}" for _idea in _ideas),
            ]
        )
    )
    return


if __name__ == "__main__":
    app.run()
