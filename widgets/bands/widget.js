function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "bands", signal);
  const title = h("h3"), keys = h("div.keys"), charts = h("div.charts"), note = h("p.note");
  ui.root.append(h("div.panel", {}, title, keys, charts, note));
  const tip = lab.tooltip(ui);
  let data = new Float32Array(0), shape = [0, 0, 0], range = [0, 1], cells = [], cursor = null;
  const value = (part, p, s, i) => data[((part * shape[0] + p) * shape[1] + s) * shape[2] + i];
  const hue = (tokens, s) => tokens[lab.HUES[s % lab.HUES.length]];
  const drawn = () => model.get("series").map((name, s) => [name, s]).filter(([name]) => !model.get("hidden").includes(name));

  function bounds() {
    let lo = 0, hi = 0;
    for (let p = 0; p < shape[0]; p++) for (const [, s] of drawn()) for (let i = 0; i < shape[2]; i++) {
      const m = value(0, p, s, i), d = value(1, p, s, i) || 0;
      if (m - d < lo) lo = m - d;
      if (m + d > hi) hi = m + d;
    }
    range = hi > lo ? [lo, hi + 0.04 * (hi - lo)] : [0, 1];
  }

  function build() {
    const names = model.get("panels");
    cells = names.map((name, p) => {
      const canvas = h("canvas");
      const chart = h("div.chart", { tabindex: "0", role: "img" }, canvas);
      const move = (i, x, y) => { cursor = i; ui.repaint(); if (i === null) tip.hide(); else tip.show(x, y, about(p, i)); };
      chart.addEventListener("pointermove", (event) => {
        const cell = cells[p], box = canvas.getBoundingClientRect();
        if (!cell.x) return;
        const i = model.get("xs").reduce((best, _, k) => (Math.abs(cell.x(k) - event.clientX + box.left) < Math.abs(cell.x(best) - event.clientX + box.left) ? k : best), 0);
        move(i, event.clientX, event.clientY);
      });
      chart.addEventListener("pointerleave", () => move(null));
      chart.addEventListener("blur", () => move(null));
      chart.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        const i = Math.max(0, Math.min(shape[2] - 1, (cursor ?? -1) + step)), box = canvas.getBoundingClientRect();
        move(i, box.left + cells[p].x(i), box.top + 20);
        event.preventDefault();
        event.stopPropagation();
      });
      return { chart, canvas, box: h("div", {}, h("h4", {}, name), chart) };
    });
    charts.replaceChildren(...cells.map((cell) => cell.box));
  }

  function about(p, i) {
    const tokens = ui.colours();
    const rows = drawn().filter(([, s]) => !Number.isNaN(value(0, p, s, i))).map(([name, s]) => {
      const d = value(1, p, s, i);
      return h("tr", {}, h("td", {}, lab.swatch(s, hue(tokens, s))), h("td", {}, name), h("td.num", {}, `${num(value(0, p, s, i))}${Number.isNaN(d) ? "" : ` ± ${num(d)}`}`));
    });
    return [h("b", {}, `${model.get("x_title")} ${num(model.get("xs")[i])}`), h("table", {}, h("tbody", {}, rows))];
  }

  function legend() {
    const tokens = ui.colours();
    keys.replaceChildren(...model.get("series").map((name, s) => h("button", {
      type: "button", "aria-pressed": String(!model.get("hidden").includes(name)),
      onclick: () => {
        const hidden = model.get("hidden");
        lab.save(model, "hidden", hidden.includes(name) ? hidden.filter((n) => n !== name) : [...hidden, name]);
      },
    }, lab.swatch(s, hue(tokens, s)), name)));
  }

  function paint() {
    legend();
    cells.forEach((cell, p) => draw(cell, p));
  }

  function draw(cell, p) {
    const width = Math.floor(cell.chart.clientWidth), height = 210;
    if (!width || !shape[2]) return;
    const tokens = ui.colours(), ctx = lab.sized(cell.canvas, width, height), xs = model.get("xs");
    const left = 44, right = 8, top = 18, bottom = 36, low = xs[0], span = xs.at(-1) - low || 1;
    const x = (i) => left + ((xs[i] - low) / span) * (width - left - right);
    const y = (v) => top + (1 - (v - range[0]) / (range[1] - range[0])) * (height - top - bottom);
    cell.x = x;
    ctx.font = `12px ${tokens.sans}`;
    ctx.lineWidth = 1;
    for (const v of lab.ticks(range[0], range[1], 4)) {
      ctx.strokeStyle = v === 0 ? tokens.faint : tokens.line;
      ctx.beginPath(); ctx.moveTo(left, Math.round(y(v)) + 0.5); ctx.lineTo(width - right, Math.round(y(v)) + 0.5); ctx.stroke();
      ctx.fillStyle = tokens.soft; ctx.textAlign = "right"; ctx.textBaseline = "middle"; ctx.fillText(num(v), left - 6, y(v));
    }
    ctx.textAlign = "center"; ctx.textBaseline = "top"; ctx.fillStyle = tokens.soft;
    for (const v of lab.ticks(low, xs.at(-1), 6).filter((v) => xs.includes(v))) ctx.fillText(num(v), x(xs.indexOf(v)), height - bottom + 6);
    ctx.textAlign = "right"; ctx.fillText(model.get("x_title"), width - right, height - 15);
    ctx.textAlign = "left"; ctx.fillText(lab.fit(ctx, model.get("y_title"), width - 4), 0, 0);
    if (cursor !== null) {
      ctx.strokeStyle = tokens.faint;
      ctx.beginPath(); ctx.moveTo(x(cursor), top); ctx.lineTo(x(cursor), height - bottom); ctx.stroke();
    }
    for (const [, s] of drawn()) {
      const known = xs.map((_, i) => i).filter((i) => !Number.isNaN(value(0, p, s, i)));
      if (!known.length) continue;
      const colour = hue(tokens, s), wide = known.filter((i) => !Number.isNaN(value(1, p, s, i)));
      if (wide.length) {
        ctx.beginPath();
        wide.forEach((i, k) => ctx[k ? "lineTo" : "moveTo"](x(i), y(value(0, p, s, i) + value(1, p, s, i))));
        [...wide].reverse().forEach((i) => ctx.lineTo(x(i), y(value(0, p, s, i) - value(1, p, s, i))));
        ctx.globalAlpha = 0.16; ctx.fillStyle = colour; ctx.fill(); ctx.globalAlpha = 1;
      }
      ctx.strokeStyle = colour; ctx.lineWidth = 1.8;
      ctx.beginPath();
      known.forEach((i, k) => ctx[k ? "lineTo" : "moveTo"](x(i), y(value(0, p, s, i))));
      ctx.stroke();
      ctx.lineWidth = 1;
      for (const i of known) if (known.length < 16 || i % Math.ceil(known.length / 12) === 0) lab.marker(ctx, s, x(i), y(value(0, p, s, i)), 3, colour);
    }
    const ends = drawn().map(([name, s]) => `${name} at most ${num(Math.max(...xs.map((_, i) => value(0, p, s, i)).filter((v) => !Number.isNaN(v))))}`);
    cell.chart.setAttribute("aria-label", `${model.get("panels")[p]}, ${model.get("y_title")} by ${model.get("x_title")}: ${ends.join("; ")}. Arrow keys read the values.`);
  }

  ui.watch(model, ["panels"], build);
  ui.watch(model, ["data", "series", "xs", "hidden", "title", "note", "x_title", "y_title"], () => {
    data = lab.array(Float32Array, model.get("data"));
    shape = [model.get("panels").length, model.get("series").length, model.get("xs").length];
    title.textContent = model.get("title");
    title.hidden = !model.get("title");
    note.textContent = model.get("note");
    note.hidden = !model.get("note");
    bounds();
    ui.repaint();
  });
  ui.onPaint(paint);
  return ui.dispose;
}

export default { render };
