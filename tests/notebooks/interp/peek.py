"""Peek

What does a notebook of the lab see?

exhibits: R9
start: Move a slider and come back, 1 min
order: 1
"""

import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    page.header("Peek", "What does a notebook of the lab see?", station="interp", exhibits=("R9",))
    return mo, page


@app.cell
def _(mo, page):
    picker = page.model_picker(mo)
    slider = mo.ui.slider(0, 10, label="level")
    mo.hstack([picker, slider], justify="start")
    return picker, slider


@app.cell
def _(mo, page, picker, slider):
    import os

    mo.Html(
        f'<p id="seen" data-live="{page.live(mo)}" data-pid="{os.getpid()}">'
        f"{picker.value['value']} at {slider.value}</p>"
    )
    return


if __name__ == "__main__":
    app.run()
