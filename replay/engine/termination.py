"""SIGTERM and SIGHUP end a replay in order, like Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Pass SIGTERM, and SIGHUP unless it is ignored (nohup), to the handler of SIGINT while the block runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # the kernel may send it more than once
        # A script starts its background jobs with SIGINT ignored.
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
