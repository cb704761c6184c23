const HEIGHT = 172, LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 34; // px around the plot area

/** Splits the byte rows into one sorted table a series; a row that repeats an x overwrites what it names. */
function split(blocks, count, panels) {
  const out = Array.from({ length: count }, () => ({ x: [], y: Array.from({ length: panels }, () => []) }));
  const width = 2 + panels;
  for (const block of blocks) for (let i = 0; i + width <= block.length; i += width) {
    const one = out[block[i]], x = block[i + 1];
    if (!one || Number.isNaN(x)) continue;
    let at = one.x.length;
    if (at && x <= one.x[at - 1]) {
      at = lowerBound(one.x, x);
      if (one.x[at] === x) {
        for (let p = 0; p < panels; p++) if (!Number.isNaN(block[i + 2 + p])) one.y[p][at] = block[i + 2 + p];
        continue;
      }
      one.x.splice(at, 0, x);
      for (let p = 0; p < panels; p++) one.y[p].splice(at, 0, block[i + 2 + p]);
    } else {
      one.x.push(x);
      for (let p = 0; p < panels; p++) one.y[p].push(block[i + 2 + p]);
    }
  }
  return out;
}

function lowerBound(list, x) {
  let lo = 0, hi = list.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid] < x) lo = mid + 1; else hi = mid; }
  return lo;
}

