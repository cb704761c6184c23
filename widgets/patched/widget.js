function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "patched", signal);
  const answer = h("div.panel", { "aria-live": "polite" }), goes = h("div.panel"), was = h("div.panel"), lens = h("div.panel.lens");
  ui.root.append(h("div.stack", {}, answer, goes, lens, was));
  let current = model.get("shown").key ?? ""; // the choice on screen: "channel:row,col ..."

  function known() {
    const shown = model.get("shown");
    if (current && shown.key === current) return shown;
    return current ? model.get("cells")[current] : null;
  }

  function build() {
    const before = model.get("before"), found = known();
    const first = before.bars?.[0]?.[0];
    if (found) {
      const top = found.bars?.[0]?.[0];
      const verdict = top === first ? h("span.verdict", {}, "the answer stays ", token(first, "neg"))
        : h("span.verdict.changed", {}, "the answer changes ", token(first, "neg"), " → ", token(top, "pos"));
      answer.replaceChildren(h("h3", {}, found.title ?? ""), verdict, h("p.soft", {}, found.text ?? ""), lab.barRows(found.bars ?? [], "var(--pos)", 1), receipts(found.receipts ?? []) ?? "");
    } else {
      const cells = current ? current.split(" ").length : 0;
      const words = !cells ? "Choose a cell: its activation is copied from the clean run into this one."
        : model.get("live") ? `Patching ${cells === 1 ? "this cell" : `${cells} cells together`} …`
          : cells === 1 ? "This cell was not measured before the page was saved." : `${cells} cells: to patch several together, open the notebook. Each alone is measured here.`;
      answer.replaceChildren(h("h3", {}, cells ? `${cells} cell${cells === 1 ? "" : "s"}` : "Nothing patched"), h("p.soft", {}, words));
    }
    const said = found?.said;
    goes.replaceChildren(h("h3", {}, "It goes on"), said === undefined || said === null
      ? h("p.soft", {}, !found ? "as below" : model.get("live") ? "…" : "not written out for this cell")
      : h("p.mono.text", {}, before.prompt ?? "", h("b", {}, line(said))));
    was.replaceChildren(h("h3", {}, "Unpatched"), lab.barRows(before.bars ?? [], "var(--neg)", 1), h("p.mono.text.old", {}, before.prompt ?? "", h("b", {}, line(before.said ?? ""))));
    ui.repaint();
  }

  const line = (text) => text.replace(/\n+/g, " ⏎ ");
  const token = (text, tone) => h("b.mono", { style: { color: `var(--${tone})` } }, lab.plain(text ?? ""));

  function receipts(rows) {
    if (!rows.length) return null;
    const table = h("table.bars", {}, h("tbody", {}, rows.slice(0, 200).map(([site, fired, changed]) => h("tr", {}, h("td.mono", {}, site), h("td.num", {}, `fired ${fired}×`), h("td.num", {}, `${num(100 * changed)} %`)))));
    return h("details", {}, h("summary", {}, rows.length === 1 ? "receipt" : `${rows.length} receipts`), h("div.scroll", {}, table), rows.length > 200 ? h("p.soft", {}, `and ${rows.length - 200} more`) : null);
  }

  // ---- the logit lens: probability of both answers after every layer, before and after the patch

  const canvas = h("canvas", { role: "img" });
  const body = h("div.scroll"), tops = h("details", {}, h("summary", {}, "likeliest token after every layer"), body);

  function fillTops(data) {
    const cell = ([piece, p], tone) => [h("td.mono", { style: { color: `var(--${tone})` } }, lab.visible(piece)), h("td.num", {}, p.toFixed(3))];
    const rows = data.rows.map((name, i) => h("tr", {}, h("td", {}, name), cell(data.tops[0][i], "neg"), cell(data.tops[1][i], "pos")));
    body.replaceChildren(h("table.bars", {}, h("thead", {}, h("tr", {}, ["layer", "before", "", "patched", ""].map((t) => h("td", {}, t)))), h("tbody", {}, rows.reverse())));
  }

  function chart() {
    const data = known()?.lens;
    lens.hidden = !data;
    if (!data) return;
    fillTops(data);
    const t = ui.colours(), width = Math.max(160, lens.clientWidth - 34), height = 132;
    const hues = [t.pos, t.neg], names = data.tokens.map((x) => lab.plain(x));
    const key = (name, hue) => h("span", {}, h("i", { style: { background: hue } }), h("span.mono", {}, name));
    lens.replaceChildren(h("h3", {}, "Logit lens at the last token"),
      h("div.keys", {}, names.map((name, i) => key(name, hues[i])), h("span", {}, h("i.solid"), "patched"), h("span", {}, h("i.dash"), "before")), canvas, tops);
    canvas.setAttribute("aria-label", `Probability of ${names.join(" and ")} read out after every layer: ${names.map((n, i) => `${n} ends at ${num(data.after[i].at(-1))}, before ${num(data.before[i].at(-1))}`).join("; ")}`);
    const ctx = lab.sized(canvas, width, height), left = 30, right = 8, top = 6, bottom = 30, n = data.rows.length;
    const x = (i) => left + ((width - left - right) * i) / Math.max(1, n - 1), y = (p) => top + (height - top - bottom) * (1 - p);
    ctx.font = `11.5px ${t.sans}`;
    ctx.lineWidth = 1;
    for (const p of [0, 0.5, 1]) {
      ctx.strokeStyle = t.line;
      ctx.beginPath(); ctx.moveTo(left, y(p)); ctx.lineTo(width - right, y(p)); ctx.stroke();
      ctx.fillStyle = t.soft; ctx.textAlign = "right"; ctx.textBaseline = "middle"; ctx.fillText(String(p), left - 6, y(p));
    }
    ctx.textBaseline = "top"; ctx.textAlign = "center";
    const last = n - 2, marks = [0, ...lab.ticks(0, last, 5).filter((v) => Number.isInteger(v) && v > 0 && v < last - 1), last];
    for (const layer of new Set(marks)) ctx.fillText(String(layer), x(layer + 1), height - bottom + 5);
    ctx.textAlign = "left"; ctx.fillText("layer", left, height - 12); ctx.textAlign = "right"; ctx.fillText("probability read out after it", width - right, height - 12);
    for (const [rows, dash] of [[data.before, [3, 3]], [data.after, []]]) rows.forEach((row, i) => {
      ctx.strokeStyle = hues[i]; ctx.lineWidth = dash.length ? 1.2 : 2; ctx.setLineDash(dash);
      ctx.beginPath();
      row.forEach((p, j) => (j ? ctx.lineTo(x(j), y(p)) : ctx.moveTo(x(j), y(p))));
      ctx.stroke();
    });
    ctx.setLineDash([]);
  }

  document.addEventListener("lab:cells", (event) => {
    const { channel, cells } = event.detail;
    if (!model.get("channels").includes(channel)) return;
    current = cells.map(([r, c]) => `${channel}:${r},${c}`).sort().join(" ");
    build();
  }, { signal: ui.signal });
  ui.watch(model, ["before", "cells", "live"], build);
  ui.watch(model, ["opened"], () => {
    current = model.get("opened") || current;
    build();
  });
  ui.watch(model, ["shown"], () => {
    if (!current) current = model.get("shown").key ?? "";
    build();
  });
  ui.onPaint(chart);
  return ui.dispose;
}

export default { render };
