const MOST = 0.5; // how far towards the hue a full value goes: ink stays readable on it

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "tokens", signal);
  const strip = h("div.strip"), legend = h("div.legend");
  ui.root.append(h("div.panel", {}, strip, legend));
  const tip = lab.tooltip(ui);
  let boxes = []; // [row][token]

  function choose(i) { lab.save(model, "selected", i === model.get("selected") ? null : i); }

  function about(row, i) {
    const lines = [h("div.mono", {}, "“", lab.visible(row.pieces[i]), "”"), h("div.soft", {}, `position ${i}`)];
    if (row.ids?.[i] !== undefined) lines.push(h("div.soft", {}, `id ${row.ids[i]}`));
    const v = row.values?.[i];
    if (v !== undefined && v !== null) lines.push(h("div", {}, `${model.get("value_title")} `, h("b", {}, num(v))));
    return lines;
  }

  function build() {
    boxes = [];
    tip.hide();
    strip.replaceChildren(...model.get("rows").flatMap((row, r) => {
      const marks = new Set(row.marks ?? []), tone = row.tone ?? (r === 0 ? "pos" : "neg");
      boxes[r] = row.pieces.map((piece, i) => h(`span.tok${marks.has(i) ? ".mark" : ""}`, {
        role: "option", tabindex: i === 0 ? "0" : "-1", "aria-selected": "false", style: { "--tone": `var(--${tone})` },
        "aria-label": `${piece.trim() || "white space"}, position ${i}${marks.has(i) ? ", differs" : ""}`,
        onclick: () => { if (!String(getSelection())) choose(i); },
        onpointerenter: (event) => tip.show(event.clientX, event.clientY, about(row, i)),
        onpointerleave: () => tip.hide(),
        onfocus: (event) => {
          if (!event.target.matches(":focus-visible")) return;
          const area = event.target.getBoundingClientRect();
          tip.show(area.left, area.bottom - 8, about(row, i));
        },
        onblur: () => tip.hide(),
        onkeydown: (event) => keys(event, r, i),
      }, lab.visible(piece)));
      const parts = boxes[r].flatMap((box, i) => (/\n/.test(row.pieces[i]) ? [box, h("span.break")] : [box]));
      return [h("div.name", {}, row.label ?? ""),
        h("div.toks", { role: "listbox", "aria-label": row.label || "tokens" }, parts, row.note ? h("span.note", {}, row.note) : null)];
    }));
    choice();
    ui.repaint();
  }

  function keys(event, r, i) {
    const rows = boxes, go = { ArrowLeft: [r, i - 1], ArrowRight: [r, i + 1], ArrowUp: [r - 1, i], ArrowDown: [r + 1, i], Home: [r, 0], End: [r, boxes[r].length - 1] }[event.key];
    if (go) {
      const row = rows[go[0]], next = row?.[Math.min(row.length - 1, go[1])];
      if (next) { boxes[r][i].tabIndex = -1; next.tabIndex = 0; next.focus(); }
    } else if (event.key === "Enter" || event.key === " ") choose(i);
    else if (event.key === "Escape") lab.save(model, "selected", null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function choice() {
    const at = model.get("selected");
    for (const row of boxes) row.forEach((box, i) => box.setAttribute("aria-selected", String(i === at)));
  }

  function paint() {
    const tokens = ui.colours(), vmax = model.get("vmax") || 1, rows = model.get("rows");
    let any = false, below = false;
    rows.forEach((row, r) => boxes[r].forEach((box, i) => {
      const v = row.values?.[i];
      if (v === undefined || v === null) { box.style.removeProperty("background"); return; }
      any = true;
      if (v < 0) below = true;
      box.style.background = lab.mix(tokens.card, v < 0 ? tokens.neg : tokens.pos, MOST * Math.min(1, Math.abs(v) / vmax));
    }));
    legend.hidden = !any;
    if (!any) return;
    const bar = h("canvas", { "aria-hidden": "true" }), ctx = lab.sized(bar, 90, 9);
    for (let x = 0; x < 90; x++) {
      const v = below ? (x / 89) * 2 - 1 : x / 89;
      ctx.fillStyle = lab.mix(tokens.card, v < 0 ? tokens.neg : tokens.pos, MOST * Math.abs(v));
      ctx.fillRect(x, 0, 1, 9);
    }
    legend.replaceChildren(model.get("value_title"), h("span", {}, below ? num(-vmax) : "0"), bar, num(vmax));
  }

  ui.watch(model, ["rows", "vmax", "value_title"], build);
  ui.watch(model, ["selected"], choice);
  ui.onPaint(paint);
  return ui.dispose;
}

export default { render };
