"""Compiled programs

Does the method find a circuit that we wrote ourselves?

exhibits: R9b
records: interp.tracr.auroc, interp.tracr.reference
order: 15
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Compiled programs")


@app.cell
def _():
    import marimo as mo

    from lab import page

    def beside(*parts, natural=False):
        """Side by side while there is room, then one under the other; `natural` leaves the first as wide as it is."""
        _boxes = "".join(f"<div>{mo.as_html(part).text}</div>" for part in parts)
        return mo.Html(
            "<style>.beside { display: flex; flex-wrap: wrap; gap: 16px 20px; align-items: flex-start }"
            ".beside > * { flex: 1 1 440px; min-width: 0; max-width: 100% }"
            ".beside.natural > :first-child { flex: 0 1 auto }</style>"
            f"<div class='beside{' natural' if natural else ''}'>{_boxes}</div>"
        )

    page.start(mo)
    page.header(
        "Does the method find a circuit that we wrote ourselves?",
        "A program of a few lines becomes the weights of a transformer. Every direction has a name, every edge a reason, "
        "so a circuit method can be marked right or wrong (Weiss et al. 2021; Lindner et al. 2023).",
        station="interp",
        exhibits=("R9b",),
        aside=[page.share_button(mo, __file__)],
    )
    return beside, mo, page


@app.cell
def _(mo):
    from interp.truth.programs import PROGRAMS

    program = mo.ui.dropdown({p.title: k for k, p in PROGRAMS.items()}, value=PROGRAMS["reverse"].title, label="program")
    return PROGRAMS, program


@app.cell
def _(PROGRAMS, mo, program):
    _p = PROGRAMS[program.value]
    text = mo.ui.text(" ".join(map(str, _p.example)), label="input", debounce=False)
    mo.hstack(
        [program, text, mo.md(f"tokens {' '.join(f'`{t}`' for t in _p.vocab)}, at most {_p.length}")],
        justify="start", align="center", wrap=True, gap=1,
    )  # fmt: skip
    return (text,)


@app.cell
def _(program):
    from interp.truth import marks, view

    compiled, true, spare = view.known(program.value)
    return compiled, marks, spare, true, view


@app.cell
def _(beside, compiled, mo, page, text, view):
    import time

    xs = page.guard(compiled.program.parse, text.value)
    _started = time.perf_counter()
    _strips, _listing = view.strips(compiled, xs), view.listing(compiled)
    stream, looks = view.stream(compiled, xs), view.attention(compiled, xs)
    _cfg = compiled.model.cfg
    _said = (
        f"{_cfg.n_layers} layers, {_cfg.n_heads} head{'s' * (_cfg.n_heads > 1)} of {_cfg.d_head}, {_cfg.d_model} directions, "
        f"at most {_cfg.d_mlp} neurons a layer; run and drawn in {1e3 * (time.perf_counter() - _started):.0f} ms"
    )
    mo.vstack([beside(_listing, _strips, natural=True), mo.md(f"<small>{_said}</small>")], gap=0.4)
    return looks, stream


@app.cell
def _(beside, looks, mo, stream):
    mo.vstack(
        [
            mo.md(
                "## The residual stream, every direction named\n"
                "Tinted blocks are what a part writes; grey is what was there already. One-hot for a value, a share of full "
                "colour for a number."
            ),
            beside(stream, looks, natural=True),
        ]
    )
    return


@app.cell
def _(mo):
    from interp.circuits.edges import KINDS
    from interp.truth.recovery import METHODS, ORDER

    method = mo.ui.dropdown({m.title: k for k, m in METHODS.items() if k != "acdc"}, value=METHODS["exact"].title, label="method")
    kind = mo.ui.dropdown({KINDS[k]: k for k in ORDER}, value=KINDS["zero"], label="an edge is replaced by")
    mo.vstack(
        [
            mo.md(
                "## The circuit\n"
                "Left: which part reads what another part wrote, from the program. Right: the edges a method ranks highest, as "
                "many as the circuit has; dashed ones are wrong. Move *edges drawn* to set the threshold."
            ),
            mo.hstack([method, kind], justify="start", wrap=True, gap=1),
        ]
    )
    return METHODS, ORDER, kind, method


@app.cell
def _(METHODS, beside, compiled, kind, marks, method, mo, program, spare, true):
    _found = marks.scored(program.value, method.value, kind.value)
    _one = METHODS[method.value]
    _alone, _nothing = marks.alone(program.value, kind.value)
    _pictures = beside(
        marks.truth_picture(compiled, true, spare),
        marks.found_picture(compiled, _found, true, f"Found by {_one.title}", _one.unit),
    )
    _sentence = (
        f"With every edge outside the left circuit replaced at once, the output moves by {_alone:.2g} (squared distance, at most, "
        f"over inputs of every length); with every edge replaced, by {_nothing:.2g}."
    )
    mo.vstack([_pictures, mo.md(_sentence)], gap=0.6)
    return


@app.cell
def _(marks, mo, page, program):
    go = mo.ui.run_button(kind="success", label=f"Run ACDC as well, {page.cost(marks.acdc_seconds(program.value))}")
    stop = mo.ui.run_button(label="Cancel")
    board = marks.board(program.value)
    return board, go, stop


@app.cell
def _(beside, board, go, kind, marks, method, mo, program, stop):
    mo.vstack(
        [
            mo.md(
                "## How well each method ranks the edges\n"
                "AUROC is the chance that an edge of the circuit scores above one outside it. What replaces an edge decides it. "
                "A counterfactual input of equal length leaves positions and lengths as they are, so edges that carry only "
                "those are never seen; zero cuts everything. Gradients of a saturated softmax are tiny, which costs EAP."
            ),
            beside(board, marks.roc_plot(program.value, method.value, kind.value)),
            mo.hstack([go, stop], justify="start", gap=0.8),
        ]
    )
    return


@app.cell
def _(board, go, marks, mo, page, program, stop):
    if page.live(mo) and go.value and not stop.value:

        def _run():
            _me = mo.current_thread()
            marks.run_acdc(program.value, board, lambda: not _me.should_exit)

        mo.Thread(target=_run, daemon=True).start()
    return


@app.cell
def _(METHODS, ORDER, PROGRAMS, mo, page):
    from lab import records

    _found = {row["id"]: row for row in records.newest()}
    _parts = []
    if _r := _found.get("interp.tracr.reference"):
        _parts.append(
            f"Against {_r['compared']}: {_r['note']}; largest difference {_r['value']:.1e} (at most {_r['bar']:.0e})."
        )
    _rows = [
        {"program": _p.title, "method": METHODS[_m].title, **_kinds}
        for _key, _p in PROGRAMS.items()
        if (_r := _found.get(f"interp.tracr.auroc.{_key}"))
        for _m, _kinds in _r["detail"]["auroc"].items()
    ]
    from widgets.table import Table

    _columns = [{"key": "program"}, {"key": "method"}, *({"key": k, "kind": "num", "digits": 3} for k in ORDER)]
    mo.vstack(
        [
            mo.md("## Beside the reference\n" + "\n\n".join(_parts)),
            Table(_rows, _columns, name="tracr_auroc")
            if _rows
            else page.note("Nothing recorded yet: `python -m lab bench interp` measures it here."),
        ]
    )
    return


@app.cell
def _(mo):
    _ideas = [
        "Replace by the counterfactual: which edges of *Reverse* are left, and why only those?",
        "Type the longest input into *Reverse* and cut the length head in your mind: the answer does not change. On what input would it?",
        "In *Sort*, find the direction that holds how many tokens are smaller.",
        "Compare EAP with EAP-IG on *Brackets balanced?*, the deepest program.",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
