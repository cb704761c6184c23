const MOST = 0.5; // how far towards the hue a certain token goes: ink stays readable on it

function render({ model, el, signal }) {
  const { h } = lab;
  const ui = lab.mount(el, "eval_reader", signal);
  const chips = h("div.chips", { role: "group", "aria-label": "Which samples" }), kind = h("select", { "aria-label": "Kind of failure" });
  const find = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter samples" }), count = h("span.soft.count", { "aria-live": "polite" });
  const head = h("tr"), body = h("tbody"), scroll = h("div.scroll", {}, h("table", {}, h("thead", {}, head), body)), none = h("p.soft.none", { hidden: true });
  const list = h("div.list", {}, h("div.tools", {}, chips, kind, find, count), scroll, none), reader = h("div.reader.panel", { "aria-live": "polite" });
  const both = h("div.both", {}, list, reader);
  ui.root.append(both);
  let places = {}; // model -> [part, index] of the token whose alternatives are shown
  let rows = new Map();

  const right = (sample, name) => sample.results[name]?.right;
  const done = (sample) => model.get("models").every((name) => sample.results[name]);
  const wrong = (name) => (sample) => right(sample, name) === false;

  function tests() {
    const models = model.get("models"), found = [["all", "All", () => true]];
    for (const name of models) found.push([`wrong ${name}`, `${name} wrong`, wrong(name)]);
    if (models.length === 2) {
      found.push(["differ", "One of two right", (s) => done(s) && right(s, models[0]) !== right(s, models[1])]);
      found.push(["both wrong", "Both wrong", (s) => done(s) && models.every((name) => !right(s, name))]);
    }
    return found;
  }

  function tools() {
    const samples = model.get("samples"), show = model.get("show");
    chips.replaceChildren(...tests().map(([key, title, test]) => h("button", {
      type: "button", "aria-pressed": String(key === show), onclick: () => lab.save(model, "show", key),
    }, title, h("span.n", {}, samples.filter(test).length))));
    const kinds = Object.entries(model.get("kinds")), tally = (k) => samples.reduce((n, s) => n + model.get("models").filter((m) => s.results[m]?.failure === k).length, 0);
    kind.replaceChildren(h("option", { value: "" }, "any failure"), ...kinds.map(([k, why]) => h("option", { value: k, title: why }, `${k} (${tally(k)})`)));
    kind.value = model.get("failure");
    kind.hidden = !kinds.length;
    if (find.value !== model.get("filter")) find.value = model.get("filter");
  }

  function view() {
    const [, , test] = tests().find(([key]) => key === model.get("show")) ?? tests()[0], k = model.get("failure"), text = model.get("filter").trim().toLowerCase();
    return model.get("samples").filter((s) => test(s)
      && (!k || model.get("models").some((m) => s.results[m]?.failure === k))
      && (!text || [s.group, s.prompt, ...s.answers, ...model.get("models").map((m) => s.results[m]?.completion ?? "")].join("\n").toLowerCase().includes(text)));
  }

  const verdict = (ok) => h(`i.verdict${ok ? ".ok" : ".no"}`, { title: ok ? "right" : "wrong", "aria-label": ok ? "right" : "wrong" }, ok ? "✓" : "✗");

  function build() {
    both.classList.toggle("alone", !model.get("listed"));
    list.hidden = !model.get("listed");
    tools();
    const shown = view(), models = model.get("models"), total = model.get("samples").length;
    head.replaceChildren(...["about", "prompt", "answer", ...models].map((name) => h("th", { scope: "col" }, name)));
    rows = new Map();
    body.replaceChildren(...shown.map((s) => {
      const row = h("tr", {
        tabindex: "-1", onclick: () => choose(s.id), onkeydown: (event) => keys(event, shown, s.id),
      }, h("td.soft", {}, s.group), h("td", { title: s.prompt }, s.prompt), h("td", { title: s.answers.join(" or ") }, s.answers[0]),
      models.map((name) => {
        const r = s.results[name];
        return r ? h("td.said", { title: r.completion }, verdict(r.right), lab.visible(r.completion.trim() || "")) : h("td.soft", {}, "…");
      }));
      rows.set(s.id, row);
      return row;
    }));
    count.textContent = shown.length === total ? `${total} samples` : `${shown.length} of ${total}`;
    none.hidden = shown.length > 0;
    none.textContent = total ? "No sample is like that." : "No results yet.";
    mark();
    read();
  }

  function mark() {
    const at = model.get("selected");
    let first = true;
    for (const [id, row] of rows) {
      row.setAttribute("aria-selected", String(id === at));
      row.tabIndex = id === at || (first && !rows.has(at)) ? 0 : -1;
      first = false;
    }
  }

  function choose(id) {
    places = {};
    lab.save(model, "selected", id);
  }

  function keys(event, shown, id) {
    const i = shown.findIndex((s) => s.id === id), to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: shown.length - 1, Enter: i, " ": i }[event.key];
    if (to === undefined) return;
    const next = shown[Math.max(0, Math.min(shown.length - 1, to))];
    choose(next.id);
    rows.get(next.id)?.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  // ---- the sample being read ---------------------------------------------------------------------------------------

  function read() {
    const sample = model.get("samples").find((s) => s.id === model.get("selected"));
    if (!sample) { reader.replaceChildren(h("p.soft", {}, model.get("samples").length ? "Choose a sample to read it." : "Results appear here as they come.")); return; }
    reader.replaceChildren(
      h("div.about", {}, h("span.soft", {}, sample.group), h("span.wanted", {}, "answer ", ...sample.answers.flatMap((a, i) => [i ? " or " : "", h("b", {}, a)]))),
      ...model.get("models").map((name) => block(sample, name)));
    paint();
  }

  function block(sample, name) {
    const r = sample.results[name];
    if (!r) return h("section", {}, h("h3", {}, name), h("p.soft", {}, "not answered yet"));
    const [part, at] = places[name] ?? ["steps", 0], step = r[part]?.[at] ?? r.steps[0];
    const box = (where, [text, p], i) => h(`button.tok.${where === "steps" ? "made" : "given"}`, {
      type: "button", "data-p": p === null ? "" : String(p), "aria-pressed": String(where === part && i === at),
      title: p === null ? "nothing predicts the first token" : `probability ${p.toFixed(p < 0.1 ? 4 : 3)}`,
      onclick: () => { places[name] = [where, i]; refresh(sample, name, where, i); },
    }, lab.visible(text));
    return h("section", { "data-model": name },
      h("h3", {}, verdict(r.right), name, h("span.why", {}, r.why)),
      h("div.toks", {}, r.prompt_steps.map((s, i) => box("prompt_steps", s, i)), h("span.arrow", { "aria-hidden": "true" }, "→"), r.steps.map((s, i) => box("steps", s, i))),
      step ? h("div.alternatives", {}, h("div.soft", {}, part === "steps" ? `instead of token ${at + 1} of the answer` : `instead of token ${at + 1} of the prompt`),
        step[2].length ? lab.barRows(step[2], "var(--pos)", 1) : h("p.soft", {}, "nothing comes before it"),
        step[1] !== null && !step[2].some(([text]) => text === step[0]) ? h("p.soft", {}, "it took “", h("span.mono", {}, lab.visible(step[0])), `” at ${step[1].toPrecision(2)}`) : null) : null,
      r.choice?.length ? h("div.alternatives", {}, h("div.soft", {}, "log-likelihood a token of each option"),
        h("table.bars", {}, h("tbody", {}, r.choice.map(([text, v]) => h("tr", {}, h("td", {}, sample.answers.includes(text) ? h("b", {}, text) : text), h("td.num", {}, v.toFixed(2).replace("-", "−"))))))) : null);
  }

  function refresh(sample, name, where, i) {
    const old = [...reader.querySelectorAll("section")].find((s) => s.dataset.model === name), fresh = block(sample, name);
    old.replaceWith(fresh);
    paint();
    fresh.querySelectorAll(where === "steps" ? ".made" : ".given")[i]?.focus();
  }

  reader.addEventListener("keydown", (event) => {
    const go = { ArrowLeft: -1, ArrowRight: 1 }[event.key], now = event.target.closest?.(".tok");
    if (!go || !now) return;
    const all = [...now.parentElement.querySelectorAll(".tok")], next = all[all.indexOf(now) + go];
    if (next) next.click();
    event.preventDefault();
    event.stopPropagation();
  });

  function paint() {
    const tokens = ui.colours();
    for (const box of reader.querySelectorAll(".tok")) {
      if (box.dataset.p) box.style.background = lab.mix(tokens.card, tokens.pos, MOST * Number(box.dataset.p));
    }
  }

  kind.addEventListener("change", () => lab.save(model, "failure", kind.value));
  find.addEventListener("input", () => lab.save(model, "filter", find.value));
  ui.watch(model, ["samples", "models", "kinds", "show", "failure", "filter", "listed"], build);
  ui.watch(model, ["selected"], () => { mark(); read(); });
  ui.onPaint(paint);
  return ui.dispose;
}

export default { render };
