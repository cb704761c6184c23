"""Change a fact

Which attention heads say where the Eiffel Tower is, and can they be made to say Tokyo?

exhibits: R9, R9b
records: interp.r9.edit_success, interp.r9.side_effects
start: Find the heads that say Paris, and make them say Tokyo, 3 min
order: 2
"""

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="full", app_title="Change a fact")


@app.cell
def _():
    import marimo as mo

    from lab import page

    page.start(mo)
    picker = page.model_picker(mo)
    page.header(
        "Which heads say Paris, and can they say Tokyo?",
        "Patch every head on its own, keep the few that carry a landmark's city, and write another city into them "
        "wherever they read the landmark. No weight changes.",
        station="interp",
        exhibits=("R9", "R9b"),
        aside=[picker, page.share_button(mo, __file__, picker)],
    )
    return mo, page, picker


@app.cell
def _(mo, page, picker):
    from interp.edit import view
    from interp.edit.write import PLACES

    lm = page.chosen(picker)
    with mo.status.spinner(title=f"Asking {lm.name} where landmarks are", remove_on_exit=True):
        found = page.guard(view.located, lm)
    _first = next((m for m in found.marks if m.subject == "the Eiffel Tower"), found.marks[0])
    _target = next(c for c in ("Tokyo", "Rome", *found.cities) if c in found.cities and c != _first.city)
    subject = mo.ui.dropdown([m.subject for m in found.marks], value=_first.subject, label="landmark", searchable=True)
    city = mo.ui.dropdown(found.cities, value=_target, label="is to stand in", searchable=True)
    place = mo.ui.dropdown(
        {"where they read the landmark": "reads", "after its name": "mentioned", "everywhere": "always"},
        value="where they read the landmark",
        label="write",
    )
    mo.hstack([subject, city, place], justify="start", align="center", wrap=True, gap=0.8)
    return PLACES, city, found, lm, place, subject, view


@app.cell
def _(city, found, mo, page, subject):
    mark = found.mark(subject.value)
    mo.stop(
        city.value == mark.city,
        page.note(f"{mark.subject} is in {mark.city} already; choose another city.", kind="warn"),
    )
    target = city.value
    return mark, target


@app.cell
def _(found, mo):
    from widgets.heatmap import Heatmap

    _avg = found.maps["last"]
    _how = f"recorded {found.record['date'][:10]}" if found.record else "measured now"
    heat = mo.ui.anywidget(
        Heatmap(
            _avg.mean.numpy(),
            row_title="layer",
            col_title="head",
            value_title=f"Share of the answer each head restores, mean of {_avg.facts} facts, exact, {_how}",
            selected=[list(_h) for _h in found.heads],
            channel="edit",
        )
    )
    return Heatmap, heat


@app.cell
def _(Heatmap, found, lm, mark, page, target, view):
    one = Heatmap(
        page.guard(view.this_fact, lm, found, mark, target).numpy(),
        row_title="layer",
        col_title="head",
        value_title=f"The same for {mark.subject} and {target} alone, measured now",
    )
    return (one,)


@app.cell
def _(found, heat, lm, mark, mo, one, page, place, target, view):
    from interp.edit.write import Editor

    _chosen = [tuple(_c) for _c in heat.value["selected"]]
    _layer = found.gate.reader[0]
    _early = [f"{_l}.{_h}" for _l, _h in _chosen if _l < _layer] if place.value == "reads" else []
    heads = [_c for _c in _chosen if place.value != "reads" or _c[0] >= _layer]
    _notes = []
    if _early:
        _notes.append(
            page.note(
                f"Left out: {', '.join(_early)}, which work before head {found.gate.reader[0]}.{found.gate.reader[1]} "
                "has read the landmark.",
                kind="warn",
            )
        )
    if not heads:
        _notes.append(page.note("No head is chosen; click one in the map on the left, shift-click for more.", kind="warn"))
    editor = Editor(lm, found.marks, heads, found.gate, place.value, found.donors)
    _named = ", ".join(f"{_l}.{_h}" for _l, _h in sorted(heads))
    mo.vstack(
        [
            mo.Html(
                "<style>.edit-maps { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)) }"
                "</style>"
                f'<div class="edit-maps"><div>{mo.as_html(heat).text}</div><div>{mo.as_html(one).text}</div>'
                f"<div>{mo.as_html(view.strongest(found)).text}</div></div>"
            ),
            *_notes,
            mo.md(
                f"**{len(heads)} of {lm.config.n_layers * lm.config.n_heads} heads are written:** {_named or 'none'}. Click and "
                f"shift-click in the left map to choose others. Each gets its mean output over prompts about {target}"
                + (
                    f", at tokens where head {found.gate.reader[0]}.{found.gate.reader[1]} pays at least "
                    f"{found.gate.threshold:.0%} of its attention to *{mark.subject}*."
                    if place.value == "reads"
                    else "."
                )
            ),
        ]
    )
    return editor, heads


