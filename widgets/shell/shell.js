// The shell: sidebar, search, routes, theme; it owns the page and the frames. One a window, whoever asks first.
function looplab(first) {
  if (window.looplab) return window.looplab;
  performance.setResourceTimingBufferSize(2000);
  let data = { stations: [], notebooks: [], exhibits: [], runs: null, models: null, hardware: { cores: 0, gpu: "", line: "" }, lab: null, trouble: "", ...first };
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosenTheme = kept("theme") ?? "system", picked = kept("model") || null;

  // ---- skeleton: it stands beside the body, which marimo owns
  const nav = h("nav.ll-nav", { "aria-label": "Notebooks" }), home = h("main.ll-home"), frames = h("div.ll-frames");
  const find = h("input.ll-find", { type: "search", placeholder: "Find a notebook", "aria-label": "Find a notebook", role: "combobox", "aria-expanded": "false", "aria-controls": "ll-list", spellcheck: "false", autocomplete: "off" });
  const list = h("div.ll-navlist", { id: "ll-list" });
  const themeButton = h("button.ll-plain", { type: "button", onclick: () => setTheme(theme() === "dark" ? "light" : "dark") });
  const menu = h("button.ll-menu", { type: "button", "aria-label": "Notebooks", onclick: () => root.classList.toggle("ll-open") }, "\u2630");
  const banner = h("div.ll-banner", { role: "status", hidden: true });
  nav.append(h("a.ll-brand", { href: "#/" }, h("i"), "looplab"), h("div.ll-findbox", {}, find, h("kbd", {}, "/")), list, h("div.ll-foot", {}, themeButton));
  const root = h("div.ll-root", { id: "looplab" }, nav, h("div.ll-body", {}, banner, home, frames), menu);

  // ---- theme
  const theme = () => (chosenTheme === "system" ? (system.matches ? "dark" : "light") : chosenTheme);
  const paintTheme = () => {
    root.dataset.theme = theme();
    document.documentElement.style.colorScheme = theme();
    themeButton.textContent = theme() === "dark" ? "\u25d1 Light" : "\u25d0 Dark";
    themeButton.setAttribute("aria-label", `Switch to ${theme() === "dark" ? "light" : "dark"}`);
    deck?.theme(theme());
  };
  const setTheme = (name) => { chosenTheme = name; kept("theme", name); paintTheme(); };
  system.addEventListener("change", paintTheme);

  // ---- the model in hand: given to every notebook opened from now on; none: each takes its own default
  const hand = () => (picked ? data.models?.find((m) => m.name === picked) ?? { name: picked, title: picked.replace(/^run:/, "") } : null);
  const choose = (name) => { picked = name; kept("model", name ?? ""); draw(); };

  // ---- routes
  const href = (path, query = {}) => {
    const text = new URLSearchParams(Object.entries(query).filter(([, v]) => v)).toString();
    return `#/${path}${text ? `?${text}` : ""}`;
  };
  const go = (path, query) => { location.hash = href(path, query); };
  const openStation = (station) => {
    const own = data.notebooks.filter((n) => n.station === station.id);
    go(own.length === 1 ? own[0].path : station.id);
  };

  const deck = makeFrames(frames, {
    changed: () => drawNav(),
    message(path, message) {
      if (message.lab === "find") { find.focus(); find.select(); }
      if (message.lab === "model" && typeof message.name === "string") {
        picked = message.name;
        kept("model", picked);
        const here = parseRoute(location.hash);
        if (here.path !== path) return;
        here.query.set("model", picked);
        history.replaceState(null, "", href(path, Object.fromEntries(here.query)));
        deck.renamed(path, here.query.toString());
      }
      if (message.lab === "go" && typeof message.path === "string") go(message.path, message.query);
    },
  });

  const unreachable = () => `Notebooks are served on the loopback address of the machine that runs this page, which this browser cannot reach. There, start \u201cpython -m lab serve --host ${location.hostname}\u201d instead and open the address it prints.`;
  const say = (text) => { banner.textContent = text; banner.hidden = !text; };

  const route = () => {
    const { path, station, query } = parseRoute(location.hash);
    const notebook = data.notebooks.find((n) => n.path === path);
    root.classList.remove("ll-open");
    if (notebook) {
      document.title = `${notebook.title} \u00b7 looplab`;
      if (lab.state !== "ready" && !deck.has(path)) return waiting(notebook);
      const asked = Object.fromEntries(query);
      deck.show(notebook, query.toString(), { ...asked, model: asked.model ?? picked }, lab, theme());
      home.hidden = true;
    } else {
      deck.hide();
      home.hidden = false;
      const known = data.stations.find((s) => s.id === path);
      document.title = known ? `${known.title} \u00b7 looplab` : "looplab";
      drawHome(known, path && !known ? path : null);
    }
    drawNav();
  };
  const waiting = (notebook) => {
    deck.hide();
    home.hidden = false;
    home.replaceChildren(h("div.ll-page", { style: { "--c": `var(--${notebook.station})` } }, h("div.ll-eyebrow", {}, "opening"), h("h1", {}, notebook.title), h("p.ll-lead", {}, notebook.question),
      lab.state === "unreachable" ? h("p.ll-trouble", { role: "alert" }, unreachable()) : data.trouble ? h("p.ll-trouble", { role: "alert" }, data.trouble) : h("div.ll-progress")));
    drawNav();
  };

  // ---- the server of the notebooks: same origin, or a child on a loopback port
  const lab = { state: "starting", base: "", token: "" };
  const reach = async () => {
    const given = data.lab;
    if (!given) { lab.state = "starting"; return; }
    const base = given.port ? `${location.protocol}//${location.hostname}:${given.port}/nb/` : new URL("nb/", location.href.split("#")[0]).href;
    if (lab.state === "ready" && base === lab.base && given.token === lab.token) return;
    if (lab.base && base !== lab.base) deck.clear(); // a new server: the old notebooks are gone with the old one
    Object.assign(lab, { base, token: given.token });
    try {
      // any answer will do: it shows that this browser can reach the port
      if (given.port) await fetch(base, { mode: "no-cors", signal: AbortSignal.timeout(10000) });
      lab.state = "ready";
    } catch (error) {
      // refused: not our machine, or the server is gone; no answer yet: a busy machine. Either may change.
      lab.state = error.name === "TimeoutError" ? "starting" : "unreachable";
      setTimeout(reach, 2000);
    }
    say(lab.state === "unreachable" ? unreachable() : "");
    route();
    if (given.port && lab.state === "ready") setTimeout(() => fetchAhead(base), 1500);
  };
  // The notebooks' pages load the files this page has loaded, but from the other port: have them in the
  // browser's cache before the first one is opened.
  const fetchAhead = async (base) => {
    const files = performance.getEntriesByType("resource").map((r) => r.name).filter((n) => n.startsWith(`${location.origin}/assets/`));
    const queue = [...new Set(files)].map((n) => new URL(n.slice(location.origin.length), base).href);
    const worker = async () => {
      while (queue.length && !deck.size() && base === lab.base) await fetch(queue.shift(), { mode: "no-cors", priority: "low" }).catch(() => {});
    };
    await Promise.all([worker(), worker(), worker()]);
  };

  // ---- drawing
  let drawnHome = "";
  const drawHome = (station, lost) => {
    const now = JSON.stringify([station?.id, lost, data.stations, data.notebooks, data.exhibits, data.runs, data.models, data.hardware, picked]);
    if (now === drawnHome && home.firstChild && !home.querySelector(".ll-progress")) return;
    drawnHome = now;
    const focus = document.activeElement?.dataset?.station, at = home.scrollTop;
    const page = station ? stationPage(data, station.id) : homePage(data, { station: openStation, go, hand, choose });
    if (lost) page.prepend(h("p.ll-trouble", { role: "alert" }, `There is no notebook or station \u201c${lost}\u201d; here is what there is.`));
    home.replaceChildren(page);
    home.scrollTop = at;
    if (focus) home.querySelector(`[data-station="${focus}"]`)?.focus();
  };

  const matches = (words, text) => words.every((w) => text.toLowerCase().includes(w));
  const drawNav = () => {
    const here = parseRoute(location.hash), words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const link = (n, extra) => h("div.ll-item", {}, h("a", { href: `#/${n.path}`, class: n.path === here.path ? "ll-on" : "", style: { "--c": `var(--${n.station})` }, "aria-current": n.path === here.path && "page" }, n.title, extra),
      deck.has(n.path) && h("button.ll-close", { type: "button", title: `Close ${n.title}: its state is forgotten`, "aria-label": `Close ${n.title}`, onclick: () => { deck.close(n.path); if (n.path === here.path) go(""); } }, "\u00d7"));
    if (words.length) {
      const found = data.notebooks.filter((n) => matches(words, [n.title, n.question, n.station, data.stations.find((s) => s.id === n.station)?.title, ...n.exhibits, ...data.exhibits.filter((e) => n.exhibits.includes(e.id)).map((e) => e.title)].join(" ")));
      const coming = data.exhibits.filter((e) => !e.notebook && matches(words, `${e.id} ${e.title} ${e.measures}`));
      list.replaceChildren(...found.map((n) => link(n, h("span.ll-small", {}, n.question))),
        coming.length ? h("h4", {}, "Coming") : "", ...coming.slice(0, 12).map((e) => h("div.ll-item", {}, h("a.ll-soon", { href: `#/${e.station}`, style: { "--c": `var(--${e.station})` } }, h("span.ll-ids", {}, e.id), ` ${e.title}`))),
        found.length + coming.length ? "" : h("p.ll-empty", {}, `Nothing is called \u201c${find.value}\u201d.`));
    } else {
      list.replaceChildren(...data.stations.flatMap((s) => {
        const own = data.notebooks.filter((n) => n.station === s.id), coming = data.exhibits.filter((e) => e.station === s.id && !e.notebook).length;
        return [h("h4", { style: { "--c": `var(--${s.id})` }, class: own.length ? "" : "ll-coming" }, h("a", { href: `#/${s.id}`, class: here.path === s.id ? "ll-on" : "" }, h("b"), s.title, own.length ? "" : h("span.ll-small", {}, `${coming} coming`))), ...own.map((n) => link(n))];
      }));
    }
    find.setAttribute("aria-expanded", String(words.length > 0));
  };
  const draw = () => { drawNav(); if (!home.hidden) route(); };

  // ---- keys
  find.addEventListener("input", drawNav);
  nav.addEventListener("keydown", (e) => {
    const links = [find, ...list.querySelectorAll("a")], i = links.indexOf(document.activeElement);
    if (e.key === "Escape") { find.value = ""; find.blur(); drawNav(); }
    else if (e.key === "Enter" && document.activeElement === find && find.value) { list.querySelector("a")?.click(); find.value = ""; find.blur(); drawNav(); }
    else if (e.key === "ArrowDown" && i >= 0) { e.preventDefault(); links[Math.min(links.length - 1, i + 1)].focus(); }
    else if (e.key === "ArrowUp" && i > 0) { e.preventDefault(); links[i - 1].focus(); }
  });
  addEventListener("keydown", (e) => {
    const typing = e.composedPath()[0]?.matches?.("input, textarea, select, [contenteditable]");
    if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); root.classList.add("ll-open"); find.focus(); find.select(); }
  }, true);
  addEventListener("hashchange", route);

  // ---- data: from the head at first, then from Python whenever something changed
  const update = (part) => {
    data = { ...data, ...part };
    say(data.trouble || (lab.state === "unreachable" ? unreachable() : ""));
    if ("lab" in part) reach();
    draw();
  };
  window.looplab = {
    update,
    connect(model) {
      const names = ["stations", "notebooks", "exhibits", "hardware", "runs", "models", "lab", "trouble"];
      const take = (keys) => update(Object.fromEntries(keys.map((k) => [k, model.get(k)]).filter(([k, v]) => v !== null || k === "lab")));
      for (const name of names) model.on(`change:${name}`, () => take([name]));
      take(names);
    },
  };
  document.documentElement.append(root);
  paintTheme();
  reach();
  route();
  return window.looplab;
}
