"""Reads sources at a steady rate: by deadlines of one clock, so that it never drifts, and what is missed is a gap."""

import threading
import time
from collections.abc import Callable, Sequence

from .source import Source

_JOIN_S = 15.0
_LATE_INTERVALS = 1.5  # apart by more than that, two readings have missed one between them


class Sampler:
    """A thread that reads all its sources at each deadline, and where ends is given once before and once after.

    It sleeps in between, and never spins. A source that fails is read again at the next deadline: what fails and
    comes back has a gap, what has gone for good has one up to the end.
    take(monotonic_ns, values), gap(sensor, from_ns, to_ns) and note(sensor, text) get what comes of it, in its thread.
    """

    def __init__(self, name: str, sources: Sequence[Source], period_s: float, take: Callable, gap: Callable,
                 note: Callable, *, ends: bool = True, clock_ns: Callable[[], int] = time.monotonic_ns):
        self._sources = [_Watched(source, int(period_s * 1e9), take, gap, note, clock_ns) for source in sources]
        self._period_ns, self._clock_ns = int(period_s * 1e9), clock_ns
        self._ends, self._ending = ends, threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"telemetry {name}", daemon=True)

    def begin(self) -> None:
        """Read once in the caller's thread: a run has a sample from before its first I/O."""
        if self._ends:
            self._tick()
        self._start_ns = self._clock_ns()
        self._thread.start()

    def end(self) -> bool:
        """Read once more and stop. Whether it did: a source may hang in the kernel."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            return False
        if self._ends:
            self._tick()
        for source in self._sources:
            source.end()
        return True

    def _run(self):
        number = 1
        while True:
            wait_s = (self._start_ns + number * self._period_ns - self._clock_ns()) / 1e9
            if self._ending.wait(max(wait_s, 0.0)):
                return
            self._tick()
            # Deadlines that have passed meanwhile are not made up for: they would all be read at one time.
            number = max(number, (self._clock_ns() - self._start_ns) // self._period_ns) + 1

    def _tick(self):
        for source in self._sources:
            source.read()


class _Watched:
    def __init__(self, source, period_ns, take, gap, note, clock_ns):
        self._source, self._period_ns, self._clock_ns = source, period_ns, clock_ns
        self._take, self._gap, self._note = take, gap, note
        self._last_ns: int | None = None
        self._failed_ns: int | None = None
        self._failures = 0

    def read(self):
        now_ns = self._clock_ns()
        try:
            values = self._source.read()
            # What took long is of some moment in between.
            now_ns = (now_ns + self._clock_ns()) // 2
        except Exception as error:  # noqa: BLE001 - whatever a source does, the run goes on
            self._failures += 1
            self._failed_ns = now_ns if self._failed_ns is None else self._failed_ns
            if self._failures == 1:
                for sensor in self._source.sensors:
                    self._note(sensor, f"a reading failed: {_words(error)}")
            return
        if self._last_ns is not None and (self._failed_ns is not None or
                                          now_ns - self._last_ns > _LATE_INTERVALS * self._period_ns):
            self._each_gap(self._last_ns, now_ns)
        if values:
            self._take(now_ns, values)
        self._failed_ns, self._last_ns = None, now_ns

    def end(self):
        if self._failed_ns is not None and self._last_ns is not None:
            self._each_gap(self._last_ns, self._clock_ns())
        if self._failures > 1:
            for sensor in self._source.sensors:
                self._note(sensor, f"{self._failures:,} readings failed in all")

    def _each_gap(self, begin_ns, end_ns):
        for sensor in self._source.sensors:
            self._gap(sensor, begin_ns, end_ns)


def _words(error) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