@app.cell
def _(lm, mark, mo):
    prompt = mo.ui.text(
        f"My favourite place is {mark.subject} in the city of", label="Ask the edited model anything", full_width=True
    )
    mo.vstack([mo.md("## Before and after"), prompt])
    return (prompt,)


@app.cell
def _(editor, found, heads, lm, mark, mo, page, prompt, target, view):
    mo.stop(not heads)
    said = page.guard(view.Said, lm, editor, mark, target, prompt.value)

    mo.vstack(
        [
            said.strip(found.gate),
            *(
                []
                if said.mentions
                else [page.note(f"The prompt does not name {mark.subject}, so there is nothing to fire on.", kind="info")]
            ),
            view.continuations(prompt.value, {"unedited": said.plain, "edited": said.said}),
            said.bars(),
        ],
        gap=0.8,
    )
    return (said,)


@app.cell
def _(editor, heads, lm, mark, mo, page, target, view):
    from widgets.table import Table

    mo.stop(not heads)
    phrasings = page.guard(view.phrasing_rows, lm, editor, mark, target)
    _held = [_r for _r in phrasings if _r["phrasing"] == "held out" and _r["outcome"] in ("moved", "unchanged", "another answer")]
    _moved = sum(_r["outcome"] == "moved" for _r in _held)
    mo.vstack(
        [
            mo.md(
                f"Of {len(_held)} held-out phrasings that {lm.name} answers with {mark.city}, **{_moved}** now say {target}."
            ),
            Table(
                phrasings,
                [
                    {"key": "prompt", "title": "prompt"},
                    {"key": "phrasing", "title": "phrasing"},
                    {"key": "before", "title": "unedited", "kind": "mono"},
                    {"key": "after", "title": "edited", "kind": "mono"},
                    {"key": "p_before", "title": f"p({target}) unedited", "kind": "num", "digits": 3},
                    {"key": "p_after", "title": f"p({target}) edited", "kind": "bar", "digits": 3},
                    {"key": "outcome", "title": "outcome"},
                ],
                page=10,
                name=f"{mark.subject} to {target}",
            ),
        ],
        gap=0.8,
    )
    return Table, phrasings


@app.cell
def _(found, lm, mo, page):
    facts = min(8, len(found.judge))
    # 15 phrasings to ask, 8 of them edited, 4 questions twice, with texts of 96 tokens: about 60 prompts a fact
    _seconds = 60 * facts * lm.config.forward_flops(16) / (2e10 if lm.config.n_layers < 12 else 6e10)
    go = mo.ui.run_button(
        kind="success", label=f"Judge these heads on {facts} facts that chose none, {page.cost(_seconds, forwards=60 * facts)}"
    )
    stop = mo.ui.run_button(label="Cancel")
    mo.vstack(
        [mo.md("## What else moves"), mo.hstack([go, stop], justify="start", align="center", gap=0.8)],
        gap=0.8,
    )
    return facts, go, stop


@app.cell
def _(editor, facts, found, go, heads, lm, mo, page, place, stop, view):
    from widgets.intervals import Intervals

    mo.stop(not heads)
    _default = found.record is not None and sorted(heads) == sorted(found.heads)
    _rows = view.recorded_rows(found, place.value) if _default else []
    shown = Intervals(
        _rows,
        title="Shares with 95% intervals over facts"
        + (f", recorded {found.record['date'][:10]} on {len(found.judge)} facts" if _rows else ", not measured yet"),
    )

    def _measure(stopped):
        for _step in view.judged(lm, found, editor, facts, stopped):
            with shown.hold_sync():
                shown.rows = _step.rows
                shown.title = f"Shares with 95% intervals over {facts} facts" + (
                    f", measuring: {_step.fraction:.0%}" if _step.fraction < 1 else ", measured now"
                )

    if not page.live(mo):
        if not _rows:
            facts_ = 4
            for _step in view.judged(lm, found, editor, facts_):
                shown.rows = _step.rows
            shown.title = f"Shares with 95% intervals over {facts_} facts"
    elif (go.value or (not _rows and lm.config.n_layers < 12)) and not stop.value:

        def _work():
            _me = mo.current_thread()
            _measure(lambda: _me.should_exit)

        mo.Thread(target=_work, daemon=True).start()
    shown
    return Intervals, shown


