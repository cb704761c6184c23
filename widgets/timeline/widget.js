const HUE = { // groups of lab.profiling.trace; anything else takes the ink's own grey
  "matrix product": "kernels", attention: "evals", "norm and softmax": "inference", "element-wise": "interp",
  optimiser: "train", "copy and layout": "deploy", runtime: "faint", range: "soft",
};

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "timeline", signal);
  const canvas = h("canvas"), over = h("canvas");
  const stage = h("div.stage", { tabindex: "0", role: "application", "aria-label": "Timeline: plus and minus zoom, arrows pan, 0 shows all, n next, escape clears" }, canvas, over);
  const said = h("span.said", { "aria-live": "polite" });
  const button = (text, title, onclick) => h("button", { type: "button", title, onclick }, text);
  const legend = h("div.legend");
  const tools = h("div.tools", {}, said, button("Fit", "Show everything (0)", () => go(0, span)), button("−", "Zoom out (-)", () => zoom(1.6)), button("+", "Zoom in (+)", () => zoom(1 / 1.6)),
    button("Next", "Next call of what is selected (n)", () => next(1)));
  const below = h("div.operators");
  ui.root.append(tools, h("div.panel", {}, stage, legend), below);
  const tip = lab.tooltip(ui);

  // ---- data ------------------------------------------------------------------------------------------------------

  let events = null; // readEvents
  let n = 0, start, dur, own, flops, moved, device, name, lane, depth, names = [], span = 1, rows = [], tops = [], height = 0, mem = null;
  let view = [0, 1]; // microseconds in sight
  let lit = null; // Uint8Array over names, or null when nothing narrows the view
  let hover = -1;

  function read() {
    events = readEvents(model);
    ({ n, start, dur, own, flops, moved, device, name, lane, depth, names, span, rows, tops, height, mem } = events);
    overview = null;
    const asked = model.get("window");
    view = asked.length === 2 && asked[1] > asked[0] ? [...asked] : [0, span];
  }
  const firstAfter = (list, t) => firstEndingAfter(events, list, t);

  function narrow() {
    const chosen = new Set(model.get("selected")), text = model.get("filter").trim().toLowerCase();
    lit = !chosen.size && !text ? null : Uint8Array.from(names, (one) => {
      if (chosen.size) return chosen.has(one.name) ? 1 : 0;
      return [one.name, one.kind, one.group, one.shapes].some((v) => String(v ?? "").toLowerCase().includes(text)) ? 1 : 0;
    });
    overview = null;
    ui.repaint();
  }

  // ---- drawing ---------------------------------------------------------------------------------------------------

  let width = 0, overview = null;
  const x = (t) => ((t - view[0]) / (view[1] - view[0])) * width;
  const time = (us, step = us) => {
    const [by, unit] = Math.abs(step) >= 1e6 ? [1e6, "s"] : Math.abs(step) >= 1e3 ? [1e3, "ms"] : Math.abs(step) >= 1 ? [1, "µs"] : [1e-3, "ns"];
    return `${num(us / by, 4)} ${unit}`;
  };

  /** A number with its unit, a space between: 1.2 GB, 350 MFLOP/s. */
  const amount = (v, unit) => num(v).replace(/^(.*?)([kMGTPE]?)$/, `$1 $2${unit}`);

  function colours() {
    const tokens = ui.colours();
    const fill = names.map((one) => lab.mix(tokens.card, tokens[HUE[one.group] ?? "faint"], one.group === "range" ? 0.2 : 0.62));
    return { tokens, fill };
  }

  function draw() {
    width = Math.floor(stage.clientWidth);
    if (!width || !start) return;
    const ctx = lab.sized(canvas, width, height), { tokens, fill } = colours();
    ctx.font = `12px ${tokens.mono}`;
    ctx.textBaseline = "middle";
    ruler(ctx, tokens);
    const scale = width / (view[1] - view[0]);
    const letters = [];
    for (const { y, at } of rows) {
      let last = -2, lastLit = false;
      for (let k = firstAfter(at, view[0]); k < at.length; k++) {
        const i = at[k];
        if (start[i] > view[1]) break;
        const left = Math.max(0, (start[i] - view[0]) * scale), right = Math.min(width, (start[i] + dur[i] - view[0]) * scale);
        const on = !lit || lit[name[i]] === 1, pixel = Math.floor(left);
        if (right - left < 1.2) { // one mark a pixel; what is lit wins it
          if (pixel === last && (lastLit || !on)) continue;
          last = pixel;
          lastLit = on;
          ctx.globalAlpha = on ? 1 : 0.16;
          ctx.fillStyle = fill[name[i]];
          ctx.fillRect(pixel, y, 1, BAR - 2);
          continue;
        }
        ctx.globalAlpha = on ? 1 : 0.16;
        ctx.fillStyle = fill[name[i]];
        ctx.fillRect(left, y, Math.max(1, right - left - (right - left > 4 ? 1 : 0)), BAR - 2);
        last = Math.floor(right - 0.01);
        lastLit = on;
        if (right - left > 34) letters.push([i, left, right, y, on]);
      }
    }
    ctx.fillStyle = tokens.ink;
    for (const [i, left, right, y, on] of letters) {
      ctx.globalAlpha = on ? 1 : 0.4;
      ctx.fillText(lab.fit(ctx, names[name[i]].name.replace(/^aten::/, ""), right - left - 9), left + 4, y + (BAR - 2) / 2 + 0.5);
    }
    ctx.globalAlpha = 1;
    ctx.font = `12px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    model.get("lanes").forEach((text, k) => ctx.fillText(text, 0, tops[k] + LABEL / 2));
    if (mem.t.length) memory(ctx, tokens);
    map(ctx, tokens);
    drawOver();
    tell();
  }

  function ruler(ctx, tokens) {
    const marks = lab.ticks(view[0], view[1], Math.max(2, width / 110)), step = marks.length > 1 ? marks[1] - marks[0] : 1;
    ctx.font = `12px ${tokens.sans}`;
    ctx.lineWidth = 1;
    for (const t of marks) {
      const at = Math.round(x(t)) + 0.5;
      ctx.strokeStyle = tokens.line;
      ctx.beginPath();
      ctx.moveTo(at, MAP + RULER);
      ctx.lineTo(at, height);
      ctx.stroke();
      ctx.fillStyle = tokens.soft;
      const text = time(t, Math.max(step, Math.abs(view[1]) / 1000));
      const w = ctx.measureText(text).width;
      ctx.fillText(text, Math.min(width - w, Math.max(0, at - w / 2)), MAP + RULER / 2);
    }
    ctx.font = `12px ${tokens.mono}`;
  }

  function memory(ctx, tokens) {
    const base = mem.y + MEMORY, y = (v) => base - (MEMORY - 2) * Math.max(0, v / mem.top);
    let lo = 0, hi = mem.t.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (mem.t[mid] < view[0]) lo = mid + 1; else hi = mid; }
    let value = lo > 0 ? mem.v[lo - 1] : 0, last = 0, peak = value;
    ctx.beginPath();
    ctx.moveTo(0, base);
    ctx.lineTo(0, y(value));
    for (let k = lo; k < mem.t.length && mem.t[k] <= view[1]; k++) { // the highest of each pixel
      const at = x(mem.t[k]);
      peak = Math.max(peak, mem.v[k]);
      value = mem.v[k];
      if (at - last < 1 && k + 1 < mem.t.length) continue;
      ctx.lineTo(at, y(peak));
      last = at;
      peak = value;
    }
    ctx.lineTo(width, y(value));
    ctx.lineTo(width, base);
    ctx.closePath();
    ctx.fillStyle = lab.mix(tokens.card, tokens.data, 0.35);
    ctx.fill();
    ctx.fillStyle = tokens.soft;
    ctx.fillText(`Memory allocated by tensors since the start, peak ${amount(mem.top, "B")}`, 0, mem.y - LABEL / 2);
  }

  /** The whole trace in a strip: how busy each pixel is, and where the view is. */
  function map(ctx, tokens) {
    if (!overview || overview.length !== width) {
      overview = new Float32Array(width);
      for (let i = 0; i < n; i++) {
        if (lit && !lit[name[i]]) continue;
        const a = (start[i] / span) * width, b = ((start[i] + dur[i]) / span) * width, share = own[i] / Math.max(dur[i], 1e-6);
        for (let p = Math.floor(a); p < Math.min(width, Math.max(b, p + 1e-9)); p++) overview[p] += Math.max(0, Math.min(b, p + 1) - Math.max(a, p)) * share;
      }
    }
    const top = Math.max(1e-6, ...overview), tall = MAP - 6;
    ctx.fillStyle = lab.mix(tokens.card, tokens.ink, 0.28);
    for (let p = 0; p < width; p++) { const t = (overview[p] / top) * tall; if (t > 0.3) ctx.fillRect(p, tall - t, 1, t); }
    const a = (view[0] / span) * width, b = Math.max(a + 2, (view[1] / span) * width);
    ctx.fillStyle = tokens.paper;
    ctx.globalAlpha = 0.72;
    ctx.fillRect(0, 0, a, tall);
    ctx.fillRect(b, 0, width - b, tall);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = tokens.faint;
    ctx.strokeRect(a + 0.5, 0.5, Math.max(1, b - a - 1), tall);
  }

  function drawOver() {
    const ctx = lab.sized(over, width, height), tokens = ui.colours();
    if (hover >= 0) {
      const left = Math.max(0, x(start[hover])), right = Math.min(width, x(start[hover] + dur[hover]));
      ctx.strokeStyle = tokens.ink;
      ctx.lineWidth = 1.5;
      ctx.strokeRect(left - 0.5, tops[lane[hover]] + LABEL + depth[hover] * BAR - 0.5, Math.max(2, right - left), BAR - 1);
    }
    if (drag?.kind === "range") {
      ctx.fillStyle = tokens.interp;
      ctx.globalAlpha = 0.16;
      ctx.fillRect(Math.min(drag.from, drag.to), MAP, Math.abs(drag.to - drag.from), height - MAP);
      ctx.globalAlpha = 1;
    }
  }

  function tell() {
    const whole = view[0] <= 0 && view[1] >= span;
    said.textContent = `${n.toLocaleString("en")} events, ${whole ? time(span) : `${time(view[1] - view[0])} of ${time(span)} in view`}`;
  }

  function drawLegend() {
    const there = [...new Set(names.map((one) => one.group))];
    const known = Object.keys(HUE).filter((group) => there.includes(group));
    legend.replaceChildren(...known.map((group) => h("button.key", { type: "button", title: `Show only: ${group}`, "aria-pressed": String(model.get("filter") === group), onclick: () => lab.save(model, "filter", model.get("filter") === group ? "" : group) },
      h("i", { style: { "--c": `var(--${HUE[group]})` } }), group)),
      h("span.hint", {}, "wheel zooms, drag pans, shift-drag a range, double click an event"));
  }

  // ---- moving ----------------------------------------------------------------------------------------------------

  let telling = null;
  function go(from, to) {
    const least = 0.02, wide = Math.min(span, Math.max(least, to - from));
    const a = Math.max(0, Math.min(span - wide, from));
    view = [a, a + wide];
    ui.repaint();
    clearTimeout(telling);
    telling = setTimeout(() => { tally(); lab.save(model, "window", a <= 0 && wide >= span ? [] : [...view]); }, 160);
  }
  function zoom(by, around = (view[0] + view[1]) / 2) { go(around - (around - view[0]) * by, around + (view[1] - around) * by); }
  function pan(by) { go(view[0] + by, view[1] + by); }
  const whole = () => view[0] <= 0 && view[1] >= span;

  function next(way) {
    if (!lit) return;
    const mid = (view[0] + view[1]) / 2;
    const centre = (i) => start[i] + dur[i] / 2, eps = (view[1] - view[0]) * 1e-3;
    let best = -1;
    for (let i = 0; i < n; i++) {
      if (!lit[name[i]]) continue;
      const ahead = way > 0 ? centre(i) > mid + eps : centre(i) < mid - eps;
      if (ahead && (best < 0 || Math.abs(centre(i) - mid) < Math.abs(centre(best) - mid))) best = i;
    }
    if (best < 0) return;
    const wide = whole() ? Math.max(dur[best] * 12, span / 50) : view[1] - view[0];
    go(centre(best) - wide / 2, centre(best) + wide / 2);
    hover = best;
  }

  ui.signal.addEventListener("abort", () => clearTimeout(telling));
  stage.addEventListener("wheel", (event) => {
    const box = stage.getBoundingClientRect(), t = view[0] + ((event.clientX - box.left) / width) * (view[1] - view[0]);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) pan(((event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) / width) * (view[1] - view[0]));
    else if (event.deltaY > 0 && whole()) return; // nothing left to zoom out of: the page scrolls on
    else zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) * 0.004), t);
    event.preventDefault();
  }, { passive: false });

  let drag = null;
  const at = (event) => { const box = stage.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };

  function under(px, py) {
    const t = view[0] + (px / width) * (view[1] - view[0]), slack = (1.5 / width) * (view[1] - view[0]);
    const row = rows.find(({ y }) => py >= y && py < y + BAR);
    if (!row) return -1;
    const k = firstAfter(row.at, t - slack), i = row.at[k];
    return i !== undefined && start[i] <= t + slack ? i : -1;
  }

  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [px, py] = at(event);
    stage.setPointerCapture(event.pointerId);
    drag = { kind: py < MAP ? "map" : event.shiftKey ? "range" : "pan", from: px, to: px, view: [...view], moved: false };
    if (drag.kind === "map") centreOn(px);
  });
  function centreOn(px) { const wide = view[1] - view[0], mid = (px / width) * span; go(mid - wide / 2, mid + wide / 2); }
  stage.addEventListener("pointermove", (event) => {
    const [px, py] = at(event);
    if (drag) {
      drag.to = px;
      drag.moved ||= Math.abs(px - drag.from) > 3;
      if (drag.kind === "map") centreOn(px);
      else if (drag.kind === "range") drawOver();
      else if (drag.moved) { const by = ((drag.from - px) / width) * (drag.view[1] - drag.view[0]); go(drag.view[0] + by, drag.view[1] + by); }
      if (drag.moved) tip.hide();
      return;
    }
    const found = under(px, py);
    stage.style.cursor = found >= 0 ? "pointer" : py < MAP ? "col-resize" : "grab";
    if (found !== hover) { hover = found; drawOver(); }
    if (found >= 0) tip.show(event.clientX, event.clientY, about(found)); else tip.hide();
  });
  stage.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { kind, from, to, moved } = drag, t = (p) => view[0] + (p / width) * (view[1] - view[0]);
    drag = null;
    if (kind === "range" && moved) go(t(Math.min(from, to)), t(Math.max(from, to)));
    else if (!moved && kind !== "map") {
      const found = under(...at(event));
      if (found >= 0) choose(names[name[found]].name); else choose(null);
    }
    drawOver();
  });
  stage.addEventListener("pointerleave", () => { hover = -1; tip.hide(); drawOver(); });
  stage.addEventListener("dblclick", (event) => {
    const found = under(...at(event));
    if (found >= 0) go(start[found] - dur[found] * 0.05, start[found] + dur[found] * 1.05);
  });
  stage.addEventListener("keydown", (event) => {
    const wide = view[1] - view[0];
    const act = {
      "+": () => zoom(1 / 1.6), "=": () => zoom(1 / 1.6), "-": () => zoom(1.6), ArrowUp: () => zoom(1 / 1.6), ArrowDown: () => zoom(1.6),
      ArrowLeft: () => pan(-wide / 8), ArrowRight: () => pan(wide / 8), 0: () => go(0, span), Home: () => go(0, wide), End: () => go(span - wide, span),
      n: () => next(1), p: () => next(-1), Escape: () => choose(null),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
    event.stopPropagation();
  });

  function choose(one) {
    const now = model.get("selected");
    if (one === null) { if (now.length) lab.save(model, "selected", []); } else lab.save(model, "selected", now.length === 1 && now[0] === one ? [] : [one]);
  }

  function about(i) {
    const one = names[name[i]];
    const lines = [["took", time(dur[i])], ["itself", time(own[i])], ["began at", time(start[i], Math.max(1, start[i]))]];
    if (device[i]) lines.push(["on the GPU", time(device[i])]);
    if (flops[i]) lines.push(["work", amount(flops[i], "FLOP")], ["rate", amount((flops[i] / (device[i] || dur[i])) * 1e6, "FLOP/s")]);
    if (moved[i]) lines.push(["inputs", amount(moved[i], "B")]);
    if (one.shapes) lines.push(["first shape", one.shapes]);
    return [h("b.mono", {}, one.name.length > 90 ? `${one.name.slice(0, 90)}…` : one.name), h("table", {}, h("tbody", {}, lines.map(([k, v]) => h("tr", {}, h("td.soft", {}, k), h("td", {}, v)))))];
  }

  read();
  const table = operatorTable(model, below, ui.signal, device.some((us) => us > 0));
  const tally = () => table.show(operatorsInView(events, view));

  // ---- traits ----------------------------------------------------------------------------------------------------

  ui.watch(model, ["data", "names", "lanes", "memory_data"], () => { read(); narrow(); drawLegend(); tally(); });
  ui.watch(model, ["selected", "filter"], () => { narrow(); drawLegend(); });
  ui.onPaint(draw);
  return ui.dispose;
}

export default { render };
