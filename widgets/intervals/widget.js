function render({ model, el, signal }) {
  const { h } = lab;
  const ui = lab.mount(el, "intervals", signal);
  const title = h("h3"), legend = h("div.legend"), grid = h("div.grid");
  ui.root.append(h("div.panel", {}, h("div.head", {}, title, legend), grid));

  const say = (v) => (model.get("percent") ? `${(100 * v).toFixed(1)}%` : lab.num(v)).replace("-", "−");

  function build() {
    const rows = model.get("rows"), [lo, hi] = model.get("span"), at = model.get("at"), colours = ui.colours();
    const place = (v) => 100 * Math.min(1, Math.max(0, (v - lo) / (hi - lo)));
    const series = [...new Set(rows.map((row) => row.series))], labels = [...new Set(rows.map((row) => row.label))];
    const hue = (name) => colours[lab.HUES[series.indexOf(name) % lab.HUES.length]];
    title.textContent = model.get("title");
    legend.replaceChildren(...(series.length > 1 ? series.map((name, i) => h("span", {}, lab.swatch(i, hue(name)), name)) : []));
    const marks = lab.ticks(lo, hi, 4);
    const lines = marks.map((v) => h("i.tick", { style: { left: `${place(v)}%` } }));
    const one = (row) => h("div.track", {
      role: "img", title: row.note ?? "",
      "aria-label": `${row.label}, ${row.series}: ${say(row.value)}, between ${say(row.low)} and ${say(row.high)}${row.note ? `, ${row.note}` : ""}`,
    }, lines.map((line) => line.cloneNode()),
    at === null ? null : h("i.at", { style: { left: `${place(at)}%` } }),
    h("i.line", { style: { left: `${place(row.low)}%`, width: `${Math.max(0.4, place(row.high) - place(row.low))}%`, "--c": hue(row.series) } }),
    h("i.mark", { style: { left: `${place(row.value)}%` } }, lab.swatch(series.indexOf(row.series), hue(row.series))));
    grid.replaceChildren(...labels.flatMap((label) => {
      const mine = rows.filter((row) => row.label === label);
      return [h("div.name", {}, label), h(`div.tracks${series.length > 1 ? "" : ".single"}`, {}, mine.map(one)),
        h(`div.said${series.length > 1 ? "" : ".single"}`, {}, mine.map((row) => h("div", {}, h("b", {}, say(row.value)), h("span.soft", {}, ` ${say(row.low)} to ${say(row.high)}`), row.note ? h("span.soft.note", {}, ` ${row.note}`) : null)))];
    }), h("div.name"), h("div.axis", {}, marks.map((v) => h("span", { style: { left: `${place(v)}%` } }, model.get("percent") ? `${Math.round(100 * v)}%`.replace("-", "−") : lab.num(v)))), h("div"));
  }

  ui.watch(model, ["rows", "title", "span", "at", "percent"], ui.repaint);
  ui.onPaint(build);
  return ui.dispose;
}

export default { render };
