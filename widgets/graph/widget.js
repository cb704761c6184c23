const ROW = 34, SHORT = 24, TALL = 72; // px a row takes, when there are many, and when there are few
const PILL = 19; // px a named node is high
const MOST = 8; // edges listed beside the picture, each way

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "graph", signal);
  const base = h("canvas"), over = h("canvas");
  const map = h("div.map", { tabindex: "0", role: "application", "aria-roledescription": "graph" }, base, over);
  const title = h("h3"), keys = h("div.keys");
  const slider = h("input", { type: "range", min: "0", max: "1000", step: "1", "aria-label": "Number of edges drawn, strongest first" });
  const told = h("b"), live = h("span.sr", { "aria-live": "polite" });
  const cut = h("div.cut", {}, h("span", {}, "edges drawn"), slider, told);
  const hint = h("div.hint", {}, "click a node or an edge; arrow keys move, enter selects, + and − draw more or fewer, esc clears");
  const aside = h("div.panel.aside");
  ui.root.append(h("div.lay", {}, h("div.panel", {}, h("div.head", {}, title, keys), map, cut, hint, live), aside));
  const tip = lab.tooltip(ui);

  let nodes = [], byId = new Map(), edges = [], geo = null, hover = null, cursor = null, kinds = [];
  const key = (e) => [e.from, e.to, ...(e.port ? [e.port] : [])];
  const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
  const nameOf = (id) => byId.get(id)?.label || id;
  const unit = () => (model.get("unit") ? ` ${model.get("unit")}` : "");
  const signed = (v) => `${v > 0 ? "+" : ""}${num(v)}`;
  const edgeName = (e) => `${nameOf(e.from)} → ${nameOf(e.to)}${e.port ? `.${e.port}` : ""}`;
  const drawn = () => edges.slice(0, Math.min(edges.length, model.get("shown")));

  // ---- how many edges: the slider counts them on a logarithmic scale -------------------------------------------

  const toSlider = (n) => (edges.length > 1 ? Math.round((1000 * Math.log(Math.max(1, n))) / Math.log(edges.length)) : 1000);
  const fromSlider = (v) => Math.max(1, Math.round(edges.length ** (v / 1000)));
  function tellCut() {
    const n = drawn().length;
    slider.value = String(toSlider(n));
    const least = n ? Math.abs(edges[n - 1].weight) : 0;
    told.textContent = edges.length ? `${n.toLocaleString("en")} of ${edges.length.toLocaleString("en")}, |weight| ≥ ${num(least)}${unit()}` : "no edges";
    slider.setAttribute("aria-valuetext", told.textContent);
  }
  function show(n) { lab.save(model, "shown", Math.max(1, Math.min(edges.length || 1, n))); }
  slider.addEventListener("input", () => show(fromSlider(Number(slider.value))));

  // ---- places ------------------------------------------------------------------------------------------------------

  function measure(ctx, width) {
    const tokens = ui.colours(), list = drawn(), touched = new Set(list.flatMap((e) => [e.from, e.to]));
    const keepAll = !model.get("quiet");
    const layers = [...new Set(nodes.filter((n) => keepAll || touched.has(n.id)).map((n) => n.layer))].sort((a, b) => a - b);
    const labels = model.get("row_labels"), names = layers.map((l) => labels[String(l)] ?? "");
    ctx.font = `12px ${tokens.sans}`;
    const left = names.some(Boolean) ? Math.ceil(Math.max(...names.map((n) => ctx.measureText(n).width))) + 14 : 6;
    const row = layers.length > 22 ? SHORT : Math.round(Math.max(ROW, Math.min(TALL, 340 / layers.length))), top = model.get("row_title") ? 24 : 8;
    const columns = model.get("col_labels");
    const bottom = columns.length ? 24 + (model.get("col_title") ? 18 : 0) : 6;
    const cols = nodes.map((n) => n.column), lo = Math.min(...cols, 0), hi = Math.max(...cols, columns.length - 1, lo + 1);
    const step = (width - left) / (hi - lo + 1), X = (c) => left + (c - lo + 0.5) * step;
    const groups = new Map(); // nodes that share a cell stand side by side
    const shownNodes = nodes.filter((n) => layers.includes(n.layer) && (keepAll || touched.has(n.id)));
    for (const n of shownNodes) { const k = `${n.layer}|${n.column}`; groups.set(k, [...(groups.get(k) ?? []), n]); }
    ctx.font = `11.5px ${tokens.mono}`;
    const place = new Map();
    for (const group of groups.values()) {
      const room = group.length > 1 ? step / group.length : step;
      group.forEach((n, i) => {
        const w = Math.ceil(ctx.measureText(n.label || n.id).width) + 12;
        const pill = w <= Math.max(room - 3, group.length === 1 && sparse(n, shownNodes) ? w : 0);
        const half = (pill ? w : 9) / 2 + 1, x = X(n.column) + (i - (group.length - 1) / 2) * room;
        place.set(n.id, {
          x: Math.max(half, Math.min(width - half, x)), // a wide name at the edge moves inwards
          y: top + (layers.length - 1 - layers.indexOf(n.layer)) * row + row / 2,
          w: pill ? w : 9, pill, live: touched.has(n.id),
        });
      });
    }
    return { left, top, row, layers, names, place, width, step, X, columns, height: top + layers.length * row + bottom, bottom };
  }
  /** Alone in its row: its name may be wider than a column. */
  const sparse = (n, all) => all.filter((o) => o.layer === n.layer).length === 1;

  const ports = () => { // the inputs a node has, in the order they are first met
    const out = new Map();
    for (const e of edges) if (e.port) out.set(e.to, [...new Set([...(out.get(e.to) ?? []), e.port])].sort());
    return out;
  };
  let portsOf = new Map();

  function curve(e) {
    const a = geo.place.get(e.from), b = geo.place.get(e.to);
    const list = portsOf.get(e.to) ?? [], i = list.indexOf(e.port);
    const half = PILL / 2, spread = b.pill ? b.w - 14 : 6;
    const shift = list.length > 1 && i >= 0 ? (i / (list.length - 1) - 0.5) * spread : 0;
    const x0 = a.x, y0 = a.y - (a.pill ? half : 4.5), x1 = b.x + shift, y1 = b.y + (b.pill ? half : 4.5);
    const bend = Math.max(10, (y0 - y1) * 0.5);
    return [x0, y0, x0, y0 - bend, x1, y1 + bend, x1, y1];
  }
  const at = ([x0, y0, ax, ay, bx, by, x1, y1], t) => {
    const s = 1 - t, a = s * s * s, b = 3 * s * s * t, c = 3 * s * t * t, d = t * t * t;
    return [a * x0 + b * ax + c * bx + d * x1, a * y0 + b * ay + c * by + d * y1];
  };

  // ---- drawing -------------------------------------------------------------------------------------------------------

  const top = () => Math.abs(edges[0]?.weight ?? 1) || 1;
  function stroke(ctx, e, tokens, alpha) {
    const share = Math.abs(e.weight) / top(), c = curve(e);
    ctx.globalAlpha = alpha * (0.3 + 0.7 * Math.sqrt(share));
    ctx.strokeStyle = e.weight < 0 ? tokens.neg : tokens.pos;
    ctx.lineWidth = 0.6 + 5.4 * share;
    ctx.setLineDash(e.weight < 0 ? [3 + ctx.lineWidth, 3 + ctx.lineWidth] : []);
    ctx.beginPath();
    ctx.moveTo(c[0], c[1]);
    ctx.bezierCurveTo(...c.slice(2));
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
  }
  const hueOf = (n, tokens) => tokens[["ink", ...lab.HUES][(kinds.indexOf(n.kind ?? "") + (kinds.length > 1 ? 1 : 0)) % 10]];
  function node(ctx, n, tokens, marked) {
    const p = geo.place.get(n.id);
    ctx.globalAlpha = p.live || marked ? 1 : 0.4;
    ctx.fillStyle = marked ? tokens.hover : tokens.card;
    ctx.strokeStyle = marked ? tokens.ink : p.live ? hueOf(n, tokens) : tokens.line;
    ctx.lineWidth = marked ? 1.8 : 1.2;
    ctx.beginPath();
    if (p.pill) ctx.roundRect(p.x - p.w / 2, p.y - PILL / 2, p.w, PILL, PILL / 2);
    else ctx.arc(p.x, p.y, marked ? 5.5 : 4.5, 0, 7);
    ctx.fill();
    ctx.stroke();
    if (p.pill) {
      ctx.font = `11.5px ${tokens.mono}`;
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillStyle = p.live || marked ? tokens.ink : tokens.faint;
      ctx.fillText(n.label || n.id, p.x, p.y + 0.5);
    }
    ctx.globalAlpha = 1;
  }

  function draw() {
    const width = Math.floor(map.clientWidth);
    map.hidden = cut.hidden = hint.hidden = !nodes.length || (model.get("quiet") && !edges.length);
    if (!width || !nodes.length) return;
    geo = measure(base.getContext("2d"), width);
    const ctx = lab.sized(base, width, geo.height), tokens = ui.colours();
    ctx.font = `12px ${tokens.sans}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    ctx.fillStyle = tokens.soft;
    geo.names.forEach((name, i) => ctx.fillText(name, geo.left - 10, geo.top + (geo.layers.length - 1 - i) * geo.row + geo.row / 2));
    ctx.textAlign = "left";
    if (model.get("row_title")) ctx.fillText(model.get("row_title"), 0, 9);
    if (geo.columns.length) {
      ctx.font = `12px ${tokens.mono}`;
      ctx.textAlign = "center";
      ctx.fillStyle = tokens.ink;
      geo.columns.forEach((c, i) => ctx.fillText(lab.fit(ctx, lab.plain(c), geo.step - 4), geo.X(i), geo.height - geo.bottom + 14));
      ctx.font = `12.5px ${tokens.sans}`;
      ctx.textAlign = "left";
      ctx.fillStyle = tokens.soft;
      if (model.get("col_title")) ctx.fillText(model.get("col_title"), geo.left, geo.height - 9);
    }
    const focus = spot();
    const list = drawn().slice().reverse(); // the strongest lie on top
    for (const e of list) stroke(ctx, e, tokens, focus ? 0.28 : 0.85);
    for (const n of nodes) if (geo.place.has(n.id)) node(ctx, n, tokens, false);
    drawOver();
  }

  /** What the eye is on: the hovered thing, else the selected one. */
  const spot = () => hover ?? (model.get("selected").length ? model.get("selected") : null);
  const touches = (e, focus) => (focus.length === 1 ? e.from === focus[0] || e.to === focus[0] : same(key(e), focus));

  function drawOver() {
    if (!geo) return;
    const ctx = lab.sized(over, geo.width, geo.height), tokens = ui.colours(), focus = spot();
    if (focus) {
      const list = (focus.length > 1 ? edges : drawn()).filter((e) => touches(e, focus) && geo.place.has(e.from) && geo.place.has(e.to));
      for (const e of list.slice().reverse()) stroke(ctx, e, tokens, 1);
      const ends = new Set(list.flatMap((e) => [e.from, e.to]));
      if (focus.length === 1) ends.add(focus[0]);
      for (const id of ends) if (geo.place.has(id)) node(ctx, byId.get(id), tokens, focus.length > 1 || id === focus[0]);
    }
    if (cursor && geo.place.has(cursor) && map.matches(":focus-visible")) {
      const p = geo.place.get(cursor);
      ctx.strokeStyle = tokens.interp;
      ctx.lineWidth = 2;
      ctx.beginPath();
      ctx.roundRect(p.x - p.w / 2 - 3, p.y - PILL / 2 - 3, p.w + 6, PILL + 6, PILL / 2 + 3);
      ctx.stroke();
    }
  }

  // ---- what is beside the picture -----------------------------------------------------------------------------------

  function table(list, other) {
    const tokens = ui.colours(), most = Math.max(...list.map((e) => Math.abs(e.weight)));
    return h("table.bars", {}, h("tbody", {}, list.slice(0, MOST).map((e) => h("tr", {},
      h("td", {}, h("button", { type: "button", onclick: () => choose(key(e)), title: "select this edge" }, other(e))),
      h("td.where", {}, h("div.bar", { style: { "--c": e.weight < 0 ? tokens.neg : tokens.pos, width: `${(100 * Math.abs(e.weight)) / most}%` } })),
      h("td.num", {}, signed(e.weight))))));
  }
  const more = (list) => (list.length > MOST ? h("p.soft.more", {}, `and ${(list.length - MOST).toLocaleString("en")} weaker`) : null);

  function describe() {
    const focus = model.get("selected");
    if (focus.length > 1) {
      const e = edges.find((one) => same(key(one), focus));
      aside.replaceChildren(h("h3.mono", {}, e ? edgeName(e) : focus.join(" → ")), ...(e ? [
        h("p", {}, h("b", {}, signed(e.weight)), unit()),
        h("p.soft", {}, `edge ${(edges.indexOf(e) + 1).toLocaleString("en")} of ${edges.length.toLocaleString("en")} by size`),
        h("div.row", {}, [e.from, e.to].map((id) => h("button", { type: "button", onclick: () => choose([id]) }, nameOf(id))))] : [h("p.soft", {}, "no weight")]));
    } else if (focus.length === 1 && byId.has(focus[0])) {
      const n = byId.get(focus[0]), into = edges.filter((e) => e.to === n.id), out = edges.filter((e) => e.from === n.id);
      aside.replaceChildren(h("h3.mono", {}, nameOf(n.id)), ...[n.note ? h("p.soft", {}, n.note) : null,
        ...(into.length ? [h("h4", {}, "reads from"), table(into, (e) => `${nameOf(e.from)}${e.port ? ` to ${e.port}` : ""}`), more(into)] : []),
        ...(out.length ? [h("h4", {}, "writes to"), table(out, (e) => `${nameOf(e.to)}${e.port ? `.${e.port}` : ""}`), more(out)] : [])].filter(Boolean));
    } else if (edges.length) aside.replaceChildren(h("h3", {}, "Strongest edges"), table(edges, edgeName), h("p.soft.more", {}, "Choose a node to see all it reads and writes."));
    else aside.replaceChildren(h("p.soft", {}, "no edges yet"));
  }

  // ---- choosing -------------------------------------------------------------------------------------------------------

  function choose(what) { lab.save(model, "selected", what); }
  function hit(event) {
    if (!geo) return null;
    const area = base.getBoundingClientRect(), mx = event.clientX - area.left, my = event.clientY - area.top;
    for (const [id, p] of geo.place) if (Math.abs(mx - p.x) <= p.w / 2 + 2 && Math.abs(my - p.y) <= PILL / 2 + 1) return [id];
    let best = null, near = 6;
    for (const e of drawn()) {
      const c = curve(e);
      if (my > c[1] + 6 || my < c[7] - 6 || mx < Math.min(c[0], c[6]) - 6 || mx > Math.max(c[0], c[6]) + 6) continue;
      for (let i = 0; i <= 24; i++) {
        const [x, y] = at(c, i / 24), d = Math.hypot(x - mx, y - my);
        if (d < near) { near = d; best = key(e); }
      }
    }
    return best;
  }
  function tell(what) {
    if (what.length === 1) {
      const n = byId.get(what[0]), total = edges.filter((e) => e.from === n.id || e.to === n.id).length;
      return [h("b.mono", {}, nameOf(n.id)), n.note ? h("div.soft", {}, n.note) : null, h("div.soft", {}, `${total.toLocaleString("en")} edges`)].filter(Boolean);
    }
    const e = edges.find((one) => same(key(one), what));
    return [h("div.mono", {}, edgeName(e)), h("div", {}, h("b", {}, signed(e.weight)), unit())];
  }
  map.addEventListener("pointermove", (event) => {
    const what = hit(event), changed = JSON.stringify(what) !== JSON.stringify(hover);
    hover = what;
    map.style.cursor = what ? "pointer" : "default";
    if (what) tip.show(event.clientX, event.clientY, tell(what)); else tip.hide();
    if (changed) ui.repaint();
  });
  map.addEventListener("pointerleave", () => { tip.hide(); if (hover) { hover = null; ui.repaint(); } });
  map.addEventListener("click", (event) => { const what = hit(event); choose(what && !same(what, model.get("selected")) ? what : []); });

  function move(dx, dy) {
    const living = nodes.filter((n) => geo.place.get(n.id)?.live);
    if (!living.length) return;
    if (!cursor || !geo.place.get(cursor)?.live) { cursor = (living.find((n) => n.id === model.get("selected")[0]) ?? living[0]).id; return; }
    const here = geo.place.get(cursor), from = byId.get(cursor);
    const far = (n) => { const p = geo.place.get(n.id); return dx ? dx * (p.x - here.x) : 10 * Math.abs(p.y - here.y) + Math.abs(p.x - here.x); };
    const open = living.filter((n) => n.id !== cursor && (dx ? n.layer === from.layer && far(n) > 0 : dy * (n.layer - from.layer) > 0));
    if (open.length) cursor = open.reduce((a, b) => (far(b) < far(a) ? b : a)).id;
  }
  const MOVES = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  map.addEventListener("keydown", (event) => {
    if (!geo) return;
    const n = drawn().length;
    if (MOVES[event.key]) { move(...MOVES[event.key]); if (cursor) live.textContent = nameOf(cursor); }
    else if ((event.key === "Enter" || event.key === " ") && cursor) choose(same([cursor], model.get("selected")) ? [] : [cursor]);
    else if (event.key === "Escape") choose([]);
    else if (event.key === "+" || event.key === "=") show(Math.max(n + 1, Math.round(n * 1.25)));
    else if (event.key === "-" || event.key === "−") show(Math.min(n - 1, Math.round(n / 1.25)));
    else return;
    event.preventDefault();
    event.stopPropagation();
    drawOver();
  });
  map.addEventListener("focus", drawOver);
  map.addEventListener("blur", drawOver);

  // ---- traits -----------------------------------------------------------------------------------------------------------

  ui.watch(model, ["nodes", "edges", "title", "unit", "row_title", "row_labels", "col_title", "col_labels", "quiet", "signs"], () => {
    nodes = model.get("nodes");
    byId = new Map(nodes.map((n) => [n.id, n]));
    edges = model.get("edges").filter((e) => e.weight && byId.has(e.from) && byId.has(e.to)).sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
    portsOf = ports();
    kinds = [...new Set(nodes.map((n) => n.kind ?? ""))];
    hover = null;
    title.textContent = model.get("title");
    const [up, down] = model.get("signs");
    keys.replaceChildren(h("span", {}, h("i"), up), h("span", {}, h("i.less"), down));
    map.setAttribute("aria-label", `${model.get("title") || "Graph"}: ${nodes.length} nodes, ${edges.length} edges. Arrow keys move between nodes, enter selects.`);
    tellCut();
    describe();
    ui.repaint();
  });
  ui.watch(model, ["shown"], () => { tellCut(); ui.repaint(); });
  ui.watch(model, ["selected"], () => { describe(); ui.repaint(); });
  ui.onPaint(draw);
  ui.onPaint(describe);
  return ui.dispose;
}

export default { render };
