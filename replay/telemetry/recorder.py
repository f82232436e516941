"""Measures beside one run: begins before its engine, ends after it, and never stops it or takes anything from it."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from blkreel.traces.device import SYS
from blkreel.traces.errors import BlkreelError
from blkreel.traces.schema import OPS
from blkreel.traces.telemetry_file import FILE, Telemetry, sensor
from blkreel.traces.telemetry_spool import TelemetrySpool

from ..target import Target
from . import hwmon, link, meters, powercap, simulated
from .account import account_of, empty_account
from .cpu_heat import CpuHeat
from .drive import SampledDrive
from .options import TelemetryOptions
from .power_command import PowerCommand
from .power_samples import ClockPairs
from .sampler import Sampler
from .source import Found, Missing

# A question to the drive itself: hwmon keeps an NVMe drive's answer for a second anyway, and a SATA drive finishes what
# it has in its queue before it answers.
_DRIVE_PERIOD_S = 1.0
_WRITES = (OPS["write"], OPS["write_zeroes"])


class Recorder:
    """`with recorder:` around the engine; epoch() and take() meanwhile; finish() or discard() behind it.

    None of them raises: what goes wrong becomes a reason in account()["missing"].
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
        self._meter: dict | None = None
        self._pair: tuple[int, int] | None = None
        self._last_pair: tuple[int, int] | None = None
        self._broken: dict[str, str] = {}
        self._account: dict | None = None

    def __enter__(self):
        try:
            with self._harmless("begin"):
                self._spool = TelemetrySpool(self._directory)
                self._pair = _clock_pair()
                if not any(target.is_nil for target in self._targets):
                    self._begin()
        except BaseException:  # Ctrl-C, while a meter was waited for
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info):
        # Each by itself: what can't be ended must not keep the others going.
        for sampler in self._samplers:
            with self._harmless("sampler"):
                if not sampler.end():
                    self._broken["sampler"] = "a sensor has not answered for a long time"
        if self._command is not None:
            with self._harmless("power command"):
                self._command.end()
        self._last_pair = _clock_pair()
        for drive in self._drives:
            with self._harmless("smart"):
                drive.ask_smart("after")

    def epoch(self, monotonic_ns: int | None) -> None:
        """The run's start, as soon as it is known."""
        if monotonic_ns and self._epoch_ns is None:
            self._epoch_ns = monotonic_ns
            with self._harmless("spool"):
                if self._spool is not None:
                    self._spool.epoch(monotonic_ns)

    def take(self, rows: dict[str, np.ndarray]) -> None:
        """Records, as they come from the engine."""
        with self._harmless("foreign_ios"):
            if not self._drives or not len(rows["op"]):
                return
            reads, writes = rows["op"] == OPS["read"], np.isin(rows["op"], _WRITES)
            for index, drive in enumerate(self._drives):
                here = rows["target"] == index
                drive.foreign.take(rows, reads & here, writes & here)

    @property
    def latest(self) -> dict[str, float]:
        """What each sensor told last, by its name; of no drive, or of a simulated one before its end, nothing."""
        return dict(self._spool.latest) if self._spool is not None else {}

    def finish(self, totals: dict, wall_ns: int) -> None:
        """Write the file. totals: the engine's, empty where it failed."""
        self.epoch(totals.get("start_monotonic_ns"))
        with self._harmless("finish"):
            if self._spool is None:
                return
            told = self._telemetry(totals)
            self._account = account_of(told, wall_ns, self._meter, [one.drive.name for one in self._targets[1:]])
            try:
                self._spool.finish(told, force=self._force)
            except BlkreelError as error:
                self._broken[FILE] = f"{error}; then finish what was sampled with: blkreel recover"
        with self._harmless("spool"):
            if self._spool is not None:
                self._spool.close()  # where it is still there, blkreel recover makes the file of it

    def discard(self) -> None:
        """Leave nothing behind: there is no run."""
        with self._harmless("discard"):
            if self._spool is not None:
                self._spool.discard()

    def account(self) -> dict | None:
        """As in account.py; None before finish()."""
        if self._account is None and not self._broken:
            return None
        told = self._account or empty_account()
        return {**told, "missing": {**told["missing"], **self._broken}}

    def _begin(self):
        options, sys_root = self._options, self._sys_root
        fast, slow = Found(), Found()
        for number, target in enumerate(self._targets):
            suffix = f".{target.drive.name}" if number else ""
            drive = SampledDrive(target, suffix, self._spool, sys_root)
            self._drives.append(drive)
            fast.add(drive.counts())
            if target.disk_block is not None:
                fast.add(link.link(target.disk_block, suffix))
                slow.add(hwmon.temperatures(target.disk_block, sys_root, suffix))
            else:
                slow.missing.append(Missing(f"temperature_c{suffix}", "C", f"{target.path} is a file"))
        fast.add(powercap.rails(sys_root))
        fast.add(self._meter_found())
        slow.add(CpuHeat.found(sys_root))
        for drive in self._drives:
            with self._harmless("smart"):
                slow.missing[:] = drive.begin_smart(slow.missing)
        for sampler_name, found, period_s in (("fast", fast, 1 / options.sample_hz),
                                              ("drive", slow, max(_DRIVE_PERIOD_S, 1 / options.sample_hz))):
            self._declare(found, 1 / period_s)
            self._sample(sampler_name, found.sources, period_s)
        for drive in self._drives:
            drive.foreign_died()
        live = [drive.smart for drive in self._drives if drive.smart is not None and drive.smart.live]
        if live and options.smart_every_s:
            self._sample("smart", live, options.smart_every_s, ends=False)
        if self._command is not None:
            self._command.begin()

    def _sample(self, name, sources, period_s, ends=True):
        if not sources:
            return
        spool = self._spool
        sampler = Sampler(name, sources, period_s, spool.samples,
                          lambda sensor, begin_ns, end_ns: spool.gap(sensor.name, begin_ns, end_ns),
                          lambda sensor, text: spool.note(sensor.name, text), ends=ends)
        sampler.begin()
        self._samplers.append(sampler)

    def _declare(self, found: Found, rate_hz: float):
        for source in found.sources:
            for one in source.sensors:
                self._spool.sensor(one.name, one.unit, one.source, round(rate_hz, 3))
        for one in found.missing:
            self._spool.sensor(one.name, one.unit, "", missing=one.reason)

    def _meter_found(self) -> Found:
        options = self._options
        if options.power_command:
            self._meter = {"meter": f"command: {options.power_command}", "rail": "drive"}
            self._spool.sensor("power_w", "W", self._meter["meter"])
            self._command = PowerCommand(options.power_command,
                                         lambda time_ns, watts: self._spool.samples(time_ns, {"power_w": watts}))
            return Found()
        if options.power_log:
            self._meter = {"meter": f"log: {options.power_log.path.name}", "rail": "drive"}
            return Found(missing=[Missing("power_w", "W", "the run died before its power log was read")])
        if options.power_sensor:
            found = meters.named_rail(options.power_sensor, self._sys_root)
        else:
            found = meters.own_rail(self._targets[0].disk_block, self._sys_root)
        for source in found.sources:
            self._meter = {"meter": source.sensors[0].source, "rail": source.sensors[0].rail}
        return found

    def _telemetry(self, totals) -> Telemetry:
        if any(target.is_nil for target in self._targets):
            return self._of_no_drive(totals)
        held = self._spool.held()
        pairs = ClockPairs(self._pair, self._last_pair)
        start_ns = self._epoch_ns if self._epoch_ns is not None else self._pair[0]
        sensors, samples = dict(held.sensors), dict(held.samples)
        for drive in self._drives:
            with self._harmless("foreign_ios"):
                for name, entry, series in drive.foreign_series(start_ns):
                    sensors[name], samples[name] = entry, series
        power = self._external_power(pairs, start_ns)
        if power is not None:
            sensors["power_w"], samples["power_w"] = power
        if self._spool.failed:
            self._broken["samples"] = f"some could not be written: {self._spool.failed}"
        return replace(held, sensors=sensors, samples=samples, epoch_ns=self._epoch_ns)

    def _of_no_drive(self, totals) -> Telemetry:
        found = simulated.telemetry_of(totals)
        if found is not None:
            self._meter = {"meter": simulated.SOURCE, "rail": "drive"}
            return found
        why = "there was no drive"
        return Telemetry({"temperature_c": sensor("C", "", missing=why), "power_w": sensor("W", "", missing=why)},
                         epoch_ns=self._epoch_ns)

    def _external_power(self, pairs, start_ns):
        """(entry, series) of `power_w` from a program or a log; None where neither was asked for."""
        source = self._meter["meter"] if self._meter else ""
        try:
            if self._command is not None:
                found = self._command.result(pairs)
            elif self._options.power_log is not None:
                found = self._options.power_log.read(pairs, start_ns)
                found = found.during(start_ns, pairs.last[0])
            else:
                return None
        except BlkreelError as error:
            return sensor("W", source, missing=str(error)), None
        except Exception as error:  # noqa: BLE001 - all else that was sampled must not be lost with it
            return sensor("W", source, missing=f"{type(error).__name__}: {error}"), None
        if not len(found.time_ns):
            return sensor("W", source, missing="; ".join(found.notes)), None
        gaps = [(begin_ns - start_ns, end_ns - start_ns) for begin_ns, end_ns in found.gaps]
        return (sensor("W", source, found.rate_hz, gaps=gaps, notes=found.notes),
                (found.time_ns - start_ns, found.watts))

    def _harmless(self, what: str):
        return _Harmless(self._broken, what)


class _Harmless:
    """What fails inside is a reason, and no failure of the run."""

    def __init__(self, broken, what):
        self._broken, self._what = broken, what

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, Exception):
            self._broken.setdefault(self._what, f"{type(error).__name__}: {error}")
            return True
        return False


def _clock_pair() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()
