"""Make the page `marimo export html` writes open from disk with the network off.

The export loads marimo's front end from a CDN. Here the same modules, which the marimo package carries in
`_static`, travel inside the page: rewritten to bare names (`m/<file>`), gzipped, and given back to the browser
as blobs behind an import map. Only modules that a read-only page can reach are packed, and those behind a
dynamic import (plotly, mermaid, ...) only when the page holds an element that asks for them. A content
security policy forbids every request, so a page cannot reach out even by mistake.

The marimo version is pinned; whatever this file expects of its assets and does not find is a `LabError`.
"""

import base64
import gzip
import json
import re
from functools import cache
from html import escape
from pathlib import Path

import marimo

from lab.errors import LabError
from lab.page import style

ASSETS = Path(marimo.__file__).parent / "_static" / "assets"

# Chunks behind a dynamic import and the text in a page that calls for them; None: never in a read-only page.
OPTIONAL: dict[str, str | None] = {
    "Plot": "<marimo-plotly",
    "mermaid": "mermaid",
    "vega-component": "<marimo-vega",
    "vega-embed-container": "vega-lite",
    "katex": "<marimo-tex",
    "mhchem": "<marimo-tex",
    "chat-ui": "<marimo-chatbot",
    "ConnectedDataExplorerComponent": "<marimo-data-explorer",
    "glide-data-editor": "<marimo-data-editor",
    "ImageComparisonComponent": "<marimo-image-comparison",
    "swiper-component": "<marimo-carousel",
    "reveal-component": None,
    "any-language-editor": "<marimo-code-editor",
    "edit-page": None,
    "home-page": None,
    "gallery-page": None,
    "feedback-button": None,
    "node-sql-parser": None,
}

POLICY = "default-src blob: data: 'unsafe-inline' 'unsafe-eval'"
ICON = (
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 20' fill='none' stroke-width='4'>"
    "<path d='M3 10a7 7 0 0 1 7-7' stroke='%23138a80'/><path d='M10 3a7 7 0 0 1 7 7' stroke='%23d97b29'/>"
    "<path d='M17 10a7 7 0 0 1-7 7' stroke='%23c8453b'/><path d='M10 17a7 7 0 0 1-7-7' stroke='%232f74c0'/></svg>"
)

# What a shared page must not do: say that nothing in it works, ask a CDN for MathJax or its folder for an icon.
EDITS: dict[str, tuple[re.Pattern[str], str]] = {
    "the static-notebook notice": (re.compile(r"\w+\(\{id:\w+,once:!0,title:`Static notebook`[^}]*\}\)"), ""),
    "the address of MathJax": (re.compile(r"https://cdn\.jsdelivr\.net/npm/mathjax[^`\"']*"), "data:text/javascript,"),
    "the address of its icon": (re.compile(r"\./favicon\.ico"), ICON),
}

# marimo reads its own style sheet from the element that carries data-vite-dev-id, to hand it to shadow roots
LOADER = """
(async () => {
  const fail = (why) => {
    const p = document.getElementById('lab-opening');
    if (p) p.textContent = 'This page could not start (' + why + '). It needs Chrome 89, Firefox 113, Safari 16.4 or newer.';
  };
  addEventListener('unhandledrejection', (e) => { if (!document.getElementById('root').childElementCount) fail(e.reason); });
  try {
    const packed = Uint8Array.from(atob(document.getElementById('lab-assets').textContent), c => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    const {css, js} = JSON.parse(await new Response(stream).text());
    const style = document.createElement('style');
    style.dataset.viteDevId = 'marimo';
    style.textContent = css;
    document.head.prepend(style);
    const imports = {};
    for (const [name, text] of Object.entries(js))
      imports['m/' + name] = URL.createObjectURL(new Blob([text], {type: 'text/javascript'}));
    const map = document.createElement('script');
    map.type = 'importmap';
    map.textContent = JSON.stringify({imports});
    document.head.append(map);
    await import('m/ENTRY');
    const opened = () => document.getElementById('root').childElementCount && document.getElementById('lab-opening')?.remove();
    new MutationObserver(opened).observe(document.getElementById('root'), {childList: true});
    opened();
  } catch (e) { fail(e); }
})();
"""

BANNER = """
<style>
.lab-shared{display:flex;gap:4px 14px;align-items:baseline;flex-wrap:wrap;padding:9px 24px;border-bottom:1px solid #e7e4dc;
  font:13px/1.45 "PT Sans",ui-sans-serif,system-ui,"Segoe UI",sans-serif;color:#5d636e;background:#fbfaf7}
.lab-shared b{color:#17191d}.lab-shared span{flex:1 1 24em}
.lab-shared button{font:inherit;color:inherit;background:none;border:1px solid #e7e4dc;border-radius:999px;padding:1px 12px;cursor:pointer}
.dark .lab-shared{color:#a3aab5;background:#111316;border-color:#2a2e34}.dark .lab-shared b{color:#eceef1}
.dark .lab-shared button{border-color:#2a2e34}
#lab-opening{padding:24px;font:15px/1.5 ui-sans-serif,system-ui,sans-serif;color:#5d636e}
[data-testid=watermark]{display:none}
/* marimo's page is an absolute full-height scroller: the bar takes its share of the window */
@media screen{body{display:flex;flex-direction:column;height:100vh}#root{flex:1;min-height:0;position:relative}}
@media print{.lab-shared button{display:none}}
</style>
<div class="lab-shared"><b>looplab</b><span>NOTE</span><button type="button" id="lab-theme" aria-label="Switch between dark and light">Dark / light</button></div>
<p id="lab-opening">Opening…</p>
<script>
document.getElementById('lab-theme').onclick = () => {
  labTheme = labTheme === 'dark' ? 'light' : 'dark';
  postMessage({lab: 'theme', theme: labTheme}, '*');
};
</script>
"""

