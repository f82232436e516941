"""SIGTERM ends a replay as Ctrl-C does: in order, with what was recorded."""

import signal
import threading
from contextlib import contextmanager


@contextmanager
def terminated_like_interrupted():
    """While the block runs, SIGTERM goes wherever SIGINT goes at that moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number, frame):
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
