"""SIGTERM, and a terminal that is shut, end a replay as Ctrl-C does: in order, with what was recorded."""

import signal
import threading
from contextlib import contextmanager


@contextmanager
def terminated_like_interrupted():
    """While the block runs, SIGTERM and SIGHUP go where SIGINT goes at that moment; under nohup SIGHUP goes nowhere."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number, frame):
        handler = signal.getsignal(signal.SIGINT)
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # the kernel sends it more than once; who insists uses another
        if callable(handler):
            handler(signal.SIGINT, frame)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
