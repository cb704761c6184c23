"""Heads

What does each attention head do: where does it look, what does it copy, and whom does it read from?

exhibits: R9b
order: 7
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Heads")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "What does each head do?",
        "Where it looks on random repeated tokens and in sentences with two names, what it copies by its weights alone, and "
        "which earlier heads it reads (Elhage et al. 2021; Olsson et al. 2022; Wang et al. 2022).",
        station="interp",
        exhibits=("R9b",),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.heads import survey

    lm = page.chosen(picker)
    _seconds = survey.survey_seconds(lm.config)
    at_once = _seconds < 2
    go = mo.ui.run_button(kind="success", label=f"Look at every head, {page.cost(_seconds)}")
    go if not at_once else None
    return at_once, go, lm, survey


@app.cell
def _(at_once, go, lm, mo, page, survey):
    mo.stop(not (at_once or go.value), page.note(f"{lm.name} is larger than what is measured at once: press the button."))
    found = page.guard(survey.survey, lm)
    _titles = {survey.SCORES[key].title: key for key in found.scores}
    score = mo.ui.dropdown(_titles, value="induction", label="score")
    mo.vstack([score, *(page.note(why, kind="warn") for why in found.missing.values())])
    return found, score


@app.cell
def _(found, mo, score):
    from interp.heads.view import Newest, score_map
    from widgets.table import Table

    _layer, _head = found.strongest(score.value)
    table = mo.ui.anywidget(
        Table(
            found.rows(),
            columns=found.columns(),
            selected=[f"{_layer}.{_head}"],
            sort=[score.value, "down"],
            page=9,
            name="heads",
        )
    )
    heat = mo.ui.anywidget(score_map(found, score.value, (_layer, _head)))
    newest = Newest((_layer, _head))
    mo.vstack([heat, table], gap=0.8)
    return heat, newest, table


@app.cell
def _(found, heat, lm, mo, newest, score, survey, table):
    from interp.lenses.families import readable

    layer, head = newest.of(heat.value["selected"], table.value["selected"])
    _says = ", ".join(
        f"{survey.SCORES[k].title} {float(x[layer, head]):.2f}"
        for k, x in found.scores.items()
        if abs(float(x[layer, head])) >= 0.1
    )
    _texts = {
        "a list said twice": "river, moon, lamp, horse, river, moon, lamp, horse",
        "two names": "When Mary and John went to the store, John gave a drink to",
        "a fact": "The Eiffel Tower is located in the city of",
    }
    _texts = readable(lm, _texts)
    _fits = "two names" if score.value in ("mover", "io", "s2", "direct") else "a list said twice"
    text = mo.ui.dropdown(_texts, value=_fits if _fits in _texts else next(iter(_texts)), label="text")
    mo.vstack([mo.md(f"## Head {layer}.{head} of {lm.name}\n{_says or 'No score of it reaches 0.1.'}"), text])
    return head, layer, readable, text


@app.cell
def _(mo, text):
    prompt = mo.ui.text(text.value, full_width=True)
    prompt
    return (prompt,)


@app.cell
def _(head, layer, lm, page, prompt):
    from interp.patching import attention_patterns
    from widgets.attention import Attention

    _ids = page.guard(lm.tokens, prompt.value)[0].tolist()
    Attention(
        page.guard(attention_patterns, lm, _ids, layer).float().cpu().numpy(),
        lm.tokenizer.pieces(_ids),
        selected=head,
        title=f"Attention in layer {layer}",
        query=len(_ids) - 1,
    )
    return


@app.cell
def _(lm, mo, readable):
    _words = readable(lm, {"words": "river moon lamp horse Mary John Paris Rome France Italy"})
    words = mo.ui.text(next(iter(_words.values())), label="words", full_width=True)
    _far = lm.config.context - 1
    distance = mo.ui.slider(0, min(32, _far), value=min(4, _far), label="distance, tokens", show_value=True)
    through = mo.ui.dropdown(
        {"their embedding": 0, "the stream after layer 0, each alone": 1}, value="the stream after layer 0, each alone",
        label="tokens as",
    )  # fmt: skip
    mo.vstack(
        [
            mo.md(
                "## Its two circuits\nBy weights alone, for a few words: QK scores between them at a distance (rotary positions "
                "included), and what OV writes after looking. Never the whole vocabulary by itself."
            ),
            words,
            mo.hstack([distance, through], justify="start", wrap=True, gap=1.5),
        ],
        gap=0.5,
    )
    return distance, through, words


@app.cell
def _(distance, head, layer, lm, mo, page, through, words):
    from interp.heads.view import circuit_maps, words_of

    _ids = page.guard(words_of, lm, words.value)
    _qk, _ov, _table = page.guard(circuit_maps, lm, layer, head, _ids, distance.value, min(through.value, layer))
    _two = (
        "<style>.two {{ display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); align-items: start }}"
        "@media (min-width: 1000px) {{ .two {{ grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) }} }}</style>"
        '<div class="two"><div>{}</div><div>{}</div></div>'
    )
    mo.vstack([mo.Html(_two.format(mo.as_html(_qk).text, mo.as_html(_ov).text)), _table], gap=0.8)
    return


@app.cell
def _(lm, mo, page):
    kind = mo.ui.radio({"queries": "q", "keys": "k", "values": "v"}, value="keys", label="what reads", inline=True)
    _pairs = (lm.config.n_layers * lm.config.n_heads) ** 2 / 2
    compose_s = _pairs * 4 * lm.config.d_model * lm.config.d_head**2 / 1e10
    compose_go = mo.ui.run_button(label=f"Compare every pair of heads, {page.cost(compose_s)}")
    mo.vstack(
        [
            mo.md(
                "## Who reads whom\nHow much of what an earlier head writes enters the queries, keys or values of a later one, by "
                "the norms of the matrix products."
            ),
            kind,
            *([compose_go] if compose_s >= 2 else []),
        ]
    )
    return compose_go, compose_s, kind


@app.cell
def _(compose_go, compose_s, kind, lm, mo, page):
    from interp.heads.view import composition_map

    mo.stop(compose_s >= 2 and not compose_go.value)
    _heat, _pairs = page.guard(composition_map, lm.model, kind.value)
    mo.vstack([_heat, _pairs], gap=0.8)
    return


@app.cell
def _(mo, page, survey):
    from interp.heads import patterns as _patterns
    from interp.heads import weights as _weights
    from lab import models
    from widgets.table import Table as _Table

    _truth = page.guard(models.load, "induction")
    _scores = _patterns.detect(_truth.model, _patterns.repeated(_truth, length=16), ["previous", "induction"])
    _keys = _weights.composition(_truth.model, "k")
    _first = int(_scores["previous"][0].argmax())
    _best = int(_scores["induction"][1].argmax())
    _rows = [
        {
            "head": f"{i}.{h}",
            "previous": float(_scores["previous"][i, h]),
            "induction": float(_scores["induction"][i, h]),
            "reads": float(_keys[i, h, 0, _first]) - _weights.chance(_truth.model) if i else None,
        }
        for i in range(2)
        for h in range(_truth.config.n_heads)
    ]
    mo.vstack(
        [
            mo.md(
                "## Where the answer is known\n"
                "Two layers of attention trained on repeated words must grow an induction head: a first-layer head looks back one "
                f"word, and a second-layer head finds its way by keys the first wrote. The detectors name 0.{_first} and "
                f"1.{_best}; {sum(float(x) > 0.5 for x in _scores['induction'][1])} of the second layer's heads do it."
            ),
            _Table(
                _rows,
                columns=[
                    {"key": "head", "title": "layer.head"},
                    {"key": "previous", "title": "previous token", "kind": "bar", "digits": 2},
                    {"key": "induction", "kind": "bar", "digits": 2},
                    {"key": "reads", "title": f"its keys read 0.{_first}, beyond chance", "kind": "num", "digits": 2},
                ],
                name="induction-model",
            ),
            mo.Html(
                '<span class="lab-small">Scores of patterns are those of TransformerLens\'s head detector, divided by the queries '
                "that have something to look at; the tests compare both.</span>"
            ),
        ],
        gap=0.6,
    )
    return


@app.cell
def _(mo):
    _ideas = [
        "Sort by *induction*, then by *previous token*: do the strongest of the one read the strongest of the other by their keys?",
        "Choose the strongest name mover and look at the two names: does it look at the right one, and where does OV send it?",
        "Find a head that copies by its weights and yet looks at the first token: when does it wake up?",
        "Switch the tokens from their embedding to the stream after layer 0: which heads need the first layer to know words?",
        "Open the checkpoints of a run in *Two models*: do induction heads come with the fall of the loss?",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
