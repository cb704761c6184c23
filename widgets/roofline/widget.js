const LEFT = 62, RIGHT = 14, TOP = 14, BOTTOM = 44; // px around the plot area

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "roofline", signal);
  const title = h("h3"), legend = h("div.legend"), base = h("canvas"), over = h("canvas");
  const plot = h("div.plot", { tabindex: "0", role: "img" }, base, over), say = h("p.soft.say", { "aria-live": "polite" });
  ui.root.append(h("div.panel", {}, h("div.head", {}, title, legend), plot, say));
  const tip = lab.tooltip(ui);
  let ceilings = [], points = [], groups = [], scale = null, hover = null;

  const hue = (point) => ui.colours()[lab.HUES[groups.indexOf(point.group ?? "") % lab.HUES.length]];
  const reach = (ceiling, x) => Math.min(ceiling.flops_per_s, ceiling.bytes_per_s * x);
  const per = (v) => `${num(v)}FLOP/s`.replace(/([kMGTPE]?)FLOP/, " $1FLOP");

  function bounds(width, height) {
    const ridges = ceilings.map((c) => c.flops_per_s / c.bytes_per_s), xs = points.map((p) => p.intensity), ys = points.map((p) => p.flops_per_s);
    const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs.map((x) => x / 1.5), ...ridges.map((r) => r / 100), ...(xs.length || ridges.length ? [] : [0.1]))));
    const x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs.map((x) => x * 1.5), ...ridges.map((r) => r * 6), x0 * 10)));
    const tops = ceilings.map((c) => c.flops_per_s);
    const y1 = Math.max(...tops, ...ys, 1) * 2.2;
    const y0 = Math.min(...ys.map((y) => y / 2), ...ceilings.map((c) => reach(c, x0)), y1 / 100);
    const lx = Math.log(x0), wx = Math.log(x1) - lx, ly = Math.log(y0), wy = Math.log(y1) - ly;
    return {
      x0, x1, y0, y1, width, height,
      X: (x) => LEFT + ((Math.log(x) - lx) / wx) * (width - LEFT - RIGHT),
      Y: (y) => height - BOTTOM - ((Math.log(y) - ly) / wy) * (height - TOP - BOTTOM),
    };
  }

  function draw() {
    const width = Math.floor(plot.clientWidth), height = Math.round(Math.max(280, Math.min(420, width * 0.52)));
    if (!width) return;
    const ctx = lab.sized(base, width, height), tokens = ui.colours(), taken = [];
    scale = bounds(width, height);
    const { X, Y, x0, x1, y0, y1 } = scale;
    ctx.font = `12px ${tokens.sans}`;
    ctx.lineWidth = 1;
    ctx.strokeStyle = tokens.line;
    ctx.fillStyle = tokens.soft;
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    for (const v of lab.logTicks(x0, x1, Math.max(3, width / 80))) {
      const x = Math.round(X(v)) + 0.5;
      ctx.beginPath(); ctx.moveTo(x, TOP); ctx.lineTo(x, height - BOTTOM); ctx.stroke();
      ctx.fillText(num(v), x, height - BOTTOM + 6);
    }
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (const v of lab.logTicks(y0, y1, 6)) {
      const y = Math.round(Y(v)) + 0.5;
      ctx.beginPath(); ctx.moveTo(LEFT, y); ctx.lineTo(width - RIGHT, y); ctx.stroke();
      ctx.fillText(num(v), LEFT - 8, y);
    }
    ctx.fillText("arithmetic intensity, FLOP/byte", width - RIGHT, height - 10);
    ctx.save();
    ctx.translate(9, TOP);
    ctx.rotate(-Math.PI / 2);
    ctx.fillText("achieved, FLOP/s", 0, 0);
    ctx.restore();
    ceilings.forEach((c, i) => roof(ctx, tokens, c, i, taken));
    points.forEach((p, i) => lab.marker(ctx, groups.indexOf(p.group ?? ""), X(p.intensity), Y(p.flops_per_s), 5, hue(points[i])));
    points.forEach((p) => { const x = X(p.intensity), y = Y(p.flops_per_s); taken.push([x - 6, y - 6, x + 6, y + 6]); });
    ctx.font = `12.5px ${tokens.sans}`;
    ctx.fillStyle = tokens.ink;
    points.forEach((p) => name(ctx, p, taken));
    ceilings.forEach((c, i) => slope(ctx, tokens, c, i, taken));
    legend.replaceChildren(...(groups.length > 1 || groups[0] ? groups.map((g, i) => h("span", {}, lab.swatch(i, tokens[lab.HUES[i % lab.HUES.length]]), g || "other")) : []));
    drawOver();
  }

  function roof(ctx, tokens, c, i, taken) {
    const { X, Y, x0, x1 } = scale, ridge = c.flops_per_s / c.bytes_per_s, x = Math.max(x0, Math.min(x1, ridge));
    ctx.strokeStyle = tokens.ink;
    ctx.lineWidth = 1.5;
    ctx.setLineDash([[], [7, 4], [2, 3], [9, 3, 2, 3]][i % 4]);
    ctx.beginPath(); ctx.moveTo(X(x0), Y(reach(c, x0))); ctx.lineTo(X(x), Y(reach(c, x))); ctx.lineTo(X(x1), Y(reach(c, x1))); ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `12px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "right";
    const flat = `${c.name}, ${per(c.flops_per_s)}`, fy = Y(c.flops_per_s) - 4, fw = ctx.measureText(flat).width;
    const box = [scale.width - RIGHT - fw, fy - 14, scale.width - RIGHT, fy];
    if (!taken.some((o) => crosses(o, box))) { ctx.fillText(flat, scale.width - RIGHT, fy); taken.push(box); }
    const ax = X(x0), ay = Y(reach(c, x0)), bx = X(x), by = Y(reach(c, x));
    for (let at = 0; at <= 1; at += 0.02) { const px = ax + (bx - ax) * at, py = ay + (by - ay) * at; taken.push([px - 3, py - 3, px + 3, py + 3]); }
  }

  /** Names a bandwidth along its slope, once, where no point's name is in the way. */
  function slope(ctx, tokens, c, i, taken) {
    const { X, Y, x0, x1 } = scale, x = Math.min(x1, c.flops_per_s / c.bytes_per_s);
    if (ceilings.findIndex((other) => other.bytes_per_s === c.bytes_per_s) !== i || x <= x0) return;
    ctx.font = `12px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    ctx.textBaseline = "bottom";
    const ax = X(x0), ay = Y(reach(c, x0)), bx = X(x), by = Y(reach(c, x));
    const text = `${num(c.bytes_per_s)}B/s`.replace(/([kMGTPE]?)B/, " $1B"), room = Math.hypot(bx - ax, by - ay), w = ctx.measureText(text).width;
    const ux = (bx - ax) / room, uy = (by - ay) / room; // along the slope; (uy, -ux) points up from it
    for (let from = 14; from + w < room - 6; from += 12) {
      const spots = [0, 0.25, 0.5, 0.75, 1].map((k) => [ax + ux * (from + k * w) + uy * 11, ay + uy * (from + k * w) - ux * 11]);
      if (spots.some(([px, py]) => taken.some((o) => crosses(o, [px - 5, py - 5, px + 5, py + 5])))) continue;
      ctx.save();
      ctx.translate(ax + ux * from, ay + uy * from);
      ctx.rotate(Math.atan2(by - ay, bx - ax));
      ctx.textAlign = "left";
      ctx.fillText(text, 0, -4);
      ctx.restore();
      return;
    }
  }

  const crosses = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

  /** Writes a point's name where nothing else is; a name that fits nowhere is left to the hover. */
  function name(ctx, p, taken) {
    const x = scale.X(p.intensity), y = scale.Y(p.flops_per_s), w = ctx.measureText(p.label).width;
    for (const [dx, dy] of [[10, -7], [10, -4], [10, -11], [-10 - w, -7], [-w / 2, -23], [-w / 2, 9], [8, -21], [8, 7]]) {
      const box = [x + dx, y + dy, x + dx + w, y + dy + 14];
      if (box[0] < LEFT || box[2] > scale.width || box[1] < 0 || box[3] > scale.height - BOTTOM || taken.some((o) => crosses(o, box))) continue;
      ctx.textAlign = "left";
      ctx.textBaseline = "top";
      ctx.fillText(p.label, box[0], box[1]);
      taken.push(box);
      return;
    }
  }

  function drawOver() {
    if (!scale) return;
    const ctx = lab.sized(over, scale.width, scale.height), tokens = ui.colours(), chosen = model.get("selected"), i = hover ?? chosen;
    const p = points[i];
    say.textContent = p ? tell(p) : points.length ? "Hover a point, or step through them with the arrow keys." : "No points yet.";
    if (!p) return;
    const x = scale.X(p.intensity), y = scale.Y(p.flops_per_s), tops = ceilings.map((c) => scale.Y(reach(c, p.intensity)));
    ctx.strokeStyle = tokens.faint;
    ctx.setLineDash([2, 3]);
    ctx.beginPath(); ctx.moveTo(x, y); ctx.lineTo(x, Math.min(y, ...tops)); ctx.stroke();
    ctx.setLineDash([]);
    ctx.strokeStyle = tokens.ink;
    ctx.lineWidth = 1.8;
    ctx.beginPath(); ctx.arc(x, y, 8.5, 0, 7); ctx.stroke();
  }

  function shares(p) {
    return ceilings.map((c) => `${((100 * p.flops_per_s) / reach(c, p.intensity)).toFixed(1)}% of ${c.name} (${p.intensity < c.flops_per_s / c.bytes_per_s ? "memory" : "compute"}-bound)`);
  }
  const tell = (p) => `${p.label}: ${num(p.intensity)} FLOP/byte, ${per(p.flops_per_s)}; ${shares(p).join("; ")}`;

  function hit(event) {
    if (!scale) return null;
    const area = base.getBoundingClientRect(), mx = event.clientX - area.left, my = event.clientY - area.top;
    let best = null, near = 14;
    points.forEach((p, i) => { const d = Math.hypot(scale.X(p.intensity) - mx, scale.Y(p.flops_per_s) - my); if (d < near) { near = d; best = i; } });
    return best;
  }
  plot.addEventListener("pointermove", (event) => {
    hover = hit(event);
    plot.style.cursor = hover === null ? "default" : "pointer";
    if (hover === null) tip.hide();
    else {
      const p = points[hover];
      tip.show(event.clientX, event.clientY, h("b", {}, p.label), h("div", {}, `${num(p.intensity)} FLOP/byte, ${per(p.flops_per_s)}`), shares(p).map((s) => h("div.soft", {}, s)), p.note ? h("div.soft", {}, p.note) : null);
    }
    drawOver();
  });
  plot.addEventListener("pointerleave", () => { hover = null; tip.hide(); drawOver(); });
  plot.addEventListener("click", (event) => { const i = hit(event); lab.save(model, "selected", i === model.get("selected") ? null : i); });
  plot.addEventListener("keydown", (event) => {
    if (!points.length) return;
    const order = points.map((_, i) => i).sort((a, b) => points[a].intensity - points[b].intensity), now = order.indexOf(model.get("selected"));
    const next = { ArrowRight: now + 1, ArrowLeft: now < 0 ? points.length - 1 : now - 1, Home: 0, End: points.length - 1 }[event.key];
    if (event.key === "Escape") lab.save(model, "selected", null);
    else if (next === undefined) return;
    else lab.save(model, "selected", order[Math.max(0, Math.min(points.length - 1, next))]);
    event.preventDefault();
    event.stopPropagation();
  });

  ui.watch(model, ["ceilings", "points", "title"], () => {
    ceilings = model.get("ceilings");
    points = model.get("points");
    groups = [...new Set(points.map((p) => p.group ?? ""))];
    title.textContent = model.get("title");
    hover = null;
    plot.setAttribute("aria-label", `Roofline with ${points.length} points under ${ceilings.map((c) => c.name).join(", ")}`);
    ui.repaint();
  });
  ui.watch(model, ["selected"], drawOver);
  ui.onPaint(draw);
  return ui.dispose;
}

export default { render };
