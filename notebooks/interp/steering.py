"""Steering

Can one direction in the residual stream turn what a model says, and at what price?

exhibits: R9b
order: 9
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Steering")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Can one direction turn what a model says?",
        "Read a direction off pairs of texts, add it while the model writes, and compare with a random direction of the "
        "same length and with the perplexity it costs.",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.edit import contrasts

    lm = page.chosen(picker)
    known = contrasts.everything()
    _first = "praise or blame" if lm.config.vocab_size > 20_000 else "Asia or Africa"
    choice = mo.ui.dropdown(list(known), value=_first, label="contrast")
    _n = lm.config.n_layers
    _step = max(1, _n // 8)
    layer = mo.ui.slider(0, _n - 1, value=(2 * _n) // 3, label="after layer", show_value=True)
    _range = (-4.0, 4.0)
    coefficient = mo.ui.slider(*_range, step=0.25, value=2.0, label="coefficient", show_value=True)
    mo.hstack([choice, layer, coefficient], justify="start", align="center", wrap=True, gap=1.2)
    return choice, coefficient, known, layer, lm


@app.cell
def _(choice, known, lm, mo, page):
    from interp.edit import steering, view

    contrast = known[choice.value]
    page.guard(steering.words, lm, contrast)
    with mo.status.spinner(title="Reading the directions", remove_on_exit=True):
        vectors = page.guard(steering.mean_differences, lm, contrast.pairs)
        unsteered = steering.leaning(lm, contrast, contrast.prompts)
    texts = view.plain_text(4)
    return contrast, steering, texts, unsteered, vectors, view


@app.cell
def _(contrast, mo):
    sample = mo.ui.text(contrast.sample, label="Write on from", full_width=True)
    sample
    return (sample,)


@app.cell
def _(coefficient, contrast, layer, lm, page, sample, steering, vectors, view):
    _v, _c = vectors[layer.value], coefficient.value
    _new = 16
    _texts = {
        "unsteered": page.guard(steering.written, lm, sample.value, None, 0, _new),
        f"towards {contrast.sides[0]}": steering.written(lm, sample.value, _v, _c, _new),
        f"towards {contrast.sides[1]}": steering.written(lm, sample.value, _v, -_c, _new),
        "a random direction": steering.written(lm, sample.value, _v.random(0), _c, _new),
    }
    view.continuations(sample.value, _texts)
    return


@app.cell
def _(coefficient, contrast, layer, lm, mo, steering, unsteered, vectors):
    from widgets.table import Table

    _v = vectors[layer.value]
    _steered = steering.leaning(lm, contrast, contrast.prompts, steering.Steering(_v, coefficient.value).hooks)
    _random = steering.leaning(lm, contrast, contrast.prompts, steering.Steering(_v.random(0), coefficient.value).hooks)
    mo.vstack(
        [
            mo.md(
                f"## Held-out prompts\n\nThe vector was read from {len(contrast.pairs)} pairs; none of these prompts is among them. "
                f"Leaning: log of the probability of {contrast.sides[0]}'s words over {contrast.sides[1]}'s. Steering moves it by "
                f"**{(_steered - unsteered).mean():+.2f}** nats on average, the random direction by {(_random - unsteered).mean():+.2f}."
            ),
            Table(
                [
                    {"prompt": _p, "plain": float(_a), "steered": float(_b), "shift": float(_b - _a), "random": float(_r - _a)}
                    for _p, _a, _b, _r in zip(contrast.prompts, unsteered, _steered, _random)
                ],
                [
                    {"key": "prompt"},
                    {"key": "plain", "title": "leaning, unsteered", "kind": "num", "unit": "nats", "digits": 2},
                    {"key": "steered", "title": "steered", "kind": "num", "unit": "nats", "digits": 2},
                    {"key": "shift", "title": "shift", "kind": "num", "unit": "nats", "digits": 2},
                    {"key": "random", "title": "shift, random", "kind": "num", "unit": "nats", "digits": 2},
                ],
                page=8,
                name="held-out prompts",
            ),
        ],
        gap=0.8,
    )
    return (Table,)


@app.cell
def _(contrast, lm, mo, page, texts):
    _n = lm.config.n_layers
    layers = list(range(0, _n, max(1, _n // 8)))
    coefficients = [-2.0, -1.0, 0.5, 1.0, 2.0, 4.0]
    _cells = len(layers) * len(coefficients)
    # held-out prompts twice, plain texts once, of about 10 and 60 tokens
    _tokens = _cells * (2 * 10 * len(contrast.prompts) + 60 * len(texts))
    _cost = _tokens * lm.config.forward_flops(16) / 16 / 8e10
    go = mo.ui.run_button(kind="success", label=f"Sweep layers and coefficients, {page.cost(_cost, forwards=3 * _cells)}")
    stop = mo.ui.run_button(label="Cancel")
    mo.vstack([mo.md("## Which layer, how much"), mo.hstack([go, stop], justify="start", align="center", gap=0.8)], gap=0.8)
    return coefficients, go, layers, stop


@app.cell
def _(coefficients, contrast, layers, mo):
    import numpy as np

    from widgets.heatmap import Heatmap

    _blank = np.full((len(layers), len(coefficients)), np.nan)
    _axes = {
        "row_labels": layers, "col_labels": [f"{_c:g}" for _c in coefficients], "row_title": "after layer", "col_title": "coefficient",
    }  # fmt: skip
    towards = f"towards {contrast.sides[0]}"
    shift = Heatmap(_blank, value_title=f"Shift {towards} on held-out prompts, nats", **_axes)
    random = Heatmap(_blank, value_title="The same for a random direction of the same length", **_axes)
    price = Heatmap(_blank, value_title="Perplexity of plain text, log2 of how many times", **_axes)

    mo.Html(
        "<style>.steer-maps { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)) }</style>"
        '<div class="steer-maps">' + "".join(f"<div>{mo.as_html(_m).text}</div>" for _m in (shift, random, price)) + "</div>"
    )
    return np, price, random, shift, towards


@app.cell
def _(coefficients, contrast, go, layers, lm, mo, np, page, price, random, shift, steering, stop, texts, towards, vectors):
    def _measure(stopped=lambda: False):
        _chosen = [vectors[_l] for _l in layers]
        for _s in steering.sweep(lm, contrast, _chosen, coefficients, texts):
            if stopped():  # another may be drawing by now; what is drawn stays
                return
            shift.update(_s.shift.numpy())
            _top = float(np.nanmax(np.abs(_s.shift.numpy())))
            shift.vmax = random.vmax = max(_top, 1e-6)
            random.update(_s.random.numpy())
            price.update(_s.perplexity.log2().numpy())
            _row, _column = _s.best()
            shift.value_title = (
                f"Shift {towards} on held-out prompts, nats"
                + (f", {_s.fraction:.0%}" if _s.fraction < 1 else f"; best within 1.5 x the perplexity: layer {layers[_row]}, {coefficients[_column]:g} (chosen on the same prompts, so a little high)")
            )

    if not page.live(mo):
        _measure()
    elif (go.value or lm.config.n_layers < 12) and not stop.value:  # a small model is swept at once

        def _work():
            _me = mo.current_thread()
            _measure(lambda: _me.should_exit)

        mo.Thread(target=_work, daemon=True).start()
    return


@app.cell
def _(contrast, layer, mo):
    plus = mo.ui.text(contrast.pairs[0][0], label="plus", full_width=True)
    minus = mo.ui.text(contrast.pairs[0][1], label="minus", full_width=True)
    strength = mo.ui.slider(0.0, 8.0, step=0.5, value=1.0, label="coefficient", show_value=True)
    mo.vstack(
        [
            mo.md(
                "## Two prompts are enough to begin with\nActivation addition (Turner et al. 2023): the difference of two prompts, position by "
                f"position after layer {layer.value}, is added to the first positions of the prompt above."
            ),
            mo.hstack([plus, minus], widths=[1, 1]),
            strength,
        ],
        gap=0.8,
    )
    return minus, plus, strength


@app.cell
def _(contrast, layer, lm, minus, mo, page, plus, sample, steering, strength, view):
    _v = page.guard(steering.activation_addition, lm, plus.value, minus.value, layer.value)
    _hooks = steering.Steering(_v, strength.value).hooks
    _before, _after, _random = (
        float(page.guard(steering.leaning, lm, contrast, [sample.value], _h)[0])
        for _h in (None, _hooks, steering.Steering(_v.random(0), strength.value).hooks)
    )
    _said = page.guard(steering.written, lm, sample.value, _v, strength.value, 16)
    mo.vstack(
        [
            view.continuations(sample.value, {"added": _said}),
            mo.md(
                f"The next token's leaning goes from {_before:+.2f} to **{_after:+.2f}** nats; with a random difference of the same "
                f"length to {_random:+.2f}."
            ),
        ]
    )
    return


@app.cell
def _(mo):
    _text = [
        "## Beside the literature",
        "",
        "Turner et al. (2023, *Activation addition*) steer with one pair of prompts, Panickssery et al. (2023, *Contrastive activation",
        "addition*) with the mean over many, and find middle layers best. The mean is the cleaner vector: what the texts of one side do",
        "not share averages out. A shift without the price beside it says little: any long enough vector moves every answer.",
        "",
        "## What to try next",
        "",
        "- Raise the coefficient until the text falls apart: which of the maps saw it coming?",
        "- Steer after the first layer and after the last with the same vector.",
        "- Take a contrast this model does not know: does the held-out shift stay above the random one's?",
        "- Compare with *Probes*: is the direction that reads a property the one that writes it?",
    ]
    mo.md("\n".join(_text))
    return


if __name__ == "__main__":
    app.run()
