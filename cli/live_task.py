"""The live view of a capture and of what issues I/O: how far it is, and what the drives do, on a terminal.

It must never slow or end what it shows: whatever goes wrong in here ends the view, and nothing else.
"""

import sys
import time
from contextlib import contextmanager, suppress

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from blkreel.cli.live import INTERVAL_NS, Picture
from blkreel.cli.progress import Task, line_task, progress
from blkreel.cli.terminal_kept import can_be_drawn_on, kept, stop_here
from blkreel.traces.live import Interval, RunCounter

_REFRESH_EVERY_S = 0.5


class _GivesWay(Exception):
    """Its text says to whom."""


class LiveTask:
    """What a capture or a replay reports to; as progress.Task, with take_rows and take_note for a replay besides.

    heading(): a line above, as of now, or none. pending(): the last line of a command that is not whole yet.
    """

    def __init__(self, console: Console, step: str, total: float | None, drives: list[str], heading=None,
                 pending=None):
        self.step, self.total, self._drives = step, total, drives
        self._heading, self._pending = heading, pending
        self._picture, self._counter = Picture(console, others_lines=2 + bool(heading) + bool(pending)), RunCounter()
        self._began = self._drawn_at = self._taken_at = time.monotonic()
        self._done, self._detail, self._outstanding = 0.0, "", None
        self._first_done = self._first_at = None
        self._console = console
        self._live = self._new_live()
        self._lines = None  # what takes over where the view has ended
        self._stop_wanted = False

    def update(self, done: float, detail: str = "") -> None:
        if self._first_done is None:
            # What was done before, or while it began, tells nothing of its rate.
            self._first_done, self._first_at = done, time.monotonic()
        self._done, self._detail = done, detail
        if self._lines:
            self._lines.update(done, detail)
        self._safely(self._draw)

    def show(self, interval: Interval, drives: list[str], names: dict) -> None:
        """An interval of a capture."""
        self._safely(lambda: self._picture.take(interval, drives, names))

    def note(self, text: str) -> None:
        """What the figures cannot tell, and why."""
        self._picture.note = text

    def give_way(self, why: str) -> None:
        """End the view for good: somebody else wants the whole terminal."""
        def end():
            raise _GivesWay(why)

        self._safely(end)

    def say(self, step: str) -> None:
        """Something else is done from here on, that has no progress of its own."""
        self.step, self.total, self._detail = step, None, ""
        self._safely(lambda: self._draw(at_once=True))

    def take_rows(self, rows) -> None:
        """Rows of a replay, as the engine gives them."""
        self._safely(lambda: self._counter.add(rows))

    def take_note(self, note: dict) -> None:
        """The engine's own word, about twice a second also where no row comes."""
        self._safely(lambda: self._take_note(note))

    def take_telemetry(self, values: dict[str, float]) -> None:
        """What sensors told last, by their names in the run's telemetry."""
        self._picture.telemetry = values

    def _take_note(self, note):
        self._outstanding = note.get("outstanding")
        if time.monotonic() - self._taken_at >= INTERVAL_NS / 1e9:
            self._picture.take(self._taken(), self._drives, {})
        self._draw()

    def _taken(self) -> Interval:
        now = time.monotonic()
        interval = self._counter.take(int((now - self._taken_at) * 1e9))
        interval.in_flight = [self._outstanding] if len(self._drives) == 1 else []
        self._taken_at = now
        return interval

    def _draw(self, at_once=False):
        if self._stop_wanted:
            self._stop_here()
        if at_once or time.monotonic() - self._drawn_at >= _REFRESH_EVERY_S:
            self._drawn_at = time.monotonic()
            self._live.refresh()

    def refresh(self) -> None:
        """Draw now."""
        self._safely(lambda: self._draw(at_once=True))

    def __rich__(self):
        if self._lines:
            return Text()  # what could not be drawn is not drawn once more when it ends
        parts = []
        if self._pending and (text := self._pending()):
            parts.append(text)
        if self._heading and (heading := self._heading()):
            parts.append(Text(heading, no_wrap=True, overflow="ellipsis"))
        parts.append(Text(self._headline(), style="bold", no_wrap=True, overflow="ellipsis"))
        if self._picture.has_some:
            parts += [Text(), self._picture]
        elif self._picture.note:
            parts.append(Text(self._picture.note, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _headline(self):
        elapsed_s = time.monotonic() - self._began
        parts = [f"{self.step}, {clock_words(elapsed_s)}"]
        if self.total:
            parts.append(f"{min(100, 100 * self._done / self.total):.0f} %")
            if self._first_done is not None and self._done > self._first_done:
                rate = (self._done - self._first_done) / (time.monotonic() - self._first_at)
                parts.append(f"{clock_words(max(0, self.total - self._done) / rate)} left")
        return ", ".join(parts + ([self._detail] if self._detail else []))

    def _safely(self, act):
        if self._lines:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is: what is shown goes on
            _raise_interrupt_behind(error)
            gives_way = isinstance(error, _GivesWay)
            self._lines = Task(self.step, self.total, _silent) if gives_way else line_task(self.step, self.total)
            self._stop()
            why = error if gives_way else f"{type(error).__name__}: {error}"
            with suppress(OSError, ValueError):  # the terminal may be gone
                print(f"blkreel: the live view has ended ({why}); {self.step} goes on", file=sys.stderr)

    def _new_live(self):
        return Live(self, console=self._console, auto_refresh=False, transient=True)

    def _stop_here(self):
        """The shell gets a terminal without the view, and the view comes back below what it shows then."""
        self._stop_wanted = False
        self._stop()
        stop_here()
        self._live = self._new_live()
        self._live.start(refresh=True)

    def _stop(self):
        try:
            self._live.stop()
        except Exception as error:  # noqa: BLE001 - as above
            _raise_interrupt_behind(error)

    def _want_stop(self):
        self._stop_wanted = True

    def _take_last(self):
        """The rows that came after the last interval, so that nothing is missing from the sum."""
        interval = self._taken()
        if interval.classes:
            (self._picture.add if self._picture.has_some else self._first)(interval)
        self._live.refresh()

    def _first(self, interval):
        self._picture.take(interval, self._drives, {})

    def __enter__(self):
        self._kept = kept(self._want_stop)
        self._kept.__enter__()
        self._safely(lambda: self._live.start(refresh=True))
        return self

    def __exit__(self, *reason):
        self._safely(self._take_last)
        self._stop()
        self._kept.__exit__(None, None, None)
        if self._stop_wanted:
            stop_here()


def _raise_interrupt_behind(error) -> None:
    """Where Ctrl-C, or the end of the terminal, came while something was drawn and that then failed for good.

    The failure stands in front of the interrupt then, which is not the view's to swallow.
    """
    behind = error.__context__
    while behind is not None:
        if isinstance(behind, KeyboardInterrupt):
            raise behind
        behind = behind.__context__


def _silent(done, detail):
    pass


def clock_words(seconds: float) -> str:
    """`0:07`, `12:03`, `1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@contextmanager
def live_progress(step: str, total: float | None = None, drives: list[str] = (), *, live: bool | None = None,
                  heading=None, pending=None):
    """As progress.progress, with a picture of the drives on a terminal; plain lines elsewhere.

    drives: of a replay, what they are called. live: False for the bar alone. heading, pending: as of LiveTask.
    """
    console = Console(stderr=True)
    if not can_be_drawn_on(console) or live is False:
        with progress(step, total) as task:
            yield task
        return
    with LiveTask(console, step, total, list(drives), heading, pending) as task:
        yield task
