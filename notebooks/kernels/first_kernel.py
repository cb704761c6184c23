"""First kernel

Softmax reads every number once and writes it once: how near to a plain copy can forty lines of Triton come?

exhibits: S6, L2
records: kernels.softmax.bandwidth_fraction, kernels.softmax.time_vs_best_peer, kernels.softmax.error
start: Change a GPU kernel and read its machine code, without a GPU, 2 min
order: 1
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="First kernel")


@app.cell
def _():
    import html
    import random
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    import marimo as mo

    from kernels.tools import TARGETS, KernelError, compile_source, interpret_source
    from lab import page, paths

    page.start(mo)
    page.header(
        "First kernel",
        "Softmax reads every number once and writes it once: how near to a plain copy can forty lines of Triton come?",
        station="kernels",
        exhibits=("S6", "L2"),
        aside=[page.share_button(mo, __file__)],
    )
    return (
        KernelError, Path, TARGETS, ThreadPoolExecutor, compile_source, html, interpret_source, mo, page, paths,
        random,
    )  # fmt: skip


@app.cell
def _(ThreadPoolExecutor, compile_source, interpret_source, paths, random):
    source = (paths.ROOT / "kernels" / "softmax.py").read_text()
    first_seed = random.SystemRandom().randrange(2**31)
    _pool, _asked = ThreadPoolExecutor(2), {}

    def soon(work, *args):
        """The same question asked twice is answered once, unless it failed: a busy machine runs out of time."""
        known = _asked.get((work, args))
        if known is None or (known.done() and known.exception() is not None):
            _asked[work, args] = _pool.submit(work, *args)
        return _asked[work, args]

    def compiled(text, target, cols, dtype):
        return soon(compile_source, text, "softmax", target, (4096, cols), dtype, paths.cache() / "kernels")

    def checked(text, cols, dtype, seed):
        return soon(interpret_source, text, "softmax", (4, cols), dtype, seed)

    # both children start while the page is still being built
    _early = compiled(source, "sm_90", 4096, "bfloat16"), checked(source, 4096, "bfloat16", first_seed)
    return checked, compiled, first_seed, source


@app.cell
def _(TARGETS, first_seed, mo, random, source):
    target = mo.ui.dropdown({t.name: key for key, t in TARGETS.items()}, value=TARGETS["sm_90"].name, label="compile for")
    dtype = mo.ui.dropdown(["bfloat16", "float16", "float32"], value="bfloat16", label="numbers")
    cols = mo.ui.dropdown(
        {f"{n:,}": n for n in (256, 1024, 4096, 16384, 65536)}, value="4,096", label="row length"
    )
    direction = mo.ui.radio({"forward": 0, "backward": 1}, value="forward", inline=True, label="kernel")
    again = mo.ui.button(
        value=first_seed,
        on_click=lambda _: random.SystemRandom().randrange(2**31),
        label="Check on new random numbers, about 3 s",
        kind="success",
    )
    editor = mo.ui.code_editor(source, language="python", max_height=460, debounce=True)  # told on leaving it
    mo.vstack(
        [
            mo.hstack([target, dtype, cols, direction, again], justify="start", align="end", wrap=True, gap=1.2),
            mo.accordion({"Change the kernel (it compiles and is checked again when you leave the editor)": editor}),
        ]
    )
    return again, cols, direction, dtype, editor, target


@app.cell
def _(KernelError, cols, compiled, dtype, editor, html, mo, page, target):
    def told(error, text):
        """A KernelError with the line it is about."""
        if not error.line:
            return page.problem(str(error))
        line = html.escape(text.splitlines()[error.line - 1].strip())
        return mo.Html(
            f'<div class="lab-note" role="alert" data-kind="bad" style="--c:var(--neg)"><b>Line {error.line}</b>'
            f"<code>{line}</code><br>{html.escape(str(error))}</div>"
        )

    try:
        with mo.status.spinner("Compiling", remove_on_exit=True):
            built = compiled(editor.value, target.value, cols.value, dtype.value).result()
    except KernelError as _error:
        built = None
        mo.stop(True, told(_error, editor.value))
    return built, told


@app.cell
def _(TARGETS, built, direction, editor, mo, target):
    from kernels.tools import assembly
    from widgets.listing import Listing

    kernel = built[min(direction.value, len(built) - 1)]
    _lines = editor.value.splitlines()
    _first = next(i for i, text in enumerate(_lines, 1) if text.startswith(f"def {kernel.name}("))
    _last = next((i for i in range(_first, len(_lines)) if _lines[i].startswith(("@", "def ", "class "))), len(_lines))
    _stages = [kernel.machine] + [name for name in ("ptx", "llir", "ttgir", "ttir") if name in kernel.text]
    _marked = (kernel.machine, "ptx")
    listing = Listing(
        editor.value,
        {
            {"amdgcn": "AMD GCN"}.get(name, name.upper()): [
                (text, line, assembly.kind(text) if name in _marked else "") for text, line in kernel.lines(name)
            ]
            for name in _stages
        },
        assembly.KINDS,
        focus=(_first, _last - 1),
    )
    _chips = [
        (kernel.registers, "registers a thread"),
        (kernel.spill_bytes, "bytes spilled a thread"),
        (kernel.shared, "bytes of shared memory"),
        (kernel.warps, "warps a program"),
        (f"{kernel.occupancy():.0%}", "of a multiprocessor's warps fit"),
        (f"{1e3 * kernel.seconds:.0f} ms", "to compile"),
    ]
    mo.vstack(
        [
            mo.Html(
                f"<h2>{kernel.name} on {TARGETS[target.value].name}</h2><div style='display:flex;gap:6px;flex-wrap:wrap'>"
                + "".join(f"<span class='lab-chip'><b>{value}</b> {what}</span>" for value, what in _chips)
                + "</div>"
            ),
            mo.ui.anywidget(listing),
            mo.Html(
                "<p class='lab-small'>No such GPU is needed: Triton compiles for the one you name. Click a line of the source "
                "to see the instructions it became, or a kind of instruction to see only those.</p>"
            ),
        ]
    )
    return


@app.cell
def _(KernelError, again, checked, cols, dtype, editor, mo, told):
    from math import isfinite

    from kernels.tools.interpret import TOLERANCE
    from widgets.table import Table

    try:
        with mo.status.spinner("Running under the interpreter", remove_on_exit=True):
            checks = checked(editor.value, cols.value, dtype.value, again.value).result()
    except KernelError as _error:
        mo.stop(True, told(_error, editor.value))
    _bad = sum(not c.ok for c in checks)
    mo.vstack(
        [
            mo.Html(
                f"<h2>{'Right on every input' if not _bad else f'Wrong on {_bad} of {len(checks)} inputs'}</h2>"
                f"<p class='lab-small'>Triton's interpreter on this CPU against float64, random numbers from seed {again.value}; "
                f"{dtype.value} may be off by {TOLERANCE[dtype.value]:g} of the norm.</p>"
            ),
            mo.ui.anywidget(
                Table(
                    [
                        {
                            "case": c.name, "shape": " x ".join(map(str, c.shape)),
                            "forward": c.forward, "backward": c.backward, "ms": 1e3 * c.seconds,
                            "verdict": "right" if c.ok else "wrong" if isfinite(c.forward + c.backward) else "wrong: NaN out of place",
                        }
                        for c in checks
                    ],
                    [
                        {"key": "case", "title": "input"}, {"key": "shape"},
                        {"key": "forward", "title": "error of the output", "kind": "num"},
                        {"key": "backward", "title": "error of the gradient", "kind": "num"},
                        {"key": "ms", "title": "took", "unit": "ms", "kind": "num", "digits": 1}, {"key": "verdict"},
                    ],
                    page=len(checks), name="checks",
                )
            ),
        ]
    )  # fmt: skip
    return (Table,)


@app.cell
def _(mo):
    get_bench, set_bench = mo.state(None)
    return get_bench, set_bench


@app.cell
def _(mo, page, set_bench):
    import torch

    from lab import runs

    measure = mo.ui.button(
        label="Measure on this GPU, about 3 min", on_click=lambda _: set_bench(runs.start("bench", {"family": "kernels"}).id)
    )
    mo.vstack([mo.Html("<h2>Bandwidth</h2>"), measure]) if torch.cuda.is_available() and page.live(mo) else mo.Html("<h2>Bandwidth</h2>")
    return runs, torch


@app.cell
def _(get_bench, mo, runs):
    bench_run = runs.get(get_bench()) if get_bench() else None
    bench_tick = mo.ui.refresh(default_interval="2s") if bench_run and bench_run.live else None
    bench_tick
    return bench_run, bench_tick


@app.cell
def _(Table, bench_run, bench_tick, cols, direction, dtype, mo, page):
    bench_tick
    import plotly.graph_objects as go

    from lab.page.style import tokens
    from lab.profiling import bandwidth
    from widgets.roofline import Roofline

    def _view():
        if bench_run and bench_run.live:
            return page.note(f"Measuring: {(bench_run.log().strip().splitlines() or ['starting'])[-1]}")
        every = bandwidth.recorded("softmax")
        if not every:
            return page.note(
                "Nothing has been recorded on a GPU yet. On a machine with one, `python -m lab bench --gpu kernels` "
                "measures the kernel beside torch and torch.compile, and the figures appear here."
            )
        way = "backward" if direction.value else "forward"
        cases = [case for case in every if case["direction"] == way and case["dtype"] == dtype.value]
        if not cases:
            return page.note(f"{dtype.value} was checked on the GPU but not timed; bfloat16 and float32 were.")
        colours = tokens()
        figure = go.Figure()
        for (peer, title), hue, dash in zip(bandwidth.PEERS.items(), ("inference", "train", "interp"), ("solid", "dash", "dot")):
            figure.add_scatter(
                x=[case["cols"] for case in cases],
                y=[case["bytes"] / case["seconds"][peer] / 1e12 for case in cases],
                name=title, mode="lines+markers", line={"color": colours[hue], "dash": dash},
                hovertemplate="%{y:.2f} TB/s at rows of %{x:,}",
            )  # fmt: skip
        roofs = bandwidth.ceilings(cases)
        chosen = [case for case in cases if case["cols"] == cols.value]
        for roof in roofs:
            figure.add_hline(roof["bytes_per_s"] / 1e12, line={"color": "rgba(128,128,128,.6)", "width": 1},
                             annotation={"text": roof["name"], "font": {"size": 12}})  # fmt: skip
        figure.update_xaxes(type="log", title="row length (values)", tickvals=[c["cols"] for c in cases],
                            ticktext=[f"{c['cols']:,}" for c in cases])  # fmt: skip
        figure.update_yaxes(title="bandwidth (TB/s)", rangemode="tozero")
        figure.update_layout(height=360)
        worst = min(cases, key=lambda case: case["fraction"])
        tried = [
            {"rows": t["ROWS"], "cols": t["COLS"], "warps": t["num_warps"], "us": 1e6 * t["seconds"], "chosen": t["chosen"]}
            for t in bandwidth.tiles("softmax", cols.value)
        ]
        tiles = Table(
            tried,
            [
                {"key": "rows", "title": "rows a program", "kind": "num"},
                {"key": "cols", "title": "values at once", "kind": "num"}, {"key": "warps", "kind": "num"},
                {"key": "us", "title": "time", "unit": "µs", "kind": "bar"}, {"key": "chosen", "title": "chosen"},
            ],
            page=8, name="tiles",
        )  # fmt: skip
        return mo.vstack(
            [
                mo.Html(
                    f"<p class='lab-small'>{way}, {dtype.value}, recorded on {cases[0]['hardware']} on {cases[0]['date'][:10]}; "
                    f"worst {worst['fraction']:.0%} of a copy, at rows of {worst['cols']:,}.</p>"
                ),
                mo.hstack([mo.ui.plotly(figure), mo.ui.anywidget(Roofline(roofs, bandwidth.points(chosen), f"Rows of {cols.value:,}"))],
                          widths="equal", wrap=True, gap=1.5),
                mo.accordion({f"Tiles tried there for rows of {cols.value:,} (forward, bfloat16)": mo.ui.anywidget(tiles)}),
            ]
        )  # fmt: skip

    _view()
    return


@app.cell
def _(mo):
    from lab.profiling import step

    # a profile that is still going on is found again after a reload
    get_run, set_run = mo.state(next((run.id for run in step.profiles() if run.live), None))
    get_ended, set_ended = mo.state(None)
    mo.Html("<h2>One training step, profiled</h2>")
    return get_ended, get_run, set_ended, set_run, step


@app.cell
def _(mo, page, paths):
    picker = page.model_picker(mo)
    batch = mo.ui.dropdown([1, 2, 4, 8, 16, 32], value=4, label="sequences")
    length = mo.ui.dropdown([32, 64, 128, 256, 512], value=128, label="tokens each")
    recorded = {
        f"recorded: {path.name.removesuffix('.json.gz')}": str(path)
        for path in sorted((paths.RECORDS / "traces").glob("*.json.gz"), reverse=True)
    }
    return batch, length, picker, recorded


@app.cell
def _(batch, length, mo, page, picker, runs, set_run):
    from lab.models import available
    from lab.profiling import hardware

    _name = picker.value["value"]
    _params = next((m.n_params for m in available() if m.name == _name), None)
    _tokens = batch.value * length.value

    def _start(_):
        set_run(runs.start("profile", {"model": _name, "batch": batch.value, "length": length.value}).id)

    _label = "Profile a step here"
    if _params:
        # six steps of 6 FLOPs a parameter and token at a third of the peak, after the child's start
        _label += f", {page.cost(5 + 6 * 6 * _params * _tokens / hardware.ceiling('cpu').flops_per_s('float32') * 3)}"
    go_profile = mo.ui.button(label=_label, on_click=_start, disabled=not page.live(mo))
    mo.hstack([picker, batch, length, go_profile], justify="start", align="end", wrap=True, gap=1.2)
    return (hardware,)


@app.cell
def _(get_run, mo, runs):
    run = runs.get(get_run()) if get_run() else None
    tick = mo.ui.refresh(default_interval="1s") if run is not None else None
    stop = mo.ui.button(label="Stop", on_click=lambda _: run.cancel()) if run is not None else None
    mo.hstack([tick, stop], justify="start") if run is not None else None
    return run, tick


@app.cell
def _(page, run, set_ended, set_run, tick):
    tick
    if run is not None and not run.live:
        set_ended(run.id)  # only now does the timeline change
        set_run(None)
    page.note((run.log().strip().splitlines() or ["The profile's process is starting"])[-1]) if run is not None else None
    return


@app.cell
def _(get_ended, mo, page, recorded, runs, step):
    _ended = runs.get(get_ended()) if get_ended() else None
    _made = {
        f"here: {other.spec['model']}, {other.spec['batch']} x {other.spec['length']}, {other.id[-4:]}": str(step.trace_of(other))
        for other in step.profiles()
        if other.state == "done"
    }
    if _ended is not None and _ended.state in ("failed", "lost"):
        _said = page.problem(_ended.error or "The profile failed.")
    elif not (_made or recorded):
        _said = page.note("No trace is recorded yet: profile a step here, or run `python -m lab bench profiling`.")
    else:
        _said = None
    _options = _made | recorded if _ended is not None and _ended.state == "done" else recorded | _made
    trace_choice = mo.ui.dropdown(_options, value=next(iter(_options), None), label="trace")
    before_choice = mo.ui.dropdown(_options, label="compared with", allow_select_none=True)
    _row = mo.hstack([trace_choice, before_choice], justify="start", gap=1.2) if _options else None
    mo.vstack([part for part in (_said, _row) if part is not None])
    return before_choice, trace_choice


@app.cell
def _(Path, mo, page, trace_choice):
    from lab.profiling import trace as traces
    from widgets.timeline import Timeline

    mo.stop(trace_choice.value is None)
    shown = page.guard(traces.read, Path(trace_choice.value))
    mo.ui.anywidget(Timeline(**traces.timeline(shown)))
    return shown, traces


@app.cell
def _(Path, Table, before_choice, hardware, mo, page, shown, traces):
    from widgets.roofline import Roofline as _Roofline

    def _difference():
        before = page.guard(traces.read, Path(before_choice.value))
        rows = [
            {**row, "before": row["self"] / 1e3, "after": row["self_after"] / 1e3, "change": row["change"] / 1e3}
            for row in traces.difference(before, shown).iter_rows(named=True)
        ]
        columns = [
            {"key": "name", "title": "operator"}, {"key": "group", "title": "for"},
            {"key": "calls", "title": "calls before", "kind": "num"}, {"key": "calls_after", "title": "calls now", "kind": "num"},
            {"key": "before", "title": "self before", "unit": "ms", "kind": "num"},
            {"key": "after", "title": "self now", "unit": "ms", "kind": "num"},
            {"key": "change", "title": "change", "unit": "ms", "kind": "bar"},
        ]  # fmt: skip
        return mo.vstack([mo.Html("<h3>What changed</h3>"), mo.ui.anywidget(Table(rows, columns, page=10, name="difference"))])

    _sheet = (shown.card and hardware.data_sheet(shown.card)) or hardware.ceiling("cpu")
    _kind = "bfloat16" if shown.card else "float32"
    _roof = {"name": _sheet.name, "flops_per_s": _sheet.flops_per_s(_kind), "bytes_per_s": _sheet.bandwidth}
    _points = traces.points(shown)
    _parts = [
        _difference() if before_choice.value else None,
        mo.ui.anywidget(_Roofline([_roof], _points, f"Products and attention of this step, {_kind}")) if _points else None,
        mo.Html(
            f"<p class='lab-small'>The roof: {_sheet.source}. A profile counts the bytes of inputs, not of outputs, "
            "so a point stands a little too far to the right.</p>"
        ) if _points else None,
    ]  # fmt: skip
    mo.vstack([part for part in _parts if part is not None])
    return


@app.cell
def _(mo):
    mo.md("""
    ## What to try next

    - Take the maximum out of `forward_kernel` (use `0.0` for it) and leave the editor: which inputs break first?
    - Write `e / tl.sum(e, 1)[:, None]` in place of the reciprocal. How many instructions does one division a value cost?
    - Compare rows of 16,384 and 65,536: what happens to the loads once a row no longer fits in one tile?
    - In the profile, click `aten::mm` and press `n`: which calls sit between two products, and do they move more bytes?
    """)
    return


if __name__ == "__main__":
    app.run()
