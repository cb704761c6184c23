const ROW = 23, LABEL = 12.5, LEAST = 58, MOST_WIDE = 132; // px
const FULL = 0.62; // how far towards the hue a full value goes: ink stays readable on it
const NONE = 0xffffffff;

function render({ model, el, signal }) {
  const { h, num, plain } = lab;
  const ui = lab.mount(el, "textgrid", signal);
  const title = h("h3"), views = h("span.choice", { role: "group", "aria-label": "Lens" }), shades = h("span.choice", { role: "group", "aria-label": "Shading" });
  const legend = h("div.legend"), canvas = h("canvas"), width = h("div"), foot = h("p.foot", { "aria-live": "polite" });
  const scroll = h("div.scroll", { tabindex: "0", role: "application", "aria-roledescription": "grid of words" }, width);
  width.append(canvas);
  ui.root.append(h("div.panel", {}, h("div.head", {}, title, h("div.tools", {}, views, shades, legend)), scroll, foot));
  const tip = lab.tooltip(ui);

  let rows = 0, cols = 0, k = 0, words, probs, values, texts, geo = null, hover = null;
  const at = (r, c) => (model.get("view") * rows + r) * cols + c;
  const word = (r, c, i) => model.get("table")[words[at(r, c) * k + i]];
  const value = (r, c, shade = model.get("shade")) => values[((model.get("view") * model.get("shades").length + shade) * rows + r) * cols + c];

  function full() {
    const shade = model.get("shades")[model.get("shade")];
    if (shade.vmax) return shade.vmax;
    let most = 0;
    for (let v = 0; v < model.get("views").length; v++) { // one scale for every view, so that they compare
      const start = (v * model.get("shades").length + model.get("shade")) * rows * cols;
      for (let i = start; i < start + rows * cols; i++) if (values[i] > most) most = values[i];
    }
    return most || 1;
  }

  function draw() {
    const wide = Math.floor(scroll.clientWidth);
    if (!wide || !rows) return;
    const tokens = ui.colours(), probe = canvas.getContext("2d");
    probe.font = `12px ${tokens.sans}`;
    const left = Math.ceil(Math.max(...model.get("row_labels").map((l) => probe.measureText(l).width))) + 10;
    const w = Math.max(LEAST, Math.min(MOST_WIDE, (wide - left - 2) / cols)), top = 20, bottom = 44, height = top + rows * ROW + bottom;
    width.style.width = `${Math.max(wide, left + cols * w + 2)}px`;
    geo = { left, w, top, wide, height };
    const ctx = lab.sized(canvas, wide, height), shift = scroll.scrollLeft, most = full();
    const first = Math.max(0, Math.floor(shift / w)), last = Math.min(cols - 1, Math.ceil((shift + wide - left) / w));
    const chosen = model.get("selected");
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, wide - left, height);
    ctx.clip();
    ctx.textBaseline = "middle";
    for (let c = first; c <= last; c++) {
      const x = left + c * w - shift;
      for (let r = 0; r < rows; r++) {
        const y = top + (rows - 1 - r) * ROW, v = value(r, c);
        ctx.fillStyle = Number.isNaN(v) ? tokens.card : lab.mix(tokens.card, tokens.interp, FULL * Math.min(1, Math.max(0, v / most)));
        ctx.beginPath();
        ctx.roundRect(x + 1, y + 1, w - 2, ROW - 2, 3);
        ctx.fill();
        ctx.strokeStyle = tokens.line;
        ctx.lineWidth = 0.6;
        ctx.stroke();
        ctx.font = `12.5px ${tokens.mono}`;
        ctx.fillStyle = tokens.ink;
        ctx.textAlign = "left";
        ctx.fillText(lab.fit(ctx, plain(word(r, c, 0)), w - 12), x + 6, y + ROW / 2 + 0.5);
        const marked = hover && hover[0] === r && hover[1] === c, kept = chosen[0] === r && chosen[1] === c;
        if (marked || kept) {
          ctx.strokeStyle = tokens.ink;
          ctx.lineWidth = kept ? 2 : 1;
          ctx.stroke();
        }
      }
      ctx.font = `${LABEL}px ${tokens.mono}`;
      ctx.fillStyle = tokens.ink;
      ctx.textAlign = "left";
      ctx.fillText(lab.fit(ctx, plain(model.get("col_labels")[c]), w - 8), x + 6, top + rows * ROW + 12);
    }
    ctx.restore();
    ctx.font = `12px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    for (let r = 0; r < rows; r++) ctx.fillText(model.get("row_labels")[r], left - 7, top + (rows - 1 - r) * ROW + ROW / 2);
    ctx.textAlign = "left";
    ctx.fillText(model.get("row_title"), 0, 8);
    ctx.fillText(lab.fit(ctx, model.get("col_title"), wide - left), left + 6, height - 10);
    drawLegend(tokens, most);
  }

  function drawLegend(tokens, most) {
    const strip = h("canvas", { "aria-hidden": "true" }), ctx = lab.sized(strip, 90, 9), shade = model.get("shades")[model.get("shade")];
    for (let x = 0; x < 90; x++) { ctx.fillStyle = lab.mix(tokens.card, tokens.interp, (FULL * x) / 89); ctx.fillRect(x, 0, 1, 9); }
    legend.replaceChildren("0", strip, `${num(most)}${shade.unit ? ` ${shade.unit}` : ""}`);
  }

  function buttons() {
    const make = (box, key, names) => box.replaceChildren(...names.map((name, i) => h("button", {
      type: "button", "aria-pressed": String(i === model.get(key)), onclick: () => lab.save(model, key, i) }, name)));
    make(views, "view", model.get("views"));
    make(shades, "shade", model.get("shades").map((shade) => shade.title));
    views.hidden = model.get("views").length < 2;
    shades.hidden = model.get("shades").length < 2;
  }

  function about([r, c]) {
    const out = [h("div.soft", {}, `${model.get("row_title")} ${model.get("row_labels")[r]}, “${plain(model.get("col_labels")[c])}” (${c})`)];
    out.push(lab.barRows(Array.from({ length: k }, (_, i) => [word(r, c, i), probs[at(r, c) * k + i]]), "var(--interp)", 1));
    model.get("shades").forEach((shade, i) => {
      const v = value(r, c, i);
      if (!Number.isNaN(v)) out.push(h("div.soft", {}, `${shade.title} `, h("b", {}, num(v)), shade.unit ? ` ${shade.unit}` : ""));
    });
    const text = texts[at(r, c)];
    if (text !== NONE) out.push(h("div.said", {}, model.get("table")[text]));
    return out;
  }

  function told([r, c]) {
    return `${model.get("row_title")} ${model.get("row_labels")[r]}, “${plain(model.get("col_labels")[c])}” (${c}): ${Array.from({ length: k }, (_, i) => `“${plain(word(r, c, i))}” ${num(probs[at(r, c) * k + i], 2)}`).join(", ")}`;
  }

  function hit(event) {
    if (!geo) return null;
    const area = canvas.getBoundingClientRect(), x = event.clientX - area.left;
    const c = Math.floor((x - geo.left + scroll.scrollLeft) / geo.w), r = rows - 1 - Math.floor((event.clientY - area.top - geo.top) / ROW);
    return x > geo.left && r >= 0 && r < rows && c >= 0 && c < cols ? [r, c] : null;
  }

  scroll.addEventListener("pointermove", (event) => {
    const cell = hit(event), same = cell && hover && cell[0] === hover[0] && cell[1] === hover[1];
    hover = cell;
    scroll.style.cursor = cell ? "pointer" : "default";
    if (cell) tip.show(event.clientX, event.clientY, about(cell)); else tip.hide();
    if (!same) ui.repaint();
  });
  scroll.addEventListener("pointerleave", () => { hover = null; tip.hide(); ui.repaint(); });
  scroll.addEventListener("click", (event) => {
    const cell = hit(event), now = model.get("selected");
    if (cell) lab.save(model, "selected", cell[0] === now[0] && cell[1] === now[1] ? [] : cell);
  });
  scroll.addEventListener("scroll", () => { tip.hide(); ui.repaint(); });
  scroll.addEventListener("keydown", (event) => {
    const now = model.get("selected"), [r, c] = now.length ? now : [rows - 1, 0];
    const next = { ArrowUp: [r + 1, c], ArrowDown: [r - 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1], Home: [r, 0], End: [r, cols - 1] }[event.key];
    if (next) {
      const to = [Math.max(0, Math.min(rows - 1, next[0])), Math.max(0, Math.min(cols - 1, next[1]))];
      lab.save(model, "selected", to);
      const x = to[1] * geo.w, room = geo.wide - geo.left - geo.w;
      if (x < scroll.scrollLeft) scroll.scrollLeft = x;
      else if (x > scroll.scrollLeft + room) scroll.scrollLeft = x - room;
    } else if (event.key === "Escape") lab.save(model, "selected", []);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  ui.watch(model, ["table", "words", "probs", "values", "texts", "shape", "views", "shades", "row_labels", "col_labels", "title"], () => {
    [rows, cols, k] = model.get("shape");
    words = lab.array(Uint32Array, model.get("words"));
    probs = lab.array(Float32Array, model.get("probs"));
    values = lab.array(Float32Array, model.get("values"));
    texts = lab.array(Uint32Array, model.get("texts"));
    hover = null;
    tip.hide();
    title.textContent = model.get("title");
    scroll.setAttribute("aria-label", `${model.get("title") || "Grid"}: ${rows} rows, ${cols} columns. Arrow keys choose a cell.`);
    buttons();
    ui.repaint();
  });
  ui.watch(model, ["view", "shade", "selected"], () => {
    buttons();
    const now = model.get("selected");
    foot.textContent = now.length && now[0] < rows && now[1] < cols ? told(now) : "Hover a cell for its likeliest tokens; click to keep it.";
    ui.repaint();
  });
  ui.onPaint(draw);
  return ui.dispose;
}

export default { render };
