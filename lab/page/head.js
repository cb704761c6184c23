// Runs in the head of every notebook the lab serves, before marimo starts.
// The shell opens a notebook with ?theme=system&lab=<light|dark> and later posts {lab: "theme", theme};
// a shared file sets window.labTheme and posts the same to itself.
// marimo follows the system's colour scheme through matchMedia, so answering that one question
// for it makes a live switch reach marimo, plotly and every widget at once.
(() => {
  const asked = new URLSearchParams(location.search).get("lab") ?? window.labTheme;
  if (asked !== "light" && asked !== "dark") return;
  const real = window.matchMedia.bind(window);
  const scheme = new EventTarget();
  let dark = asked === "dark";
  const paint = () => {
    document.documentElement.classList.toggle("dark", dark);
    document.documentElement.classList.toggle("light", !dark);
  };
  window.matchMedia = (query) => {
    const m = /prefers-color-scheme:\s*(dark|light)/.exec(query);
    if (!m) return real(query);
    const answer = new EventTarget();
    Object.defineProperty(answer, "matches", { get: () => dark === (m[1] === "dark") });
    answer.media = query;
    answer.addListener = (f) => answer.addEventListener("change", f);
    answer.removeListener = (f) => answer.removeEventListener("change", f);
    scheme.addEventListener("change", () => {
      const e = new Event("change");
      e.matches = answer.matches;
      e.media = query;
      answer.onchange?.(e);
      answer.dispatchEvent(e);
    });
    return answer;
  };
  window.addEventListener("message", (e) => {
    if (e.source !== window.parent || e.data?.lab !== "theme") return;
    dark = e.data.theme === "dark";
    paint();
    scheme.dispatchEvent(new Event("change"));
  });
  // A link to another notebook (lab/page/links.py) is followed by the shell, which keeps this page alive.
  window.addEventListener("click", (e) => {
    const link = e.composedPath().find((node) => node.dataset?.go);
    if (!link || window.parent === window || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    window.parent.postMessage({ lab: "go", path: link.dataset.go, query: JSON.parse(link.dataset.query) }, "*");
  });
  // Keys pressed inside a notebook that belong to the shell around it.
  window.addEventListener("keydown", (e) => {
    const typing = e.composedPath()[0]?.matches?.("input, textarea, select, [contenteditable], [contenteditable] *");
    if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      window.parent.postMessage({ lab: "find" }, "*");
    }
  });
  paint();
  // Tell the shell when there is something to see; it shows the title until then.
  const seen = () => document.querySelector(".marimo-cell .output-area")?.innerText.trim();
  const watch = new MutationObserver(() => {
    if (!seen()) return;
    watch.disconnect();
    window.parent.postMessage({ lab: "ready" }, "*");
  });
  watch.observe(document, { childList: true, subtree: true });
})();
