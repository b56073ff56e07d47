"""Downloads from a real server on the loopback interface that misbehaves on purpose."""

from __future__ import annotations

import errno
import hashlib
import io
import multiprocessing
import os
import shutil
import ssl
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from feda4fair.errors import SourceError
from feda4fair.fetch import Remote, cache_folder, fetch, web_page

PAGE = b"<!DOCTYPE html><html><body>Access denied</body></html>"


def make_zip(size: int = 300_000) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        # A fixed date: the bytes, and so the names of tests, are the same in every process.
        rows = zipfile.ZipInfo("rows.csv", (1980, 1, 1, 0, 0, 0))
        archive.writestr(rows, bytes(i * 7 % 251 for i in range(size)))
    return buffer.getvalue()


BODY = make_zip()
SHA256 = hashlib.sha256(BODY).hexdigest()

Reply = Callable[[BaseHTTPRequestHandler], None]


def ok(body: bytes = BODY, *, kind: str = "application/zip", etag: str | None = '"v1"') -> Reply:
    """Answer in full, or with the rest when the same version is asked for from a position."""

    def reply(request: BaseHTTPRequestHandler) -> None:
        start, wanted = 0, request.headers.get("Range")
        if wanted and etag and request.headers.get("If-Range") == etag:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body) - start))
        if etag:
            request.send_header("ETag", etag)
        request.end_headers()
        request.wfile.write(body[start:])

    return reply


def status(code: int, **headers: str) -> Reply:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(PAGE)))
        request.end_headers()
        request.wfile.write(PAGE)

    return reply


def dropped(after: int, *, etag: str | None = '"v1"') -> Reply:
    """Promise the whole file, send its beginning, hang up."""

    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(BODY)))
        if etag:
            request.send_header("ETag", etag)
        request.end_headers()
        request.wfile.write(BODY[:after])
        request.wfile.flush()
        request.connection.close()

    return reply


def silent(seconds: float) -> Reply:
    def reply(request: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)

    return reply


