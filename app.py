"""The front page of the lab: `marimo run app.py`."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full", app_title="looplab", html_head_file="build/front.html")


@app.cell
def _():
    import marimo as mo

    from lab import front, page
    from lab.feed import feed
    from widgets.shell import Shell

    return Shell, feed, front, mo, page


@app.cell
def _(Shell, front, mo):
    shell = Shell(**front.still(), runs=front.recent_runs())
    mo.ui.anywidget(shell)
    return (shell,)


@app.cell
def _(feed, mo, page, shell):
    if page.live(mo):
        mo.Thread(target=feed, args=(shell, mo.current_thread), daemon=True).start()
    return


if __name__ == "__main__":
    app.run()
