// One iframe a notebook, kept alive when one moves on; the least recently used goes when there are too many.
const KEEP = 8;

const makeFrames = (host, tell) => {
  const open = new Map(); // path -> {frame, cover, box, origin, asked}, least recently used first
  let shown = null;

  const post = (entry, message) => entry.frame.contentWindow?.postMessage(message, entry.origin);
  const close = (path) => {
    open.get(path)?.box.remove();
    open.delete(path);
    if (shown === path) shown = null;
    tell.changed();
  };

  const address = (notebook, query, lab, theme) => {
    const url = new URL(`${lab.base}${notebook.path}/`);
    for (const [key, value] of Object.entries(query)) if (value) url.searchParams.set(key, value);
    url.searchParams.set("theme", "system");
    url.searchParams.set("lab", theme);
    if (lab.token) url.searchParams.set("access_token", lab.token);
    return url;
  };

  // `asked` is what the address named itself, `query` that and what the shell adds
  const show = (notebook, asked, query, lab, theme) => {
    let entry = open.get(notebook.path);
    if (!entry) {
      const url = address(notebook, query, lab, theme);
      const frame = h("iframe", { title: notebook.title, src: url.href, allow: "clipboard-write; fullscreen", "data-path": notebook.path });
      const cover = h("div.ll-cover", { style: { "--c": `var(--${notebook.station})` } }, h("div", {}, h("div.ll-eyebrow", {}, "opening"), h("h1", {}, notebook.title), h("p.ll-lead", {}, notebook.question), h("div.ll-progress")));
      const box = h("div.ll-frame", {}, frame, cover);
      entry = { frame, cover, box, origin: url.origin, asked };
      open.set(notebook.path, entry);
      host.append(box);
      // a page that never says it is ready (an error, a slow machine) is uncovered by time
      frame.addEventListener("load", () => setTimeout(() => uncover(entry), 6000));
    }
    if (asked && asked !== entry.asked) { // a link to another model or run: the notebook starts anew with it
      entry.asked = asked;
      entry.frame.src = address(notebook, query, lab, theme).href;
    }
    open.delete(notebook.path);
    open.set(notebook.path, entry); // newest last
    shown = notebook.path;
    for (const [path, other] of open) other.box.classList.toggle("ll-shown", path === shown);
    if (open.size > KEEP) close(open.keys().next().value);
    tell.changed();
  };
  const uncover = (entry) => entry.cover.remove();

  addEventListener("message", (e) => {
    const found = [...open].find(([, entry]) => entry.frame.contentWindow === e.source && entry.origin === e.origin);
    if (!found || typeof e.data?.lab !== "string") return;
    const [path, entry] = found;
    if (e.data.lab === "ready") uncover(entry);
    else tell.message(path, e.data);
  });

  return {
    show, close,
    hide() { shown = null; for (const entry of open.values()) entry.box.classList.remove("ll-shown"); },
    theme(theme) { for (const entry of open.values()) post(entry, { lab: "theme", theme }); },
    has: (path) => open.has(path),
    renamed(path, asked) { if (open.has(path)) open.get(path).asked = asked; },
    size: () => open.size,
    clear() { for (const path of [...open.keys()]) close(path); },
  };
};
