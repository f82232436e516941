"""A web server for one directory that supports range requests, as object storage does, and records requests."""

import re
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.directory) / self.path.lstrip("/").partition("?")[0]
        if not wanted or not self.server.sends_ranges or not path.is_file():
            if path.is_file():
                self.server.whole.append((self.path, path.stat().st_size))
            super().do_GET()
            return
        content = path.read_bytes()
        begin, end = int(wanted[1]), min(int(wanted[2]) + 1, len(content))
        if begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        is_for_rows = begin > 0 and end < len(content)
        if is_for_rows and self.server.wants_two:
            self._wait_for_another()
        self.server.ranges.append((self.path, begin, end))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        self.wfile.write(content[begin:end])

    def _wait_for_another(self):
        self.server.waiting.append(self)
        if len(self.server.waiting) > 1:
            self.server.two_at_once.set()
        self.server.two_at_once.wait(300)
        self.server.waiting.remove(self)

    def log_message(self, *_):
        """Nobody reads it."""


@contextmanager
def serving(directory, sends_ranges=True):
    """Gives the server: `url`; `ranges`, the (path, begin, end) that were sent; `whole`, the (path, bytes) of whole
    files. With `wants_two`, rows are sent when two requests for some were there at the same time: `two_at_once`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=directory)) as server:
        server.wants_two, server.waiting, server.two_at_once = False, [], threading.Event()
        server.ranges, server.whole, server.sends_ranges = [], [], sends_ranges
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
