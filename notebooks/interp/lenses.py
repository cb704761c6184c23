"""Lenses

At which layer does the answer appear, and was it there before anybody could read it?

exhibits: R9b
records: interp.lens.tuned_over_logit
order: 6
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Lenses")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "At which layer does the answer appear?",
        "Read the stream after every layer as if it were the last (logit lens, nostalgebraist 2020), or through a map "
        "learned for that layer (tuned lens, Belrose et al. 2023).",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.lenses import tuned
    from interp.lenses.families import readable
    from interp.presets import presets
    from lab import runs

    lm = page.chosen(picker)
    _texts = {p.title: p.clean for p in presets(lm)[:12]}
    known = readable(lm, {**_texts, "own": "The capital of France is Paris and the capital of Italy is"})
    preset = mo.ui.dropdown(list(known), value=next(iter(known)), label="prompt")
    _run = mo.query_params().get("run")
    get_run, set_run = mo.state(_run if _run in {r.id for r in tuned.of(lm.name)} else None)
    return get_run, known, lm, preset, readable, runs, set_run, tuned


@app.cell
def _(get_run, known, lm, mo, preset, tuned):
    mine = {run.id: run for run in tuned.of(lm.name)}
    _names = {"bundled": "bundled"} if "bundled" in tuned.found(lm) else {}
    _names |= {f"trained here, {run.id}": run.id for run in mine.values()}
    _names["none"] = "none"
    _first = next((name for name, value in _names.items() if value == get_run()), next(iter(_names)))
    which = mo.ui.dropdown(_names, value=_first, label="tuned lens")
    prompt = mo.ui.text(known[preset.value], full_width=True)
    mo.vstack(
        [mo.hstack([preset, which], justify="start", align="center", wrap=True, gap=1.2), prompt], gap=0.5
    )
    return mine, prompt, which


@app.cell
def _(mine, mo, which):
    from widgets.run_monitor import RunMonitor
    from widgets.scrubber import Scrubber

    current = mine.get(which.value)
    scrub_widget = Scrubber(title="lens at step")
    scrub = mo.ui.anywidget(scrub_widget)
    return RunMonitor, current, scrub, scrub_widget


@app.cell
def _(RunMonitor, current, mo, page, runs, scrub_widget):
    from lab.page.watch import action
    from widgets.curves import Curves

    monitor = RunMonitor(
        ({"key": "loss", "label": "KL, mean of layers", "unit": "nats/token"}, {"key": "held", "label": "held out"}),
        act=action(lambda: runs.get(monitor.run)) if page.live(mo) else None,
    )
    progress = Curves(
        series=[{"id": current.id, "label": current.id}] if current else [],
        panels=[
            {"key": "loss", "title": "Training", "unit": "KL, nats/token, mean of layers", "log": True},
            {"key": "held", "title": "Held-out text, tuned lens", "unit": "KL, nats/token", "log": True},
        ],
    )
    if current:
        page.watch(mo, [current], progress, monitor, scrub_widget)
    return monitor, progress


@app.cell
def _(current, lm, mo, page, prompt, scrub, tuned, which):
    from interp.lenses.view import lens_grid

    _ids = page.guard(lm.tokens, prompt.value)[0].tolist()
    _step = scrub.value["value"] if current else None
    _step = _step if _step is not None else scrub.widget.value
    _name = f"bundled:{lm.name}" if which.value == "bundled" else f"run:{which.value}@{_step}"
    _there = which.value == "bundled" or (current is not None and _step is not None)
    lens = page.guard(tuned.load, _name, lm.model) if _there else None
    mo.vstack([page.guard(lens_grid, lm, _ids, lens), scrub] if current else [page.guard(lens_grid, lm, _ids, lens)])
    return (lens,)


@app.cell
def _(lens, lm, mo, page):
    from interp.lenses import train

    _seconds = train.judging_seconds(lm.model, 256)
    judge = mo.ui.run_button(label=f"Measure both lenses on held-out text, {page.cost(_seconds)}")
    at_once = _seconds < 2
    mo.vstack(
        [
            mo.md("## How far from the model's answer\nKL divergence from the last layer, on text nobody trained on."),
            *([] if at_once else [judge]),
        ]
    )
    return at_once, judge, train


@app.cell
def _(at_once, judge, lens, lm, mo, page, train):
    from interp.lenses.view import kl_curves
    from widgets.table import Table

    mo.stop(not (at_once or judge.value))
    _held = page.guard(train.held_out, lm)
    measured = {"logit lens": train.judged(lm.model, _held)}
    if lens is not None:
        measured["tuned lens"] = train.judged(lm.model, _held, lens)
    _rows = ["embed", *map(str, range(lm.config.n_layers - 1))]
    _better = sum(t < p for t, p in zip(measured.get("tuned lens", []), measured["logit lens"]))
    _said = (
        f"The tuned lens is closer in {_better} of {len(_rows)} layers, over {_held.numel():,} held-out tokens."
        if lens is not None
        else "There is no tuned lens of this model yet: train one below."
    )
    mo.vstack(
        [
            kl_curves(measured),
            mo.accordion(
                {
                    "The numbers": Table(
                        [{"layer": r, **{k: v[i] for k, v in measured.items()}} for i, r in enumerate(_rows)],
                        columns=[
                            {"key": "layer"},
                            *({"key": k, "kind": "bar", "unit": "nats/token", "digits": 3} for k in measured),
                        ],
                        name="lens-kl",
                    )
                }
            ),
            mo.Html(f'<span class="lab-small">{_said}</span>'),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(lm, mo, train):
    rank = mo.ui.dropdown({"8": 8, "32": 32, "64": 64, "whole matrices": None}, value="32", label="rank")
    data = mo.ui.dropdown(["mixed", "facts", "ioi", "repeats"], value="mixed", label="text")
    steps = mo.ui.number(10, 20_000, value=200, step=10, label="steps")
    lr = mo.ui.number(1e-4, 1.0, value=train.LensSpec().lr, step=1e-3, label="peak learning rate")
    mo.vstack(
        [
            mo.md(
                "## Train a lens\n"
                f"One affine map a layer, from the stream of {lm.name} to its last layer's terms; the model stays as it is."
            ),
            mo.hstack([rank, data, steps, lr], justify="start", wrap=True, gap=1.2),
        ],
        gap=0.6,
    )
    return data, lr, rank, steps


@app.cell
def _(data, lm, lr, mo, page, rank, steps, train):
    spec = page.guard(
        train.LensSpec, model=lm.name, data=data.value, rank=rank.value, steps=steps.value, lr=lr.value,
        eval_every=max(1, steps.value // 8), save_every=max(1, steps.value // 8),
    )  # fmt: skip
    start = mo.ui.run_button(kind="success", label=f"Train a tuned lens, {page.cost(train.training_seconds(lm.model, spec))}")
    start
    return spec, start


@app.cell
def _(page, runs, set_run, spec, start):
    if start.value:
        set_run(page.guard(runs.start, "tuned_lens", spec.to_dict()).id)
    return


@app.cell
def _(current, mo, monitor, progress):
    mo.vstack([monitor, progress], gap=0.8) if current else mo.Html("")
    return


@app.cell
def _(lm, mo, readable):
    from interp.lenses.patchscopes import PROMPTS

    ask = mo.ui.dropdown(list(PROMPTS), value="in which city is it?", label="ask")
    _text = next(iter(readable(lm, {"": "We saw the Parthenon"}).values()))
    source = mo.ui.text(_text, label="source text", full_width=True)
    expects = mo.ui.text("Athens", label="follow the word", full_width=True)
    mo.vstack(
        [
            mo.md(
                "## Let the model read its own states\n"
                "Patchscopes (Ghandeharioun et al. 2024): the state of a token at one layer takes the place of “?” in another "
                f"prompt at another layer, and {lm.name} goes on from there."
            ),
            mo.hstack([source, expects], widths=[3, 1], align="end", gap=0.8),
            ask,
        ],
        gap=0.6,
    )
    return PROMPTS, ask, expects, source


@app.cell
def _(PROMPTS, ask, lm, mo, page, source):
    source_ids = page.guard(lm.tokens, source.value)[0].tolist()
    _pieces = lm.tokenizer.pieces(source_ids)
    token = mo.ui.dropdown(
        {f"{i}: {p.strip() or '·'}": i for i, p in enumerate(_pieces)},
        value=f"{len(_pieces) - 1}: {_pieces[-1].strip() or '·'}",
        label="state of the token",
    )
    target = mo.ui.text(PROMPTS[ask.value], label="target prompt", full_width=True)
    mo.vstack([target, token], gap=0.5)
    return source_ids, target, token


@app.cell
def _(lm, mo, page, target):
    from interp.lenses import patchscopes

    target_ids, place = page.guard(patchscopes.placeholder, lm, target.value)
    layers = patchscopes.spread(lm.config, len(target_ids))
    _forwards = len(layers) * (len(layers) + 1)
    fill_s = _forwards * lm.config.forward_flops(len(target_ids)) / 5e10
    fill = mo.ui.run_button(label=f"Fill the grid, {page.cost(fill_s, forwards=_forwards)}")
    fill if fill_s >= 2 else None
    return fill, fill_s, layers, patchscopes, place, target_ids


@app.cell
def _(expects, fill, fill_s, layers, lm, mo, page, patchscopes, place, source_ids, target, target_ids, token):
    from interp.lenses.view import patchscope_grid
    from interp.prompts import answer_token

    mo.stop(fill_s >= 2 and not fill.value)
    _word = page.guard(answer_token, lm.tokenizer, expects.value, target.value, True) if expects.value.strip() else None
    _found = page.guard(
        patchscopes.patchscope, lm, source_ids, token.value, target_ids, place, [*layers, lm.config.n_layers], layers,
        track=[] if _word is None else [_word],
    )  # fmt: skip
    _read = lm.tokenizer.decode(source_ids[: token.value + 1])
    mo.vstack(
        [
            patchscope_grid(lm, _found, _word, _read),
            mo.Html(
                '<span class="lab-small">Hover a cell for what the model goes on to say. A row that reads the word early and '
                "loses it later: the state has become a prediction of what comes next.</span>"
            ),
        ],
        gap=0.5,
    )
    return


@app.cell
def _(mo):
    _ideas = [
        "Find a fact that the logit lens shows only in the last two layers: how much earlier does the tuned lens have it?",
        "Switch the shading to entropy: where is the model sure of something that it later drops?",
        "Train with rank 8 and with whole matrices: how much of the gap is more than a shift of the mean?",
        "Train on `repeats` alone and read facts with it: what does a lens learn that is not in the model?",
        "Put the state of “Parthenon” in at layers 0 to 7: which layers of the source hold the city, and which the word?",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
