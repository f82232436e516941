"""Telemetry of one drive of a run: external I/O, from the kernel's count, and SMART."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from blkreel.replay.drive.claim import held_targets
from blkreel.replay.drive.external_io import DiskCount, count_around, foreign_ios
from blkreel.replay.drive.target import Target
from blkreel.replay.telemetry.sensors.smart import Smart, missing, smart, thermal_transitions
from blkreel.traces.telemetry.file import Series, sensor
from blkreel.traces.telemetry.spool import TelemetrySpool

from .source import MissingSensor, Sensor, SensorSet

_DISKSTATS = "diskstats"
_BIN_NS = 50_000_000
# The kernel may count a completion that much before the engine stamps it (docs/replay.md).
_AHEAD_NS = 100_000_000
_COLUMNS = 4  # read I/Os, read bytes, write I/Os, write bytes


class SampledDrive:
    """suffix: of the names of its sensors. smart: None if it cannot be queried."""

    def __init__(self, target: Target, suffix: str, spool: TelemetrySpool):
        self._target, self._suffix, self._spool = target, suffix, spool
        self._external_name = f"foreign_ios{suffix}"
        self.external_ios = ExternalIos()
        self.smart: LiveSmart | None = None

    def counts(self) -> SensorSet:
        """The kernel's counts of the drive's I/O. The number of external I/Os is known at the end of the run."""
        name = self._external_name
        if count_around(self._target, held_targets()) is None:
            return SensorSet(missing=[MissingSensor(
                name, "count", f"{self._target.path}: the kernel does not count the I/O of a file")])
        return SensorSet([_Counts(self._target, name, self.external_ios)])

    def declare_external_ios_missing(self) -> None:
        """The entry that a killed run leaves; external_ios_series() replaces it."""
        if count_around(self._target, held_targets()) is not None:
            self._spool.sensor(self._external_name, "count", _DISKSTATS,
                               missing="the run was killed before its I/O was compared with the kernel's count")

    def external_ios_series(self, start_ns: int) -> tuple[str, dict[str, Any], Series] | None:
        """(name, entry, series) on the run's clock; None if the kernel does not count."""
        time_ns, value = self.external_ios.series(start_ns)
        if not len(time_ns):
            return None
        off = None if len(value) else "iostats of the drive are switched off"
        return (self._external_name, sensor("count", _DISKSTATS, missing=off),
                (time_ns[:len(value)] - start_ns, value))

    def begin_smart(self, missing_before: list[MissingSensor], ocp_log: bool = False) -> list[MissingSensor]:
        """Query for the first time. Returns the sensors that are still missing.

        ocp_log: query the OCP logs even if the drive does not list them.
        """
        source = smart(self._target.drive, self._suffix)
        if not isinstance(source, Smart):
            return [*missing_before, *source]
        temperature = f"temperature_c{self._suffix}"
        needs_temperature = any(sensor.name == temperature for sensor in missing_before)
        live = LiveSmart(source, self._spool, temperature if needs_temperature else None)
        no_media = source.find_ocp_logs(ocp_log) if source.is_live else ""
        try:
            live.query("before")
        except (OSError, ValueError) as error:
            return [*missing_before, *missing(self._suffix, str(error))]
        self.smart = live
        names = {sensor.name for sensor in live.sensors}
        left = [sensor for sensor in missing_before if sensor.name not in names]
        if live.throttle_events not in names:
            left.append(MissingSensor(live.throttle_events, "count", "the drive does not report it"))
        if not {"media_bytes_written", "ftl_program_pages"} & source.values.keys():
            left.append(MissingSensor(f"smart{self._suffix}.media_bytes_written", "B",
                                      no_media or "the drive has no count of known unit"))
        return left

    def latency_log(self) -> dict[str, Any] | None:
        """The OCP latency monitor log; None of a drive without one. Raises OSError or ValueError."""
        return self.smart.latency_log() if self.smart is not None else None

    def end_smart(self) -> None:
        """Query after the run. A failure becomes a note."""
        if self.smart is None:
            return
        try:
            self.smart.query("after")
        except (OSError, ValueError) as error:
            for entry in self.smart.sensors:
                self._spool.note(entry.name, f"the query after the run failed: {error}")


