"""SIGTERM and SIGHUP end a replay in order, like Ctrl-C."""

import signal
from contextlib import AbstractContextManager
from types import FrameType

from blkreel.common.system import handled_signals


def sigterm_as_interrupt() -> AbstractContextManager[None]:
    """Pass SIGTERM, and SIGHUP unless it is ignored (nohup), to the handler of SIGINT while the block runs."""
    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # the kernel may send it more than once
        # A script starts its background jobs with SIGINT ignored.
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    return handled_signals({number: interrupt for number in (signal.SIGTERM, signal.SIGHUP)
                            if signal.getsignal(number) is not signal.SIG_IGN})
