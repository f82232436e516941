"""Suspend a command that draws on the terminal when nothing is half drawn."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from rich.console import Console

from blkreel.common.system import handled_signals


def supports_live_view(console: Console) -> bool:
    """Whether stderr is a terminal that can move its cursor; TERM=dumb cannot."""
    return sys.stderr is not None and sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal


def noted_suspend(on_suspend: Callable[[], object]) -> AbstractContextManager[None]:
    """While the block draws with a hidden cursor: call on_suspend for Ctrl-Z, unless that has a handler.

    on_suspend: called in the main thread between two of its instructions. It must only note the request; the caller
    then calls suspend() when nothing is half drawn.
    """
    is_free = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
    return handled_signals({signal.SIGTSTP: lambda number, frame: on_suspend()} if is_free else {})


def suspend() -> None:
    """Stop the process, as Ctrl-Z does. Returns after the shell resumes it."""
    os.kill(os.getpid(), signal.SIGSTOP)
