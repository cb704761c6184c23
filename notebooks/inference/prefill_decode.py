"""Prefill and decode

Reading a prompt is arithmetic, writing an answer is memory traffic: where does each stand on this machine?

exhibits: S2
records: infer.decode.bandwidth_fraction, infer.prefill.flops_fraction, infer.gpu.decode.bandwidth_fraction
start: Generate with a KV cache and see what limits every token, 1 min
order: 1
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Prefill and decode")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo, default="pocket")
    page.header(
        "Prefill and decode",
        "Reading a prompt is arithmetic, writing an answer is memory traffic: where does each stand on this machine?",
        station="inference",
        exhibits=("S2",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(page, picker):
    from lab.infer.view import Generation
    from lab.profiling import hardware

    lm = page.chosen(picker)
    ceiling = hardware.ceiling(lm.model.device.type)
    generation = Generation(lm, ceiling)
    return ceiling, generation, hardware, lm


@app.cell
def _(ceiling, generation, lm, mo, page):
    from lab.infer import step_cost

    _floor = step_cost(lm.config, 1, 32, dtype=lm.model.dtype).roof_seconds(
        ceiling.flops_per_s(lm.model.dtype), ceiling.bandwidth
    )
    prompt = mo.ui.text_area(
        "It is a truth universally acknowledged, that", label="prompt", rows=2, full_width=True, debounce=100
    )
    _most = max(8, min(400, lm.config.context // 2))
    length = mo.ui.slider(8, _most, value=min(48, _most), step=8, label="tokens", show_value=True)
    temperature = mo.ui.slider(0, 2, value=0.7, step=0.1, label="temperature", show_value=True)
    top_p = mo.ui.slider(0.05, 1, value=0.95, step=0.05, label="top-p", show_value=True)
    shade = mo.ui.radio(
        ["probability", "time"],
        value="probability",
        label="shade by",
        inline=True,
        on_change=generation.colour,
    )
    go = mo.ui.run_button(kind="success", label=f"Generate, at best {page.duration(_floor)} a token")
    stop = mo.ui.run_button(label="Cancel")

    def settings():
        return {
            "prompt": prompt.value,
            "max_tokens": length.value,
            "temperature": temperature.value,
            "top_p": top_p.value,
            "seed": None if page.live(mo) else 0,
        }

    mo.vstack(
        [
            prompt,
            mo.hstack(
                [length, temperature, top_p, shade, go, stop],
                justify="start",
                align="center",
                wrap=True,
                gap=1.2,
            ),
        ]
    )
    return go, settings, stop


@app.cell
def _(generation, go, mo, page, settings, stop):
    from lab.errors import LabError

    # pressed or not, this cell running again ends the thread before it; that is how Cancel works
    if go.value or not stop.value:
        _asked = settings()
        if page.live(mo):

            def _work():
                _me = mo.current_thread()
                try:
                    generation.run(stopped=lambda: _me.should_exit, **_asked)
                except LabError as _error:
                    generation.strip.update([{"label": "stopped", "pieces": [], "note": str(_error)}])

            mo.Thread(target=_work, daemon=True).start()
        else:
            page.guard(generation.run, stopped=lambda: False, **_asked)
    return (LabError,)


@app.cell
def _(generation, mo):
    mo.vstack(
        [
            generation.strip,
            mo.hstack(
                [generation.curves, generation.roofline], widths=[1, 1], gap=1, align="stretch", wrap=True
            ),
            generation.table,
        ],
        gap=0.8,
    )
    return


@app.cell
def _(ceiling, lm, mo, page):
    from lab.infer.measure import Plan
    from lab.infer.view import Sweep

    sweep = Sweep(ceiling, lm.model.dtype, "Measured here")
    _longest = min(256, lm.config.context)
    _lengths = (*(n for n in (1, 4, 16, 64) if n < _longest), _longest)
    plan = Plan(_lengths, (1, 2, 4, 8, 16, 32), min(128, lm.config.context // 2))
    plan_s = plan.floor_s(lm.model, ceiling)
    sweep_go = mo.ui.run_button(label=f"Measure again, at best {page.duration(plan_s)}")
    sweep_stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [
            mo.md(
                "## What moves the dot\n"
                "A longer prompt reads each weight once for more tokens; a larger batch reads it once for more rows. "
                "Either way each byte brings more arithmetic, and the step leaves the slope of the roofline for its flat."
            ),
            mo.hstack([sweep_go, sweep_stop], justify="start"),
        ]
    )
    return plan, plan_s, sweep, sweep_go, sweep_stop


@app.cell
def _(generation, lm, mo, page, plan, plan_s, sweep, sweep_go, sweep_stop):
    # a small model is measured at once; a large one waits for the button
    if sweep_go.value or (plan_s < 1 and not sweep_stop.value):
        if page.live(mo):

            def _work():
                _me = mo.current_thread()
                sweep.run(plan.measure(lm.model), stopped=lambda: _me.should_exit)

            mo.Thread(target=_work, daemon=True).start()
        else:
            sweep.run(plan.measure(lm.model), stopped=lambda: False)
    return


@app.cell
def _(lm, mo, page, sweep):
    from lab import records
    from lab.infer.view import recorded

    _rows = {
        r["id"]: r for r in records.newest() if r["id"].startswith("infer.gpu.decode.bandwidth_fraction.")
    }
    _case = next(
        (
            c
            for c in ("pocket", "smollm2")
            if c in lm.name and f"infer.gpu.decode.bandwidth_fraction.{c}" in _rows
        ),
        "smollm2",
    )
    _row = _rows.get(f"infer.gpu.decode.bandwidth_fraction.{_case}")
    _beside = (
        recorded(_row)
        if _row
        else page.note(
            "No GPU has been measured yet; `python -m lab bench --gpu infer` does it where one is."
        )
    )
    mo.vstack(
        [mo.hstack([sweep.roofline, _beside], widths=[1, 1], gap=1, align="stretch", wrap=True), sweep.table],
        gap=0.8,
    )
    return (records,)


@app.cell
def _(mo):
    mo.md("""
    **Roofline** is the least time that the counted bytes and operations allow on this machine, **measured** what the
    step took. Bytes count each weight once, each cached key and value once, each tensor between two operations once in
    and once out; weights that fit a processor's own cache (pocket's do) can beat the ceiling of memory. What is
    missing to the roofline is Python starting hundreds of operations a step, and products too thin for all cores.
    """)
    return


@app.cell
def _(lm, mo):
    _heads = lm.config.n_heads
    _choices = [n for n in range(1, _heads + 1) if _heads % n == 0]
    kv_heads = mo.ui.dropdown(
        {str(n): n for n in _choices}, value=str(lm.config.n_kv_heads), label="key-value heads"
    )
    kv_context = mo.ui.dropdown(
        {f"{2**n:,}": 2**n for n in range(7, 18)}, value="8,192", label="context, tokens"
    )
    kv_batch = mo.ui.dropdown({str(2**n): 2**n for n in range(9)}, value="16", label="rows at once")
    kv_dtype = mo.ui.dropdown(["bfloat16", "float32", "float8_e4m3fn"], value="bfloat16", label="numbers")
    kv_machine = mo.ui.dropdown(
        ["this machine", "NVIDIA H200", "NVIDIA A100"], value="NVIDIA H200", label="memory of"
    )
    mo.vstack(
        [
            mo.md("## What the cache costs"),
            mo.hstack(
                [kv_heads, kv_context, kv_batch, kv_dtype, kv_machine],
                justify="start",
                align="end",
                wrap=True,
                gap=1.2,
            ),
        ]
    )
    return kv_batch, kv_context, kv_dtype, kv_heads, kv_machine


@app.cell
def _(ceiling, hardware, kv_batch, kv_context, kv_dtype, kv_heads, kv_machine, lm, mo, page):
    import torch

    from lab.infer.view import cache_rows
    from widgets.table import Table

    _dtype = getattr(torch, kv_dtype.value)
    _bandwidth = (
        ceiling.bandwidth
        if kv_machine.value == "this machine"
        else hardware.GPUS[kv_machine.value.split()[-1]][1]
    )
    _rows = cache_rows(
        lm.config, kv_heads.value, kv_context.value, kv_batch.value, _dtype, lm.model.dtype, _bandwidth
    )
    _c = lm.config
    _each = 2 * _c.n_layers * kv_heads.value * _c.d_head * _dtype.itemsize
    mo.vstack(
        [
            mo.Html(
                f'<p class="lab-small">2 (key and value) x {_c.n_layers} layers x {kv_heads.value} heads x {_c.d_head} numbers '
                f"x {_dtype.itemsize} bytes = <b>{_each:,} bytes a token</b>; "
                f"{kv_batch.value} rows of {kv_context.value:,} tokens hold <b>{page.size(_each * kv_batch.value * kv_context.value)}</b>, "
                f"weights {page.size(_c.weight_bytes(lm.model.dtype))}.</p>"
            ),
            Table(
                _rows,
                [
                    {"key": "kind", "title": "attention"},
                    {"key": "heads", "title": "kv heads", "kind": "num"},
                    {"key": "token", "title": "a token", "unit": "kB", "kind": "num", "digits": 2},
                    {"key": "cache", "title": "cache", "unit": "GB", "kind": "bar", "digits": 2},
                    {"key": "share", "title": "of a step's bytes", "unit": "%", "kind": "num", "digits": 0},
                    {"key": "ms", "title": "step at best", "unit": "ms", "kind": "num", "digits": 2},
                    {"key": "rate", "title": "at best", "unit": "token/s", "kind": "num", "digits": 0},
                    {"key": "intensity", "title": "FLOP/byte", "kind": "num", "digits": 1},
                ],
                page=6,
                selected=[kv_heads.value],
                name="kv-cache",
            ),
        ]
    )
    return


@app.cell
def _(mo):
    mo.md("""
    ## What to try next
    - Take SmolLM2 instead of pocket: its weights no longer fit any cache of the processor, and decoding falls onto the slope.
    - Set 256 rows of 131,072 tokens: the cache, not the weights, is what a step reads. Then go from many key-value heads to one.
    - Shade the tokens by time and make the prompt long: does a decode step get slower as the cache fills?
    """)
    return


if __name__ == "__main__":
    app.run()
