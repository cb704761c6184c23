const FULL = 0.92; // how far towards the hue a weight of one goes

/** IEEE half floats as numbers (Float16Array is not everywhere yet). */
function halves(view) {
  const bits = lab.array(Uint16Array, view), out = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) {
    const e = (bits[i] >> 10) & 31, f = bits[i] & 1023, sign = bits[i] >> 15 ? -1 : 1;
    out[i] = sign * (e === 0 ? f * 2 ** -24 : e === 31 ? (f ? NaN : Infinity) : (1 + f / 1024) * 2 ** (e - 15));
  }
  return out;
}

function render({ model, el, signal }) {
  const { h, num, plain } = lab;
  const ui = lab.mount(el, "attention", signal);
  const heads = h("div.heads", { role: "listbox", "aria-label": "Heads", "aria-orientation": "horizontal" });
  const base = h("canvas"), over = h("canvas"), map = h("div.map", { tabindex: "0", role: "img" }, base, over);
  const title = h("h3"), legend = h("div.legend"), looks = h("div.looks"), say = h("p.soft.say", { "aria-live": "polite" });
  const boost = h("button", { type: "button", "aria-pressed": "false", title: "Draw the square root of the weight, so that small ones show", onclick: () => {
    root = !root;
    boost.setAttribute("aria-pressed", String(root));
    ui.repaint();
  } }, "√ scale");
  ui.root.append(h("div.panel", {}, h("div.lay", {}, heads, h("div", {}, h("div.head", {}, title, h("div.row", {}, legend, boost)), map, looks, say))));
  const tip = lab.tooltip(ui);

  let weights = new Float32Array(0), count = 0, n = 0, root = false, geo = null, hover = null, shades = [];
  const w = (head, q, k) => weights[(head * n + q) * n + k];
  const shade = (v) => shades[Math.round(100 * Math.min(1, Math.max(0, root ? Math.sqrt(v) : v)))];
  const query = () => hover?.q ?? model.get("query");

  function choose(head, focus = false) {
    lab.save(model, "selected", head);
    if (focus) heads.children[head]?.focus();
  }

  function build() {
    heads.replaceChildren(...Array.from({ length: count }, (_, i) => h("button", {
      type: "button", role: "option", "aria-label": `head ${model.get("labels")[i]}`,
      onclick: () => choose(i),
      onkeydown: (event) => {
        const across = Math.max(1, getComputedStyle(heads).gridTemplateColumns.split(" ").length);
        const next = { ArrowLeft: i - 1, ArrowRight: i + 1, ArrowUp: i - across, ArrowDown: i + across, Home: 0, End: count - 1 }[event.key];
        if (next === undefined) return;
        if (next >= 0 && next < count) choose(next, true);
        event.preventDefault();
        event.stopPropagation();
      } }, h("canvas", { "aria-hidden": "true" }), h("span", {}, model.get("labels")[i]))));
    ui.repaint();
  }

  function drawHeads() {
    const parse = shades.map((text) => text.match(/\d+/g).map(Number));
    [...heads.children].forEach((button, head) => {
      const canvas = button.firstChild;
      canvas.width = canvas.height = n;
      const ctx = canvas.getContext("2d"), image = ctx.createImageData(n, n);
      for (let i = 0; i < n * n; i++) {
        const v = weights[head * n * n + i], [r, g, b] = parse[Math.round(100 * Math.min(1, Math.max(0, root ? Math.sqrt(v) : v)))];
        image.data.set([r, g, b, 255], 4 * i);
      }
      ctx.putImageData(image, 0, 0);
    });
  }

  function drawMap() {
    const width = Math.floor(map.clientWidth), tokens = ui.colours(), head = model.get("selected"), names = model.get("tokens").map(plain);
    if (!width || !n) return;
    const probe = base.getContext("2d");
    probe.font = `12px ${tokens.mono}`;
    const long = Math.min(110, Math.max(...names.map((t) => probe.measureText(t).width)));
    const left = Math.ceil(long) + 26, cell = Math.max(1, Math.min(30, (width - left - 2) / n, 460 / n)), top = 20, side = cell * n;
    const height = Math.ceil(top + side + long + 32);
    geo = { left, top, cell, width, height };
    const ctx = lab.sized(base, width, height);
    const gap = cell >= 8 ? 1 : 0, edge = (i) => Math.round(i * cell);
    for (let q = 0; q < n; q++) for (let k = 0; k < n; k++) {
      ctx.fillStyle = k > q && w(head, q, k) === 0 ? tokens.paper : shade(w(head, q, k));
      ctx.fillRect(left + edge(k), top + edge(q), edge(k + 1) - edge(k) - gap, edge(q + 1) - edge(q) - gap);
    }
    ctx.strokeStyle = tokens.line;
    ctx.strokeRect(left - 0.5, top - 0.5, edge(n) + (gap ? 0 : 1), edge(n) + (gap ? 0 : 1));
    ctx.font = `12px ${tokens.mono}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    ctx.fillStyle = tokens.ink;
    const every = Math.max(1, Math.ceil(14 / cell));
    for (let i = 0; i < n; i += every) {
      const mid = (i + 0.5) * cell;
      ctx.fillText(lab.fit(ctx, names[i], 110), left - 6, top + mid);
      ctx.save();
      ctx.translate(left + mid, top + side + 6);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(lab.fit(ctx, names[i], 110), 0, 0);
      ctx.restore();
    }
    ctx.font = `12.5px ${tokens.sans}`;
    ctx.fillStyle = tokens.soft;
    ctx.textAlign = "left";
    ctx.fillText("key: looked at", left, height - 9);
    ctx.fillText("query: looks", 0, 8);
    const strip = h("canvas", { "aria-hidden": "true" }), bar = lab.sized(strip, 90, 9);
    for (let x = 0; x < 90; x++) { bar.fillStyle = shade(x / 89); bar.fillRect(x, 0, 1, 9); }
    legend.replaceChildren("weight 0", strip, "1");
    title.textContent = `${model.get("title") ? `${model.get("title")}, ` : ""}head ${model.get("labels")[head] ?? head}`;
    map.setAttribute("aria-label", `${title.textContent}: attention of ${n} tokens. Up and down choose the query.`);
    [...heads.children].forEach((button, i) => { button.setAttribute("aria-selected", String(i === head)); button.tabIndex = i === head ? 0 : -1; });
  }

  function drawOver() {
    if (!geo) return;
    const ctx = lab.sized(over, geo.width, geo.height), tokens = ui.colours(), q = query(), head = model.get("selected");
    if (q !== null && q < n) {
      ctx.strokeStyle = tokens.ink;
      ctx.lineWidth = 1.5;
      ctx.strokeRect(geo.left - 1, geo.top + Math.round(q * geo.cell) - 1, Math.round(n * geo.cell) + 1, Math.max(2, geo.cell) + 1);
      if (hover?.k !== undefined) ctx.strokeRect(geo.left + Math.round(hover.k * geo.cell) - 1, geo.top + Math.round(q * geo.cell) - 1, geo.cell + 1, geo.cell + 1);
    }
    const names = model.get("tokens");
    [...looks.children].forEach((box, k) => {
      box.classList.toggle("q", k === q);
      box.style.background = q === null ? "" : lab.mix(tokens.card, tokens.interp, 0.5 * Math.min(1, root ? Math.sqrt(w(head, q, k)) : w(head, q, k)));
    });
    if (q === null || q >= n) { say.textContent = "Hover a token to see where it looks; click to keep it."; return; }
    const best = Array.from({ length: n }, (_, k) => k).sort((a, b) => w(head, q, b) - w(head, q, a)).slice(0, 3).filter((k) => w(head, q, k) > 0);
    say.textContent = `“${plain(names[q])}” (${q}) looks at ${best.map((k) => `“${plain(names[k])}” (${k}) ${num(w(head, q, k))}`).join(", ")}`;
  }

  function strip() {
    looks.replaceChildren(...model.get("tokens").map((token, k) => h("span.tok", {
      onpointerenter: () => { hover = { q: k }; drawOver(); },
      onpointerleave: () => { hover = null; drawOver(); },
      onclick: () => pin(k),
    }, lab.visible(token))));
  }

  function pin(q) { lab.save(model, "query", q === model.get("query") ? null : q); }

  function hit(event) {
    const area = base.getBoundingClientRect(), k = Math.floor((event.clientX - area.left - geo.left) / geo.cell), q = Math.floor((event.clientY - area.top - geo.top) / geo.cell);
    return q >= 0 && q < n && k < n ? { q, k: k < 0 ? undefined : k } : null;
  }
  map.addEventListener("pointermove", (event) => {
    hover = geo && hit(event);
    map.style.cursor = hover ? "pointer" : "default";
    if (hover?.k !== undefined) {
      const names = model.get("tokens");
      tip.show(event.clientX, event.clientY, h("b", {}, num(w(model.get("selected"), hover.q, hover.k))), h("div.soft", {}, `“${plain(names[hover.q])}” (${hover.q}) → “${plain(names[hover.k])}” (${hover.k})`));
    } else tip.hide();
    drawOver();
  });
  map.addEventListener("pointerleave", () => { hover = null; tip.hide(); drawOver(); });
  map.addEventListener("click", (event) => { const cell = geo && hit(event); if (cell) pin(cell.q); });
  map.addEventListener("keydown", (event) => {
    const now = model.get("query"), next = { ArrowUp: (now ?? n) - 1, ArrowDown: (now ?? -1) + 1, Home: 0, End: n - 1, Escape: null }[event.key];
    if (next === undefined) return;
    hover = null;
    lab.save(model, "query", next === null ? null : Math.max(0, Math.min(n - 1, next)));
    event.preventDefault();
    event.stopPropagation();
  });

  ui.watch(model, ["data", "shape", "tokens", "labels", "title"], () => {
    [count, n] = model.get("shape");
    weights = halves(model.get("data"));
    hover = null;
    strip();
    build();
  });
  ui.watch(model, ["selected"], ui.repaint);
  ui.watch(model, ["query"], drawOver);
  ui.onPaint(() => {
    const tokens = ui.colours();
    shades = Array.from({ length: 101 }, (_, i) => lab.mix(tokens.card, tokens.interp, (FULL * i) / 100));
    drawHeads();
    drawMap();
    drawOver();
  });
  return ui.dispose;
}

export default { render };
