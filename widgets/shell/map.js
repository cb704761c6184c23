// The loop as a map: nine stations on a ring, filled where there is a notebook, hollow where it is still to come.
const drawMap = (data, open, busy, hand) => {
  const R = 168, cx = 300, cy = 226, stations = data.stations;
  const at = (i, r = R) => {
    const a = (2 * Math.PI * i) / stations.length - Math.PI / 2;
    return [cx + r * Math.cos(a), cy + r * Math.sin(a)];
  };
  const root = svg("svg", { viewBox: "0 0 600 424", class: "ll-map", role: "group", "aria-label": "The loop: nine stations" });
  const middle = svg("g", { class: "ll-middle", "text-anchor": "middle" });

  const say = (small, large, below) => middle.replaceChildren(
    svg("text", { x: cx, y: cy - 26, class: "ll-dim" }, small),
    svg("text", { x: cx, y: cy + 2, class: "ll-big" }, large),
    ...below.map((line, i) => svg("text", { x: cx, y: cy + 25 + 18 * i, class: "ll-dim" }, line)));
  const rest = () => (hand ? say("model in hand", hand.title, hand.layers ? [`${params(hand.params)} parameters`, `${hand.layers} layers, ${hand.width} wide`] : []) : say("model in hand", "each notebook's own", ["choose one to carry it", "through every layer"]));

  const arc = (i) => {
    const gap = 0.135, step = (2 * Math.PI) / stations.length, a0 = step * i - Math.PI / 2 + gap, a1 = step * (i + 1) - Math.PI / 2 - gap;
    const [x0, y0, x1, y1] = [cx + R * Math.cos(a0), cy + R * Math.sin(a0), cx + R * Math.cos(a1), cy + R * Math.sin(a1)];
    const turn = (a1 * 180) / Math.PI + 90;
    return [svg("path", { d: `M${x0} ${y0}A${R} ${R} 0 0 1 ${x1} ${y1}`, class: "ll-arc" }),
      svg("path", { d: "M-6 -3.5L0 0L-6 3.5", class: "ll-arc", transform: `translate(${x1} ${y1}) rotate(${turn})` })];
  };
  root.append(...stations.flatMap((_, i) => arc(i)), middle);

  stations.forEach((station, i) => {
    const own = data.notebooks.filter((n) => n.station === station.id);
    const coming = data.exhibits.filter((e) => e.station === station.id && !e.notebook).length;
    const [x, y] = at(i);
    const side = Math.abs(x - cx) < 20 ? "middle" : x > cx ? "start" : "end";
    const [lx, ly] = side === "middle" ? [x, y - 41] : [x + (x > cx ? 28 : -28), y + (y > cy + R * 0.8 ? 12 : -2)];
    const count = own.length ? plural(own.length, "notebook") : `${coming} exhibits coming`;
    const node = svg("g", {
      class: `ll-station${own.length ? "" : " ll-coming"}`, tabindex: 0, role: "link", style: `--c:var(--${station.id})`, "data-station": station.id,
      "aria-label": `${station.title}: ${count}`,
      onclick: () => open(station),
      onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(station); } },
      onmouseenter: () => say(station.title, own.length ? (own.length === 1 ? own[0].title : plural(own.length, "notebook")) : "coming", [station.about, coming ? `${plural(coming, "exhibit")} still to come` : ""]),
      onfocus: (e) => e.currentTarget.dispatchEvent(new Event("mouseenter")),
      onmouseleave: rest, onblur: rest,
    },
    busy.has(station.id) && svg("circle", { cx: x, cy: y, r: 18, class: "ll-pulse" }),
    svg("circle", { cx: x, cy: y, r: 25, class: "ll-halo" }),
    svg("circle", { cx: x, cy: y, r: 17, class: "ll-dot" }),
    own.length ? svg("text", { x, y: y + 5, "text-anchor": "middle", class: "ll-count" }, String(own.length)) : null,
    svg("text", { x: lx, y: ly, "text-anchor": side, class: "ll-name" }, station.title),
    svg("text", { x: lx, y: ly + 15, "text-anchor": side, class: "ll-sub" }, own.length ? own.slice(0, 1).map((n) => n.title).join("") + (own.length > 1 ? ` +${own.length - 1}` : "") : `${coming} coming`));
    root.append(node);
  });
  rest();
  return root;
};
