"""Backends

Do three implementations of the same model agree?

exhibits: R9b
records: interp.parity.max_abs, interp.sweep_vs_nnsight, interp.sweep_vs_transformerlens
order: 19
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Backends")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Do three implementations of the same model agree?",
        "Our decoder, TransformerLens's bridge and nnsight run the same weights under the same hooks. Every activation "
        "they share is compared, then what they say after the same patches.",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.backends.view import Comparison, Maps, reference
    from interp.presets import CURATED, fitting, presets
    from interp.prompts import prepare

    lm = page.chosen(picker, reference)
    known = {p.title: p for p in presets(lm) or fitting(lm, CURATED)}
    fact = mo.ui.dropdown(list(known), value=next(iter(known)), label="fact")
    return Comparison, Maps, fact, known, lm, prepare


@app.cell
def _(Comparison, fact, known, lm, page, prepare):
    _p = known[fact.value]
    pair = page.guard(prepare, lm, _p.clean, _p.corrupted, _p.answer, _p.wrong, True)
    comparison = page.guard(Comparison, lm, pair)
    return comparison, pair


@app.cell
def _(comparison, mo):
    from interp.sites import SITES

    _sites = comparison.sites()
    site = mo.ui.dropdown({SITES[s].title: s for s in _sites}, value=SITES[_sites[0]].title, label="site")
    return (site,)


@app.cell
def _(comparison, fact, mo, page, pair, site):
    _seconds = page.guard(comparison.seconds, site.value)
    go = mo.ui.run_button(kind="success", label=f"Compare, {page.cost(_seconds)}")
    stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.hstack([fact, site, go, stop], justify="start", align="center", wrap=True, gap=0.8),
            mo.md(
                f"Clean: “{pair.clean}” ({pair.answer.strip()}). Corrupted: “{pair.corrupted}” ({pair.wrong.strip()}). "
                "All in float32; the maps show the share of the answer that one patch restores, every cell measured."
            ),
        ],
        gap=0.6,
    )
    return go, stop


@app.cell
def _(Maps, comparison, mo, page, site):
    maps = page.guard(Maps, comparison, site.value)
    _side_by_side = "".join(f"<div>{mo.as_html(_map).text}</div>" for _map in maps.maps.values())
    mo.vstack(
        [
            comparison.summary,
            mo.Html(
                "<style>.backends { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(250px, 100%), 1fr)) }</style>"
                f'<div class="backends">{_side_by_side}</div>'
            ),
        ],
        gap=1,
    )
    return (maps,)


@app.cell
def _(comparison, go, maps, mo, page, stop):
    # a small model is compared at once, a large one waits for the button
    if not page.live(mo):
        comparison.run(maps)
    elif (go.value or comparison.small) and not stop.value:

        def _compare():
            _me = mo.current_thread()
            comparison.run(maps, lambda: _me.should_exit)

        mo.Thread(target=_compare, daemon=True).start()
    return


@app.cell
def _(comparison, mo):
    mo.vstack(
        [
            mo.md(
                "## Point by point\n"
                "The largest difference from the reference over all layers and positions, and that over the largest value "
                "there: float32 keeps seven digits, so a stream of hundreds cannot agree to 1e-5. Our decoder in float64 "
                "tells how far rounding alone goes. Patched logits: positions, heads or neurons of three layers, each "
                "backend from its own clean run."
            ),
            comparison.parity,
        ]
    )
    return


@app.cell
def _(comparison, mo):
    mo.vstack(
        [
            mo.md(
                "## What a backend cannot do\n"
                "Asked for one of these, it stops with this sentence; a hook that does not fire is an error everywhere."
            ),
            comparison.cannot,
        ]
    )
    return


@app.cell
def _(mo, page):
    from lab import records

    _named = {
        "interp.parity.max_abs": "largest difference of any activation or patched logit, float32, the worst of four models",
        "interp.sweep_vs_nnsight": "our time for a sweep over nnsight's, SmolLM2, bf16, every layer x 10 tokens",
        "interp.sweep_vs_transformerlens": "our time over TransformerLens's for that sweep",
    }
    _found = {row["id"]: row for row in records.newest()}
    _lines = "".join(
        f"<tr><td>{_what}</td><td class='n'>{_r['value']:.3g} {_r['unit']}</td><td class='n'>at most {_r['bar']:g}</td>"
        f"<td>{_r['hardware']}</td><td>{_r['date'][:10]}</td></tr>"
        for _id, _what in _named.items()
        if (_r := _found.get(_id))
    )
    mo.vstack(
        [
            mo.md("## Beside the reference"),
            mo.Html(
                "<table class='lab-table'><tr><th>what</th><th class='n'>measured</th><th class='n'>bar</th><th>on</th>"
                f"<th>date</th></tr>{_lines}</table>"
            )
            if _lines
            else page.note("Nothing recorded yet: `python -m lab bench interp` measures it here."),
        ]
    )
    return


@app.cell
def _(lm, mo, page):
    _ideas = [
        "Choose *residual stream (mid)*: TransformerLens shows it as the second norm's input, and a value returned there would miss "
        "the residual connection. Here it is written into the stream, which is why the maps agree.",
        "Give a directory or hub id of an architecture our decoder does not read: nnsight and TransformerLens are then compared "
        "with each other, and where only one of them opens it, the other says why.",
        f"The same pair, cell by cell, in {page.open_in(mo, 'interp/patching', 'Patching', model=lm.name)}.",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
