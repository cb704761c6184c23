const ROW = 30, HEAD = 32, EXTRA = 8; // px, px, rows drawn beyond the edges
const FEW = 8; // rows that need no filter

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "table", signal);
  const find = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter rows" });
  const count = h("span.count", { "aria-live": "polite" }), drop = h("button", { type: "button", hidden: true, onclick: () => choose([]) }, "Clear selection");
  const head = h("tr"), body = h("tbody"), widths = h("colgroup");
  const table = h("table", { role: "grid", "aria-multiselectable": "true" }, widths, h("thead", {}, head), body);
  const none = h("div.none", { hidden: true }), scroll = h("div.scroll", { tabindex: "0" }, table, none);
  ui.root.append(h("div.tools", {}, find, count, drop, h("button", { type: "button", onclick: save }, "CSV")), scroll);

  let rows = [], columns = [], view = [], most = {}, chosen = new Set(), at = null, anchor = null, saving = null;
  const id = (i) => rows[i].id ?? i;
  const numeric = (column) => column.kind === "num" || column.kind === "bar";
  const title = (column) => (column.title ?? column.key) + (column.unit ? `, ${column.unit}` : "");

  function figure(column, v) {
    if (v === null || v === undefined) return "–";
    if (typeof v !== "number") return String(v);
    if (column.digits === undefined) return num(v, 4);
    return v.toLocaleString("en", { minimumFractionDigits: column.digits, maximumFractionDigits: column.digits }).replace("-", "−");
  }

  // ---- order -----------------------------------------------------------------------------------------------------

  function arrange() {
    const text = model.get("filter").trim().toLowerCase(), [key, way] = model.get("sort");
    view = rows.map((_, i) => i);
    if (text) view = view.filter((i) => columns.some((column) => String(rows[i][column.key] ?? "").toLowerCase().includes(text)));
    if (key !== undefined) {
      const sign = way === "down" ? -1 : 1;
      view.sort((i, j) => {
        const a = rows[i][key], b = rows[j][key], gone = (v) => v === null || v === undefined;
        if (gone(a) || gone(b)) return gone(a) - gone(b) || i - j; // what is missing stays last either way
        const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
        return sign * order || i - j;
      });
    }
    at = null;
    const total = rows.length.toLocaleString("en");
    count.textContent = (view.length === rows.length ? `${total} rows` : `${view.length.toLocaleString("en")} of ${total} rows`) + (chosen.size ? `, ${chosen.size} selected` : "");
    drop.hidden = !chosen.size;
    find.hidden = rows.length <= FEW && !text;
    none.hidden = view.length > 0;
    none.textContent = rows.length ? "No row contains this text." : "No rows yet.";
    table.setAttribute("aria-rowcount", String(view.length + 1));
    scroll.style.maxHeight = `${HEAD + ROW * Math.max(3, model.get("page")) + 2}px`;
    draw();
  }

  function order(column) {
    const [key, way] = model.get("sort"), first = numeric(column) ? "down" : "up", second = first === "up" ? "down" : "up";
    lab.save(model, "sort", key !== column.key ? [column.key, first] : way === first ? [column.key, second] : []);
  }

  // ---- drawing: only the rows in sight exist ---------------------------------------------------------------------

  function drawHead() {
    const [key, way] = model.get("sort");
    // widths come from the text of up to 300 rows, so that columns stay put while rows come and go
    const sample = rows.filter((_, i) => i % Math.ceil(rows.length / 300) === 0);
    const ch = columns.map((column) => {
      const longest = Math.max(0, ...sample.map((row) => figure(column, row[column.key]).length));
      return Math.max(title(column).length + 1, column.kind === "bar" ? 22 : Math.min(longest * ((column.kind ?? "text") === "text" ? 1.05 : 1.4), 48)) + 3;
    });
    const total = ch.reduce((a, b) => a + b, 0);
    widths.replaceChildren(...ch.map((n) => h("col", { style: { width: `${(100 * n) / total}%` } })));
    table.style.minWidth = `${Math.min(total * 6.2, 260 * columns.length)}px`;
    head.replaceChildren(...columns.map((column) => {
      const on = key === column.key;
      return h(`th${numeric(column) ? ".right" : ""}`, { scope: "col", "aria-sort": on ? (way === "down" ? "descending" : "ascending") : "none" },
        h("button", { type: "button", title: `Sort by ${title(column)}`, onclick: () => order(column) }, title(column), on ? (way === "down" ? " ↓" : " ↑") : ""));
    }));
  }

  function cell(column, row) {
    const v = row[column.key], text = figure(column, v);
    if (column.kind === "mono") return h("td.tokens", { title: text }, lab.visible(text));
    if (column.kind === "bar") {
      const share = typeof v === "number" && most[column.key] ? Math.abs(v) / most[column.key] : 0;
      return h("td.right", {}, h("div.cellbar", {}, h("div.bar", { style: { "--c": v < 0 ? "var(--neg)" : "var(--pos)", width: `${100 * share}%` } }), text));
    }
    return h(`td${column.kind === "num" ? ".right" : ""}`, { title: text }, text);
  }

  function draw() {
    const tall = scroll.clientHeight || 500, first = Math.max(0, Math.floor((scroll.scrollTop - HEAD) / ROW) - EXTRA);
    const last = Math.min(view.length, first + Math.ceil(tall / ROW) + 2 * EXTRA);
    const pad = (n) => (n > 0 ? [h("tr.pad", { "aria-hidden": "true" }, h("td", { colspan: String(Math.max(1, columns.length)), style: { height: `${n * ROW}px` } }))] : []);
    body.replaceChildren(...pad(first), ...view.slice(first, last).map((i, k) => h(`tr${first + k === at ? ".at" : ""}`, {
      "aria-selected": String(chosen.has(id(i))), "aria-rowindex": String(first + k + 2), "data-at": String(first + k),
    }, columns.map((column) => cell(column, rows[i])))), ...pad(view.length - last));
  }

  // ---- choosing --------------------------------------------------------------------------------------------------

  function choose(ids) { lab.save(model, "selected", ids); }
  const span = (a, b) => view.slice(Math.min(a, b), Math.max(a, b) + 1).map(id);
  function flip(k) {
    const one = id(view[k]), now = new Set(chosen);
    if (!now.delete(one)) now.add(one);
    choose([...now]);
  }

  body.addEventListener("click", (event) => {
    const tr = event.target.closest("tr[data-at]");
    if (!tr) return;
    const k = Number(tr.dataset.at);
    if (event.shiftKey && anchor !== null && anchor < view.length) choose(span(anchor, k));
    else {
      if (event.ctrlKey || event.metaKey) flip(k);
      else { const one = id(view[k]); choose(chosen.size === 1 && chosen.has(one) ? [] : [one]); }
      anchor = k;
    }
    at = k;
    draw();
  });
  body.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); });

  scroll.addEventListener("keydown", (event) => {
    if (event.target !== scroll || !view.length) return;
    const sheet = Math.max(1, Math.floor((scroll.clientHeight - HEAD) / ROW) - 1), now = at ?? -1;
    const next = { ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + sheet, PageUp: now - sheet, Home: 0, End: view.length - 1 }[event.key];
    if (next !== undefined) {
      const from = at ?? 0;
      at = Math.max(0, Math.min(view.length - 1, next));
      const top = at * ROW;
      if (top < scroll.scrollTop) scroll.scrollTop = top;
      else if (top + HEAD + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + HEAD + ROW - scroll.clientHeight;
      if (event.shiftKey) { anchor ??= from; choose(span(anchor, at)); } else anchor = at;
    } else if (event.key === " " && at !== null) flip(at);
    else if (event.key === "Enter" && at !== null) choose([id(view[at])]);
    else if (event.key === "Escape") choose([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
    draw();
  });
  scroll.addEventListener("scroll", draw, { passive: true });

  find.addEventListener("input", () => {
    model.set("filter", find.value);
    clearTimeout(saving);
    saving = setTimeout(() => model.save_changes(), 250);
  });
  find.addEventListener("keydown", (event) => event.stopPropagation());
  ui.signal.addEventListener("abort", () => clearTimeout(saving));

  function save() {
    lab.download(`${model.get("name")}.csv`, lab.csv([columns.map(title), ...view.map((i) => columns.map((column) => rows[i][column.key]))]), "text/csv;charset=utf-8");
  }

  // ---- traits ----------------------------------------------------------------------------------------------------

  ui.watch(model, ["rows", "columns"], () => {
    rows = model.get("rows");
    columns = model.get("columns");
    most = Object.fromEntries(columns.filter((c) => c.kind === "bar").map((c) => [c.key, rows.reduce((m, row) => Math.max(m, Math.abs(row[c.key] ?? 0)), 0)]));
    chosen = new Set(model.get("selected"));
    drawHead();
    arrange();
  });
  ui.watch(model, ["sort"], () => { drawHead(); scroll.scrollTop = 0; arrange(); });
  ui.watch(model, ["filter", "page"], () => {
    if (find.value !== model.get("filter")) find.value = model.get("filter");
    scroll.scrollTop = 0;
    arrange();
  });
  ui.watch(model, ["selected"], () => { chosen = new Set(model.get("selected")); const keep = at; arrange(); at = keep; draw(); });
  ui.watch(model, ["name"], () => scroll.setAttribute("aria-label", `${model.get("name")}: arrow keys move, space selects`));
  ui.onPaint(draw);
  return ui.dispose;
}

export default { render };
