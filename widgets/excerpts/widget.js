const MOST = 0.55; // how far towards the hue a full value goes: ink stays readable on it

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "excerpts", signal);
  const title = h("h3"), leaf = h("div.leaf"), tabs = h("div.tabs", { role: "tablist" });
  const list = h("div.list", { role: "listbox" }), legend = h("div.legend");
  ui.root.append(h("div.panel", {}, h("div.top", {}, title, leaf, tabs), list, legend));
  const tip = lab.tooltip(ui);
  let lines = []; // {node, row, boxes}
  let cursor = -1; // token under the keyboard, in the focused line

  const entry = () => model.get("entries")[model.get("entry")] ?? { title: "", groups: [] };
  const rows = () => entry().groups[model.get("group")]?.rows ?? [];
  const most = () => entry().vmax || Math.max(1e-12, ...entry().groups.flatMap((g) => g.rows.flatMap((r) => r.values.map((v) => Math.abs(v ?? 0)))));

  function about(row, i) {
    const v = row.values[i];
    return [h("div.mono", {}, "“", lab.visible(row.pieces[i]), "”"),
      h("div", {}, `${model.get("value_title")} `, h("b", {}, v ? num(v) : "0"))];
  }

  /** A token within running text: its spaces are spaces, its line breaks are marks. */
  function inner(piece) {
    return piece.split(/(\n|\t)/).filter(Boolean).map((part) => (part === "\n" ? h("span.ws", {}, "⏎") : part === "\t" ? h("span.ws", {}, "⇥") : part));
  }

  function choose(i) { lab.save(model, "selected", i === model.get("selected") ? null : i); }

  function drawTop() {
    const all = model.get("entries"), now = model.get("entry");
    title.textContent = entry().title;
    leaf.hidden = all.length < 2;
    const go = (to) => { model.set("group", 0); model.set("selected", null); lab.save(model, "entry", (to + all.length) % all.length); };
    leaf.replaceChildren(
      h("button", { type: "button", "aria-label": "Previous", onclick: () => go(now - 1) }, "←"),
      h("span", {}, `${now + 1} of ${all.length}`),
      h("button", { type: "button", "aria-label": "Next", onclick: () => go(now + 1) }, "→"));
    const groups = entry().groups;
    tabs.hidden = groups.length < 2;
    tabs.replaceChildren(...groups.map((group, i) => h("button", {
      type: "button", role: "tab", "aria-selected": String(i === model.get("group")),
      onclick: () => { model.set("selected", null); lab.save(model, "group", i); },
    }, group.title)));
  }

  function build() {
    tip.hide();
    cursor = -1;
    drawTop();
    list.setAttribute("aria-label", `${entry().title}: up and down move between excerpts, left and right between tokens`);
    lines = rows().map((row, r) => {
      const boxes = row.pieces.map((piece, i) => h(`span.tok${i === row.peak ? ".peak" : ""}`, {
        onpointerenter: (event) => tip.show(event.clientX, event.clientY, about(row, i)),
        onpointerleave: () => tip.hide(),
      }, inner(piece)));
      const top = Math.max(0, ...row.values.map((v) => v ?? 0));
      const node = h("div.line", {
        role: "option", tabindex: r === 0 ? "0" : "-1", "aria-selected": "false",
        "aria-label": `${num(top)}: ${row.pieces.join("")}`,
        onclick: () => { if (!String(getSelection())) choose(r); },
        onkeydown: (event) => keys(event, r),
        onblur: () => point(r, -1),
      }, h("div.value", {}, num(top), h("i", { style: { width: `${Math.min(100, (100 * top) / most())}%` } })),
      h("div.text", {}, boxes), h("div.tag", {}, row.tag ?? ""));
      return { node, row, boxes };
    });
    list.replaceChildren(...(lines.length ? lines.map((line) => line.node) : [h("div.none", {}, "It fires nowhere in this text.")]));
    choice();
    ui.repaint();
  }

  function point(r, i) {
    const line = lines[r];
    if (!line) return;
    line.boxes.forEach((box, k) => box.classList.toggle("at", k === i));
    cursor = i;
    if (i < 0) { tip.hide(); return; }
    const area = line.boxes[i].getBoundingClientRect();
    tip.show(area.left, area.bottom - 8, about(line.row, i));
  }

  function keys(event, r) {
    const next = { ArrowUp: r - 1, ArrowDown: r + 1, Home: 0, End: lines.length - 1 }[event.key];
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (next !== undefined) {
      const line = lines[next];
      if (line) { lines[r].node.tabIndex = -1; line.node.tabIndex = 0; line.node.focus(); }
    } else if (step) {
      const from = cursor < 0 ? (lines[r].row.peak ?? 0) - step : cursor;
      point(r, Math.max(0, Math.min(lines[r].boxes.length - 1, from + step)));
    } else if (event.key === "Enter" || event.key === " ") choose(r);
    else if (event.key === "Escape") lab.save(model, "selected", null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function choice() {
    lines.forEach((line, r) => line.node.setAttribute("aria-selected", String(r === model.get("selected"))));
  }

  function paint() {
    const tokens = ui.colours(), vmax = most();
    for (const { row, boxes } of lines) {
      boxes.forEach((box, i) => {
        const v = row.values[i];
        if (!v) box.style.removeProperty("background");
        else box.style.background = lab.mix(tokens.card, v < 0 ? tokens.neg : tokens.pos, MOST * Math.min(1, Math.abs(v) / vmax));
      });
    }
    const bar = h("canvas", { "aria-hidden": "true" }), ctx = lab.sized(bar, 90, 9);
    for (let x = 0; x < 90; x++) {
      ctx.fillStyle = lab.mix(tokens.card, tokens.pos, (MOST * x) / 89);
      ctx.fillRect(x, 0, 1, 9);
    }
    legend.hidden = !lines.length;
    legend.replaceChildren(model.get("value_title"), h("span", {}, "0"), bar, num(vmax));
  }

  ui.watch(model, ["entries", "entry", "group", "value_title"], build);
  ui.watch(model, ["selected"], choice);
  ui.onPaint(paint);
  return ui.dispose;
}

export default { render };
