// The front page and the page of one station.
const spark = (run, width = 132, height = 34) => {
  const points = run.points ?? [];
  if (points.length < 2) return svg("svg", { width, height, "aria-hidden": "true" });
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs, run.steps ?? 0), Math.min(...ys), Math.max(...ys)];
  const px = (x) => 2 + ((width - 6) * (x - x0)) / (x1 - x0 || 1), py = (y) => height - 4 - ((height - 8) * (y - y0)) / (y1 - y0 || 1);
  const end = points[points.length - 1];
  return svg("svg", { width, height, class: "ll-spark", role: "img", "aria-label": `${run.metric}: from ${figure(ys[0])} to ${figure(end[1])}` },
    svg("line", { x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5, class: "ll-axis" }),
    svg("polyline", { points: points.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" "), class: "ll-line", style: `--c:var(--${run.station})` }),
    svg("circle", { cx: px(end[0]), cy: py(end[1]), r: run.state === "running" ? 3 : 2, class: "ll-end", style: `--c:var(--${run.station})` }));
};

const runState = (run) => {
  if (run.state === "running" || run.state === "starting") {
    const step = run.step === null || run.step === undefined ? run.state : `step ${run.step.toLocaleString("en")}${run.steps ? ` of ${run.steps.toLocaleString("en")}` : ""}`;
    return run.tokens_per_s ? `${step}, ${params(run.tokens_per_s)} tok/s` : step;
  }
  return `${run.state === "lost" ? "process killed, can be resumed" : run.state} ${ago(run.when)}`;
};

const PLACES = { train: "train/first_run", eval: "evals/facts", profile: "kernels/first_kernel", bench: "kernels/first_kernel" };

const runsCard = (data, go) => {
  const runs = data.runs ?? [];
  const trainer = data.notebooks.find((n) => n.path === "train/first_run");
  const rows = runs.map((run) => {
    const place = data.notebooks.find((n) => n.path === PLACES[run.kind]); // where runs of this kind are shown
    const open = () => place && go(place.path, { run: run.id });
    return h("tr.ll-row", { tabindex: place && 0, title: run.error ?? run.id, "data-run": run.id, onclick: open, onkeydown: (e) => e.key === "Enter" && open() },
      h("td", {}, spark(run)),
      h("td.ll-grow", {}, h("b", {}, run.name), h("div.ll-small", {}, runState(run))),
      h("td.ll-n", {}, figure(run.value), h("div.ll-small", {}, run.metric ?? "")));
  });
  return h("section.ll-card", {}, h("h2", {}, "Runs"),
    rows.length ? h("table", {}, h("tbody", {}, rows))
      : h("p.ll-empty", {}, "Nothing has run yet. ", trainer ? h("a", { href: `#/${trainer.path}` }, "Train a first model") : "The first training run will show its curve here."));
};

const startCard = (data) => {
  const rows = data.notebooks.filter((n) => n.start).sort((a, b) => a.order - b.order);
  if (!rows.length) return null;
  return h("section.ll-card", {}, h("h2", {}, "Start here"), h("ul.ll-start", {}, rows.map((n) =>
    h("li", {}, h("a", { href: `#/${n.path}`, style: { "--c": `var(--${n.station})` } }, h("i"), h("span", {}, n.start), h("span.ll-small", {}, n.minutes ?? ""))))));
};

const modelsCard = (data, hand, choose) => {
  const models = data.models;
  const radio = (name, on, label) => h("label.ll-radio", {}, h("input", { type: "radio", name: "ll-model", value: name ?? "", checked: on, onchange: () => choose(name) }), label);
  const rows = (models ?? []).slice(0, 8).map((m) => h("tr", { class: m.name === hand?.name ? "ll-on" : "" },
    h("td", {}, radio(m.name, m.name === hand?.name, h("b", {}, m.title))),
    h("td.ll-n", {}, params(m.params)), h("td.ll-small", {}, `${m.layers} layers, ${m.width} wide`), h("td.ll-small.ll-wide", {}, m.ready ? m.where : "will be fetched when first used")));
  return h("section.ll-card.ll-models", {}, h("h2", {}, "Models at hand"),
    models ? (rows.length ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "in hand"), h("th.ll-n", {}, "parameters"), h("th", {}, "shape"), h("th.ll-wide", {}, "from"))), h("tbody", {}, rows, h("tr", {}, h("td", { colspan: 4 }, radio(null, !hand, h("span.ll-small", {}, "each notebook's own choice")))))) : h("p.ll-empty", {}, "No model is here yet."))
      : h("p.ll-empty", {}, "Looking for models\u2026"));
};

