"""Records telemetry beside one run: begins before its engine, ends after it, and never stops the run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.common.device import SYS
from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import document_of
from blkreel.replay.drive.target import Target
from blkreel.replay.telemetry.power import rails
from blkreel.replay.telemetry.power.command import PowerCommand
from blkreel.replay.telemetry.power.samples import ClockPairs
from blkreel.replay.telemetry.sensors import hwmon, sysfs
from blkreel.traces.format import metadata_types
from blkreel.traces.format.schema import OPS, WRITE_CODES
from blkreel.traces.telemetry.file import FILE, Series, Telemetry, sensor
from blkreel.traces.telemetry.spool import TelemetrySpool

from .account import Meter, account_of
from .drive import SampledDrive
from .options import TelemetryOptions
from .source import MissingSensor, Sampler, SensorSet, Source

# hwmon caches an NVMe drive's answer for a second, and a SATA drive finishes its queue before it answers.
_DRIVE_PERIOD_S = 1.0
_SMART_PERIOD_S = 30.0  # of NVMe drives
_WRITES = (*WRITE_CODES, OPS["write_zeroes"])
_SIMULATED = "simulated"


class Recorder:
    """`with recorder:` around the engine; epoch() and take() meanwhile; finish() or discard() after it.

    No method raises: each failure becomes a reason in account()["missing"].
    """

    def __init__(self, options: TelemetryOptions, targets: Sequence[Target], directory: Path, force: bool,
                 sys_root: Path = SYS):
        self._options, self._targets = options, list(targets)
        self._directory, self._force, self._sys_root = directory, force, sys_root
        self._spool: TelemetrySpool | None = None
        self._epoch_ns: int | None = None
        self._drives: list[SampledDrive] = []
        self._samplers: list[Sampler] = []
        self._command: PowerCommand | None = None
        self._meter: Meter | None = None
        self._first_pair = self._last_pair = _clock_pair()
        self._failures: dict[str, str] = {}
        self._account: dict[str, Any] | None = None

    def __enter__(self) -> "Recorder":
        try:
            with self._contained("begin"):
                self._spool = TelemetrySpool(self._directory)
                self._first_pair = _clock_pair()
                if not any(target.is_nil for target in self._targets):
                    self._begin(self._spool)
        except BaseException:  # Ctrl-C while it waits for a meter
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Each is contained by itself, so that one failure does not leave the others running.
        for sampler in self._samplers:
            with self._contained("sampler"):
                if not sampler.end():
                    self._failures["sampler"] = "a sensor does not answer any more"
        if self._command is not None:
            with self._contained("power command"):
                self._command.end()
        self._last_pair = _clock_pair()
        for drive in self._drives:
            with self._contained("smart"):
                drive.end_smart()

    def epoch(self, monotonic_ns: int | None) -> None:
        """Set the run's start, as soon as it is known."""
        if monotonic_ns and self._epoch_ns is None:
            self._epoch_ns = monotonic_ns
            with self._contained("spool"):
                if self._spool is not None:
                    self._spool.epoch(monotonic_ns)

    def take(self, rows: Mapping[str, np.ndarray]) -> None:
        """Records of the engine, as they come."""
        with self._contained("foreign_ios"):
            if not self._drives or not len(rows["op"]):
                return
            reads, writes = rows["op"] == OPS["read"], np.isin(rows["op"], _WRITES)
            for index, drive in enumerate(self._drives):
                on_drive = rows["target"] == index
                drive.external_ios.take(rows, reads & on_drive, writes & on_drive)

    @property
    def latest(self) -> dict[str, float]:
        """The last value of each sensor, by name; empty for a simulated drive before the end of the run."""
        return dict(self._spool.latest) if self._spool is not None else {}

    def finish(self, totals: Mapping[str, Any], wall_ns: int, begin_ns: int = 0) -> None:
        """Write the file. totals: of the engine, empty if it failed. wall_ns, begin_ns: as of account_of()."""
        self.epoch(totals.get("start_monotonic_ns"))
        with self._contained("finish"):
            if self._spool is None:
                return
            telemetry = self._telemetry(self._spool, totals)
            other_drives = [target.drive.name for target in self._targets[1:]]
            self._account = account_of(telemetry, wall_ns, self._meter, other_drives, begin_ns)
            try:
                self._spool.finish(telemetry, force=self._force)
            except BlkreelError as error:
                self._failures[FILE] = f"{error}; then finish it with: blkreel recover"
        with self._contained("spool"):
            if self._spool is not None:
                self._spool.close()  # if it was not finished, blkreel recover does that

    def latency_logs(self) -> dict[str, Any]:
        """The OCP latency monitor log of each drive that has one, by the drive's name. The drive fills it, so that it
        holds the slowest commands until now. Failures are in account()["missing"]."""
        logs = {}
        # Without entries for a simulated drive.
        for target, drive in zip(self._targets, self._drives, strict=False):
            with self._contained(f"latency_log.{target.drive.name}"):
                log = drive.latency_log()
                if log is not None:
                    logs[target.drive.name] = log
        return logs

    def discard(self) -> None:
        """Leave nothing behind: there is no run."""
        with self._contained("discard"):
            if self._spool is not None:
                self._spool.discard()

    def account(self) -> dict[str, Any] | None:
        """As account_of(); None before finish()."""
        if self._account is None and not self._failures:
            return None
        account = self._account or document_of(metadata_types.Telemetry())
        return {**account, "missing": {**account["missing"], **self._failures},
                "meter_given": self._options.has_meter}

    def _begin(self, spool: TelemetrySpool) -> None:
        options, sys_root = self._options, self._sys_root
        fast, slow = SensorSet(), SensorSet()
        for number, target in enumerate(self._targets):
            suffix = f".{target.drive.name}" if number else ""
            drive = SampledDrive(target, suffix, spool)
            self._drives.append(drive)
            fast.add(drive.counts())
            if target.disk_block is not None:
                fast.add(sysfs.link(target.disk_block, suffix))
                slow.add(hwmon.temperatures(target.disk_block, sys_root, suffix))
            else:
                slow.missing.append(MissingSensor(f"temperature_c{suffix}", "C", f"{target.path} is a file"))
        fast.add(rails.processor_rails(sys_root))
        fast.add(self._begin_meter(spool))
        slow.add(sysfs.cpu_throttling(sys_root))
        for drive in self._drives:
            with self._contained("smart"):
                slow.missing[:] = drive.begin_smart(slow.missing, options.ocp_log)
        for name, sensors, period_s in (("fast", fast, 1 / options.sample_hz),
                                        ("drive", slow, max(_DRIVE_PERIOD_S, 1 / options.sample_hz))):
            for source in sensors.sources:
                for entry in source.sensors:
                    spool.sensor(entry.name, entry.unit, entry.source, round(1 / period_s, 3))
            for absent in sensors.missing:
                spool.sensor(absent.name, absent.unit, "", missing=absent.reason)
            self._sample(name, sensors.sources, period_s, spool)
        for drive in self._drives:
            drive.declare_external_ios_missing()
        live = [drive.smart for drive in self._drives if drive.smart is not None and drive.smart.is_live]
        self._sample("smart", live, _SMART_PERIOD_S, spool, ends=False)
        if self._command is not None:
            self._command.begin()

    def _sample(self, name: str, sources: Sequence[Source], period_s: float, spool: TelemetrySpool, *,
                ends: bool = True) -> None:
        if sources:
            sampler = Sampler(name, sources, period_s, spool, ends=ends)
            sampler.begin()
            self._samplers.append(sampler)

    def _begin_meter(self, spool: TelemetrySpool) -> SensorSet:
        options = self._options
        if options.power_command:
            self._meter = {"meter": f"command: {options.power_command}", "rail": "drive"}
            spool.sensor("power_w", "W", self._meter["meter"])
            self._command = PowerCommand(options.power_command,
                                         lambda time_ns, watts: spool.samples(time_ns, {"power_w": watts}))
            return SensorSet()
        if options.power_log:
            self._meter = {"meter": f"log: {options.power_log.path.name}", "rail": "drive"}
            return SensorSet(missing=[MissingSensor("power_w", "W", "the run was killed before the log was read")])
        if options.power_sensor:
            sensors = rails.rail_named(options.power_sensor, self._sys_root)
        else:
            sensors = rails.rail_of_drive(self._targets[0].disk_block, self._sys_root)
        for source in sensors.sources:
            self._meter = {"meter": source.sensors[0].source, "rail": source.sensors[0].rail}
        return sensors

    def _telemetry(self, spool: TelemetrySpool, totals: Mapping[str, Any]) -> Telemetry:
        if any(target.is_nil for target in self._targets):
            simulated = simulated_telemetry(totals)
            if simulated is not None:
                self._meter = {"meter": _SIMULATED, "rail": "drive"}
                return simulated
            absent = {"temperature_c": sensor("C", "", missing="the target is not a drive"),
                      "power_w": sensor("W", "", missing="the target is not a drive")}
            return Telemetry(absent, epoch_ns=self._epoch_ns)
        spooled = spool.read()
        start_ns = self._epoch_ns if self._epoch_ns is not None else self._first_pair[0]
        sensors, samples = dict(spooled.sensors), dict(spooled.samples)
        for drive in self._drives:
            with self._contained("foreign_ios"):
                external = drive.external_ios_series(start_ns)
                if external:
                    sensors[external[0]], samples[external[0]] = external[1:]
        power = self._external_power(start_ns)
        if power is not None:
            sensors["power_w"], series = power
            if series is None:
                samples.pop("power_w", None)
            else:
                samples["power_w"] = series
        if spool.failed:
            self._failures["samples"] = f"some could not be written: {spool.failed}"
        return replace(spooled, sensors=sensors, samples=samples, epoch_ns=self._epoch_ns)

    def _external_power(self, start_ns: int) -> tuple[dict[str, Any], Series | None] | None:
        """(entry, series) of `power_w` from the program or the log; None without either."""
        source = self._meter["meter"] if self._meter else ""
        pairs = ClockPairs(self._first_pair, self._last_pair)
        try:
            if self._command is not None:
                power = self._command.result(pairs)
            elif self._options.power_log is not None:
                power = self._options.power_log.read(pairs, start_ns).during(start_ns, pairs.last[0])
            else:
                return None
        except BlkreelError as error:
            return sensor("W", source, missing=str(error)), None
        except Exception as error:  # noqa: BLE001 - the other sensors' samples must not be lost
            return sensor("W", source, missing=f"{type(error).__name__}: {error}"), None
        if not len(power.time_ns):
            return sensor("W", source, missing="; ".join(power.notes)), None
        gaps = [(begin_ns - start_ns, end_ns - start_ns) for begin_ns, end_ns in power.gaps]
        return (sensor("W", source, power.rate_hz, gaps=gaps, notes=power.notes),
                (power.time_ns - start_ns, power.watts))

    @contextmanager
    def _contained(self, what: str) -> Iterator[None]:
        """Turn an exception inside into an entry of the failures."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no failure stops the run
            self._failures.setdefault(what, f"{type(error).__name__}: {error}")


def _clock_pair() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()


def simulated_telemetry(totals: Mapping[str, Any]) -> Telemetry | None:
    """Temperature and power of a simulated drive, from the engine's end block; None without samples.

    `throttling` is 1 while the drive is throttled, `throttle_events` how often that has begun.
    """
    samples = (totals.get("simulated") or {}).get("samples")
    if not samples:
        return None
    table = np.array(samples, np.float64).reshape(len(samples), -1)
    time_ns = np.array([row[0] for row in samples], np.int64)
    throttling = (table[:, 3] > 0).astype(np.float64)
    # Power is the mean since the previous sample: that of the first one is of the time before the run.
    if len(table) > 1:
        table[0, 2] = table[1, 2]
    events = np.cumsum(np.diff(throttling, prepend=0.0) > 0).astype(np.float64)
    values = {"temperature_c": ("C", table[:, 1]), "power_w": ("W", table[:, 2]), "throttling": ("0|1", throttling),
              "throttle_events": ("count", events)}
    rate_hz = round(1e9 / float(np.median(np.diff(time_ns))), 3) if len(time_ns) > 1 else None
    return Telemetry({name: sensor(unit, _SIMULATED, rate_hz) for name, (unit, _) in values.items()}, {},
                     totals.get("start_monotonic_ns"), {name: (time_ns, value) for name, (_, value) in values.items()})
