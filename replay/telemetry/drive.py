"""One drive of a run, as it is sampled: its own counts against ours, and its SMART."""

import time
from pathlib import Path

from blkreel.traces.telemetry_file import Series, sensor
from blkreel.traces.telemetry_spool import TelemetrySpool

from ..foreign import count_of
from ..target import Target
from .foreign_live import ForeignLive
from .smart import Smart, missing, smart, thermal_transitions
from .source import Found, Missing, Sensor

_DISKSTATS = "diskstats"


class SampledDrive:
    """suffix: of the names of its sensors. foreign: takes the records of its I/O. smart: None where nobody tells it."""

    def __init__(self, target: Target, suffix: str, spool: TelemetrySpool, sys_root: Path):
        self._target, self._suffix, self._spool = target, suffix, spool
        self.foreign = ForeignLive()
        self.smart: LiveSmart | None = None
        self._composite = False

    def counts(self) -> Found:
        """The kernel's counts of the drive's I/O; what of it was foreign is told at the end."""
        name = f"foreign_ios{self._suffix}"
        if count_of(self._target) is None:
            return Found(missing=[Missing(name, "count", f"{self._target.path}: nobody counts the I/O of a file")])
        return Found([_Counts(self._target, name, self.foreign)])

    def foreign_died(self) -> None:
        """What a run that is killed has to say of it; foreign_series() says more."""
        if count_of(self._target) is not None:
            self._spool.sensor(f"foreign_ios{self._suffix}", "count", _DISKSTATS,
                               missing="the run died before its own I/O was held against the kernel's count")

    def foreign_series(self, start_ns: int) -> list[tuple[str, dict, Series]]:
        """(name, entry, series) on the run's clock, where the kernel counted."""
        name = f"foreign_ios{self._suffix}"
        time_ns, value = self.foreign.series(start_ns)
        if not len(value):
            return []
        return [(name, sensor("count", _DISKSTATS), (time_ns - start_ns, value))]

    def begin_smart(self, known: list[Missing]) -> list[Missing]:
        """Ask for the first time. known: the sensors that are missing so far; returns those that still are."""
        asked, found = smart(self._target.drive, self._suffix)
        composite = f"temperature_c{self._suffix}"
        if asked is None:
            return [*known, *found.missing]
        self.smart = LiveSmart(asked, self._suffix, self._spool,
                               composite if any(one.name == composite for one in known) else None)
        try:
            self.smart.ask("before")
        except (OSError, ValueError) as error:
            self.smart = None
            return [*known, *missing(self._suffix, str(error))]
        told = self.smart.told
        left = [one for one in known if one.name not in told]
        if f"throttle_events{self._suffix}" not in told:
            left.append(Missing(f"throttle_events{self._suffix}", "count", "the drive does not count it"))
        return left

    def ask_smart(self, when: str) -> None:
        """when: `after`. What fails is noted."""
        if self.smart is None:
            return
        try:
            self.smart.ask(when)
        except (OSError, ValueError) as error:
            for one in self.smart.sensors:
                self._spool.note(one.name, f"it could not be asked {when} the run: {error}")


class LiveSmart:
    """SMART as a source. temperature: the name of the drive's temperature, where nothing else tells it."""

    def __init__(self, asked: Smart, suffix: str, spool: TelemetrySpool, temperature: str | None):
        self._asked, self._suffix, self._spool, self._temperature = asked, suffix, spool, temperature
        self._first_transitions: float | None = None
        self.told: set[str] = set()
        self.live = asked.live
        self.sensors: list[Sensor] = []

    def ask(self, when: str) -> None:
        """Before or after the run. Raises OSError or ValueError."""
        values = self._values(self._asked.ask())
        for name in values:
            if name not in self.told:
                self.told.add(name)
                one = next(one for one in self._sensors() if one.name == name)
                self.sensors.append(one)
                self._spool.sensor(one.name, one.unit, one.source)
        if not self._suffix:
            self._spool.smart(when, {**self._asked.values, "took_ns": self._asked.longest_ns})
        self._spool.samples(time.monotonic_ns(), values)

    def read(self):
        return {name: value for name, value in self._values(self._asked.ask()).items() if name in self.told}

    def _values(self, fields):
        values = self._asked.named(fields)
        transitions = thermal_transitions(fields)
        if transitions is not None:
            if self._first_transitions is None:
                self._first_transitions = transitions
            values[f"throttle_events{self._suffix}"] = transitions - self._first_transitions
        if self._temperature and "temperature_c" in fields:
            values[self._temperature] = fields["temperature_c"]
        return values

    def _sensors(self):
        source = self._asked.source
        extra = [Sensor(f"throttle_events{self._suffix}", "count", source)]
        extra += [Sensor(self._temperature, "C", source)] if self._temperature else []
        return [*self._asked.sensors, *extra]


class _Counts:
    """No samples of its own: what the kernel counted goes to where our records go."""

    def __init__(self, target, name, foreign):
        self.sensors = [Sensor(name, "count", _DISKSTATS)]
        self._target, self._foreign = target, foreign

    def read(self):
        now_ns = time.monotonic_ns()
        count = count_of(self._target)
        if count is None:
            raise ValueError(f"{self._target.path} is gone")
        self._foreign.counted(now_ns, count)
        return {}
