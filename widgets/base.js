// What the widgets share: theme, canvas, tooltip, numbers, colours. Prepended to each widget.js at import.
const lab = (() => {
  /** h("div.cls", {title, onclick, style}, ...children): an element; null children are skipped. */
  function h(spec, props = {}, ...children) {
    const [tag, ...classes] = spec.split(".");
    const node = document.createElement(tag || "div");
    if (classes.length) node.className = classes.join(" ");
    for (const [key, value] of Object.entries(props ?? {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
    return node;
  }

  // ---- theme -------------------------------------------------------------------------------------------------

  const up = (node) => node.assignedSlot ?? node.parentElement ?? (node.getRootNode() instanceof ShadowRoot ? node.getRootNode().host : null);

  function said(node) {
    const word = node.dataset?.theme;
    if (word === "dark" || word === "light") return word;
    const jupyter = node.dataset?.jpThemeLight;
    if (jupyter) return jupyter === "true" ? "light" : "dark";
    const names = node.classList;
    if (names?.contains("dark") || names?.contains("vscode-dark") || names?.contains("vscode-high-contrast")) return "dark";
    if (names?.contains("light") || names?.contains("vscode-light")) return "light";
    return null;
  }

  /** The theme around a node: html's data-theme, else the nearest ancestor that says (across shadow roots), else the system's. */
  function themeOf(node) {
    const word = document.documentElement.dataset.theme;
    if (word === "dark" || word === "light") return word;
    for (let at = node; at; at = up(at)) {
      const found = said(at);
      if (found) return found;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  /** Mounts a widget root in el. Returns {root, signal, colours(), onPaint(fn), repaint(), dispose()}. */
  function mount(el, name, signal) {
    const ended = new AbortController();
    const root = h(`div.lw.lw-${name}`, { "data-lm-suppress-shortcuts": "true" }); // or JupyterLab takes the keys
    const painters = [];
    let tokens = null;
    let queued = false, ready = 0;
    const paint = () => {
      queued = false;
      if (ended.signal.aborted) return;
      const start = performance.now();
      for (const fn of painters) fn();
      // a slow drawing rests twice as long as it took, so that live data never takes the page over
      ready = performance.now() + 2 * (performance.now() - start);
    };
    const repaint = () => {
      if (queued) return;
      queued = true;
      const rest = ready - performance.now();
      if (rest > 16) setTimeout(() => requestAnimationFrame(paint), rest);
      else requestAnimationFrame(paint);
    };
    const follow = () => {
      const theme = themeOf(el);
      if (root.dataset.theme !== theme) {
        root.dataset.theme = theme;
        tokens = null;
        repaint();
      }
    };
    el.append(root);
    follow();
    const observer = new MutationObserver(follow);
    for (let at = el; at; at = up(at)) observer.observe(at, { attributes: true, attributeFilter: ["class", "data-theme", "data-jp-theme-light"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow, { signal: ended.signal });
    const sizes = new ResizeObserver(repaint);
    sizes.observe(root);
    document.fonts?.ready.then(repaint);
    const dispose = () => {
      ended.abort();
      observer.disconnect();
      sizes.disconnect();
      root.remove();
    };
    signal?.addEventListener("abort", dispose, { once: true });
    return {
      root, repaint, dispose, signal: ended.signal,
      colours() {
        if (!tokens) {
          const style = getComputedStyle(root);
          tokens = Object.fromEntries(
            "paper card ink soft faint line hover data train kernels inference evals posttrain interp research deploy neg pos mono sans"
              .split(" ").map((key) => [key, style.getPropertyValue(`--${key}`).trim()]));
        }
        return tokens;
      },
      onPaint(fn) { painters.push(fn); repaint(); },
      /** Calls fn now and whenever one of the traits changes, until the widget goes. */
      watch(model, names, fn) {
        for (const key of names) {
          model.on(`change:${key}`, fn);
          ended.signal.addEventListener("abort", () => model.off(`change:${key}`, fn), { once: true });
        }
        fn();
      },
    };
  }

  // ---- canvas ------------------------------------------------------------------------------------------------

  /** Sizes a canvas in css pixels for this screen and returns its cleared context, scaled so one unit is one css pixel. */
  function sized(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    const w = Math.max(1, Math.round(width * ratio)), t = Math.max(1, Math.round(height * ratio));
    if (canvas.width !== w || canvas.height !== t) { canvas.width = w; canvas.height = t; }
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return ctx;
  }

  /** Shortens text with an ellipsis until it fits in width under the context's font. */
  function fit(ctx, text, width) {
    if (ctx.measureText(text).width <= width) return text;
    const parts = [...text];
    while (parts.length > 1 && ctx.measureText(parts.join("") + "…").width > width) parts.pop();
    return parts.join("") + "…";
  }

  /** Fills a marker of the n-th shape, so that a series is known without its colour. */
  function marker(ctx, n, x, y, r, colour) {
    ctx.fillStyle = colour;
    ctx.beginPath();
    const kind = n % 4;
    if (kind === 0) ctx.arc(x, y, r, 0, 7);
    else if (kind === 1) ctx.rect(x - r * 0.88, y - r * 0.88, r * 1.76, r * 1.76);
    else {
      const points = kind === 2 ? [[0, -1.2], [1.15, 0.9], [-1.15, 0.9]] : [[0, -1.3], [1.2, 0], [0, 1.3], [-1.2, 0]];
      points.forEach(([a, b], i) => (i ? ctx.lineTo(x + a * r, y + b * r) : ctx.moveTo(x + a * r, y + b * r)));
    }
    ctx.closePath();
    ctx.fill();
  }

  /** The same marker as a small canvas for a legend. */
  function swatch(n, colour) {
    const canvas = h("canvas", { "aria-hidden": "true", style: { flex: "none" } });
    marker(sized(canvas, 11, 11), n, 5.5, 5.8, 4, colour);
    return canvas;
  }

  const HUES = ["inference", "train", "interp", "evals", "kernels", "data", "posttrain", "deploy", "research"];

  // ---- colour: mixing in OKLab, so steps of a scale look equal --------------------------------------------------

  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const gamma = (c) => (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055);

  function oklab(hex) {
    const [r, g, b] = [1, 3, 5].map((i) => linear(parseInt(hex.slice(i, i + 2), 16) / 255));
    const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
    const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
    const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
    return [
      0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
      1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
      0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
    ];
  }

  /** The colour t of the way from one hex colour to another, as rgb(...). */
  function mix(from, to, t) {
    const a = oklab(from), b = oklab(to);
    const [L, A, B] = a.map((v, i) => v + (b[i] - v) * t);
    const l = (L + 0.3963377774 * A + 0.2158037573 * B) ** 3;
    const m = (L - 0.1055613458 * A - 0.0638541728 * B) ** 3;
    const s = (L - 0.0894841775 * A - 1.291485548 * B) ** 3;
    const rgb = [
      4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
      -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ].map((c) => Math.round(255 * Math.min(1, Math.max(0, gamma(c)))));
    return `rgb(${rgb.join(",")})`;
  }

  /** A function from value to colour: the neutral at zero, one hue below and one above, full at +-vmax. */
  function diverging(tokens, vmax) {
    const steps = 64;
    const half = (hue) => Array.from({ length: steps + 1 }, (_, i) => mix(tokens.card, hue, i / steps));
    const above = half(tokens.pos), below = half(tokens.neg);
    return (v) => (v < 0 ? below : above)[Math.round(steps * Math.min(1, Math.abs(v) / (vmax || 1)))];
  }

  // ---- numbers -----------------------------------------------------------------------------------------------

  const SI = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

  /** About `digits` significant digits, a real minus sign, thousands as k, M, G. */
  function num(v, digits = 3) {
    if (v === null || v === undefined || Number.isNaN(v)) return "–";
    if (!Number.isFinite(v)) return v > 0 ? "∞" : "−∞";
    const sign = v < 0 ? "−" : "", a = Math.abs(v);
    if (a === 0) return "0";
    if (a >= 1e4) {
      const [by, name] = SI.find(([s]) => a >= s * 0.9995);
      return sign + trim((a / by).toPrecision(digits)) + name;
    }
    if (a < 1e-3) {
      const [mantissa, power] = a.toExponential(Math.max(0, digits - 1)).split("e");
      return `${sign}${trim(mantissa)}e${power.replace("+", "").replace("-", "−")}`;
    }
    if (Number.isInteger(v)) return sign + String(a);
    return sign + trim(a >= 1000 ? a.toFixed(0) : a.toPrecision(digits));
  }
  const trim = (text) => (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text.includes("e") ? String(Number(text)) : text);

  /** About n round ticks inside [lo, hi]. */
  function ticks(lo, hi, n) {
    if (!(hi > lo)) return [lo];
    const raw = (hi - lo) / Math.max(1, n), base = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((k) => k * base).find((s) => s >= raw * 0.999);
    const out = [];
    for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) out.push(i * step);
    return out;
  }

  /** Ticks of a logarithmic axis: decades, with 2 and 5 between where there is room for n. */
  function logTicks(lo, hi, n) {
    const first = Math.floor(Math.log10(lo)), last = Math.ceil(Math.log10(hi));
    const decades = last - first;
    const skip = Math.max(1, Math.ceil(decades / n));
    const within = decades * 3 <= n + 2 ? [1, 2, 5] : [1];
    const out = [];
    for (let e = first; e <= last; e += skip) for (const k of within) out.push(k * 10 ** e);
    return out.filter((v) => v >= lo * 0.9999 && v <= hi * 1.0001);
  }

  /** Text of a token with its white space visible, as nodes. */
  function visible(text) {
    const marks = { " ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍" };
    const out = [];
    for (const part of String(text).split(/([ \n\t\r]+)/)) {
      if (!part) continue;
      out.push(part[0] in marks ? h("span.ws", {}, [...part].map((c) => marks[c]).join("")) : part);
    }
    return out.length ? out : [h("span.ws", {}, "∅")];
  }

  /** The same as one plain string, without the space a word token starts with. */
  function plain(text) {
    const trimmed = String(text).replace(/^ /, "");
    return (trimmed || "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  }

  /** Float64Array, Float32Array, ... over a bytes trait (a copy where the buffer is not aligned). */
  function array(kind, view) {
    if (!view || !view.byteLength) return new kind(0);
    const buffer = view.buffer ?? view, at = view.byteOffset ?? 0;
    if (at % kind.BYTES_PER_ELEMENT === 0) return new kind(buffer, at, view.byteLength / kind.BYTES_PER_ELEMENT);
    return new kind(buffer.slice(at, at + view.byteLength));
  }

  // ---- small parts -------------------------------------------------------------------------------------------

  /** A tooltip in the top layer: nothing around it can clip it. show(clientX, clientY, ...children), hide(). */
  function tooltip(ui) {
    const box = h("div.lw-tip", { role: "tooltip" });
    const layered = typeof box.showPopover === "function";
    if (layered) box.setAttribute("popover", "manual");
    ui.root.append(box);
    return {
      show(x, y, ...children) {
        box.replaceChildren(...children.flat());
        if (layered) { if (!box.matches(":popover-open")) box.showPopover(); } else box.classList.add("shown");
        const w = box.offsetWidth, t = box.offsetHeight;
        const left = x + 14 + w > innerWidth ? x - w - 14 : x + 14;
        box.style.left = `${Math.max(4, left)}px`;
        box.style.top = `${Math.max(4, Math.min(innerHeight - t - 4, y + 14))}px`;
      },
      hide() {
        if (!layered) box.classList.remove("shown");
        else if (box.isConnected && box.matches(":popover-open")) box.hidePopover();
      },
    };
  }

  /** Rows of [label, value] with bars, as in every list of top tokens. */
  function barRows(rows, colour, most) {
    const top = most ?? Math.max(1e-12, ...rows.map(([, v]) => Math.abs(v)));
    return h("table.bars", {}, h("tbody", {}, rows.map(([label, v]) => h("tr", {},
      h("td.mono", {}, visible(label)),
      h("td.where", {}, h("div.bar", { style: { "--c": colour, width: `${Math.min(100, (100 * Math.abs(v)) / top)}%` } })),
      h("td.num", {}, Math.abs(v) < 1 ? v.toFixed(3) : num(v))))));
  }

  function download(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = h("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  /** Comma-separated text with a header; cells with commas, quotes or newlines are quoted. */
  function csv(rows) {
    const cell = (v) => {
      const text = v === null || v === undefined || Number.isNaN(v) ? "" : String(v);
      return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    };
    return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  /** Sets a trait and tells Python. In an exported page there is no Python and the page simply goes on. */
  function save(model, key, value) {
    model.set(key, value);
    model.save_changes();
  }

  return { h, mount, sized, fit, marker, swatch, HUES, mix, diverging, num, ticks, logTicks, visible, plain, array, tooltip, barRows, download, csv, save };
})();
