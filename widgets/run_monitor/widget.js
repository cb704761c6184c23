const LIVE = ["starting", "running"];
const WORDS = { starting: "starting", running: "running", done: "done", cancelled: "cancelled", failed: "failed", lost: "interrupted" };

function span(seconds) {
  const s = Math.max(0, Math.round(seconds)), pad = (n) => String(n).padStart(2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}:${pad(s % 60)}` : `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}`;
}

function render({ model, el, signal }) {
  const { h, num } = lab;
  const ui = lab.mount(el, "run_monitor", signal);
  const word = h("b.state", { role: "status" }), label = h("span.mono.label"), at = h("span.at");
  const button = h("button", { type: "button", onclick: () => {
    button.disabled = true;
    model.send({ do: LIVE.includes(model.get("state")) ? "cancel" : "resume" });
    setTimeout(() => { button.disabled = false; }, 1500);
  } });
  const bar = h("div.done"), track = h("div.track", { role: "progressbar", "aria-valuemin": "0", "aria-label": "Steps done" }, bar);
  const message = h("p.message", { role: "alert" }), figures = h("dl"), samples = h("div.samples");
  ui.root.append(h("div.row", {}, h("i.dot"), word, label, at, button), track, message, figures, samples);

  let before = model.get("state");
  ui.watch(model, ["state", "label", "step", "steps", "seconds", "left", "live"], () => {
    const state = model.get("state"), step = model.get("step"), steps = model.get("steps"), live = LIVE.includes(state);
    ui.root.dataset.state = state;
    word.textContent = WORDS[state] ?? state;
    label.textContent = model.get("label");
    const left = live && model.get("left") !== null ? `, about ${span(model.get("left"))} left` : "";
    at.textContent = `step ${step.toLocaleString("en")}${steps ? ` of ${steps.toLocaleString("en")}` : ""}, ${span(model.get("seconds"))}${left}`;
    button.hidden = !model.get("live") || !(live || ["cancelled", "failed", "lost"].includes(state));
    button.textContent = live ? "Cancel" : "Resume";
    bar.style.width = `${steps ? Math.min(100, (100 * step) / steps) : 0}%`;
    track.setAttribute("aria-valuenow", step);
    track.setAttribute("aria-valuemax", steps);
    if (LIVE.includes(before) && !live && model.get("live")) lab.save(model, "ended", model.get("ended") + 1);
    before = state;
  });
  ui.watch(model, ["message"], () => {
    message.textContent = model.get("message");
    message.hidden = !message.textContent;
  });
  ui.watch(model, ["figures", "values"], () => {
    const values = model.get("values");
    figures.replaceChildren(...model.get("figures").filter((one) => one.key in values).map((one) => h("div", {},
      h("dt", {}, one.label), h("dd", {}, one.unit === "%" ? (100 * values[one.key]).toFixed(1) : num(values[one.key]), one.unit ? h("small", {}, ` ${one.unit}`) : null))));
  });
  ui.watch(model, ["samples"], () => {
    samples.replaceChildren(...model.get("samples").slice(-3).reverse().map((one) => h("p", {},
      h("span.when", {}, `step ${one.step.toLocaleString("en")}`), h("span.mono", {}, h("span.prompt", {}, one.prompt), one.text))));
  });
  return ui.dispose;
}

export default { render };
