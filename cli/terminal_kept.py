"""A terminal on which something is drawn is left as it was: its cursor shown, whatever ends or stops the command."""

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress

from rich.console import Console

_SHOW_CURSOR = b"\x1b[?25h"
_DEADLY = (signal.SIGTERM, signal.SIGHUP)


def can_be_drawn_on(console: Console) -> bool:
    """Whether stderr is a terminal that can move its cursor; TERM=dumb cannot."""
    return sys.stderr is not None and sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal


@contextmanager
def kept(on_stop=None):
    """While the block draws with a hidden cursor: a signal that kills shows it first; Ctrl-Z calls on_stop.

    on_stop is called in the main thread, between two of its instructions: it notes the wish, and stop_here() fulfils
    it where nothing is half drawn. Signals that somebody else handles are left to them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def die(number, frame):
        with suppress(OSError):  # the terminal may be gone
            os.write(sys.__stderr__.fileno(), _SHOW_CURSOR)  # past all buffers: one of them may be in use here
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = {number: signal.signal(number, die) for number in _DEADLY
              if signal.getsignal(number) is signal.SIG_DFL}
    if on_stop is not None and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, lambda number, frame: on_stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_here() -> None:
    """What Ctrl-Z does, now. Returns when the shell lets the command go on."""
    os.kill(os.getpid(), signal.SIGSTOP)
