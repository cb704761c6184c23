"""The lab's server: one process for every notebook, alone on a port or as a child of the front page.

uvicorn.run(lab.server.create(token="..."))      # front page at /, notebooks at /nb/<station>/<topic>
python -m lab serve --host 0.0.0.0               # the same from a terminal
lab.server.child()                               # what `marimo run app.py` starts, on loopback
"""

import argparse
import contextlib
import functools
import importlib
import ipaddress
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import marimo

from lab import catalog, front, paths
from lab.errors import LabError
from lab.page import style

SESSION_TTL = 600  # seconds a closed tab's state is kept, so that a laptop may sleep for a moment
TOKEN = "LAB_SERVER_TOKEN"  # in the environment, not in the arguments every user of the machine can list

_IMPORT = re.compile(r"^[ \t]+(?:import|from)[ \t]+([\w.]+)(?:[ \t]+import[ \t]+([\w, ()]+))?", re.MULTILINE)

#: What a front page served by this very process should use; None when notebooks live in a child.
here: dict[str, Any] | None = None

App = Callable[[Any, Any, Any], Awaitable[None]]


def cached(app: App) -> App:
    """marimo names its files by their content: let the browser keep them without asking again."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message["headers"] = [
                    *(pair for pair in message["headers"] if pair[0].lower() != b"cache-control"),
                    (b"cache-control", b"public, max-age=31536000, immutable"),
                ]
            await send(message)

        forever = scope["type"] == "http" and "/assets/" in scope["path"]
        await app(scope, receive, sent if forever else send)

    return call


class Lab:
    """The ASGI application: the front page at `/`, notebooks at `/nb/<station>/<topic>`.

    A notebook is mounted when it is first asked for, so a file added later is served without a restart.
    (marimo's own dynamic directory redirects `?access_token=` to the root and loses the notebook.)
    A `local` lab answers only under addresses of this machine, whatever the port is bound to."""

    def __init__(self, token: str | None, local: bool) -> None:
        self.local = local
        # Every notebook takes marimo's own files from the front page's folder: a browser fetches them once.
        self.builder = functools.partial(
            marimo.create_asgi_app,
            quiet=True, token=token, session_ttl=SESSION_TTL, html_head=style.head(), asset_url="",
        )  # fmt: skip
        self.front = (
            self.builder().with_app(path="", root=str(paths.ROOT / "app.py"), middleware=[cached]).build()
        )
        self.notebooks: dict[str, App] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app = self.front
        if scope["type"] in ("http", "websocket"):
            if self.local and not (loopback(asked_host(scope)) and loopback(asking_host(scope))):
                return await refuse(scope, receive, send)
            if scope["path"].startswith("/nb/"):
                parts = scope["path"].split("/")[2:]
                app = self.notebook(parts) or app
                if scope["type"] == "http" and "/".join(parts) in self.notebooks:  # typed without the slash at the end
                    return await move(scope, send, f"{parts[-1]}/")
        return await app(scope, receive, send)

    def notebook(self, parts: list[str]) -> App | None:
        """The application of the notebook whose path these parts begin with."""
        for end in range(2, len(parts) + 1):
            path = "/".join(parts[:end])
            if path in self.notebooks:
                return self.notebooks[path]
            if any(n.path == path for n in catalog.notebooks()):
                root = str(paths.NOTEBOOKS / f"{path}.py")
                self.notebooks[path] = self.builder().with_app(path=f"/nb/{path}", root=root).build()
                return self.notebooks[path]
        return None


def create(token: str | None = None, local: bool = False) -> Lab:
    """The whole lab on one port; `local`, or without a token, it answers only under addresses of this machine."""
    global here
    here = {"port": 0, "token": token or ""}
    return Lab(token, local or token is None)


def warm() -> None:
    """Import what notebooks import, so that the first one opened does not wait for torch."""
    import plotly.express
    import torch

    torch.zeros(1).sum().item()  # starts its threads
    plotly.express.line(x=[0], y=[0])
    names = set()
    for notebook in catalog.notebooks():
        text = (paths.NOTEBOOKS / f"{notebook.path}.py").read_text("utf-8", errors="replace")
        for module, members in _IMPORT.findall(text):
            names |= {module, *(f"{module}.{name.split()[0]}" for name in members.strip("() ").split(",") if name.strip())}
    for name in sorted(names):
        with contextlib.suppress(ImportError):  # a name inside a module, or a package that is not installed
            importlib.import_module(name)


def preload() -> None:
    """Have the model most first notebooks ask for in memory, and torch past its first product."""
    import torch

    import lab.models

    ready = [m.name for m in lab.models.available() if m.ready]
    with contextlib.suppress(LabError), torch.no_grad():  # a damaged model: the notebook that wants it will say so
        for name in ready[:1]:
            lm = lab.models.load(name)
            lm.model(lm.tokens("The Eiffel Tower"))


def loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def asked_host(scope: Any) -> str:
    """The name in the address that was asked for, without its port. A page elsewhere may have pointed a name of its
    own at this machine (DNS rebinding): its browser says that name here."""
    told = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    return re.sub(r":\d+$", "", told).strip("[]")


def asking_host(scope: Any) -> str:
    """The name of the page that asks, where the browser tells it, else the name asked for. A page from elsewhere may
    open a WebSocket to this machine, which browsers allow, and would read what a notebook shows."""
    told = dict(scope["headers"]).get(b"origin")
    if told is None:
        return asked_host(scope)
    with contextlib.suppress(ValueError):  # "null", or no address
        return urlsplit(told.decode("latin-1")).hostname or ""
    return ""


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Say why nothing is served under this address."""
    if scope["type"] == "websocket":
        await receive()
        return await send({"type": "websocket.close", "code": 1008})
    why = "This lab is served to this machine alone: open it at localhost, or start `python -m lab serve` with a token."
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
    return await send({"type": "http.response.body", "body": why.encode()})


async def move(scope: Any, send: Any, to: str) -> None:
    """Send the browser to an address relative to the one it asked for (a proxy may serve the lab under a prefix of its
    own). marimo's own redirect leaves the leading slash out, and ends in a folder that does not exist."""
    query = scope.get("query_string", b"")
    location = to.encode() + (b"?" + query if query else b"")
    await send({"type": "http.response.start", "status": 307, "headers": [(b"location", location)]})
    await send({"type": "http.response.body", "body": b""})


# ---- the child of the front page


class Child:
    """The notebooks' server in a process of its own, which ends with this one, however this one ends.

    Its standard input is a pipe held open here: when this process dies, even by `kill -9`, the pipe closes and the
    child leaves. (A death signal would not do: it follows the thread that forked, and a tab's thread ends early.)"""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        self.port: int | None = None
        self.models: list[dict[str, Any]] | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab.server"], cwd=paths.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, TOKEN: self.token}, text=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            self.port = said.get("port", self.port)
            self.models = said.get("models", self.models)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def lab(self) -> dict[str, Any] | None:
        """What the shell needs to open a notebook, once the child listens."""
        return {"port": self.port, "token": self.token} if self.port and self.alive else None


_child: Child | None = None
_child_lock = threading.Lock()


def child() -> Child:
    """The child every tab of this process shares; started on the first call, and again when it has ended."""
    global _child
    with _child_lock:
        if _child is None or not _child.alive:
            _child = Child()
        return _child


def _serve_as_child() -> None:
    """Serve notebooks on a free loopback port, say so on standard output as JSON lines, end with the parent."""

    def leave_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    import uvicorn

    token = os.environ.pop(TOKEN)  # not handed on to the runs started from notebooks
    # only this function speaks on the pipe; what notebooks print goes to the terminal
    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    app = create(token, local=True)

    def report() -> None:
        pipe.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
        warm()
        pipe.write(json.dumps({"models": (last := front.models())}) + "\n")
        preload()
        while True:
            time.sleep(2)
            try:
                models = front.models()
            except OSError:  # a run deleted while its files were read; the next look finds it gone
                continue
            if models != last:
                last = models
                pipe.write(json.dumps({"models": models}) + "\n")

    threading.Thread(target=report, daemon=True).start()
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


# ---- python -m lab serve


def main(argv: list[str]) -> int:
    """`python -m lab serve`."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m lab serve", description="Serve the lab on one port.")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine alone)"
    )
    parser.add_argument("--port", type=int, default=2718)
    parser.add_argument(
        "--token",
        default=os.environ.get("LAB_SERVER_TOKEN"),
        help="needed to open the lab (LAB_SERVER_TOKEN keeps it out of the process list); made and printed when"
        " --host is not loopback and none is given",
    )
    args = parser.parse_args(argv)
    local = loopback(args.host)
    if args.token is not None and len(args.token) < 8:
        raise LabError("The token is shorter than 8 characters; give a longer one, or none and one is made.")
    token = args.token or (None if local else secrets.token_urlsafe(24))
    listener = _listen(args.host, args.port)
    shown = args.host if local else _name()
    at = f"http://{f'[{shown}]' if ':' in shown else shown}:{listener.getsockname()[1]}/"
    print(f"The lab is at {at}{f'?access_token={token}' if token else ''}", flush=True)
    if not local:
        print("Anybody with this address and token can run what the notebooks run, as you.", flush=True)
    app = create(token)
    front.write_head()
    for work in (warm, preload):  # the second waits for the first's imports
        threading.Thread(target=work, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run(
        sockets=[listener]
    )
    return 0


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise LabError(f"There is no port {port}; choose another --port, from 0 (any free one) to 65535.")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
        return listener
    except OSError as error:
        raise LabError(
            f"The lab cannot listen on {host}:{port} ({error}); choose another --host or --port."
        ) from error


def _name() -> str:
    """The name other machines know this one by."""
    return socket.gethostname()


if __name__ == "__main__":
    _serve_as_child()
