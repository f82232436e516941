"""An HTTP download from this machine, and how its data is written back."""

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .scratch import Scratch

RATES = {"300m": 37_500_000, "1g": 110_000_000}  # bytes/s: 300 Mbit/s, and what HTTP has of 1 Gbit/s
# Of a device. It holds what a drive writes in 0.3 s at 1 Gbit/s.
_DIRTY_BYTES = 32 << 20


def web_download(url: str, target: Path, rate: str) -> list[str]:
    """The command of a download. rate: a key of RATES."""
    return ["curl", "--silent", "--show-error", "--limit-rate", str(RATES[rate]), "--output", str(target), url]


@contextmanager
def download_beside(scratch: Scratch, command: Sequence[str]) -> Iterator[None]:
    """A download that goes on in the block, or until its end."""
    client = subprocess.Popen(command, env=scratch.environment, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        client.terminate()
        client.wait()


@contextmanager
def limited_dirty_data(scratch: Scratch) -> Iterator[None]:
    """The kernel writes back all the time, and lets a program wait that has more dirty data on the drive."""
    number = Path(f"/sys/block/{scratch.device.name}/dev").read_text().strip()
    limits = Path("/sys/class/bdi") / number
    (limits / "strict_limit").write_text("1")
    (limits / "max_bytes").write_text(str(_DIRTY_BYTES))
    try:
        yield
    finally:
        (limits / "max_bytes").write_text("0")
        (limits / "strict_limit").write_text("0")


@contextmanager
def server(size_bytes: int) -> Iterator[str]:
    """Yields the URL of a file of this size, which is the same megabyte again and again."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(size_bytes))
            self.end_headers()
            piece, left = bytes(1 << 20), size_bytes
            while left:
                left -= self.wfile.write(piece[:left])

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True  # the client was stopped

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/download.bin"
        finally:
            http.shutdown()
