"""Estimate against exact

One backward pass estimates every patch at once: where is it right, and where does it mislead?

exhibits: R9b
records: interp.attribution_s.smollm2
order: 4
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Estimate against exact")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo, default="pocket")
    page.header(
        "When can a gradient stand in for a patch?",
        "One backward pass estimates every patch at once (attribution patching, Nanda 2023). "
        "Brush points: they are patched exactly and move to their place.",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.estimates import METHODS
    from interp.metrics import METRICS
    from interp.presets import CURATED, fitting, presets
    from interp.sites import SITES, sites_of

    lm = page.chosen(picker)
    known = {p.title: p for p in presets(lm) or fitting(lm, CURATED)}
    fact = mo.ui.dropdown(list(known), value=next(iter(known)), label="fact")
    site = mo.ui.dropdown({SITES[s].title: s for s in sites_of(lm.model)}, value=SITES["resid_pre"].title, label="site")
    method = mo.ui.dropdown({title: key for key, title in METHODS.items()}, value=METHODS["gradient"], label="estimate")
    metric = mo.ui.dropdown({m.title: k for k, m in METRICS.items()}, value="logit difference", label="metric")
    mo.hstack([fact, site, method, metric], justify="start", align="center", wrap=True, gap=0.8)
    return fact, known, lm, method, metric, site


@app.cell
def _(fact, known, lm, metric, page):
    from interp.baseline import baseline
    from interp.prompts import prepare

    _p = known[fact.value]
    pair = page.guard(prepare, lm, _p.clean, _p.corrupted, _p.answer, _p.wrong)
    scale = page.guard(baseline(lm.model, pair).scale, pair, metric.value)
    return pair, scale


@app.cell
def _(lm, method, metric, mo, page, pair, site):
    from interp.estimates_view import Comparison

    shown = page.guard(Comparison, lm, pair, site.value, method.value, metric.value, page.live(mo))
    every_point = list(range(len(shown.cells)))
    go = mo.ui.run_button(
        kind="success",
        label=f"Measure all, {page.cost(shown.seconds_for(every_point), forwards=len(every_point))}",
    )
    stop = mo.ui.run_button(label="Cancel")
    _of = f" The {len(shown.cells)} points are the strongest and a spread of {len(shown.all_cells):,} cells." if len(shown.cells) < len(shown.all_cells) else ""
    mo.vstack(
        [
            mo.hstack(
                [go, stop, mo.md(f"All estimates of this site took {page.duration(shown.seconds)}.{_of}")],
                justify="start", align="center", wrap=True, gap=0.8,
            ),
            mo.Html(
                "<style>.estimates { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); align-items: start }"
                "@media (min-width: 1000px) { .estimates { grid-template-columns: repeat(2, minmax(0, 1fr)) } }</style>"
                f'<div class="estimates"><div>{mo.as_html(shown.scatter).text}</div><div>{mo.as_html(shown.table).text}</div></div>'
            ),
        ],
        gap=0.8,
    )  # fmt: skip
    return every_point, go, shown, stop


@app.cell
def _(mo, page, shown):
    if page.live(mo):

        def _serve():
            _me = mo.current_thread()
            shown.measure(shown.sample, lambda: _me.should_exit)
            shown.serve(lambda: _me.should_exit)

        mo.Thread(target=_serve, daemon=True).start()
    return


@app.cell
def _(every_point, go, mo, page, shown, stop):
    if not page.live(mo):
        shown.measure(every_point)
    elif go.value and not stop.value:

        def _measure():
            _me = mo.current_thread()
            shown.measure(every_point, lambda: _me.should_exit)

        mo.Thread(target=_measure, daemon=True).start()
    return


@app.cell
def _(lm, metric, mo, page, pair):
    from interp.estimates_view import EverySite

    sites = EverySite(lm, pair, metric.value, None if page.live(mo) else ("resid_pre", "mlp_out", "z"))
    sites_go = mo.ui.run_button(label=f"Compare every site, {page.cost(sites.seconds)}")
    sites_stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.md(
                "## Every site\n"
                "A gradient is the truth for a small change, and a patch is none: a normalisation or a saturated attention head "
                "on the way bends it. The mean of gradients along the way from the corrupted to the clean embeddings follows the "
                "bend (Hanna, Pezzelle and Belinkov 2024); integrated gradients at the site itself add up to what patching all of it gives."
            ),
            mo.hstack([sites_go, sites_stop], justify="start", gap=0.8),
            sites.table,
        ],
        gap=0.8,
    )
    return sites, sites_go, sites_stop


@app.cell
def _(mo, page, sites, sites_go, sites_stop):
    if not page.live(mo):
        sites.run()
    elif sites_go.value and not sites_stop.value:

        def _compare():
            _me = mo.current_thread()
            sites.run(lambda: _me.should_exit)

        mo.Thread(target=_compare, daemon=True).start()
    return


@app.cell
def _(lm, mo, page, pair):
    from interp.estimates_view import STEPS
    from interp.integrated import BASELINES

    large = page.live(mo) and lm.config.n_params() > 50e6
    errors_go = mo.ui.run_button(label=f"Is the sum complete? {2 * sum(STEPS[:5])} gradients")

    _can = {title: key for key, title in BASELINES.items() if key != "corrupted" or pair.equal_length}
    start = mo.ui.dropdown(_can, value=list(_can)[-1], label="path begins at")
    steps = mo.ui.dropdown(["1", "2", "4", "8", "16", "32", "64"], value="16", label="steps")
    mo.vstack(
        [
            mo.md(
                "## Token by token\n"
                "Integrated gradients share out the difference between two inputs among the tokens, and the shares add up to it "
                "(Sundararajan, Taly and Yan 2017). Gradient × input is cheaper and adds up to nothing in particular."
            ),
            mo.hstack([start, steps, *([errors_go] if large else [])], justify="start", align="center", gap=0.8),
        ]
    )
    return errors_go, large, start, steps


@app.cell
def _(lm, page, pair, scale, start, steps):
    from interp.estimates_view import TokenView

    tokens = page.guard(TokenView, lm, pair, scale, start.value, int(steps.value))
    tokens.strips()
    return (tokens,)


@app.cell
def _(errors_go, large, mo, page, tokens):
    import plotly.graph_objects as _go

    from interp.estimates_view import STEPS as _STEPS

    mo.stop(large and not errors_go.value)
    _most = 32 if page.live(mo) and not large else 16
    _errors = tokens.errors(most=_most)
    _names = {"gauss": "Gauss-Legendre", "midpoint": "Riemann, midpoints"}
    _figure = _go.Figure(
        [
            _go.Scatter(x=list(_STEPS[: len(_e)]), y=[max(v, 1e-16) for v in _e], name=_names[_rule], mode="lines+markers", marker_symbol=_symbol)
            for (_rule, _e), _symbol in zip(_errors.items(), ("circle", "square"))
        ]
    )
    _figure.update_layout(
        height=300,
        xaxis={"title": "steps (gradients taken)", "type": "log", "tickvals": list(_STEPS)},
        yaxis={"title": f"completeness error, {tokens.unit}", "type": "log", "exponentformat": "power"},
    )
    _precision = str(tokens.model.dtype).removeprefix("torch.")
    mo.vstack(
        [
            mo.md(
                f"**Is the sum complete?** The error is the sum of all attributions minus the difference they should explain, in {_precision}. "
                "Where the path begins at zero, the first normalisation jumps from nothing to full size, and both rules are slow."
            ),
            _figure,
        ]
    )
    return


@app.cell
def _(large, lm, mo, pair):
    from interp.sites import SITES as _SITES

    _streams = {_SITES[s].title: s for s in ("resid_pre", "resid_mid", "attn_out", "mlp_out")}
    layer_site = mo.ui.dropdown(_streams, value=_SITES["mlp_out"].title, label="site")
    layer_steps = mo.ui.dropdown(["4", "8", "16", "32", "64"], value="16", label="steps")
    _cost = lm.config.n_layers * 16
    layers_go = mo.ui.run_button(label=f"Integrate at every layer, {_cost} gradients of {len(pair.corrupted_ids)} tokens")
    mo.vstack(
        [
            mo.md(
                "## Layer by layer\n"
                "The same between the activations of the corrupted and the clean run: each layer's attributions add up to what patching that "
                "whole layer gives, so they can be laid beside the exact map."
            ),
            mo.hstack([layer_site, layer_steps, *([layers_go] if large else [])], justify="start", align="center", gap=0.8),
        ]
    )
    return layer_site, layer_steps, layers_go


@app.cell
def _(large, layer_site, layer_steps, layers_go, lm, mo, page, pair, scale):
    from interp.estimates_view import layers
    from widgets.heatmap import Heatmap
    from widgets.table import Table

    mo.stop(large and not layers_go.value)
    _shares, _rows = page.guard(layers, lm, pair, layer_site.value, scale, int(layer_steps.value))
    _clean = [pair.clean_pieces[s] if s is not None else "" for s in pair.alignment]
    _map = Heatmap(
        _shares, col_labels=_clean, col_labels2=pair.corrupted_pieces, row_title="layer",
        col_title="token position (clean above, corrupted below where they differ)",
        value_title=f"Integrated gradients, {layer_site.selected_key}: share of the answer",
    )  # fmt: skip
    _table = Table(
        _rows,
        [
            {"key": "layer", "kind": "num"}, {"key": "sum", "title": "sum of attributions", "kind": "num", "digits": 3},
            {"key": "difference", "title": "patching the whole layer", "kind": "num", "digits": 3},
            {"key": "error", "title": "completeness error", "kind": "num", "digits": 4},
        ],
        page=10, name="integrated-gradients-by-layer",
    )  # fmt: skip
    mo.Html(f'<div class="estimates"><div>{mo.as_html(_map).text}</div><div>{mo.as_html(_table).text}</div></div>')
    return


@app.cell
def _(mo):
    _ideas = [
        "Brush the points furthest from the diagonal: where do they lie, and how much does a patch change there?",
        "Change the estimate to the mean of gradients along the embeddings: do the same points come home?",
        "Choose single neurons: a patch of one changes little, so is a gradient enough? And for the few that matter?",
        "Set the metric to probability: where the answer is sure, its gradient is almost zero and the estimate says nothing.",
        "Let the path begin at zero: how many steps until the sum is complete, and which tokens change their sign?",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