@app.cell
def _(found, mo):
    import plotly.graph_objects as go_

    _fig = go_.Figure()
    _counts = sorted(found.curve)
    _series = {"restored, other city's values written in": "restored", "lost, this city's values written over": "lost"}
    for _label, _key in _series.items():
        _m, _lo, _hi = zip(*(found.curve[_k][_key] for _k in _counts))
        _fig.add_scatter(
            x=_counts, y=_m, name=_label, mode="lines+markers",
            error_y={"type": "data", "symmetric": False, "array": [h - m for h, m in zip(_hi, _m)],
                     "arrayminus": [m - lo for m, lo in zip(_m, _lo)], "thickness": 1},
        )  # fmt: skip
    if found.record:
        _by = {int(k): v for k, v in found.record["detail"]["success_by_count"].items()}
        _fig.add_scatter(
            x=sorted(_by), y=[_by[k][0] for k in sorted(_by)], name="edits that succeed", mode="lines+markers",
            error_y={"type": "data", "symmetric": False, "array": [_by[k][2] - _by[k][0] for k in sorted(_by)],
                     "arrayminus": [_by[k][0] - _by[k][1] for k in sorted(_by)], "thickness": 1},
        )  # fmt: skip
    _fig.update_layout(
        xaxis_title="heads patched together, the strongest first", yaxis_title="share", yaxis_tickformat=".0%",
        yaxis_rangemode="tozero", height=330,
    )  # fmt: skip
    mo.vstack([mo.md("## How many heads are enough"), _fig])
    return


@app.cell
def _(Table, found, mo):
    _parts = []
    if found.record:
        _d = found.record["detail"]
        _parts = [
            mo.md("## Every recorded edit"),
            Table(
                [
                    dict(zip(("landmark", "city", "target", "prompt", "before", "after", "p_before", "p_after"), _r))
                    for _r in _d["rows"]
                ],
                [
                    {"key": "landmark"}, {"key": "city"}, {"key": "target"}, {"key": "prompt"},
                    {"key": "before", "title": "unedited", "kind": "mono"}, {"key": "after", "title": "edited", "kind": "mono"},
                    {"key": "p_before", "title": "p(target) unedited", "kind": "num", "digits": 3},
                    {"key": "p_after", "title": "p(target) edited", "kind": "bar", "digits": 3},
                ],
                page=12,
                name="recorded edits",
            ),
        ]  # fmt: skip
    mo.vstack(_parts) if _parts else None
    return


@app.cell
def _(mo):
    _text = [
        "## Beside the literature",
        "",
        "Geva et al. (2023, *Dissecting recall of factual associations*) find three steps: early MLPs enrich the subject's last token,",
        "the relation travels to the last position, and attention heads there extract the answer. The heads of this page are that",
        "third step. Meng et al. (2022, *ROME*) change the second to last: a rank-one update of one MLP's weights at the subject,",
        "which every later use of the subject sees. Here nothing is stored; the heads are overruled while they read. So the country",
        "follows the city where it is asked for in the same way, and what other heads extract is left to them. That the chosen heads",
        "also fire on a neighbour asked for in the same breath is the price, and is counted above.",
    ]
    mo.md("\n".join(_text))
    return


@app.cell
def _(mo):
    _ideas = [
        "Write *everywhere* instead: the same success, and unrelated answers fall.",
        "Keep the strongest head alone, then add one after another: where does the answer turn?",
        "Ask for the landmark's country, its height, its architect.",
        "Name the landmark and then ask about something else: does the shaded attention stay below the threshold?",
        "Take SmolLM2 and pick a head with a negative effect: what does writing it do?",
    ]
    mo.md("\n".join(["## What to try next", *(f"- {_idea}" for _idea in _ideas)]))
    return


if __name__ == "__main__":
    app.run()