/** Exponential moving average, corrected for its start; gaps stay gaps. */
function smooth(ys, weight) {
  if (!weight) return ys;
  let sum = 0, norm = 0;
  return ys.map((y) => {
    if (!Number.isFinite(y)) return y;
    sum = weight * sum + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "curves", signal);
  const legend = h("div.legend", { role: "group", "aria-label": "Runs" });
  const where = h("span.at", { "aria-live": "polite" });
  const slider = h("input", { type: "range", min: "0", max: "0.99", step: "0.01", "aria-label": "Smoothing" });
  const amount = h("output");
  const wide = h("button", { type: "button", hidden: true, onclick: () => zoom(null) }, "Whole range");
  const file = h("button", { type: "button", onclick: save }, "CSV");
  const charts = h("div.charts");
  ui.root.append(h("div.tools", {}, legend, where, wide, h("label", {}, "smoothing", slider, amount), file), charts);

  let panels = [], series = [], tables = [], hidden = new Set(), logged = new Set(), weight = 0;
  let range = null; // [x, x] zoomed to, or null for everything
  let hover = null; // x under the pointer
  let drag = null; // {panel, from, to} in css pixels
  const memo = new Map(); // "series,panel" -> smoothed values
  const hue = (s) => ui.colours()[lab.HUES[s % lab.HUES.length]];
  const shownX = () => hover ?? model.get("cursor");

  // ---- parts -----------------------------------------------------------------------------------------------------

  function build() {
    charts.replaceChildren(...panels.map((panel, p) => {
      const canvas = h("canvas"), over = h("canvas");
      const plot = h("div.plot", { tabindex: "0", role: "img" }, canvas, over);
      const toggle = h("button", { type: "button", onclick: () => {
        const now = new Set(logged);
        if (!now.delete(panel.key)) now.add(panel.key);
        lab.save(model, "log", [...now]);
      } }, "log");
      const read = h("div.read");
      Object.assign(panel, { canvas, over, plot, toggle, read, scale: null });
      bind(plot, p);
      return h("section.panel.chart", {}, h("header", {}, h("b", {}, panel.title ?? panel.key), panel.unit ? h("i", {}, panel.unit) : null, toggle), read, plot);
    }));
  }

  function drawLegend() {
    legend.replaceChildren(...series.map((one, s) => h("button", {
      type: "button", "aria-pressed": String(!hidden.has(one.id)), title: `Show or hide ${one.label ?? one.id}`,
      onclick: () => {
        const now = new Set(hidden);
        if (!now.delete(one.id)) now.add(one.id);
        lab.save(model, "hidden", [...now]);
      } }, lab.swatch(s, hue(s)), h("span", {}, one.label ?? one.id))));
    legend.hidden = series.length < 2;
  }

  // ---- drawing ---------------------------------------------------------------------------------------------------

  const visible = () => series.map((_, s) => s).filter((s) => !hidden.has(series[s].id) && tables[s]);

  function extent() {
    if (range) return range;
    let lo = Infinity, hi = -Infinity;
    for (const s of visible()) { const x = tables[s].x; if (x.length) { lo = Math.min(lo, x[0]); hi = Math.max(hi, x[x.length - 1]); } }
    if (lo > hi) return [0, 1];
    return lo === hi ? [lo - 0.5, hi + 0.5] : [lo, hi];
  }

  function smoothed(s, p) {
    const id = `${s},${p}`;
    if (!memo.has(id)) memo.set(id, smooth(tables[s].y[p], weight));
    return memo.get(id);
  }

  function scaleOf(p, width) {
    const panel = panels[p], log = logged.has(panel.key), [x0, x1] = extent();
    let lo = Infinity, hi = -Infinity;
    for (const s of visible()) {
      const { x, y } = tables[s];
      for (let i = lowerBound(x, x0); i < x.length && x[i] <= x1; i++) {
        const v = y[p][i];
        if (Number.isFinite(v) && (!log || v > 0)) { if (v < lo) lo = v; if (v > hi) hi = v; }
      }
    }
    const empty = lo > hi;
    if (empty) [lo, hi] = log ? [0.1, 10] : [0, 1];
    if (log) { if (hi / lo < 1.5) { lo /= 1.3; hi *= 1.3; } const pad = (hi / lo) ** 0.05; lo /= pad; hi *= pad; }
    else {
      if (panel.zero) lo = Math.min(0, lo);
      if (hi - lo < 1e-9 * Math.max(Math.abs(hi), 1e-30)) { const d = Math.abs(hi) * 0.1 || 1; if (!panel.zero) lo -= d; hi += d; }
      const pad = (hi - lo) * 0.06;
      hi += pad;
      if (!panel.zero || lo < 0) lo -= pad;
    }
    const f = log ? Math.log : (v) => v, a = f(lo), b = f(hi), inner = width - LEFT - RIGHT, tall = HEIGHT - TOP - BOTTOM;
    return {
      lo, hi, log, x0, x1, width, empty,
      X: (x) => LEFT + ((x - x0) / (x1 - x0)) * inner,
      Y: (y) => TOP + tall - ((f(y) - a) / (b - a)) * tall,
      back: (px) => x0 + ((px - LEFT) / inner) * (x1 - x0),
    };
  }

  function line(ctx, scale, x, y, colour, alpha, thick) {
    const first = Math.max(0, lowerBound(x, scale.x0) - 1), last = Math.min(x.length, lowerBound(x, scale.x1) + 2);
    ctx.strokeStyle = colour;
    ctx.globalAlpha = alpha;
    ctx.lineWidth = thick;
    ctx.beginPath();
    // past a few points a pixel, each pixel column is drawn from its lowest to its highest value
    const dense = last - first > 3 * scale.width;
    ctx.lineJoin = dense ? "bevel" : "round";
    let pen = false, column = null, lo = 0, hi = 0;
    const flush = () => { if (column !== null) { ctx.lineTo(column, lo); ctx.lineTo(column, hi); } };
    for (let i = first; i < last; i++) {
      const v = y[i];
      if (!Number.isFinite(v) || (scale.log && v <= 0)) continue;
      const px = scale.X(x[i]), py = scale.Y(v);
      if (!pen) { ctx.moveTo(px, py); pen = true; }
      if (!dense) { ctx.lineTo(px, py); continue; }
      const c = Math.round(px);
      if (c !== column) { flush(); column = c; lo = hi = py; } else { if (py < lo) lo = py; if (py > hi) hi = py; }
    }
    flush();
    ctx.stroke();
    ctx.globalAlpha = 1;
  }

  function draw(p) {
    const panel = panels[p], width = Math.floor(panel.plot.clientWidth);
    if (!width) return;
    const ctx = lab.sized(panel.canvas, width, HEIGHT), tokens = ui.colours(), scale = (panel.scale = scaleOf(p, width));
    const floor = HEIGHT - BOTTOM;
    ctx.font = `11.5px ${tokens.sans}`;
    ctx.textBaseline = "middle";
    ctx.lineWidth = 1;
    ctx.strokeStyle = tokens.line;
    ctx.fillStyle = tokens.soft;
    ctx.textAlign = "right";
    for (const v of scale.log ? lab.logTicks(scale.lo, scale.hi, 4) : lab.ticks(scale.lo, scale.hi, 4)) {
      const y = Math.round(scale.Y(v)) + 0.5;
      ctx.beginPath(); ctx.moveTo(LEFT, y); ctx.lineTo(width - RIGHT, y); ctx.stroke();
      ctx.fillText(num(v), LEFT - 7, y);
    }
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    for (const v of lab.ticks(scale.x0, scale.x1, Math.max(2, width / 90))) {
      const x = scale.X(v);
      ctx.fillText(num(v, 4), Math.min(width - RIGHT - ctx.measureText(num(v, 4)).width / 2 + 8, x), floor + 5);
    }
    ctx.textAlign = "right";
    ctx.fillText(model.get("x_title"), width - RIGHT, HEIGHT - 14);
    ctx.strokeStyle = tokens.faint;
    ctx.beginPath(); ctx.moveTo(LEFT, floor + 0.5); ctx.lineTo(width - RIGHT, floor + 0.5); ctx.stroke();
    if (scale.empty) {
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillStyle = tokens.faint;
      ctx.fillText(scale.log ? "nothing above zero yet" : "no rows yet", (LEFT + width - RIGHT) / 2, (TOP + floor) / 2);
    }
    ctx.save();
    ctx.beginPath(); ctx.rect(LEFT, 0, width - LEFT - RIGHT + 4, floor + 1); ctx.clip();
    for (const s of visible()) {
      const { x, y } = tables[s];
      if (weight) line(ctx, scale, x, y[p], hue(s), 0.22, 1);
      line(ctx, scale, x, smoothed(s, p), hue(s), 1, 1.6);
    }
    ctx.restore();
    for (const s of visible()) { // the end of each line carries its marker
      const { x } = tables[s], y = smoothed(s, p);
      let i = Math.min(x.length, lowerBound(x, scale.x1 + 1e-12)) - 1;
      if (x[i + 1] === scale.x1) i++;
      while (i >= 0 && !Number.isFinite(y[i])) i--;
      if (i >= 0 && x[i] >= scale.x0 && (!scale.log || y[i] > 0)) lab.marker(ctx, s, scale.X(x[i]), scale.Y(y[i]), 3.4, hue(s));
    }
    panel.toggle.setAttribute("aria-pressed", String(scale.log));
    panel.plot.setAttribute("aria-label", `${panel.title ?? panel.key}${panel.unit ? ` in ${panel.unit}` : ""} against ${model.get("x_title")}. Arrow keys move the cursor.`);
  }

  /** The point of series s with a value in panel p nearest to x (the last one when x is null): index or -1. */
  function nearest(s, p, x) {
    const xs = tables[s].x, ys = tables[s].y[p], ok = (i) => i >= 0 && i < xs.length && Number.isFinite(ys[i]);
    let right = x === null ? xs.length : lowerBound(xs, x), left = right - 1;
    while (right < xs.length && !ok(right)) right++;
    while (left >= 0 && !ok(left)) left--;
    if (!ok(right)) return ok(left) ? left : -1;
    if (!ok(left)) return right;
    return x - xs[left] <= xs[right] - x ? left : right;
  }

  function drawOver() {
    const at = shownX(), tokens = ui.colours();
    where.textContent = at === null ? "" : `${model.get("x_title")} ${num(at, 6)}`;
    panels.forEach((panel, p) => {
      const scale = panel.scale;
      if (!scale) return;
      const ctx = lab.sized(panel.over, scale.width, HEIGHT), floor = HEIGHT - BOTTOM;
      if (drag && Math.abs(drag.to - drag.from) > 4) {
        ctx.fillStyle = tokens.ink;
        ctx.globalAlpha = 0.08;
        ctx.fillRect(scale.X(Math.min(drag.from, drag.to)), TOP, Math.abs(scale.X(drag.to) - scale.X(drag.from)), floor - TOP);
        ctx.globalAlpha = 1;
      }
      if (at !== null && at >= scale.x0 && at <= scale.x1) {
        const x = Math.round(scale.X(at)) + 0.5;
        ctx.strokeStyle = hover === null ? tokens.ink : tokens.faint;
        ctx.lineWidth = 1;
        ctx.beginPath(); ctx.moveTo(x, TOP); ctx.lineTo(x, floor); ctx.stroke();
      }
      panel.read.replaceChildren(...visible().map((s) => {
        const i = nearest(s, p, at), v = i < 0 ? NaN : smoothed(s, p)[i];
        if (at !== null && i >= 0 && tables[s].x[i] >= scale.x0 && tables[s].x[i] <= scale.x1 && (!scale.log || v > 0))
          lab.marker(ctx, s, scale.X(tables[s].x[i]), scale.Y(v), 4, hue(s));
        return h("span", { title: series[s].label ?? series[s].id }, visible().length > 1 ? lab.swatch(s, hue(s)) : null, num(v, 4));
      }));
    });
  }

  function drawAll() { drawLegend(); panels.forEach((_, p) => draw(p)); drawOver(); }

  // ---- pointer and keys ------------------------------------------------------------------------------------------

  function zoom(to) { range = to; wide.hidden = !to; ui.repaint(); }

  function snap(p, x) {
    let best = null;
    for (const s of visible()) { const i = nearest(s, p, x); if (i >= 0 && (best === null || Math.abs(tables[s].x[i] - x) < Math.abs(best - x))) best = tables[s].x[i]; }
    return best;
  }

  function bind(plot, p) {
    const xOf = (event) => {
      const scale = panels[p].scale;
      return Math.max(scale.x0, Math.min(scale.x1, scale.back(event.clientX - plot.getBoundingClientRect().left)));
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !panels[p].scale) return;
      drag = { from: xOf(event), to: xOf(event), start: event.clientX };
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      if (!panels[p].scale) return;
      if (drag) drag.to = xOf(event);
      hover = snap(p, xOf(event));
      drawOver();
    });
    plot.addEventListener("pointerup", (event) => {
      if (!drag) return;
      const { from, to, start } = drag;
      drag = null;
      if (Math.abs(event.clientX - start) > 5) zoom([Math.min(from, to), Math.max(from, to)]);
      else if (!panels[p].scale.empty) {
        const x = snap(p, to);
        lab.save(model, "cursor", x === model.get("cursor") ? null : x);
      }
    });
    plot.addEventListener("pointercancel", () => { drag = null; drawOver(); });
    plot.addEventListener("pointerleave", () => { if (!drag) { hover = null; drawOver(); } });
    plot.addEventListener("dblclick", () => zoom(null));
    plot.addEventListener("keydown", (event) => {
      const all = [...new Set(visible().flatMap((s) => tables[s].x))].sort((a, b) => a - b);
      if (!all.length) return;
      const now = model.get("cursor"), i = now === null ? all.length - 1 : Math.min(all.length - 1, lowerBound(all, now)), far = event.shiftKey ? 10 : 1;
      const next = { ArrowLeft: i - far, ArrowRight: i + far, Home: 0, End: all.length - 1 }[event.key];
      if (event.key === "Escape") { lab.save(model, "cursor", null); zoom(null); }
      else if (next === undefined) return;
      else lab.save(model, "cursor", all[Math.max(0, Math.min(all.length - 1, now === null && event.key !== "Home" ? all.length - 1 : next))]);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  function save() {
    const rows = [["run", model.get("x_title"), ...panels.map((one) => one.key)]];
    series.forEach((one, s) => tables[s]?.x.forEach((x, i) => rows.push([one.id, x, ...tables[s].y.map((y) => y[i])])));
    lab.download("curves.csv", lab.csv(rows), "text/csv");
  }

  slider.addEventListener("input", () => { weight = Number(slider.value); amount.textContent = weight.toFixed(2); memo.clear(); ui.repaint(); });
  slider.addEventListener("change", () => lab.save(model, "smoothing", weight));

  // ---- traits ----------------------------------------------------------------------------------------------------

  ui.watch(model, ["panels"], () => { panels = model.get("panels").map((one) => ({ ...one })); build(); ui.repaint(); });
  ui.watch(model, ["tail", "middle", "base", "series", "panels"], () => {
    series = model.get("series");
    tables = split(["base", "middle", "tail"].map((key) => lab.array(Float64Array, model.get(key))), series.length, panels.length);
    memo.clear();
    ui.repaint();
  });
  ui.watch(model, ["hidden", "log", "smoothing", "x_title"], () => {
    hidden = new Set(model.get("hidden"));
    logged = new Set(model.get("log"));
    weight = model.get("smoothing");
    slider.value = String(weight);
    amount.textContent = weight.toFixed(2);
    memo.clear();
    ui.repaint();
  });
  ui.watch(model, ["cursor"], drawOver);
  ui.onPaint(drawAll);
  return ui.dispose;
}

export default { render };
