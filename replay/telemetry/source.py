"""Sources of samples: sensors that are read together, and the reason for each sensor that is missing. They are read at
a fixed rate: deadlines are multiples of the period, so that late readings do not add up."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blkreel.traces.telemetry.spool import TelemetrySpool


@dataclass(frozen=True)
class Sensor:
    """name: as in telemetry.parquet. source: where its values come from. rail: the rail that a power meter measures."""

    name: str
    unit: str
    source: str
    rail: str | None = None


class Source(Protocol):
    """Sensors that are read together.

    read() returns all or some of their values by name; a first reading may return none. Raises OSError or ValueError,
    whose text goes into the notes of all its sensors.
    """

    sensors: list[Sensor]

    def read(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class MissingSensor:
    """reason: why there is no such sensor, and the command that fixes it."""

    name: str
    unit: str
    reason: str


@dataclass
class SensorSet:
    sources: list[Source] = field(default_factory=list)
    missing: list[MissingSensor] = field(default_factory=list)

    def add(self, sensor_set: "SensorSet") -> None:
        self.sources += sensor_set.sources
        self.missing += sensor_set.missing


_JOIN_S = 15.0
_LATE_INTERVALS = 1.5  # two readings further apart than that have a missed one between them


class Sampler:
    """A thread that reads all its sources at each deadline; with `ends` once before and once after it, too.

    A source that fails is read again at the next deadline: a failure is a gap up to the next success, or to the end.
    """

    def __init__(self, name: str, sources: Sequence[Source], period_s: float, spool: TelemetrySpool, *,
                 ends: bool = True, clock_ns: Callable[[], int] = time.monotonic_ns):
        self._period_ns, self._clock_ns = int(period_s * 1e9), clock_ns
        self._sources = [_SampledSource(source, self._period_ns, spool, clock_ns) for source in sources]
        self._ends, self._ending = ends, threading.Event()
        self._start_ns = 0
        self._thread = threading.Thread(target=self._run, name=f"telemetry {name}", daemon=True)

    def begin(self) -> None:
        """Read once in the caller's thread: a run has a sample from before its first I/O."""
        if self._ends:
            self._tick()
        self._start_ns = self._clock_ns()
        self._thread.start()

    def end(self) -> bool:
        """Read a last time and stop. False if the thread still runs: a source may hang in the kernel."""
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

    def _run(self) -> None:
        number = 1
        while True:
            wait_s = (self._start_ns + number * self._period_ns - self._clock_ns()) / 1e9
            if self._ending.wait(max(wait_s, 0.0)):
                return
            self._tick()
            # Missed deadlines are not made up for: their readings would all have one time.
            number = max(number, (self._clock_ns() - self._start_ns) // self._period_ns) + 1

    def _tick(self) -> None:
        for source in self._sources:
            source.read()


class _SampledSource:
    """A source and its last success and failures, from which its gaps follow."""

    def __init__(self, source: Source, period_ns: int, spool: TelemetrySpool, clock_ns: Callable[[], int]):
        self._source, self._period_ns, self._spool, self._clock_ns = source, period_ns, spool, clock_ns
        self._last_ns: int | None = None
        self._failed_ns: int | None = None
        self._failures = 0

    def read(self) -> None:
        now_ns = self._clock_ns()
        try:
            values = self._source.read()
        except Exception as error:  # noqa: BLE001 - the run must go on whatever a source raises
            self._failures += 1
            self._failed_ns = now_ns if self._failed_ns is None else self._failed_ns
            if self._failures == 1:
                self._note(f"a reading failed: {_reason(error)}")
            return
        # The value of a slow reading is from any moment of it: take the middle.
        now_ns = (now_ns + self._clock_ns()) // 2
        if self._last_ns is not None and (self._failed_ns is not None or
                                          now_ns - self._last_ns > _LATE_INTERVALS * self._period_ns):
            self._gap(self._last_ns, now_ns)
        if values:
            self._spool.samples(now_ns, values)
        self._failed_ns, self._last_ns = None, now_ns

    def end(self) -> None:
        if self._failed_ns is not None and self._last_ns is not None:
            self._gap(self._last_ns, self._clock_ns())
        if self._failures > 1:
            self._note(f"{self._failures:,} readings failed in all")

    def _gap(self, begin_ns: int, end_ns: int) -> None:
        for sensor in self._source.sensors:
            self._spool.gap(sensor.name, begin_ns, end_ns)

    def _note(self, text: str) -> None:
        for sensor in self._source.sensors:
            self._spool.note(sensor.name, text)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
