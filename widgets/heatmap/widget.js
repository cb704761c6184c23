const LABEL = 12.5; // px of axis labels
const MANY = 20000; // cells drawn one by one at most

function render({ model, el, signal }) {
  const { h, num, plain } = lab;
  const ui = lab.mount(el, "heatmap", signal);
  const base = h("canvas"), over = h("canvas");
  const map = h("div.map", { tabindex: "0", role: "application", "aria-roledescription": "heat map" }, base, over);
  const title = h("h3"), legend = h("div.legend"), state = h("b"), live = h("span.sr", { "aria-live": "polite" });
  const hint = h("span", {}, "drag a rectangle, shift adds, arrow keys and space, esc clears");
  const aside = h("div.panel.aside", { "aria-live": "polite" });
  const lay = h("div.lay", {}, h("div.panel", {}, h("div.head", {}, title, legend), map, h("div.foot", {}, state, hint), live), aside);
  ui.root.append(lay);
  const tip = lab.tooltip(ui);

  let values = new Float32Array(0), rows = 0, cols = 0, vmax = 1;
  let geo = null; // where the cells are, in css pixels
  let at = null; // keyboard position [row, col]
  let anchor = null; // the corner a shift extends from
  let drag = null; // {from, to, add} while the pointer is down
  let chosen = new Set(); // "row,col"
  const key = (r, c) => `${r},${c}`;
  const value = (r, c) => values[r * cols + c];
  const unit = () => (model.get("unit") ? ` ${model.get("unit")}` : "");

  function rowName(r) { return `${model.get("row_title") || "row"} ${model.get("row_labels")[r] ?? r}`.trim(); }
  function colName(c) {
    const label = model.get("col_labels")[c] ?? "", other = model.get("col_labels2")[c];
    const quoted = `“${plain(label)}”${other !== undefined && other !== label ? ` / “${plain(other)}”` : ""}`;
    return label === String(c) ? `${model.get("col_title") || "column"} ${c}` : `position ${c}, ${quoted}`;
  }
  const told = (v) => (Number.isNaN(v) ? "not computed yet" : `${num(v)}${unit()}`);

  // ---- layout and drawing --------------------------------------------------------------------------------------

  function measure(ctx, width) {
    const tokens = ui.colours();
    ctx.font = `12px ${tokens.sans}`;
    const left = Math.ceil(Math.max(14, ...model.get("row_labels").map((l) => ctx.measureText(l).width))) + 9;
    const top = model.get("row_title") ? 20 : 4;
    const w = Math.min(84, (width - left - 2) / cols);
    const t = Math.max(rows > 400 ? 1 : 3, Math.min(26, Math.floor(390 / rows)));
    ctx.font = `${LABEL}px ${tokens.mono}`;
    const first = model.get("col_labels").map(plain);
    const second = model.get("col_labels2").map((l, i) => (l === model.get("col_labels")[i] ? "" : plain(l)));
    const wide = (list) => Math.max(0, ...list.map((l) => ctx.measureText(l).width));
    const upright = w >= Math.max(wide(first), wide(second)) + 5;
    const has2 = second.some(Boolean);
    const most = 92; // px a rotated label may take
    const long = Math.min(most, wide(first)), long2 = Math.min(most, wide(second));
    const every = upright ? 1 : Math.max(1, Math.ceil((LABEL + 2) / w));
    const labels = upright ? (has2 ? 40 : 22) : Math.ceil(long + (has2 ? long2 + 10 : 0)) + 14;
    const bottom = labels + (model.get("col_title") ? 20 : 2);
    return { left, top, w, t, first, second, upright, every, long, most, labels, has2, height: top + rows * t + bottom, width };
  }

  const x0 = (c) => geo.left + Math.round(c * geo.w);
  const y0 = (r) => geo.top + (rows - 1 - r) * geo.t;
  function box(r, c) {
    const gapX = geo.w >= 9 ? 2 : geo.w >= 4 ? 1 : 0, gapY = geo.t >= 7 ? 1 : 0;
    const x = x0(c), y = y0(r);
    return [x, y, Math.max(1, x0(c + 1) - x - gapX), Math.max(1, geo.t - gapY)];
  }

  function drawBase() {
    const width = Math.floor(map.clientWidth);
    if (!width || !rows || !cols) return;
    const probe = base.getContext("2d");
    geo = measure(probe, width);
    const ctx = lab.sized(base, width, geo.height), tokens = ui.colours();
    const colour = lab.diverging(tokens, vmax);
    const lines = geo.w >= 7 && geo.t >= 6;
    ctx.strokeStyle = tokens.line;
    ctx.lineWidth = 0.5;
    if (rows * cols > MANY) pixels(ctx, colour);
    else {
      const blank = new Path2D();
      let blanks = 0;
      for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
        const v = value(r, c), [x, y, w, t] = box(r, c);
        if (Number.isNaN(v)) { blank.rect(x, y, w, t); blanks++; } else { ctx.fillStyle = colour(v); ctx.fillRect(x, y, w, t); }
        if (lines) ctx.strokeRect(x, y, w, t);
      }
      if (blanks) hatch(ctx, blank, tokens);
    }
    axes(ctx, tokens);
    drawLegend(tokens, colour);
    drawOver();
  }

  /** One image pixel a cell, stretched: for maps whose cells are too many to draw one by one. */
  function pixels(ctx, colour) {
    const small = new OffscreenCanvas(cols, rows), image = new ImageData(cols, rows), known = new Map();
    for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
      const v = value(r, c);
      if (Number.isNaN(v)) continue;
      const text = colour(v);
      if (!known.has(text)) known.set(text, text.match(/\d+/g).map(Number));
      const [red, green, blue] = known.get(text), at = 4 * ((rows - 1 - r) * cols + c);
      image.data[at] = red; image.data[at + 1] = green; image.data[at + 2] = blue; image.data[at + 3] = 255;
    }
    small.getContext("2d").putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(small, geo.left, geo.top, cols * geo.w, rows * geo.t);
  }

  function hatch(ctx, path, tokens) {
    ctx.save();
    ctx.clip(path);
    ctx.beginPath();
    const right = geo.left + cols * geo.w, bottom = geo.top + rows * geo.t;
    for (let d = -(bottom - geo.top); d < right - geo.left; d += 6) {
      ctx.moveTo(geo.left + d, bottom);
      ctx.lineTo(geo.left + d + (bottom - geo.top), geo.top);
    }
    ctx.strokeStyle = tokens.faint;
    ctx.globalAlpha = 0.45;
    ctx.lineWidth = 1;
    ctx.stroke();
    ctx.restore();
  }

  function axes(ctx, tokens) {
    const bottom = geo.top + rows * geo.t, labels = model.get("row_labels");
    ctx.font = `12px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    // every label where there is room, else round steps, and always the first and last
    const need = geo.t >= 14 ? 1 : Math.ceil(28 / geo.t), step = need <= 1 ? 1 : [2, 5, 10, 20, 50, 100, 200, 500].find((s) => s >= need) ?? need;
    for (let r = 0; r < rows; r++) {
      const last = r === rows - 1;
      if (!last && (r % step || (rows - 1 - r) * geo.t < 13)) continue;
      ctx.fillText(labels[r] ?? "", geo.left - 8, y0(r) + geo.t / 2);
    }
    ctx.textAlign = "left";
    if (model.get("row_title")) ctx.fillText(model.get("row_title"), 0, 8);
    ctx.font = `${LABEL}px ${tokens.mono}`;
    for (let c = 0; c < cols; c += geo.every) {
      const mid = x0(c) + geo.w / 2 - (geo.w >= 9 ? 1 : 0);
      const pair = [[geo.first[c], tokens.ink], [geo.second[c], tokens.neg]];
      if (geo.upright) {
        ctx.textAlign = "center";
        pair.forEach(([text, hue], i) => { if (text) { ctx.fillStyle = hue; ctx.fillText(text, mid, bottom + 13 + 18 * i); } });
      } else {
        ctx.save();
        ctx.translate(mid, bottom + 6);
        ctx.rotate(-Math.PI / 2);
        ctx.textAlign = "right";
        pair.forEach(([text, hue], i) => { if (text) { ctx.fillStyle = hue; ctx.fillText(lab.fit(ctx, text, geo.most), -i * (geo.long + 10), 0); } });
        ctx.restore();
      }
    }
    if (model.get("col_title")) {
      ctx.font = `12.5px ${tokens.sans}`;
      ctx.textAlign = "left";
      ctx.fillStyle = tokens.soft;
      ctx.fillText(lab.fit(ctx, model.get("col_title"), geo.width - geo.left), geo.left, geo.height - 9);
    }
  }

  function drawLegend(tokens, colour) {
    const strip = h("canvas", { "aria-hidden": "true" });
    const ctx = lab.sized(strip, 120, 9);
    for (let x = 0; x < 120; x++) { ctx.fillStyle = colour(((x - 59.5) / 59.5) * vmax); ctx.fillRect(x, 0, 1, 9); }
    ctx.fillStyle = tokens.faint;
    ctx.fillRect(59.5, 0, 1, 9);
    let beyond = false;
    for (const v of values) if (Math.abs(v) > vmax * 1.0001) { beyond = true; break; }
    const [low, high] = beyond ? ["≤ ", "≥ "] : ["", ""];
    legend.replaceChildren(h("span", {}, `${low}${num(-vmax)}`), strip, h("span", {}, `${high}+${num(vmax)}${unit()}`));
    legend.title = `Scale: ${num(-vmax)} to +${num(vmax)}${unit()}, zero in the middle`;
  }

  function cellsBetween(a, b) {
    const out = [];
    for (let r = Math.min(a[0], b[0]); r <= Math.max(a[0], b[0]); r++)
      for (let c = Math.min(a[1], b[1]); c <= Math.max(a[1], b[1]); c++) out.push([r, c]);
    return out;
  }

  function drawOver() {
    if (!geo) return;
    const ctx = lab.sized(over, geo.width, geo.height), tokens = ui.colours();
    let show = chosen;
    if (drag) show = new Set([...(drag.add ? chosen : []), ...cellsBetween(drag.from, drag.to).map(([r, c]) => key(r, c))]);
    // the outline of the chosen region: edges whose neighbour is not chosen, over a light rim that parts it from the fill
    const path = new Path2D();
    for (const cell of show) {
      const [r, c] = cell.split(",").map(Number), [x, y, w, t] = box(r, c);
      const gx = x0(c + 1) - x, gy = geo.t;
      const joinR = show.has(key(r, c + 1)), joinL = show.has(key(r, c - 1)), joinU = show.has(key(r + 1, c)), joinD = show.has(key(r - 1, c));
      const right = joinR ? x + gx : x + w, low = joinD ? y + gy : y + t;
      if (!joinU) { path.moveTo(x - 0.5, y); path.lineTo(right + 0.5, y); }
      if (!joinD) { path.moveTo(x - 0.5, y + t); path.lineTo(right + 0.5, y + t); }
      if (!joinL) { path.moveTo(x, y - 0.5); path.lineTo(x, low + 0.5); }
      if (!joinR) { path.moveTo(x + w, y - 0.5); path.lineTo(x + w, low + 0.5); }
    }
    ctx.strokeStyle = tokens.card;
    ctx.lineWidth = 4;
    ctx.stroke(path);
    ctx.strokeStyle = tokens.ink;
    ctx.lineWidth = 1.8;
    ctx.stroke(path);
    if (at && map.matches(":focus-visible")) {
      const [x, y, w, t] = box(...at), d = Math.min(w, t) >= 16 ? 3 : -1; // inside the outline of the chosen, where it fits
      ctx.strokeStyle = tokens.card;
      ctx.lineWidth = 4;
      ctx.strokeRect(x + d, y + d, w - 2 * d, t - 2 * d);
      ctx.strokeStyle = tokens.interp;
      ctx.lineWidth = 2;
      ctx.strokeRect(x + d, y + d, w - 2 * d, t - 2 * d);
    }
  }

  // ---- what is chosen ------------------------------------------------------------------------------------------

  function choose(cells) {
    chosen = new Set(cells.map(([r, c]) => key(r, c)));
    lab.save(model, "selected", chosenCells());
    if (model.get("channel")) el.dispatchEvent(new CustomEvent("lab:cells", { bubbles: true, composed: true, detail: { channel: model.get("channel"), cells: chosenCells() } }));
  }
  const chosenCells = () => [...chosen].map((k) => k.split(",").map(Number));

  function describe() {
    const details = model.get("details"), any = Object.keys(details).length > 0;
    lay.classList.toggle("beside", any);
    aside.hidden = !any;
    state.textContent = chosen.size === 0 ? "nothing selected" : chosen.size === 1 ? "1 cell selected" : `${chosen.size} cells selected`;
    ui.repaint();
    if (!any) return;
    const only = chosen.size === 1 ? [...chosen][0] : null, found = only && details[only];
    if (found) {
      aside.replaceChildren(...[
        h("h3", {}, found.title ?? ""), found.text ? h("p.soft", {}, found.text) : null,
        found.bars?.length ? lab.barRows(found.bars, "var(--pos)", 1) : null].filter(Boolean));
    } else if (only) {
      const [r, c] = only.split(",").map(Number);
      aside.replaceChildren(h("h3", {}, rowName(r)), h("p.none", {}, `${colName(c)}: ${told(value(r, c))}`));
    } else {
      aside.replaceChildren(h("p.none", {}, chosen.size ? `${chosen.size} cells selected.` : "Select a cell to see what it does."));
    }
  }

  function say([r, c]) { live.textContent = `${rowName(r)}, ${colName(c)}: ${told(value(r, c))}${chosen.has(key(r, c)) ? ", selected" : ""}`; }

  // ---- pointer and keys ----------------------------------------------------------------------------------------

  function hit(event, clamp = false) {
    if (!geo) return null;
    const area = base.getBoundingClientRect();
    let c = Math.floor((event.clientX - area.left - geo.left) / geo.w);
    let r = rows - 1 - Math.floor((event.clientY - area.top - geo.top) / geo.t);
    if (clamp) { c = Math.max(0, Math.min(cols - 1, c)); r = Math.max(0, Math.min(rows - 1, r)); }
    return r >= 0 && r < rows && c >= 0 && c < cols ? [r, c] : null;
  }

  map.addEventListener("pointerdown", (event) => {
    const cell = hit(event);
    if (event.button !== 0 || !cell) return;
    drag = { from: cell, to: cell, add: event.shiftKey || event.ctrlKey || event.metaKey };
    map.setPointerCapture(event.pointerId);
    tip.hide();
    drawOver();
  });
  map.addEventListener("pointermove", (event) => {
    if (drag) {
      const cell = hit(event, true);
      if (cell[0] !== drag.to[0] || cell[1] !== drag.to[1]) { drag.to = cell; drawOver(); }
      return;
    }
    const cell = hit(event);
    map.style.cursor = cell ? "pointer" : "default";
    if (!cell) { tip.hide(); return; }
    const [r, c] = cell;
    tip.show(event.clientX, event.clientY, h("div", {}, h("b", {}, told(value(r, c)))), h("div.soft", {}, rowName(r)), h("div.soft", {}, colName(c)));
  });
  map.addEventListener("pointerup", () => {
    if (!drag) return;
    const { from, to, add } = drag;
    drag = null;
    at = anchor = to;
    const single = from[0] === to[0] && from[1] === to[1], k = key(...from);
    if (!single) choose([...(add ? chosenCells() : []), ...cellsBetween(from, to)]);
    else if (add) choose(chosen.has(k) ? chosenCells().filter(([r, c]) => key(r, c) !== k) : [...chosenCells(), from]);
    else choose(chosen.size === 1 && chosen.has(k) ? [] : [from]);
  });
  map.addEventListener("pointercancel", () => { drag = null; drawOver(); });
  map.addEventListener("pointerleave", () => tip.hide());

  const MOVES = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  map.addEventListener("keydown", (event) => {
    if (!rows) return;
    at ??= chosen.size ? chosenCells()[0] : [0, 0];
    const move = MOVES[event.key];
    if (move) {
      const next = [Math.max(0, Math.min(rows - 1, at[0] + move[0])), Math.max(0, Math.min(cols - 1, at[1] + move[1]))];
      if (event.shiftKey) { anchor ??= at; choose(cellsBetween(anchor, next)); } else anchor = next;
      at = next;
      say(at);
    } else if (event.key === " ") {
      const k = key(...at);
      choose(chosen.has(k) ? chosenCells().filter(([r, c]) => key(r, c) !== k) : [...chosenCells(), at]);
      anchor = at;
      say(at);
    } else if (event.key === "Enter") { choose([at]); say(at); } else if (event.key === "Escape") { choose([]); tip.hide(); } else return;
    event.preventDefault();
    event.stopPropagation();
    drawOver();
  });
  map.addEventListener("focus", drawOver);
  map.addEventListener("blur", drawOver);

  // ---- traits ----------------------------------------------------------------------------------------------------

  let step = null; // of the frame shown
  document.addEventListener("lab:step", (event) => {
    if (!model.get("channel") || event.detail.channel !== model.get("channel") || event.detail.step === step) return;
    step = event.detail.step;
    load();
    ui.repaint();
  }, { signal: ui.signal });

  /** The values of the frame chosen; of a map without frames, all there is. */
  function load() {
    const steps = model.get("steps"), size = rows * cols;
    const all = lab.array(Float32Array, model.get(steps.length ? "frames" : "data"));
    const found = steps.indexOf(step), i = found < 0 ? steps.length - 1 : found;
    values = steps.length ? all.subarray(i * size, (i + 1) * size) : all;
    vmax = model.get("vmax");
    if (!vmax) { // one scale for all frames
      vmax = 0;
      for (const v of all) if (Math.abs(v) > vmax && Number.isFinite(v)) vmax = Math.abs(v);
      vmax ||= 1;
    }
  }

  ui.watch(model, ["data", "frames", "steps", "shape", "vmax", "row_labels", "col_labels", "col_labels2", "row_title", "col_title", "value_title", "unit"], () => {
    [rows, cols] = model.get("shape");
    load();
    if (at && (at[0] >= rows || at[1] >= cols)) at = null;
    title.textContent = model.get("value_title");
    map.setAttribute("aria-label", `${model.get("value_title") || "Heat map"}: ${rows} by ${cols} cells, ${model.get("row_title") || "rows"} against ${model.get("col_title") || "columns"}. Arrow keys move, space selects.`);
    ui.repaint();
  });
  ui.watch(model, ["selected", "details", "shape"], () => {
    chosen = new Set(model.get("selected").filter(([r, c]) => r < rows && c < cols).map(([r, c]) => key(r, c)));
    describe();
    drawOver();
  });
  ui.onPaint(drawBase);
  return ui.dispose;
}

export default { render };
