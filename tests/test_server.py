"""Who is answered by a lab that serves its own machine: one without a token, and the child of the front page."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab import server


def answers(kind: str, host: str, local: bool = True, origin: str | None = None, path: str = "/") -> list[dict]:
    """What the lab says to one request; its front page is a stand-in that says 200."""
    said: list[dict] = []

    async def front(scope, receive, send):
        await send({"status": 200})

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        said.append(message)

    lab = server.Lab.__new__(server.Lab)
    lab.local, lab.front, lab.notebooks = local, front, {"interp/patching": front}
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin is not None else [])
    scope = {"type": kind, "path": path, "query_string": b"model=pocket", "headers": headers}
    # in a thread: playwright keeps a loop running in this one
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, lab(scope, receive, send)).result()
    return said


@pytest.mark.parametrize("host", ["localhost:2718", "127.0.0.1", "127.0.0.1:80", "[::1]:2718", "localhost"])
def test_this_machine_is_answered(host):
    assert answers("http", host) == answers("websocket", host) == [{"status": 200}]


@pytest.mark.parametrize("host", ["evil.example:2718", "192.168.1.7:2718", "localhost.evil.example", "", "0.0.0.0"])
def test_nobody_else_is_answered_by_a_local_lab(host):
    start, body = answers("http", host)
    assert start["status"] == 403 and b"token" in body["body"]
    assert answers("websocket", host) == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost.evil.example:2718", "null", "", "http://[x"])
def test_a_page_from_elsewhere_opens_no_socket_to_a_local_lab(origin):
    assert answers("websocket", "localhost:2718", origin=origin) == [{"type": "websocket.close", "code": 1008}]
    assert answers("http", "localhost:2718", origin=origin)[0]["status"] == 403
    assert answers("websocket", "lab.example", local=False, origin=origin) == [{"status": 200}]


@pytest.mark.parametrize("origin", ["http://localhost:2718", "http://127.0.0.1", "http://[::1]:2718"])
def test_its_own_pages_open_sockets(origin):
    assert answers("websocket", "localhost:2718", origin=origin) == [{"status": 200}]


def test_with_a_token_marimo_asks_for_it_whatever_the_address():
    assert answers("http", "lab.example", local=False) == [{"status": 200}]


@pytest.mark.parametrize(("given", "local"), [((None,), True), (("a long token",), False), (("a long token", True), True)])
def test_without_a_token_a_lab_is_local(monkeypatch, given, local):
    monkeypatch.setattr(server, "Lab", lambda token, local: (token, local))
    monkeypatch.setattr(server, "here", None)
    assert server.create(*given) == (given[0], local)


def test_an_address_typed_without_its_last_slash_finds_the_notebook():
    start, _ = answers("http", "localhost:2718", path="/nb/interp/patching")
    assert start["status"] == 307 and start["headers"] == [(b"location", b"patching/?model=pocket")]
    assert answers("http", "localhost:2718", path="/nb/interp/patching/") == [{"status": 200}]
    assert answers("websocket", "localhost:2718", path="/nb/interp/patching") == [{"status": 200}]
