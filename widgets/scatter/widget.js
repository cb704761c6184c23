const MOVE_MS = 450;

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "scatter", signal);
  const base = h("canvas"), over = h("canvas");
  const map = h("div.map", { tabindex: "0", role: "application", "aria-roledescription": "scatter plot" }, base, over);
  const title = h("h3"), legend = h("div.legend"), state = h("b"), live = h("span.sr", { "aria-live": "polite" });
  const hint = h("span", {}, "drag to choose, shift adds, arrow keys and space, esc clears");
  ui.root.append(h("div.panel", {}, h("div.head", {}, title, legend), map, h("div.foot", {}, state, hint), live));
  const tip = lab.tooltip(ui);

  let x = new Float32Array(0), y = x, colour = x, n = 0;
  let shown = new Float32Array(0), from = null, began = 0; // where points are drawn while they move
  let geo = null, range = [-1, 1], rise = [0, 1], order = [], at = -1, drag = null, over1 = -1;
  let chosen = new Set();
  const measured = (i) => !Number.isNaN(x[i]);
  const target = (i) => (measured(i) ? x[i] : y[i]);

  function bounds() {
    let lo = 0, hi = 0;
    for (let i = 0; i < n; i++) for (const v of [y[i], target(i)]) { if (v < lo) lo = v; if (v > hi) hi = v; }
    const pad = 0.05 * (hi - lo || 1);
    range = [lo - pad, hi + pad];
    rise = [Infinity, -Infinity];
    for (const c of colour) { if (c < rise[0]) rise[0] = c; if (c > rise[1]) rise[1] = c; }
    order = Array.from({ length: n }, (_, i) => i).sort((a, b) => y[a] - y[b]);
  }

  function correlation() {
    let m = 0, sx = 0, sy = 0, xx = 0, yy = 0, xy = 0;
    for (let i = 0; i < n; i++) if (measured(i)) { m++; sx += x[i]; sy += y[i]; }
    const ax = sx / m, ay = sy / m;
    for (let i = 0; i < n; i++) if (measured(i)) { xx += (x[i] - ax) ** 2; yy += (y[i] - ay) ** 2; xy += (x[i] - ax) * (y[i] - ay); }
    return [m, m > 2 && xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : NaN];
  }

  const hue = (tokens, c) => lab.mix(tokens.train, tokens.inference, rise[1] > rise[0] ? (c - rise[0]) / (rise[1] - rise[0]) : 1);
  const px = (v) => geo.left + ((v - range[0]) / (range[1] - range[0])) * geo.w;
  const py = (v) => geo.top + (1 - (v - range[0]) / (range[1] - range[0])) * geo.t;

  function draw() {
    const width = Math.floor(map.clientWidth);
    if (!width) return;
    const tokens = ui.colours(), left = 58, bottom = 44, top = 8, right = 10;
    const side = Math.min(440, Math.max(180, width - left - right));
    geo = { left, top, w: width - left - right, t: side, width, height: top + side + bottom };
    const ctx = lab.sized(base, width, geo.height);
    axes(ctx, tokens);
    if (from) {
      const s = Math.min(1, (performance.now() - began) / MOVE_MS), ease = s * s * (3 - 2 * s);
      // a point without a place yet (its y came after its label) is put where it belongs
      for (let i = 0; i < n; i++) shown[i] = Number.isNaN(from[i]) ? target(i) : from[i] + (target(i) - from[i]) * ease;
      if (s < 1) requestAnimationFrame(() => !ui.signal.aborted && draw());
      else from = null;
    }
    const r = n > 3000 ? 2 : n > 500 ? 3 : 4, shades = new Map();
    ctx.lineWidth = 1.2;
    for (let i = 0; i < n; i++) {
      const key = Math.round(colour[i] * 64);
      if (!shades.has(key)) shades.set(key, hue(tokens, colour[i]));
      ctx.beginPath();
      ctx.arc(px(shown[i]), py(y[i]), r, 0, 7);
      ctx.globalAlpha = measured(i) ? 0.8 : 0.55;
      if (measured(i)) { ctx.fillStyle = shades.get(key); ctx.fill(); } else { ctx.strokeStyle = shades.get(key); ctx.stroke(); }
    }
    ctx.globalAlpha = 1;
    drawLegend(tokens);
    drawOver();
  }

  function axes(ctx, tokens) {
    ctx.font = `12px ${tokens.sans}`;
    ctx.lineWidth = 1;
    const ticks = lab.ticks(range[0], range[1], 6), bottom = geo.top + geo.t, right = geo.left + geo.w;
    for (const v of ticks) {
      ctx.strokeStyle = v === 0 ? tokens.faint : tokens.line;
      ctx.beginPath();
      ctx.moveTo(Math.round(px(v)) + 0.5, geo.top); ctx.lineTo(Math.round(px(v)) + 0.5, bottom);
      ctx.moveTo(geo.left, Math.round(py(v)) + 0.5); ctx.lineTo(right, Math.round(py(v)) + 0.5);
      ctx.stroke();
      ctx.fillStyle = tokens.soft;
      ctx.textBaseline = "top"; ctx.textAlign = "center"; ctx.fillText(num(v), px(v), bottom + 6);
      ctx.textBaseline = "middle"; ctx.textAlign = "right"; ctx.fillText(num(v), geo.left - 7, py(v));
    }
    ctx.strokeStyle = tokens.faint;
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(px(range[0]), py(range[0])); ctx.lineTo(px(range[1]), py(range[1]));
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `12.5px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    ctx.textBaseline = "bottom"; ctx.textAlign = "right";
    ctx.fillText(lab.fit(ctx, model.get("x_title"), geo.w), right, geo.height);
    ctx.save();
    ctx.translate(11, geo.top);
    ctx.rotate(-Math.PI / 2);
    ctx.textBaseline = "middle";
    ctx.fillText(lab.fit(ctx, model.get("y_title"), geo.t), 0, 0);
    ctx.restore();
  }

  function drawLegend(tokens) {
    const name = model.get("colour_title");
    legend.hidden = !name || rise[0] === rise[1];
    if (legend.hidden) return;
    const strip = h("canvas", { "aria-hidden": "true" }), ctx = lab.sized(strip, 90, 9);
    for (let i = 0; i < 90; i++) { ctx.fillStyle = lab.mix(tokens.train, tokens.inference, i / 89); ctx.fillRect(i, 0, 1, 9); }
    legend.replaceChildren(h("span", {}, `${name} ${num(rise[0])}`), strip, h("span", {}, num(rise[1])));
  }

  function drawOver() {
    if (!geo) return;
    const ctx = lab.sized(over, geo.width, geo.height), tokens = ui.colours();
    ctx.strokeStyle = tokens.ink;
    ctx.lineWidth = 1.6;
    for (const i of chosen) { ctx.beginPath(); ctx.arc(px(shown[i]), py(y[i]), 6, 0, 7); ctx.stroke(); }
    if (drag) {
      ctx.strokeStyle = tokens.soft;
      ctx.setLineDash([3, 3]);
      ctx.lineWidth = 1;
      ctx.strokeRect(Math.min(drag.a[0], drag.b[0]), Math.min(drag.a[1], drag.b[1]), Math.abs(drag.a[0] - drag.b[0]), Math.abs(drag.a[1] - drag.b[1]));
      ctx.setLineDash([]);
    }
    const i = over1 >= 0 ? over1 : map.matches(":focus-visible") ? at : -1;
    if (i >= 0 && i < n) {
      ctx.strokeStyle = tokens.interp;
      ctx.lineWidth = 2.2;
      ctx.beginPath(); ctx.arc(px(shown[i]), py(y[i]), 8, 0, 7); ctx.stroke();
    }
  }

  function describe() {
    const [m, r] = correlation();
    title.textContent = `${model.get("title")}${Number.isNaN(r) ? "" : `  r = ${r.toFixed(3)}`}`;
    state.textContent = `${m} of ${n} measured${chosen.size ? `, ${chosen.size} chosen` : ""}`;
    map.setAttribute("aria-label", `${title.textContent}: ${model.get("y_title")} against ${model.get("x_title")}, ${state.textContent}. Arrow keys walk from point to point, space chooses.`);
  }
  const exact = (i) => (measured(i) ? num(x[i]) : "not measured yet");
  const about = (i) => [h("b", {}, model.get("labels")[i]), h("table", {}, h("tbody", {},
    h("tr", {}, h("td", {}, model.get("x_title")), h("td.num", {}, exact(i))), h("tr", {}, h("td", {}, model.get("y_title")), h("td.num", {}, num(y[i])))))];

  // ---- choosing --------------------------------------------------------------------------------------------------

  function choose(list) { chosen = new Set(list); lab.save(model, "selected", [...chosen]); describe(); drawOver(); }
  const where = (event) => { const box = base.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  function nearest([a, b]) {
    let best = -1, least = 12 ** 2;
    for (let i = 0; i < n; i++) { const d = (px(shown[i]) - a) ** 2 + (py(y[i]) - b) ** 2; if (d < least) { least = d; best = i; } }
    return best;
  }

  map.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !geo) return;
    drag = { a: where(event), b: where(event), add: event.shiftKey || event.ctrlKey || event.metaKey };
    map.setPointerCapture(event.pointerId);
    tip.hide();
  });
  map.addEventListener("pointermove", (event) => {
    if (!geo) return;
    if (drag) { drag.b = where(event); over1 = -1; drawOver(); return; }
    const i = nearest(where(event));
    if (i >= 0) tip.show(event.clientX, event.clientY, about(i)); else tip.hide();
    if (i !== over1) { over1 = i; drawOver(); }
  });
  map.addEventListener("pointerup", () => {
    if (!drag) return;
    const { a, b, add } = drag, x0 = Math.min(a[0], b[0]), x1 = Math.max(a[0], b[0]), y0 = Math.min(a[1], b[1]), y1 = Math.max(a[1], b[1]);
    drag = null;
    const old = add ? [...chosen] : [];
    if (x1 - x0 < 4 && y1 - y0 < 4) {
      const i = nearest(a);
      if (i < 0) choose(old);
      else choose(chosen.has(i) && (add || chosen.size === 1) ? [...chosen].filter((k) => k !== i) : [...old, i]);
      return;
    }
    const inside = [];
    for (let i = 0; i < n; i++) { const cx = px(shown[i]), cy = py(y[i]); if (cx >= x0 && cx <= x1 && cy >= y0 && cy <= y1) inside.push(i); }
    choose([...old, ...inside]);
  });
  map.addEventListener("pointercancel", () => { drag = null; drawOver(); });
  map.addEventListener("pointerleave", () => { over1 = -1; tip.hide(); drawOver(); });
  map.addEventListener("keydown", (event) => {
    if (!n) return;
    const rank = at < 0 ? -1 : order.indexOf(at);
    const next = { ArrowRight: rank + 1, ArrowUp: rank + 1, ArrowLeft: rank - 1, ArrowDown: rank - 1, Home: 0, End: n - 1 }[event.key];
    if (next !== undefined) {
      at = order[Math.max(0, Math.min(n - 1, next))];
      live.textContent = `${model.get("labels")[at]}: ${model.get("x_title")} ${exact(at)}, ${model.get("y_title")} ${num(y[at])}`;
    } else if (event.key === " " || event.key === "Enter") {
      if (at >= 0) choose(chosen.has(at) ? [...chosen].filter((k) => k !== at) : [...(event.key === " " ? chosen : []), at]);
    } else if (event.key === "Escape") choose([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
    drawOver();
  });
  map.addEventListener("focus", drawOver);
  map.addEventListener("blur", drawOver);

  ui.watch(model, ["x", "y", "colour", "labels", "title", "x_title", "y_title", "colour_title"], () => {
    const same = model.get("labels").length === n;
    [x, y, colour] = ["x", "y", "colour"].map((key) => lab.array(Float32Array, model.get(key)));
    n = model.get("labels").length;
    const still = !same || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still) { shown = Float32Array.from({ length: n }, (_, i) => target(i)); from = null; } else { from = shown.slice(); began = performance.now(); }
    bounds();
    describe();
    ui.repaint();
  });
  ui.watch(model, ["selected"], () => { chosen = new Set(model.get("selected").filter((i) => i < n)); describe(); drawOver(); });
  ui.onPaint(draw);
  return ui.dispose;
}

export default { render };
