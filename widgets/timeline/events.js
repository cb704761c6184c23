// The events of a timeline: columns out of bytes, the rows they are drawn in, sums over what is in view.
const BAR = 17, GAP = 10, LABEL = 18, RULER = 22, MAP = 26, MEMORY = 54; // px

/** Columns as typed arrays, rows (one for each lane and depth) with their place in px, memory, the whole span. */
function readEvents(model) {
  const n = model.get("count"), raw = model.get("data");
  const buffer = raw.buffer ? raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength) : raw;
  let at = 0;
  const take = (kind) => { const a = new kind(buffer, at, n); at += a.byteLength; return a; };
  const start = take(Float64Array), dur = take(Float32Array), own = take(Float32Array), flops = take(Float32Array), moved = take(Float32Array), device = take(Float32Array);
  const name = take(Uint32Array), lane = take(Uint16Array), depth = take(Uint16Array);

  let span = 1e-3, y = MAP + RULER;
  const deepest = model.get("lanes").map(() => 0);
  for (let i = 0; i < n; i++) {
    span = Math.max(span, start[i] + dur[i]);
    deepest[lane[i]] = Math.max(deepest[lane[i]], depth[i]);
  }
  const tops = [], first = [], places = []; // of each lane: its top and its first row; of each row: its top
  for (const d of deepest) {
    tops.push(y);
    first.push(places.length);
    for (let j = 0; j <= d; j++) places.push(y + LABEL + j * BAR);
    y += LABEL + (d + 1) * BAR + GAP;
  }
  const lists = places.map(() => []);
  for (let i = 0; i < n; i++) lists[first[lane[i]] + depth[i]].push(i);
  const rows = lists.map((list, r) => ({ y: places[r], at: Uint32Array.from(list) }));

  const both = lab.array(Float64Array, model.get("memory_data")), half = both.length / 2;
  const mem = { t: both.subarray(0, half), v: both.subarray(half), top: 1, y: y + LABEL };
  for (const v of mem.v) mem.top = Math.max(mem.top, v);
  const height = y + (half ? LABEL + MEMORY + GAP : 0);
  return { n, start, dur, own, flops, moved, device, name, lane, depth, names: model.get("names"), span, rows, tops, height, mem };
}

/** The first place in a row's list whose event ends after t: a row is sorted and its events do not overlap. */
function firstEndingAfter({ start, dur }, list, t) {
  let lo = 0, hi = list.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (start[list[mid]] + dur[list[mid]] < t) lo = mid + 1; else hi = mid; }
  return lo;
}

/** One table row a name, over the events in view; a call nested in one of the same name is the same call. */
function operatorsInView({ n, start, dur, own, flops, moved, device, name, lane, names }, [from, to]) {
  const sums = names.map(() => null), open = new Map();
  for (let i = 0; i < n; i++) {
    if (start[i] > to) break;
    if (start[i] + dur[i] < from) continue;
    const k = name[i], sum = (sums[k] ??= { calls: 0, self: 0, total: 0, flops: 0, bytes: 0, device: 0 });
    sum.self += own[i];
    sum.flops += flops[i];
    sum.bytes += moved[i];
    sum.device += device[i];
    const key = k * 65536 + lane[i], end = open.get(key) ?? -1;
    if (start[i] >= end) { sum.calls++; sum.total += dur[i]; open.set(key, start[i] + dur[i]); }
  }
  return sums.flatMap((sum, k) => (sum ? [{
    id: names[k].name, ...names[k], shapes: names[k].shapes ?? "", calls: sum.calls, self: sum.self / 1e3, total: sum.total / 1e3,
    device: sum.device ? sum.device / 1e3 : null, gflop: sum.flops ? sum.flops / 1e9 : null,
    rate: sum.flops ? sum.flops / (sum.device || sum.total) / 1e3 : null, // the CPU's time of a launched product is only its launch
    mb: sum.bytes ? sum.bytes / 1e6 : null,
  }] : []));
}

/** The table widget's own code over a model of its own: choice and filter are the timeline's, rows are given. */
function operatorTable(model, el, signal, onGpu) {
  const shared = new Set(["selected", "filter"]), heard = {};
  const local = {
    rows: [], page: 12, sort: ["self", "down"], name: "operators",
    columns: [
      { key: "name", title: "operator" }, { key: "group", title: "for" }, { key: "kind", title: "kind of event" }, { key: "calls", kind: "num" },
      { key: "self", title: "self", unit: "ms", kind: "bar" }, { key: "total", title: "total", unit: "ms", kind: "num" },
      ...(onGpu ? [{ key: "device", title: "GPU", unit: "ms", kind: "num" }] : []),
      { key: "gflop", title: "work", unit: "GFLOP", kind: "num" }, { key: "rate", title: "rate", unit: "GFLOP/s", kind: "num" },
      { key: "mb", title: "MB in", kind: "num" }, { key: "shapes", title: "first shapes" },
    ],
  };
  const within = {
    get: (key) => (shared.has(key) ? model.get(key) : local[key]),
    set(key, value) {
      if (shared.has(key)) model.set(key, value);
      else { local[key] = value; (heard[key] ?? []).forEach((fn) => fn()); }
    },
    save_changes: () => model.save_changes(),
    on(event, fn) {
      const key = event.replace("change:", "");
      if (shared.has(key)) model.on(event, fn); else (heard[key] ??= []).push(fn);
    },
    off(event, fn) {
      const key = event.replace("change:", "");
      if (shared.has(key)) model.off(event, fn); else heard[key] = (heard[key] ?? []).filter((other) => other !== fn);
    },
  };
  drawTable({ model: within, el, signal });
  return { show: (rows) => within.set("rows", rows) };
}
