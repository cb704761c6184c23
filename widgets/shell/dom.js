// Elements, numbers and times. Nothing here may contain a closing script or head tag: the code is also inlined.
const h = (spec, props = {}, ...children) => {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
};

const svg = (tag, props = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
};

const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const params = (n) => (n >= 1e9 ? `${(n / 1e9).toPrecision(3)}B` : n >= 1e6 ? `${(n / 1e6).toPrecision(3)}M` : n >= 1e3 ? `${(n / 1e3).toPrecision(3)}k` : `${n}`);
const figure = (v) => (v === null || v === undefined || !Number.isFinite(v) ? "" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : v.toPrecision(4));

const ago = (seconds) => {
  const s = Math.max(0, Date.now() / 1000 - seconds);
  if (s < 60) return "just now";
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 172800) return "yesterday";
  return new Date(seconds * 1000).toLocaleDateString("en", { day: "numeric", month: "short" });
};

const kept = (key, value) => {
  // storage may be forbidden; the lab then simply forgets
  try {
    if (value === undefined) return localStorage.getItem(`looplab.${key}`);
    localStorage.setItem(`looplab.${key}`, value);
  } catch { /* nothing to keep */ }
  return null;
};

/** "#/interp/patching?model=x" -> {path, station, topic, query}. */
const parseRoute = (hash) => {
  const [path, query] = decodeURI(hash.replace(/^#\/?/, "")).split("?");
  const clean = path.replace(/\/+$/, "");
  return { path: clean, station: clean.split("/")[0], topic: clean.split("/").slice(1).join("/"), query: new URLSearchParams(query ?? "") };
};