# before lab/page/head.js, which answers marimo's question for the colour scheme with labTheme
THEME = "var labTheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';"


def inline(html: str, title: str, note: str) -> str:
    """One self-contained page from `html`, the text `marimo export html` wrote.

    `title` names the tab; `note` is the plain-text line at the top that says what the page is. Raises `LabError`
    when the page or marimo's assets are not as this version of the lab knows them.
    """
    entry = re.search(r'<script type="module"[^>]*src="[^"]*/assets/(index-[\w-]+\.js)"[^>]*></script>', html)
    if not entry or '<div id="root"></div>' not in html or "</body>" not in html:
        raise _changed("the exported page has no script to start from")
    modules = _modules(entry[1], html)
    pack = gzip.compress(json.dumps({"css": _css(html, modules), "js": modules}).encode(), 9, mtime=0)
    html = html.replace(entry[0], "")
    html = re.sub(r"<link\b[^>]*>", "", html)
    html = re.sub(r"<title>.*?</title>", lambda _: f"<title>{escape(title)}</title>", html, count=1, flags=re.S)
    # the viewer's own preference, not that of the machine that exported
    html, themed = re.subn(r'("display": \{[^{}]*"theme": )"\w+"', r'\1"system"', html, count=1)
    if not themed:
        raise _changed("the exported page does not say its theme")
    html = re.sub(r"<head>", lambda _: (
        f'<head>\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<link rel="icon" href="{ICON}">'
        f"<script>{THEME}</script>{style.head()}"
    ), html, count=1)
    html = html.replace('<div id="root"></div>', BANNER.replace("NOTE", escape(note)) + '<div id="root"></div>', 1)
    tail = (
        f'<script type="text/plain" id="lab-assets">{base64.b64encode(pack).decode()}</script>'
        f"<script>{LOADER.replace('ENTRY', entry[1])}</script>"
    )
    end = html.rindex("</body>")
    return html[:end] + tail + html[end:]


def _changed(what: str) -> LabError:
    return LabError(
        f"Sharing does not know marimo {marimo.__version__} ({what}): install the version pyproject.toml asks for."
    )


_SPECIFIER = r"""(["'`])\./([\w.+-]+\.js)\1"""
_STATIC = re.compile(r"\b(?:from|import)\s*" + _SPECIFIER)
_DYNAMIC = re.compile(r"\bimport\s*\(\s*" + _SPECIFIER)


@cache
def _source(name: str) -> str:
    try:
        return (ASSETS / name).read_text()
    except FileNotFoundError:
        raise _changed(f"its front end lacks {name}") from None


def _stem(name: str) -> str:
    """`Plot-B8w5_jU-.js` -> `Plot`: the name without the build's eight-character hash."""
    return re.sub(r"-[\w-]{8}\.\w+$", "", name)


def _modules(entry: str, page: str) -> dict[str, str]:
    """File name -> JavaScript, for all that `page` can reach from `entry`."""
    absent = set(OPTIONAL) - {_stem(p.name) for p in ASSETS.glob("*.js")}
    if absent:
        raise _changed(f"its front end has no {sorted(absent)[0]}")
    # inside the page's JSON every < is written \u003C, and markup may sit inside attributes of other markup
    page = page.replace("\\u003C", "<").replace("&lt;", "<")
    found: dict[str, str] = {}
    todo = [entry]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        text = _source(name)
        todo += [m[2] for m in _STATIC.finditer(text)]
        for m in _DYNAMIC.finditer(text):
            marker = OPTIONAL.get(_stem(m[2]), "")
            if marker is not None and marker in page:
                todo.append(m[2])
        found[name] = text
    edited = set()
    for name, text in found.items():
        if _stem(name) == "preload-helper":
            text = _without_preload(text)
        text = _STATIC.sub(lambda m: m[0].replace("./", "m/"), text)
        text = _DYNAMIC.sub(lambda m: m[0].replace("./", "m/"), text)
        text = text.replace("import.meta.url", "document.baseURI").replace("import.meta.resolve", "undefined")
        for what, (pattern, instead) in EDITS.items():
            text, n = pattern.subn(instead, text)
            edited |= {what} if n else set()
        found[name] = text
    if missed := set(EDITS) - edited:
        raise _changed(f"its front end lacks {sorted(missed)[0]}")
    return found


def _without_preload(text: str) -> str:
    """Vite's preload helper adds <link> elements; in one file there is nothing to preload."""
    exported = re.search(r"export\{\w+ as (\w+)\};?\s*$", text)
    if not exported:
        raise _changed("its preload helper has another shape")
    return f"export const {exported[1]} = (load) => load();"


_MIME = {".woff2": "font/woff2", ".svg": "image/svg+xml"}


def _css(page: str, modules: dict[str, str]) -> str:
    """Style sheets of the page and of the packed modules, fonts inside."""
    named = set(re.findall(r"/assets/([\w.-]+\.css)", page))
    stems = {_stem(m) for m in modules}
    sheets = [p for p in sorted(ASSETS.glob("*.css")) if p.name in named or _stem(p.name) in stems]
    if not named or not named <= {p.name for p in sheets}:
        raise _changed("its style sheets are not where the page names them")
    math = any(_stem(m) == "katex" for m in modules)

    def url(m: re.Match[str]) -> str:
        file = ASSETS / m[1]
        # old font formats, and the pictures behind "disconnected" in a live page, are never drawn here
        if file.suffix not in _MIME or (file.name.startswith("KaTeX") and not math):
            return "url(data:,)"
        return f"url(data:{_MIME[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()})"

    return "\n".join(re.sub(r"url\(\./([^)?#]+)[^)]*\)", url, p.read_text()) for p in sheets)
