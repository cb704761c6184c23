"""Fails

How does a problem look?
"""

import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import marimo as mo

    from lab import page
    from lab.errors import LabError

    def empty():
        raise LabError("The prompt is <empty>; write a word.")

    page.start(mo)
    page.guard(empty)
    return


if __name__ == "__main__":
    app.run()
