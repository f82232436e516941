"""Restore the terminal after drawing on it: show the cursor, whatever ends or suspends the command."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console

from blkreel.common.system import handled_signals

_SHOW_CURSOR = b"\x1b[?25h"


def supports_live_view(console: Console) -> bool:
    """Whether stderr is a terminal that can move its cursor; TERM=dumb cannot."""
    return sys.stderr is not None and sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal


@contextmanager
def restored_cursor(on_suspend: Callable[[], object]) -> Iterator[None]:
    """While the block draws with a hidden cursor: show it before a deadly signal ends the process.

    on_suspend: called for Ctrl-Z, in the main thread between two of its instructions. It must only note the request;
    the caller then calls suspend() when nothing is half drawn. Signals that already have a handler keep it.
    """
    def die(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the terminal may be gone
            assert sys.__stderr__ is not None
            os.write(sys.__stderr__.fileno(), _SHOW_CURSOR)  # unbuffered: the interrupted code may hold a buffer's lock
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handlers = {signal.SIGTERM: die, signal.SIGHUP: die, signal.SIGTSTP: lambda number, frame: on_suspend()}
    with handled_signals({number: handler for number, handler in handlers.items()
                          if signal.getsignal(number) is signal.SIG_DFL}):
        yield


def suspend() -> None:
    """Stop the process, as Ctrl-Z does. Returns after the shell resumes it."""
    os.kill(os.getpid(), signal.SIGSTOP)
