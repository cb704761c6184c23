const HUES = { // kinds of instruction; the name stands beside the colour everywhere
  load: "inference", store: "train", shared: "interp", exchange: "data", special: "evals", float: "kernels", integer: "deploy", move: "faint", control: "research",
};

function render({ model, el, signal }) {
  const { h } = lab;
  const ui = lab.mount(el, "listing", signal);
  const mix = h("div.mix"), tabs = h("div.tabs", { role: "tablist" });
  const left = h("div.code", { tabindex: "0", "aria-label": "Source: arrow keys move, escape clears" });
  const right = h("div.code", { tabindex: "0", "aria-label": "What the compiler made" });
  const told = h("span.told", { "aria-live": "polite" });
  ui.root.append(h("div.lay", {},
    h("div.panel", {}, h("div.top", {}, h("h3", {}, "Source"), h("span.told", {}, "instructions a line")), left),
    h("div.panel", {}, h("div.top", {}, tabs, told), mix, right)));

  let only = null; // the one kind shown bright, or null
  const lines = () => (model.get("stages").find(([name]) => name === model.get("stage")) ?? [null, []])[1];
  const colour = (kind) => `var(--${HUES[kind] ?? "faint"})`;

  function counts() {
    const found = new Map();
    for (const [, at, kind] of lines()) if (at && kind) found.set(at, (found.get(at) ?? 0) + 1);
    return found;
  }

  function drawTabs() {
    tabs.replaceChildren(...model.get("stages").map(([name]) => h("button", {
      type: "button", role: "tab", "aria-selected": String(name === model.get("stage")), "aria-pressed": String(name === model.get("stage")), onclick: () => lab.save(model, "stage", name),
    }, name)));
  }

  function drawMix() {
    const sum = {};
    for (const [, , kind] of lines()) if (kind) sum[kind] = (sum[kind] ?? 0) + 1;
    const all = Object.values(sum).reduce((a, b) => a + b, 0), about = new Map(model.get("kinds")), kinds = [...about.keys()].filter((kind) => sum[kind]);
    mix.hidden = !all;
    mix.replaceChildren(
      h("div.strip", { role: "img", "aria-label": kinds.map((kind) => `${kind} ${sum[kind]}`).join(", ") },
        kinds.map((kind) => h("i", { title: `${kind}: ${sum[kind]} of ${all}`, style: { "--c": colour(kind), "flex-grow": String(sum[kind]), opacity: only && only !== kind ? "0.25" : "1" } }))),
      h("div.keys", {}, kinds.map((kind) => h("button.key", {
        type: "button", title: about.get(kind), "aria-pressed": String(only === kind),
        onclick: () => { only = only === kind ? null : kind; drawMix(); drawRight(); },
      }, h("i", { style: { "--c": colour(kind) } }), `${kind} `, h("b", {}, String(sum[kind]))))));
  }

  function drawLeft() {
    const [first, last] = model.get("focus"), chosen = model.get("selected"), by = counts(), most = Math.max(1, ...by.values());
    const text = model.get("source").split("\n");
    left.replaceChildren(...text.slice(first - 1, last).map((line, k) => {
      const at = first + k, n = by.get(at) ?? 0;
      return h(`div.line${at === chosen ? ".on" : ""}${n ? ".some" : ""}`, { "data-at": String(at) },
        h("span.no", {}, String(at)), h("span.heat", { title: n ? `${n} instructions` : null }, h("i", { style: { width: `${Math.round((100 * n) / most)}%` } })), h("span.text", {}, line || " "));
    }));
  }

  function drawRight() {
    const chosen = model.get("selected");
    let first = null;
    right.replaceChildren(...lines().map(([text, at, kind]) => {
      const on = chosen && at === chosen;
      const node = h(`div.line${on ? ".on" : ""}${(only && kind !== only) || (chosen && !on && at !== chosen) ? ".dim" : ""}${at ? ".some" : ""}`, { "data-at": String(at) },
        h("span.dot", { title: kind || null, style: { "--c": kind ? colour(kind) : "transparent" } }), h("span.text", {}, text || " "));
      if (on) first ??= node;
      return node;
    }));
    if (first) right.scrollTop = first.offsetTop - right.clientHeight / 3;
    const n = lines().filter(([, at, kind]) => kind && at === chosen).length, total = lines().filter(([, , kind]) => kind).length;
    told.textContent = !total ? `${lines().length} lines` : chosen ? `line ${chosen}: ${n} of ${total} instructions` : `${total} instructions`;
  }

  function choose(at) { lab.save(model, "selected", at === model.get("selected") ? 0 : at); }
  for (const pane of [left, right]) {
    pane.addEventListener("click", (event) => {
      const at = Number(event.target.closest(".line")?.dataset.at ?? 0);
      if (at) choose(at);
    });
    pane.addEventListener("keydown", (event) => {
      const [first, last] = model.get("focus"), now = model.get("selected");
      const next = { ArrowDown: now ? Math.min(last, now + 1) : first, ArrowUp: now ? Math.max(first, now - 1) : last, Escape: 0 }[event.key];
      if (next === undefined) return;
      lab.save(model, "selected", next);
      left.querySelector(".on")?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
      event.stopPropagation();
    });
  }

  ui.watch(model, ["stages", "stage", "source", "kinds", "focus"], () => { only = null; drawTabs(); drawMix(); drawLeft(); drawRight(); });
  ui.watch(model, ["selected"], () => {
    const keep = left.scrollTop;
    drawLeft();
    left.scrollTop = keep;
    const on = left.querySelector(".on");
    if (on && (on.offsetTop < keep || on.offsetTop > keep + left.clientHeight - 20)) left.scrollTop = on.offsetTop - left.clientHeight / 3;
    drawRight();
  });
  return ui.dispose;
}

export default { render };
