const BEAT = 700; // ms a step while playing
const REST = 120; // ms of rest before a drag is told to Python

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "scrubber", signal);
  const icon = (path) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
    svg.setAttribute("viewBox", "0 0 12 12");
    svg.setAttribute("aria-hidden", "true");
    shape.setAttribute("d", path);
    svg.append(shape);
    return svg;
  };
  const button = h("button", { type: "button", onclick: () => (timer ? stop() : play()) });
  const slider = h("input", { type: "range", min: "0", step: "1" });
  const ticks = h("div", { "aria-hidden": "true" }), rail = h("div.rail", {}, slider, ticks), now = h("div.now");
  ui.root.append(h("div.line", {}, button, rail, now));
  let timer = null, waiting = null;

  const steps = () => model.get("steps");
  const at = () => Math.max(0, steps().indexOf(model.get("value")));

  function face() {
    button.replaceChildren(icon(timer ? "M2 1h3v10H2zM7 1h3v10H7z" : "M2 1l9 5-9 5z"));
    button.setAttribute("aria-label", timer ? "Pause" : "Play through the steps");
  }
  function stop() { clearInterval(timer); timer = null; face(); }
  function play() {
    if (steps().length < 2) return;
    if (at() === steps().length - 1) go(0);
    timer = setInterval(() => { if (at() >= steps().length - 1) stop(); else go(at() + 1); }, BEAT);
    face();
  }
  function go(i) { lab.save(model, "value", steps()[i]); }

  /** Widgets that carry a frame for each step follow at once, in exported pages too. */
  function tell(i) {
    const channel = model.get("channel");
    if (channel && steps().length) el.dispatchEvent(new CustomEvent("lab:step", { bubbles: true, composed: true, detail: { channel, step: steps()[i] } }));
  }

  function show(i) {
    tell(i);
    const label = model.get("labels")[i];
    slider.value = String(i);
    slider.setAttribute("aria-valuetext", steps().length ? `${model.get("title")} ${steps()[i]}${label ? `, ${label}` : ""}` : "none yet");
    now.replaceChildren(...(steps().length ? [h("span", {}, model.get("title")), h("b", {}, steps()[i].toLocaleString("en")), label ? h("span", {}, label) : ""] : [h("span", {}, "none yet")]));
  }

  function build() {
    const n = steps().length;
    slider.max = String(Math.max(0, n - 1));
    slider.disabled = n < 2;
    slider.setAttribute("aria-label", model.get("title"));
    show(at());
    ui.repaint();
  }

  function draw() {
    const n = steps().length, width = slider.clientWidth - 14;
    if (n < 2 || width <= 0) { ticks.replaceChildren(); return; }
    const every = Math.max(1, Math.ceil((n - 1) / Math.max(1, width / 8))), named = Math.max(1, Math.ceil((n - 1) / Math.max(1, width / 62)));
    const marks = [];
    for (let i = 0; i < n; i++) {
      const last = i === n - 1, name = last || (i % named === 0 && n - 1 - i >= named * 0.9);
      if (!name && i % every) continue;
      marks.push(h("div.tick", { style: { left: `${7 + (i / (n - 1)) * width}px` } }, name ? h("span", {}, num(steps()[i], 4)) : null));
    }
    ticks.replaceChildren(...marks);
  }

  slider.addEventListener("input", () => {
    stop();
    const i = Number(slider.value);
    show(i);
    clearTimeout(waiting);
    waiting = setTimeout(() => go(i), REST);
  });
  slider.addEventListener("keydown", (event) => event.stopPropagation());
  ui.signal.addEventListener("abort", () => { stop(); clearTimeout(waiting); });
  face();
  let end = steps().at(-1);
  ui.watch(model, ["steps"], () => {
    const last = steps().at(-1), follow = model.get("value") === null || (model.get("value") === end && last !== end);
    end = last;
    if (follow && last !== undefined && !timer) lab.save(model, "value", last);
  });
  ui.watch(model, ["steps", "labels", "title", "value"], build);
  ui.onPaint(draw);
  return ui.dispose;
}

export default { render };
