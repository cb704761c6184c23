// A native select (keyboard, screen readers and phones know it) and a field for anything not listed.
const OTHER = "\u0000other";

function render({ model, el, signal }) {
  const ui = lab.mount(el, "picker", signal);
  const select = lab.h("select", { "aria-label": "Model" }), detail = lab.h("span.soft");
  const field = lab.h("input", { type: "text", hidden: true, "aria-label": "Directory, hub id or run", placeholder: "directory, org/name or run:id@step", spellcheck: "false" });
  ui.root.append(lab.h("label", {}, "model ", select), field, detail);

  const draw = () => {
    const value = model.get("value"), options = model.get("options");
    const groups = new Map();
    for (const o of options) groups.set(o.group, [...(groups.get(o.group) ?? []), o]);
    select.replaceChildren();
    for (const [name, members] of groups) {
      const group = document.createElement("optgroup");
      group.label = name;
      for (const o of members) group.append(new Option(o.title + (o.ready ? "" : " (will be fetched)"), o.name));
      select.append(group);
    }
    if (value && !options.some((o) => o.name === value)) select.append(new Option(value, value));
    select.append(new Option("another\u2026", OTHER));
    select.value = value;
    const chosen = options.find((o) => o.name === value);
    detail.textContent = chosen?.detail ?? "";
  };

  const choose = (name) => {
    field.hidden = true;
    if (name && name !== model.get("value")) {
      model.set("value", name);
      model.save_changes();
      // one model through every layer: the shell hands it to the notebooks opened next
      window.parent.postMessage({ lab: "model", name }, "*");
    }
    draw();
  };

  select.addEventListener("change", () => {
    if (select.value !== OTHER) return choose(select.value);
    field.hidden = false;
    field.value = "";
    field.focus();
  });
  select.addEventListener("pointerdown", () => model.send({ ask: "options" }));
  select.addEventListener("focus", () => model.send({ ask: "options" }));
  field.addEventListener("keydown", (e) => {
    e.stopPropagation();
    if (e.key === "Enter") choose(field.value.trim());
    if (e.key === "Escape") choose("");
  });
  field.addEventListener("change", () => choose(field.value.trim()));
  // the list is replaced while it may be open: redraw only when it differs
  let shown = "";
  ui.watch(model, ["options", "value"], () => {
    const now = JSON.stringify([model.get("options"), model.get("value")]);
    if (now !== shown) { shown = now; draw(); }
  });
}

export default { render };
