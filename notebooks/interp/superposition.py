"""Superposition

How does a model keep more features than it has dimensions, and what shapes do they take?

exhibits: R9b
records: interp.superposition.worst_error
order: 17
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Superposition")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    page.header(
        "How does a model keep more features than it has dimensions?",
        "Sparse features squeezed through few dimensions and read back by a ReLU. The rarer they are, the more of them "
        "share the space, in shapes known from geometry (Elhage et al. 2022).",
        station="interp",
        exhibits=("R9b",),
        aside=[page.share_button(mo, __file__)],
    )
    return mo, page


@app.cell
def _(mo, page):
    from interp.truth import superposition as toys
    from interp.truth import superposition_view as view

    bundled = page.guard(toys.phases)
    mo.vstack(
        [
            mo.md(
                f"## {bundled.W.shape[2]} features in {bundled.W.shape[1]} dimensions\n"
                "Dimensionality is the share of a dimension a feature has: its length squared over what it overlaps with. "
                "Common features live alone or not at all; then tetrahedra, pairs and pentagons appear in turn, and features "
                "stick to their levels."
            ),
            mo.ui.plotly(view.phase(bundled)),
        ],
        gap=0.4,
    )
    return toys, view


@app.cell
def _(mo):
    features = mo.ui.slider(2, 20, value=5, label="features", show_value=True)
    hidden = mo.ui.slider(1, 6, value=2, label="dimensions", show_value=True)
    importance = mo.ui.slider(0.5, 1.0, value=0.9, step=0.05, label="importance falls by", show_value=True)
    least = mo.ui.dropdown({"anything from 0 to 1": 0.0, "0.5 to 1": 0.5, "exactly 1": 1.0}, value="anything from 0 to 1", label="a feature that is there is")
    seed = mo.ui.number(0, 1000, value=0, label="seed")
    mo.vstack(
        [
            mo.md("## Train your own\nTen models at once, one for each probability that a feature is there."),
            mo.hstack([features, hidden, importance, least, seed], justify="start", align="center", wrap=True, gap=1.4),
        ],
        gap=0.5,
    )
    return features, hidden, importance, least, seed


@app.cell
def _(features, hidden, importance, least, mo, page, seed, toys):
    setting = {
        "features": features.value, "hidden": hidden.value, "importance": importance.value, "least": least.value,
        "seed": seed.value,
    }  # fmt: skip
    densities = [1.0, 0.7, 0.5, 0.3, 0.2, 0.14, 0.1, 0.07, 0.05, 0.03]
    cost = page.guard(toys.seconds, densities=densities, **setting)
    go = mo.ui.run_button(kind="success", label=f"Train, {page.cost(cost)}")
    go
    return cost, densities, go, setting


@app.cell
def _(cost, densities, go, mo, page, setting, toys, view):
    from widgets.table import Table

    # what takes little time is trained as soon as it is asked for
    mo.stop(
        not (go.value or cost < 4 or not page.live(mo)),
        page.note("These models take a little longer: press **Train**."),
    )
    with mo.status.progress_bar(total=10, title="Training", remove_on_exit=True) as _bar:

        def _each(fraction, W):
            _bar.update()
            return False

        toy = page.guard(toys.train, densities=densities, each=_each, **setting)
    mo.vstack(
        [
            mo.ui.plotly(view.sweep(toy)),
            Table(
                view.stored(toy),
                columns=[
                    {"key": "density", "title": "probability", "kind": "num", "digits": 3},
                    {"key": "stored", "title": "features stored", "kind": "num"},
                    {"key": "mean", "title": "dimensions each", "kind": "num", "digits": 3},
                    {"key": "loss", "title": "loss", "unit": "share of storing nothing", "kind": "bar", "digits": 3},
                    {"key": "dimensionality", "title": "dimensionality of the first eight"},
                ],
                name="superposition",
            ),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(mo, toys, view):
    _found = [(shape, toys.settle(shape)) for shape in toys.SHAPES]
    mo.vstack(
        [
            mo.md(
                "## Beside geometry\n"
                "Vectors spread evenly have the dimensionality dimensions / features. Trained just now, each where its shape is the best "
                "there is, the lowest loss of several starts:"
            ),
            mo.ui.plotly(view.shapes(_found)),
            mo.Html(
                '<span class="lab-small">The triangle and the tetrahedron are best when a feature that is there is exactly 1. '
                "With values from 0 to 1 the same model keeps a pair and the rest alone: of two that meet in a pair only the "
                "smaller is lost, and that is little.</span>"
            ),
        ],
        gap=0.4,
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## Try next

    - Five features in two dimensions, move the slider from common to rare: at which probability does a fourth feature fit, at which the fifth?
    - Three features in two dimensions: exactly 1 against anything from 0 to 1. Which shape, and why?
    - Importance falling by 0.7: who is dropped first, and do the important ones still share?
    - Six features in three dimensions: which solid do they make?
    """)
    return


if __name__ == "__main__":
    app.run()