class LiveSmart:
    """SMART as a source. temperature: the sensor to fill with the drive's temperature, None if it has another one."""

    def __init__(self, smart: Smart, spool: TelemetrySpool, temperature: str | None):
        self._smart, self._spool, self._temperature = smart, spool, temperature
        self.throttle_events = f"throttle_events{smart.suffix}"
        self._first_transitions: float | None = None
        self.is_live = smart.is_live
        self.sensors: list[Sensor] = []

    def query(self, when: str) -> None:
        """when: `before` or `after` the run. Raises OSError or ValueError."""
        values = self._values(self._smart.query())
        names = {sensor.name for sensor in self.sensors}
        source = self._smart.source
        for entry in [*self._smart.sensors, Sensor(self.throttle_events, "count", source),
                      *([Sensor(self._temperature, "C", source)] if self._temperature else [])]:
            if entry.name in values and entry.name not in names:
                self.sensors.append(entry)
                self._spool.sensor(entry.name, entry.unit, source)
        if not self._smart.suffix:
            self._spool.smart(when, {**self._smart.values, "took_ns": self._smart.longest_ns})
        self._spool.samples(time.monotonic_ns(), values)

    def latency_log(self) -> dict[str, Any] | None:
        return self._smart.latency_log()

    def read(self) -> dict[str, float]:
        names = {sensor.name for sensor in self.sensors}
        return {name: value for name, value in self._values(self._smart.query()).items() if name in names}

    def _values(self, fields: Mapping[str, float]) -> dict[str, float]:
        values = self._smart.by_sensor(fields)
        transitions = thermal_transitions(fields)
        if transitions is not None:
            if self._first_transitions is None:
                self._first_transitions = transitions
            values[self.throttle_events] = transitions - self._first_transitions
        if self._temperature and "temperature_c" in fields:
            values[self._temperature] = fields["temperature_c"]
        return values


class _Counts:
    """Passes the kernel's counts to ExternalIos; has no samples of its own."""

    def __init__(self, target: Target, name: str, external_ios: "ExternalIos"):
        self.sensors = [Sensor(name, "count", _DISKSTATS)]
        self._target, self._external_ios = target, external_ios

    def read(self) -> dict[str, float]:
        now_ns = time.monotonic_ns()
        count = count_around(self._target, held_targets())
        if count is None:
            raise ValueError(f"{self._target.path} was removed")
        self._external_ios.add_count(now_ns, count)
        return {}


class ExternalIos:
    """Compares the kernel's counts of one drive with the run's I/Os, whose records come later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workload = np.zeros((_COLUMNS, 1024), np.int64)
        self._times_ns: list[int] = []
        self._counts: list[DiskCount] = []

    def add_count(self, monotonic_ns: int, count: DiskCount) -> None:
        with self._lock:
            self._times_ns.append(monotonic_ns)
            self._counts.append(count)

    def take(self, rows: Mapping[str, np.ndarray], reads: np.ndarray, writes: np.ndarray) -> None:
        """Records of the run. reads, writes: masks of those on this drive."""
        bins = np.maximum(np.maximum(rows["complete_ns"], rows["submit_ns"]), 0) // _BIN_NS
        length = rows["length_bytes"]
        with self._lock:
            self._grow(int(bins.max(initial=0)))
            for column, mask in ((0, reads), (2, writes)):
                size = self._workload.shape[1]
                self._workload[column] += np.bincount(bins[mask], minlength=size)
                self._workload[column + 1] += np.bincount(bins[mask], length[mask], minlength=size).astype(np.int64)

    def series(self, start_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """CLOCK_MONOTONIC in ns, and the number of I/Os until then that were external for certain, never decreasing.
        No numbers where the kernel counted nothing."""
        with self._lock:
            times_ns = np.array(self._times_ns, np.int64)
            counts, workload = list(self._counts), np.cumsum(self._workload, axis=1)
        external = np.zeros(len(times_ns))
        for index, (time_ns, count) in enumerate(zip(times_ns.tolist(), counts, strict=True)):
            last_bin = min((time_ns - start_ns + _AHEAD_NS) // _BIN_NS, workload.shape[1] - 1)
            issued = workload[:, last_bin] if last_bin >= 0 else np.zeros(_COLUMNS, np.int64)
            number = foreign_ios(counts[0], count, read_ios=int(issued[0]), read_bytes=int(issued[1]),
                                 write_ios=int(issued[2]), write_bytes=int(issued[3]))
            if number is None and index == len(counts) - 1:
                return times_ns, external[:0]
            external[index] = number or 0  # before the first I/O of the run is counted
        # The last count was taken after the end of the run, so that all of its I/Os are known.
        return times_ns, np.maximum.accumulate(np.minimum(external, external[-1])) if len(external) else external

    def _grow(self, last_bin: int) -> None:
        size = self._workload.shape[1]
        if last_bin >= size:
            grown = np.zeros((_COLUMNS, max(last_bin + 1, 2 * size)), np.int64)
            grown[:, :size] = self._workload
            self._workload = grown