class Server:
    """A server that gives each reply of a script once, and the last one for ever."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.script: list[Reply] = [ok()]
        self.requests: list[dict[str, str]] = []
        self.times: list[float] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(dict(self.headers))
                outer.times.append(time.monotonic())
                reply = outer.script[min(len(outer.requests), len(outer.script)) - 1]
                reply(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = (
            f"http{'s' if context else ''}://127.0.0.1:{self._server.server_port}/data/csv_pwy.zip"
        )
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.close()


def get(server: Server, folder: Path, **known: object) -> Path:
    remote = Remote(url=server.url, filename="csv_pwy.zip", **known)  # type: ignore[arg-type]
    return fetch(remote, folder, attempts=3, timeout=2.0, backoff=0.01)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_downloads_once_and_reuses(server: Server, tmp_path: Path) -> None:
    path = get(server, tmp_path / "a" / "b", bytes=len(BODY), sha256=SHA256)
    assert path == tmp_path / "a" / "b" / "csv_pwy.zip"
    assert path.read_bytes() == BODY
    assert visible(path.parent) == ["csv_pwy.zip"]
    assert get(server, path.parent, bytes=len(BODY), sha256=SHA256) == path
    assert len(server.requests) == 1


def test_damaged_file_is_fetched_again(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "csv_pwy.zip"
    for damage in (b"", PAGE, BODY[:-1], BODY[:-1] + b"?"):
        target.write_bytes(damage)
        assert get(server, tmp_path, bytes=len(BODY), sha256=SHA256).read_bytes() == BODY
    assert len(server.requests) == 4


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_refusal_is_final_and_leaves_nothing(server: Server, tmp_path: Path, code: int) -> None:
    server.script = [status(code, Content_Type="text/html")]
    with pytest.raises(SourceError, match=f"answered {code}.*put csv_pwy.zip into .*--source"):
        get(server, tmp_path)
    assert visible(tmp_path) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        ok(PAGE, kind="text/html; charset=utf-8"),
        ok(PAGE, kind="application/zip"),
        ok(b"\n  <html>quota exceeded", kind="application/octet-stream"),
    ],
)
def test_web_page_with_status_200_is_refused(server: Server, tmp_path: Path, reply: Reply) -> None:
    server.script = [reply]
    with pytest.raises(SourceError, match="is a web page instead of the file"):
        get(server, tmp_path)
    assert visible(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "known", "words"),
    [
        (b"", {}, r"is empty \(0 bytes\)"),
        (b"plain text", {}, "does not begin as a .zip file does"),
        (BODY[:-9], {"bytes": len(BODY)}, f"has {len(BODY) - 9} bytes, expected {len(BODY)}"),
        (BODY[:-1] + b"?", {"sha256": SHA256}, f"has SHA-256 [0-9a-f]{{64}}, expected {SHA256}"),
    ],
)
def test_wrong_file_is_refused(
    server: Server, tmp_path: Path, body: bytes, known: dict[str, object], words: str
) -> None:
    server.script = [ok(body)]
    with pytest.raises(SourceError, match=words):
        get(server, tmp_path, **known)
    assert visible(tmp_path) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_passing_failure_is_tried_again(server: Server, tmp_path: Path, code: int) -> None:
    server.script = [status(code), ok()]
    assert get(server, tmp_path).read_bytes() == BODY


def test_lasting_failure_gives_up(server: Server, tmp_path: Path) -> None:
    server.script = [status(503)]
    with pytest.raises(SourceError, match=r"in 3 attempts \(the server answered 503\)"):
        get(server, tmp_path)
    assert len(server.requests) == 3
    assert visible(tmp_path) == []


def test_pause_doubles(server: Server, tmp_path: Path) -> None:
    server.script = [status(503), status(503), ok()]
    remote = Remote(url=server.url, filename="csv_pwy.zip")
    fetch(remote, tmp_path, attempts=3, timeout=2.0, backoff=0.2)
    first, second, third = server.times
    assert 0.2 <= second - first < 0.4 <= third - second


@pytest.mark.parametrize("value", ["1", "date"])
def test_retry_after_is_obeyed(server: Server, tmp_path: Path, value: str) -> None:
    moment = formatdate(time.time() + 2, usegmt=True) if value == "date" else value
    server.script = [status(429, Retry_After=moment), ok()]
    assert get(server, tmp_path).read_bytes() == BODY
    assert server.times[1] - server.times[0] >= 0.9


def test_unreadable_retry_after_is_ignored(server: Server, tmp_path: Path) -> None:
    server.script = [status(429, Retry_After="soon"), ok()]
    assert get(server, tmp_path).read_bytes() == BODY


def test_dropped_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.script = [dropped(200_000), ok()]
    assert get(server, tmp_path, sha256=SHA256).read_bytes() == BODY
    start = int(server.requests[1]["Range"].removeprefix("bytes=").rstrip("-"))
    assert 0 < start <= 200_000
    assert server.requests[1]["If-Range"] == '"v1"'
    assert visible(tmp_path) == ["csv_pwy.zip"]


def test_new_version_is_not_glued_to_the_old(server: Server, tmp_path: Path) -> None:
    other = make_zip(250_000)
    server.script = [dropped(200_000), ok(other, etag='"v2"')]
    assert get(server, tmp_path).read_bytes() == other


def test_server_without_versions_restarts(server: Server, tmp_path: Path) -> None:
    server.script = [dropped(200_000, etag=None), ok(etag=None)]
    assert get(server, tmp_path).read_bytes() == BODY
    assert "Range" not in server.requests[1]


def test_always_dropped_gives_up_without_a_file(server: Server, tmp_path: Path) -> None:
    server.script = [dropped(1000, etag=None)]
    with pytest.raises(SourceError, match=r"in 3 attempts .*dropped"):
        get(server, tmp_path)
    assert not (tmp_path / "csv_pwy.zip").exists()


def test_next_run_goes_on_after_a_kill(server: Server, tmp_path: Path) -> None:
    (tmp_path / "csv_pwy.zip.part").write_bytes(BODY[:123_456])
    (tmp_path / "csv_pwy.zip.part.tag").write_text('"v1"')
    assert get(server, tmp_path, sha256=SHA256).read_bytes() == BODY
    assert server.requests[0]["Range"] == "bytes=123456-"
    assert visible(tmp_path) == ["csv_pwy.zip"]


@pytest.mark.parametrize("left", [b"", b"junk" * 50_000, BODY])
def test_bad_remains_are_replaced(server: Server, tmp_path: Path, left: bytes) -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Range") == f"bytes={len(BODY)}-":
            status(416)(request)
        else:
            ok()(request)

    server.script = [reply]
    (tmp_path / "csv_pwy.zip.part").write_bytes(left)
    (tmp_path / "csv_pwy.zip.part.tag").write_text('"v1"')
    assert get(server, tmp_path, sha256=SHA256).read_bytes() == BODY
    assert visible(tmp_path) == ["csv_pwy.zip"]


def test_resumed_at_another_place_restarts(server: Server, tmp_path: Path) -> None:
    def shifted(request: BaseHTTPRequestHandler) -> None:
        request.send_response(206)
        request.send_header("Content-Range", f"bytes 5-{len(BODY) - 1}/{len(BODY)}")
        request.send_header("Content-Length", str(len(BODY) - 5))
        request.end_headers()
        request.wfile.write(BODY[5:])

    server.script = [shifted, ok()]
    (tmp_path / "csv_pwy.zip.part").write_bytes(BODY[:100])
    (tmp_path / "csv_pwy.zip.part.tag").write_text('"v1"')
    assert get(server, tmp_path).read_bytes() == BODY


def test_server_that_never_answers(server: Server, tmp_path: Path) -> None:
    server.script = [silent(1.0)]
    remote = Remote(url=server.url, filename="csv_pwy.zip")
    begin = time.monotonic()
    with pytest.raises(SourceError, match=r"in 2 attempts \(no answer within 0.2 s\)"):
        fetch(remote, tmp_path, attempts=2, timeout=0.2, backoff=0.01)
    assert time.monotonic() - begin < 5
    assert visible(tmp_path) == []


def test_no_network(tmp_path: Path, server: Server) -> None:
    server.close()
    with pytest.raises(SourceError) as caught:
        get(server, tmp_path)
    assert str(caught.value) == (
        "csv_pwy.zip from 127.0.0.1 could not be downloaded in 3 attempts (no connection, or it "
        f"was dropped); put csv_pwy.zip into {tmp_path} by hand, or pass --source with a folder "
        "that holds it."
    )


@pytest.mark.parametrize("reply", [status(404), status(503), ok(PAGE), dropped(5)])
def test_no_secret_in_a_message(server: Server, tmp_path: Path, reply: Reply) -> None:
    server.script = [reply]
    address = server.url.replace("http://", "http://me:hf_key1@") + "?token=hf_key2#hf_key3"
    remote = Remote(url=address, filename="csv_pwy.zip")
    with pytest.raises(SourceError) as caught:
        fetch(remote, tmp_path, attempts=1, timeout=2.0, backoff=0.01)
    assert "hf_key" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_bad_address(tmp_path: Path) -> None:
    remote = Remote(url="nowhere://x/y.zip", filename="y.zip")
    with pytest.raises(SourceError, match=r"y.zip from x .*InvalidSchema.*check its address"):
        fetch(remote, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a full device")
def test_full_disk(server: Server, tmp_path: Path) -> None:
    (tmp_path / "csv_pwy.zip.part").symlink_to("/dev/full")
    with pytest.raises(SourceError, match=r"written to .*No space left.*FEDA4FAIR_CACHE"):
        get(server, tmp_path)
    assert visible(tmp_path) == []


def test_folder_that_is_a_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(SourceError, match=os.strerror(errno.EEXIST)):
        get(server, tmp_path / "taken")


def test_two_processes_download_once(server: Server, tmp_path: Path) -> None:
    def slow(request: BaseHTTPRequestHandler) -> None:
        time.sleep(0.3)
        ok()(request)

    server.script = [slow]
    context = multiprocessing.get_context("spawn")
    remote = Remote(url=server.url, filename="csv_pwy.zip")
    workers = [context.Process(target=fetch, args=(remote, tmp_path)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(server.requests) == 1


def test_killed_half_way(server: Server, tmp_path: Path) -> None:
    """A process that dies in the middle leaves no file, no lock, and a beginning to go on from."""
    go_on = threading.Event()

    def stalls(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(BODY)))
        request.send_header("ETag", '"v1"')
        request.end_headers()
        request.wfile.write(BODY[:200_000])
        request.wfile.flush()
        go_on.wait(60)

    server.script = [stalls, ok()]
    remote = Remote(url=server.url, filename="csv_pwy.zip", sha256=SHA256)
    worker = multiprocessing.get_context("spawn").Process(target=fetch, args=(remote, tmp_path))
    worker.start()
    part = tmp_path / "csv_pwy.zip.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    worker.kill()
    worker.join(60)
    go_on.set()
    assert visible(tmp_path) == ["csv_pwy.zip.part", "csv_pwy.zip.part.tag"]
    assert get(server, tmp_path, sha256=SHA256).read_bytes() == BODY
    assert server.requests[1]["If-Range"] == '"v1"'
    assert visible(tmp_path) == ["csv_pwy.zip"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_certificates_of_an_organization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure = Server(context)
    try:
        with pytest.raises(SourceError, match=r"not trusted here; set REQUESTS_CA_BUNDLE"):
            get(secure, tmp_path / "a")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert get(secure, tmp_path / "b").read_bytes() == BODY
    finally:
        secure.close()


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDA4FAIR_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("~/.cache/feda4fair").expanduser()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "feda4fair"
    monkeypatch.setenv("FEDA4FAIR_CACHE", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x"
    assert cache_folder(tmp_path / "y") == tmp_path / "y"


@pytest.mark.parametrize(
    ("start", "page"),
    [(PAGE, True), (b"\xef\xbb\xbf\n<HTML>", True), (BODY[:99], False), (b"a,b\n1,2\n", False)],
)
def test_web_page(start: bytes, page: bool) -> None:
    assert web_page(start) is page
