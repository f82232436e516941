"""An HTTP server that answers requests for ranges of a file in a wrong way."""

import socket
import threading
from contextlib import contextmanager, suppress


@contextmanager
def answering(answer):
    """Gives the URL of a server. answer(begin, end) of the requested range, 0 and 0 of a request without one, gives the
    pieces of the response, header included; the connection is closed after the last one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/t.parquet"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener, answer):
    connections = []
    with suppress(OSError):  # the listener was shut down
        while True:
            connection, _ = listener.accept()
            connections.append(threading.Thread(target=_answer, args=(connection, answer), daemon=True))
            connections[-1].start()
    for thread in connections:
        thread.join()


def _answer(connection, answer):
    with connection, connection.makefile("rb") as requests, suppress(OSError):  # a client that has enough hangs up
        begin = end = 0
        while (line := requests.readline().strip().lower()):
            if line.startswith(b"range: bytes="):
                first, last = line.removeprefix(b"range: bytes=").split(b"-")
                begin, end = int(first), int(last) + 1
        for piece in answer(begin, end):
            connection.sendall(piece)


def header(status, **fields):
    """The bytes of a status line and fields; `Content_Range` is Content-Range."""
    lines = [f"HTTP/1.1 {status}", "Connection: close", *(f"{name.replace('_', '-')}: {value}"
                                                          for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()
