function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "bars", signal);
  const panel = h("div.panel");
  ui.root.append(panel);
  const figure = (v) => (v === null || v === undefined ? "–" : Math.abs(v) < 1 ? v.toFixed(3).replace("-", "−") : num(v));

  function build() {
    const rows = model.get("rows"), compare = model.get("compare").length ? model.get("compare") : null, [before, after] = model.get("names"), unit = model.get("unit");
    const was = new Map(compare ?? []), all = [...rows, ...(compare ?? []).filter(([label]) => !rows.some(([l]) => l === label)).map(([label]) => [label, null])];
    const most = model.get("vmax") ?? Math.max(1e-12, ...[...rows, ...(compare ?? [])].map(([, v]) => Math.abs(v ?? 0)));
    const bar = (cls, v) => h(`div.bar${cls}`, { style: { "--c": v < 0 ? "var(--neg)" : "var(--pos)", width: `${Math.min(100, (100 * Math.abs(v ?? 0)) / most)}%`, visibility: v === null || v === undefined ? "hidden" : null } });
    panel.replaceChildren(
      model.get("title") ? h("h3", {}, model.get("title")) : "",
      h("div.keys", {}, compare ? [h("span", {}, h("i", { style: { background: "var(--pos)" } }), after), h("span", {}, h("i.was"), before)] : null, unit ? h("span", {}, unit) : null),
      h("table.bars", {}, h("tbody", {}, all.map(([label, v]) => h("tr", { title: `${label}: ${compare ? `${before} ${was.get(label) ?? "–"}, ${after} ` : ""}${v ?? "–"} ${unit}` },
        h("td.mono", {}, lab.visible(label)),
        h("td.where", {}, bar("", v), compare ? bar(".was", was.get(label)) : null),
        h("td.num", {}, compare ? h("small", {}, `${figure(was.get(label))} → `) : null, figure(v)))))));
  }

  ui.watch(model, ["rows", "compare", "unit", "title", "names", "vmax"], build);
  return ui.dispose;
}

export default { render };
