"""Ranges of a file on an HTTP server that sends something else than requested: refused, in bounded memory and time."""

import itertools
import re
import resource
import socketserver
import threading
from contextlib import contextmanager, suppress

import pytest
from range_server import serving

from blkreel.common.errors import TraceError
from blkreel.common.files import http_ranges
from blkreel.common.files.storage_url import StorageUrl

SIZE = 1 << 40


@contextmanager
def answering(answer):
    """Gives the URL of a server. answer(begin, end) of the requested range, 0 and 0 of a request without one, gives the
    pieces of the response, header included; the connection is closed after the last one."""
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            begin = end = 0
            with suppress(OSError):  # a client that has enough hangs up
                while line := self.rfile.readline().strip().lower():
                    if line.startswith(b"range: bytes="):
                        first, last = line.removeprefix(b"range: bytes=").split(b"-")
                        begin, end = int(first), int(last) + 1
                for piece in answer(begin, end):
                    self.connection.sendall(piece)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/t.parquet"
        finally:
            server.shutdown()


def header(status, **fields):
    """The bytes of a status line and fields; `Content_Range` is Content-Range."""
    lines = [f"HTTP/1.1 {status}", "Connection: close",
             *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def ranged(begin, end, size=SIZE, **fields):
    return header("206 Partial Content", Content_Range=f"bytes {begin}-{end - 1}/{size}", **fields)


def read(url, begin=0, count=1000):
    location = StorageUrl(url)
    with location.errors():
        file = location.open()
        file.seek(begin)
        return file.read(count)


def endless(begin, end):
    yield ranged(begin, end)
    yield from itertools.repeat(bytes(1 << 20))


def test_an_endless_range_is_refused_at_the_first_byte_too_many():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with answering(endless) as url, pytest.raises(TraceError, match=r"sent more than the requested 1 bytes") as refused:
        read(url)
    assert url in str(refused.value), "the address is named"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "KiB"


def test_an_endless_page_is_refused():
    def page(begin, end):
        yield header("200 OK", Content_Type="text/html")
        yield from itertools.repeat(b'<a href="x">x</a>' * 1000)

    with answering(page) as url, pytest.raises(TraceError, match="a page of more than 16.8 MB"):
        location = StorageUrl(url)
        with location.errors():
            filesystem, path = location.filesystem()
            filesystem.find(path.rpartition("/")[0] + "/")


@pytest.mark.parametrize(("answer", "words"), [
    (lambda begin, end: [ranged(begin, end)], "sent 0 of the requested 1 bytes"),
    (lambda begin, end: [ranged(begin, end, Content_Length=1)], "ended the connection before all bytes were sent"),
    (lambda begin, end: [header("200 OK", Content_Length=5), b"whole"], "does not support range requests"),
    (lambda begin, end: [ranged(begin + 7, end + 7), b"x"], "sent bytes 7-7 of 1099511627776, not the requested 0-0"),
    (lambda begin, end: [ranged(begin, end + 1), b"xx"], "sent bytes 0-1 of"),
    (lambda begin, end: [header("206 Partial Content", Content_Range="bytes 0-0/*"), b"x"], "no valid Content-Range"),
    (lambda begin, end: [header("206 Partial Content"), b"x"], "no valid Content-Range"),
    (lambda begin, end: [header("206 Partial Content", Content_Range=f"bytes 0-0/{'9' * 5000}"), b"x"],
     "no valid Content-Range"),
    (lambda begin, end: [ranged(begin, end, Content_Encoding="gzip"), b"x"], "compressed"),
    (lambda begin, end: [header("416 Range Not Satisfiable")], "status 416"),
    (lambda begin, end: [header("500 Internal Server Error")], "status 500 Internal Server Error"),
    (lambda begin, end: [header("403 Forbidden")], "no permission"),
    (lambda begin, end: [header("404 Not Found")], "does not exist"),
    (lambda begin, end: [header("302 Found", Location="/t.parquet")], "redirects without end"),
    (lambda begin, end: [header("302 Found", Location="file:///etc/passwd")], "cannot read"),
    (lambda begin, end: [b"\0\1\2\3" * 100], "cannot read"),
    (lambda begin, end: [], "cannot read")])
def test_a_wrong_answer_is_refused(answer, words):
    with answering(answer) as url, pytest.raises(TraceError, match=words) as refused:
        read(url)
    assert re.search(r"127\.0\.0\.1:\d+/t\.parquet", str(refused.value)) and refused.value.remedy


def test_a_file_that_changes_its_size_is_refused():
    sizes = itertools.count(1000)
    with answering(lambda begin, end: [ranged(begin, end, next(sizes)), bytes(end - begin)]) as url, \
            pytest.raises(TraceError, match=r"the file changed from 1,000 to 1,001 bytes"):
        read(url)


@pytest.mark.parametrize(("request_all", "error", "words"), [
    (lambda url: read(url, count=SIZE), TraceError, r"needs 1\.10 TB in one request \(limit 268 MB\)"),
    (lambda url: StorageUrl(url).read_bytes(), OSError, r"it has 1\.10 TB \(limit 67\.1 MB\)")])
def test_what_no_structure_needs_is_not_requested(request_all, error, words):
    with answering(lambda begin, end: [ranged(begin, end), bytes(end - begin)]) as url, \
            pytest.raises(error, match=words):
        request_all(url)


def test_a_silent_server_ends_the_request(monkeypatch):
    monkeypatch.setattr(http_ranges, "SILENT_SECONDS", 0.2)
    waiting = []

    def silent(begin, end):
        yield ranged(begin, end)
        while not waiting:
            yield b""

    with answering(silent) as url:
        with pytest.raises(TraceError, match=r"took longer than 0\.2 s"):
            read(url)
        waiting.append("no longer")


def test_redirects_are_followed(tmp_path):
    (tmp_path / "t.parquet").write_bytes(bytes(range(200)))
    with serving(tmp_path) as server:
        def redirect(begin, end):
            yield header("302 Found", Location=f"{server.url}/t.parquet", Content_Length=0)

        with answering(redirect) as url:
            assert read(url, begin=190, count=100) == bytes(range(190, 200))


@pytest.mark.parametrize("content", [b"", b"x"])
def test_small_files(tmp_path, content):
    (tmp_path / "t.parquet").write_bytes(content)
    with serving(tmp_path) as server:
        url = StorageUrl(f"{server.url}/t.parquet")
        assert url.read_bytes() == content and url.is_file()
