"""The live view of a running capture or replay: progress, and what the drives do, on a terminal.

The view must never slow or end what it shows: any error in here ends the view, and nothing else.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from blkreel.common.progress import ProgressTask
from blkreel.traces.live import Interval, RunCounter

from .live_view import INTERVAL_NS, LiveView, ThreadNames
from .progress import Task, line_task, progress
from .terminal_guard import noted_suspend, supports_live_view, suspend

_REFRESH_EVERY_S = 0.5


class _ViewEnds(Exception):
    """Ends the view on purpose; the text is the reason."""


class LiveTask(ProgressTask):
    """Draws the progress of one step and the live view.

    heading(): a line above the view, or "". pending(): the last, unfinished line of the command's output.
    """

    def __init__(self, console: Console, step: str, total: float | None, drives: Sequence[str],
                 heading: Callable[[], str] | None = None, pending: Callable[[], Text | None] | None = None):
        self.step, self.total, self._drives = step, total, drives
        self._heading, self._pending = heading, pending
        self._view = LiveView(console, reserved_lines=2 + bool(heading) + bool(pending))
        self._counter = RunCounter()
        self._began = self._drawn_at = self._taken_at = time.monotonic()
        self._done, self._detail, self._waiting = 0.0, "", ""
        self._outstanding: int | None = None
        self._first: tuple[float, float] | None = None  # what was done at the first update, and its time
        self._console = console
        self._live = self._new_live()
        self._fallback: Task | None = None  # shows the progress after the view has ended
        self._suspend_requested = False

    def update(self, done: float, detail: str = "") -> None:
        if self._first is None:
            # What a resumed step had done before must not count for its rate.
            self._first = done, time.monotonic()
        self._done, self._detail = done, detail
        if self._fallback:
            self._fallback.update(done, detail)
        self._guarded(self._draw)

    def show_interval(self, interval: Interval, drives: Sequence[str], names: ThreadNames) -> None:
        self._guarded(lambda: self._view.set_interval(interval, drives, names))

    def note(self, text: str) -> None:
        """Show a limit of the metrics below them."""
        self._view.note = text

    def end_view(self) -> None:
        """End the view for good, because a command draws the whole screen."""
        def end() -> None:
            raise _ViewEnds("the command draws the whole screen itself")

        self._guarded(end)

    def begin_step(self, step: str) -> None:
        """Show another step, without progress of its own."""
        self.step, self.total, self._detail = step, None, ""
        self.refresh()

    def take_rows(self, rows: Mapping[str, np.ndarray]) -> None:
        self._guarded(lambda: self._counter.add(dict(rows)))

    def take_note(self, note: Mapping[str, Any]) -> None:
        self._waiting = note.get("waiting", "")
        if self._fallback:
            self._fallback.take_note(note)
        self._guarded(lambda: self._take_note(note))

    def take_telemetry(self, values: Mapping[str, float]) -> None:
        self._view.telemetry = values

    def _take_note(self, note: Mapping[str, Any]) -> None:
        self._outstanding = note.get("outstanding")
        if time.monotonic() - self._taken_at >= INTERVAL_NS / 1e9:
            self._view.set_interval(self._take_interval(), self._drives, {})
        self._draw()

    def _take_interval(self) -> Interval:
        now = time.monotonic()
        interval = self._counter.take(int((now - self._taken_at) * 1e9))
        interval.in_flight = [self._outstanding] if len(self._drives) == 1 else []
        self._taken_at = now
        return interval

    def _draw(self, at_once: bool = False) -> None:
        if self._suspend_requested:
            self._suspend()
        if at_once or time.monotonic() - self._drawn_at >= _REFRESH_EVERY_S:
            self._drawn_at = time.monotonic()
            self._live.refresh()

    def refresh(self) -> None:
        self._guarded(lambda: self._draw(at_once=True))

    def __rich__(self) -> RenderableType:
        if self._fallback:
            return Text()  # drawing failed: do not draw again when the view stops
        parts: list[RenderableType] = []
        if self._pending and (text := self._pending()):
            parts.append(text)
        if self._heading and (heading := self._heading()):
            parts.append(Text(heading, no_wrap=True, overflow="ellipsis"))
        parts.append(Text(self._headline(), style="bold", no_wrap=True, overflow="ellipsis"))
        if self._view.has_interval:
            parts += [Text(), self._view]
        elif self._view.note:
            parts.append(Text(self._view.note, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _headline(self) -> str:
        now = time.monotonic()
        if self._waiting:
            return f"{self._waiting}, {format_clock(now - self._began)}"
        parts = [f"{self.step}, {format_clock(now - self._began)}"]
        if self.total:
            parts.append(f"{min(100, 100 * self._done / self.total):.0f} %")
            if self._first is not None and self._done > self._first[0]:
                rate = (self._done - self._first[0]) / (now - self._first[1])
                parts.append(f"{format_clock(max(0, self.total - self._done) / rate)} left")
        return ", ".join(parts + ([self._detail] if self._detail else []))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Call act(); on any error go on without the view."""
        if self._fallback:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - no error of the view may end the capture or replay
            _raise_interrupt_behind(error)
            on_purpose = isinstance(error, _ViewEnds)
            self._fallback = (Task(lambda done, detail: None, lambda text: None) if on_purpose else
                              line_task(self.step, self.total))
            self._stop()
            reason = error if on_purpose else f"{type(error).__name__}: {error}"
            with suppress(OSError, ValueError):  # the terminal may be gone
                print(f"blkreel: the live view has ended ({reason}); {self.step} continues", file=sys.stderr)

    def _new_live(self) -> Live:
        return Live(self, console=self._console, auto_refresh=False, transient=True)

    def _suspend(self) -> None:
        """Give the shell a terminal without the view, and draw it again after the command is resumed."""
        self._suspend_requested = False
        self._stop()
        suspend()
        self._live = self._new_live()
        self._live.start(refresh=True)

    def _stop(self) -> None:
        try:
            self._live.stop()
        except Exception as error:  # noqa: BLE001 - as above
            _raise_interrupt_behind(error)

    def _request_suspend(self) -> None:
        self._suspend_requested = True

    def _draw_last(self) -> None:
        """Draw again with the rows since the last interval, so that the totals are complete."""
        interval = self._take_interval()
        if interval.classes:
            if self._view.has_interval:
                self._view.add(interval)
            else:
                self._view.set_interval(interval, self._drives, {})
        self._live.refresh()

    def __enter__(self) -> "LiveTask":
        self._guard = noted_suspend(self._request_suspend)
        self._guard.__enter__()
        self._guarded(lambda: self._live.start(refresh=True))
        return self

    def __exit__(self, *reason: object) -> None:
        self._guarded(self._draw_last)
        self._stop()
        self._guard.__exit__(None, None, None)
        if self._suspend_requested:
            suspend()


def _raise_interrupt_behind(error: BaseException) -> None:
    """Raise the KeyboardInterrupt that came first if drawing was interrupted and then failed as well."""
    cause = error.__context__
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            raise cause
        cause = cause.__context__


def format_clock(seconds: float) -> str:
    """`0:07`, `12:03`, `1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


@contextmanager
def live_progress(step: str, total: float | None = None, drives: Sequence[str] = (), *, live: bool | None = None,
                  heading: Callable[[], str] | None = None) -> Iterator[ProgressTask]:
    """Show a step with the live view on a terminal, as plain lines elsewhere.

    drives: names of the drives of a replay. live: False for the one-line bar. heading: see LiveTask.
    """
    console = Console(stderr=True)
    if live is False or not supports_live_view(console):
        with progress(step, total) as task:
            yield task
        return
    with LiveTask(console, step, total, list(drives), heading) as task:
        yield task
