"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from blkreel.common.progress import ProgressTask

from .terminal_guard import noted_suspend, supports_live_view, suspend

_LINE_EVERY_S = 5.0


class Task(ProgressTask):
    """Progress of one step, passed to functions. `update` is cheap enough to be called for every block of rows.

    show_waiting: gets the text of a step that waits for its last writes.
    """

    def __init__(self, show: Callable[[float, str], None], show_waiting: Callable[[str], None]):
        self._show, self._show_waiting = show, show_waiting

    def update(self, done: float, detail: str = "") -> None:
        self._show(done, detail)

    def take_note(self, note: Mapping[str, Any]) -> None:
        if waiting := note.get("waiting"):
            self._show_waiting(waiting)


@contextmanager
def progress(step: str, total: float | None = None) -> Iterator[Task]:
    """Show a step as one line. Implements common.progress.Progress."""
    console = Console(stderr=True)
    if not supports_live_view(console):
        yield line_task(step, total)
        return
    # The dots of the spinner have no ASCII form.
    columns: list[ProgressColumn] = [SpinnerColumn("line" if console.options.ascii_only else "dots"),
                                     TextColumn("{task.description}")]
    columns += [BarColumn(), TimeRemainingColumn()] if total else [TimeElapsedColumn()]
    suspend_requests: list[bool] = []

    def suspend_bar() -> None:
        suspend_requests.clear()
        bar.stop()
        suspend()

    def show(done: float, detail: str) -> None:
        bar.update(handle, completed=done, detail=detail)
        if suspend_requests:
            suspend_bar()
            bar.start()

    with (noted_suspend(lambda: suspend_requests.append(True)),
          rich.progress.Progress(*columns, TextColumn("{task.fields[detail]}"), console=console,
                                 transient=True) as bar):
        handle = bar.add_task(step, total=total, detail="")
        yield Task(show, lambda text: bar.update(handle, description=text, total=None, detail=""))
        if suspend_requests:
            suspend_bar()


def line_task(step: str, total: float | None) -> Task:
    """Print a line every 5 s, for a file or a log."""
    started = last = time.monotonic()
    waiting_shown = -math.inf
    done_at_start: float | None = None

    def show(done: float, detail: str) -> None:
        nonlocal started, last, done_at_start
        now = time.monotonic()
        if done_at_start is None:
            # What was done before, or took time before, such as a resumed step or BPF programs that load, is no rate.
            started, done_at_start = now, done
        if now - last < _LINE_EVERY_S:
            return
        last = now
        parts = []
        if total:
            parts.append(f"{min(100, 100 * done / total):.0f} %")
            if done > done_at_start:
                parts.append(f"{(now - started) * max(0, total - done) / (done - done_at_start):.0f} s left")
        _print_line(f"{step}: {', '.join(parts + [detail] * bool(detail))}")

    def show_waiting(text: str) -> None:
        nonlocal waiting_shown
        if time.monotonic() - waiting_shown >= _LINE_EVERY_S:
            waiting_shown = time.monotonic()
            _print_line(f"blkreel: {text}")

    return Task(show, show_waiting)


def _print_line(line: str) -> None:
    with suppress(OSError, ValueError):  # a closed stderr must not end the step
        print(line, file=sys.stderr)