const STATUS = { works: "works, its figure holds", partly: "works in part", "not measured": "can be run, not measured yet", "below its bar": "can be run, its figure misses the bar", missing: "coming" };
const planCard = (data) => {
  const there = data.exhibits.filter((e) => e.notebook).length;
  if (!data.exhibits.length) return null;
  return h("section.ll-card", {}, h("h2", {}, "The plan"),
    h("p.ll-small", {}, `${there} of ${data.exhibits.length} exhibits can be run; the others are coming. `,
      h("span.ll-key", {}, h("i.ll-cell.ll-works"), "measured"), h("span.ll-key", {}, h("i.ll-cell.ll-here"), "runs"), h("span.ll-key", {}, h("i.ll-cell"), "coming")),
    h("div.ll-plan", {}, data.stations.map((s) => {
      const own = data.exhibits.filter((e) => e.station === s.id);
      return h("a.ll-lane", { href: `#/${s.id}`, style: { "--c": `var(--${s.id})` } }, h("span", {}, s.title),
        h("span.ll-cells", {}, own.map((e) => h(`i.ll-cell${e.status === "works" ? ".ll-works" : e.notebook ? ".ll-here" : ""}`, { title: `${e.id}: ${e.title} (${STATUS[e.status] ?? e.status})` }))));
    })));
};

const hardwareText = (hw) => (hw.gpu ? [h("b", {}, hw.gpu), `, ${plural(hw.cores, "core")}`] : [h("b", {}, `${hw.cores} CPU ${hw.cores === 1 ? "core" : "cores"}`), ", no GPU; GPU figures are records"]);

const homePage = (data, acts) => {
  const busy = new Set((data.runs ?? []).filter((r) => r.state === "running").map((r) => r.station));
  return h("div.ll-page", {},
    h("div.ll-top", {}, h("span.ll-chip", { title: data.hardware.line }, hardwareText(data.hardware))),
    h("h1", {}, "One model, every layer"),
    h("p.ll-lead", {}, "Train it, look inside, make its kernels fast, serve it, judge it, and let what you read decide what runs next."),
    h("div.ll-grid", {},
      h("div.ll-stack", {}, h("section.ll-card.ll-mapcard", {}, drawMap(data, acts.station, busy, acts.hand())), modelsCard(data, acts.hand(), acts.choose)),
      h("div.ll-stack", {}, startCard(data), runsCard(data, acts.go), planCard(data))));
};

const stationPage = (data, id) => {
  const station = data.stations.find((s) => s.id === id);
  const own = data.notebooks.filter((n) => n.station === id), coming = data.exhibits.filter((e) => e.station === id && !e.notebook);
  return h("div.ll-page", { style: { "--c": `var(--${id})` } },
    h("div.ll-eyebrow", {}, h("a", { href: "#/" }, "The loop"), " / station"),
    h("h1", {}, h("i.ll-bullet"), station.title), h("p.ll-lead", {}, station.about),
    own.length ? h("div.ll-list", {}, own.map((n) => h("a.ll-card.ll-note", { href: `#/${n.path}` }, h("b", {}, n.title), h("span", {}, n.question), h("span.ll-ids", {}, n.exhibits.join("  "))))) : null,
    coming.length ? h("section.ll-card", {}, h("h2", {}, own.length ? "Still to come" : "Coming"),
      own.length ? null : h("p.ll-small", {}, "Nothing can be run at this station yet. This is what it will hold."),
      h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "exhibit"), h("th", {}, ""), h("th.ll-wide", {}, "what it must measure"))),
        h("tbody", {}, coming.map((e) => h("tr", {}, h("td.ll-ids", {}, e.id), h("td", {}, e.title), h("td.ll-small.ll-wide", {}, e.measures)))))) : null);
};
