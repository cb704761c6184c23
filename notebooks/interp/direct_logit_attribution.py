"""Direct logit attribution

Which heads, MLPs and neurons say the answer, and which speak against it?

exhibits: R9b
records: interp.dla.max_tensor_ratio
order: 5
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Direct logit attribution")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Which parts of the model say the answer?",
        "The stream is a sum, and behind the final norm, held at its scale, logits are linear in it: so the logit difference "
        "splits exactly over embedding, heads, MLPs and neurons (Elhage et al. 2021; Wang et al. 2022).",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.lenses.families import own_words, readable
    from interp.presets import presets

    lm = page.chosen(picker)
    known = {p.title: (p.clean, p.answer.strip(), p.wrong.strip()) for p in presets(lm)}
    if "own" in readable(lm, {"own": "The capital of France is Paris, Rome"}):
        known["your own"] = ("The capital of France is", "Paris", "Rome")
    else:  # a model of made-up words: what comes next in a list said twice
        _words = own_words(lm)
        known["its own words"] = (" ".join([*_words, *_words[:-1]]), _words[-1], _words[0])
    _first = next((title for title in known if "drink" in title), next(iter(known)))
    preset = mo.ui.dropdown(list(known), value=_first, label="prompt")
    return known, lm, preset


@app.cell
def _(known, mo, preset):
    _prompt, _answer, _wrong = known[preset.value]
    prompt = mo.ui.text(_prompt, full_width=True)
    answer = mo.ui.text(_answer, label="answer")
    wrong = mo.ui.text(_wrong, label="against")
    mo.vstack(
        [mo.hstack([preset, answer, wrong], justify="start", align="center", wrap=True, gap=1.2), prompt], gap=0.5
    )
    return answer, prompt, wrong


@app.cell
def _(answer, lm, mo, page, prompt, wrong):
    import torch

    from interp.lenses.direct import direct
    from interp.lenses.direct_view import head_map, neuron_table, source_map, waterfall
    from interp.prompts import answer_token
    from lab.page.style import tokens as _colours

    ids = page.guard(lm.tokens, prompt.value)
    pieces = lm.tokenizer.pieces(ids[0].tolist())
    right = page.guard(answer_token, lm.tokenizer, answer.value, prompt.value)
    other = page.guard(answer_token, lm.tokenizer, wrong.value, prompt.value)
    found = page.guard(
        direct, lm.model, ids, torch.tensor([[right]], device=ids.device), torch.tensor([[other]], device=ids.device),
        sources=True,
    )  # fmt: skip
    colours = _colours()
    _title = f"“{answer.value.strip()}” against “{wrong.value.strip()}” after the prompt: {float(found.total[0, 0]):+.2f} logits"
    mo.vstack(
        [
            waterfall(found, 0, colours, _title),
            mo.Html(
                f'<span class="lab-small">The parts add up to the model\'s own logit difference within '
                f"{found.error:.1g} logits ({str(lm.model.dtype).removeprefix('torch.')}).</span>"
            ),
        ],
        gap=0.3,
    )
    return colours, found, head_map, ids, neuron_table, other, pieces, right, source_map


@app.cell
def _(found, head_map, mo, pieces, source_map):
    _grid = (
        "<style>.dla {{ display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); align-items: start }}"
        "@media (min-width: 1000px) {{ .dla {{ grid-template-columns: minmax(0, 9fr) minmax(0, 12fr) }} }}</style>"
        '<div class="dla"><div>{}</div><div>{}</div></div>'
    )
    mo.Html(_grid.format(mo.as_html(head_map(found, 0)).text, mo.as_html(source_map(found, 0, pieces)).text))
    return


@app.cell
def _(found, lm, mo, neuron_table):
    mo.vstack(
        [
            mo.md("## Single neurons\nA neuron adds its activation times what its output weights say about the two words."),
            neuron_table(lm, found, 0),
        ]
    ) if found.neurons is not None else mo.md("This model has no MLPs: everything is said by heads.")
    return


@app.cell
def _(ids, lm, mo, page, pieces):
    from interp.lenses.direct_view import next_token_map

    mo.vstack(
        [
            mo.md("## At every position\nThe same for the token that really comes next, all along the prompt."),
            page.guard(next_token_map, lm.model, ids, pieces),
        ]
    )
    return


@app.cell
def _(lm, mo, page):
    from interp.lenses.families import FAMILIES

    family = mo.ui.dropdown({title: key for key, title in FAMILIES.items()}, value=FAMILIES["ioi"], label="prompts")
    count = mo.ui.number(4, 400, value=24, step=4, label="how many")
    mo.vstack(
        [
            mo.md(
                "## Over many prompts\nOne sentence may be an accident. Means over held-out prompts, with 95 % intervals "
                "(bootstrap over the prompts)."
            ),
            mo.hstack([family, count], justify="start", gap=1.2),
        ]
    )
    return count, family


@app.cell
def _(count, family, lm, mo, page):
    from interp.lenses.direct import over_prompts
    from interp.lenses.families import asked

    prompts = page.guard(asked, lm, family.value, count.value)
    _seconds = page.guard(lambda: lm.config.forward_flops(20) * len(prompts) / 2e10)
    many_go = mo.ui.run_button(label=f"Attribute, {page.cost(_seconds, forwards=len(prompts))}")
    at_once = _seconds < 2
    many_go if not at_once else None
    return at_once, many_go, over_prompts, prompts


@app.cell
def _(at_once, colours, lm, many_go, mo, over_prompts, page, prompts):
    from interp.lenses.direct_view import component_figure, component_rows
    from widgets.table import Table

    mo.stop(not (at_once or many_go.value))
    many = page.guard(over_prompts, lm.model, prompts)
    _rows = component_rows(many, 400)
    _right = float((many.total > 0).double().mean())
    mo.vstack(
        [
            component_figure(
                _rows[:24], colours,
                f"{len(prompts)} prompts, mean logit difference {float(many.total.mean()):+.2f}, {_right:.0%} above zero",
            ),
            Table(
                _rows,
                columns=[
                    {"key": "part"},
                    *({"key": k, "unit": "logits", "kind": "num", "digits": 3} for k in ("mean", "low", "high")),
                    {"key": "positive", "title": "speaks for the answer", "unit": "share of prompts", "kind": "num", "digits": 2},
                ],
                page=8,
                name="direct-components",
            ),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(ids, lm, mo, page):
    from interp.heads import knockout

    _forwards = lm.config.n_layers * lm.config.n_heads
    cut_s = lm.config.forward_flops(ids.shape[1]) * _forwards / 2e10
    cut_go = mo.ui.run_button(kind="success", label=f"Cut every head, {page.cost(cut_s, forwards=_forwards)}")
    mo.vstack(
        [
            mo.md(
                "## Beside what happens when a head is cut\n"
                "Speaking for the answer is not the same as being needed: a head may work through others, and others may step in "
                "when it is gone."
            ),
            *([cut_go] if cut_s >= 2 else []),
        ]
    )
    return cut_go, cut_s, knockout


@app.cell
def _(cut_go, cut_s, found, ids, knockout, lm, mo, other, page, right):
    from widgets.scatter import Scatter

    mo.stop(cut_s >= 2 and not cut_go.value)
    _lost = page.guard(knockout.loss_without, lm.model, ids[0], right, other)
    _layers, _heads = _lost.shape
    Scatter(
        _lost.flatten().numpy(),
        found.heads[0, 0].flatten().numpy(),
        colour=[i // _heads for i in range(_layers * _heads)],
        labels=[f"head {i // _heads}.{i % _heads}" for i in range(_layers * _heads)],
        title="Heads: said directly, and lost without",
        x_title="logit difference lost when the head is set to zero, logits",
        y_title="added directly, logits",
        colour_title="layer",
    )
    return


@app.cell
def _(mo, page):
    from lab import records

    _row = {row["id"]: row for row in records.newest()}.get("interp.dla.max_tensor_ratio")
    mo.vstack(
        [
            mo.md(
                "## What it costs\n"
                "The direction of the two words is carried back through the output matrices first, so what every head and "
                "neuron writes is never made."
            ),
            page.note(
                f"At GPT-2 small's size the largest tensor is **{_row['value']:.0f} times** smaller than that of the usual way, "
                f"which makes them (bar: at least {_row['bar']:g}). {_row['hardware']}, {_row['date'][:10]}."
            )
            if _row
            else page.note("Nothing recorded yet: `python -m lab bench interp_heads` measures it here."),
        ]
    )
    return


@app.cell
def _(mo):
    _ideas = [
        "In the indirect-object sentence, find the heads that bring the name: which token do they read it from?",
        "Some heads speak against the right name (negative name movers). Cut one: does the answer get surer?",
        "Take a fact: is it said by heads or by MLPs, and in which layers? Compare with what patching finds.",
        "Write the same word as answer twice with different partners: which heads change sides?",
        "A neuron that adds much to one fact: what else does it raise? Look for it over many prompts.",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
