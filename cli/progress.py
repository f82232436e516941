"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from blkreel.cli.terminal_kept import can_be_drawn_on, kept, stop_here

_LINE_EVERY_S = 5.0


class Task:
    """What a step reports to. `update` is cheap enough to be called for every block of rows."""

    def __init__(self, step, total, show):
        self.step, self.total, self._show = step, total, show

    def update(self, done: float, detail: str = "") -> None:
        """done: absolute, in the unit of the total. detail: rate, lateness, losses, as text."""
        self._show(done, detail)


@contextmanager
def progress(step: str, total: float | None = None):
    """`with progress("replaying", total=seconds) as task: task.update(done, "12,345 I/Os")`."""
    console = Console(stderr=True)
    if not can_be_drawn_on(console):
        yield line_task(step, total)
        return
    # The spinner's dots have no form in ASCII, as the bar has.
    columns = [SpinnerColumn("line" if console.options.ascii_only else "dots"), TextColumn("{task.description}")]
    columns += [BarColumn(), TimeRemainingColumn()] if total else [TimeElapsedColumn()]
    stops = []

    def stop():
        stops.clear()
        bar.stop()
        stop_here()

    def show(done, detail):
        bar.update(handle, completed=done, detail=detail)
        if stops:
            stop()
            bar.start()

    with (kept(lambda: stops.append(True)),
          Progress(*columns, TextColumn("{task.fields[detail]}"), console=console, transient=True) as bar):
        handle = bar.add_task(step, total=total, detail="")
        yield Task(step, total, show)
        if stops:
            stop()


def line_task(step: str, total: float | None) -> "Task":
    """A line every few seconds, for who reads a file or a log."""
    started = last = time.monotonic()
    begun = None

    def show(done, detail):
        nonlocal last, begun
        now = time.monotonic()
        if begun is None:
            # What goes on after an interruption comes with what was done before, which tells nothing of its rate.
            begun = 0 if detail else done
        if now - last < _LINE_EVERY_S:
            return
        last = now
        parts = [step]
        if total:
            parts.append(f"{min(100, 100 * done / total):.0f} %")
            if done > begun:
                parts.append(f"{(now - started) * max(0, total - done) / (done - begun):.0f} s left")
        with suppress(OSError, ValueError):  # whoever read it has ended; what is told of goes on
            print(": ".join(parts[:1]) + ": " + ", ".join(parts[1:] + ([detail] if detail else [])), file=sys.stderr)

    return Task(step, total, show)
