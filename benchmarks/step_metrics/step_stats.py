"""Sums of one step in one pass and constant memory, and its energy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from blkreel.analysis.metrics.accumulator import CLASSES, classes_of
from blkreel.analysis.metrics.energy import SECOND_NS, Energy, Power, mb_per_joule
from blkreel.analysis.metrics.partials.formulas import mb_per_s
from blkreel.benchmarks.step_metrics import Array
from blkreel.common.errors import TraceError
from blkreel.common.verdict import recorded
from blkreel.traces.format.schema import OPS, WRITE_CODES
from blkreel.traces.format.trace import Trace
from blkreel.traces.telemetry.file import Telemetry
from blkreel.traces.telemetry.reader import read_telemetry

POWER, TEMPERATURE = "power_w", "temperature_c"
NO_POWER = "power not measured"
_NONE = (np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True)
class Sensors:
    """power: None if it was not measured, with the reason in no_power. meter: source and sampling rate.

    temperature: (time_ns, degrees C), empty if it was not measured.
    """

    power: Power | None
    no_power: str | None
    meter: str | None
    temperature: tuple[Array, Array] = _NONE


def sensors_of(directory: Path) -> Sensors:
    """The sensors of a run's directory. Damaged telemetry counts as missing; the records stay valid."""
    try:
        telemetry = read_telemetry(directory)
    except TraceError as error:
        return Sensors(None, f"{NO_POWER}: {error.message}", None)
    if telemetry is None:
        return Sensors(None, NO_POWER, None)
    temperature = _series(telemetry, TEMPERATURE)
    time_ns, watts = _series(telemetry, POWER)
    sensor = telemetry.sensors.get(POWER) or {}
    if not len(time_ns):
        missing = sensor.get("missing")
        return Sensors(None, f"{NO_POWER}: {missing}" if missing else NO_POWER, None, temperature)
    rate_hz = sensor.get("rate_hz")
    power = Power(time_ns, watts, round(SECOND_NS / rate_hz) if rate_hz else None, sensor.get("gaps") or ())
    meter = sensor.get("source") or POWER
    if rate_hz:
        meter += f", {rate_hz:g} samples per second"
    return Sensors(power, None, meter, temperature)


def _series(telemetry: Telemetry, name: str) -> tuple[Array, Array]:
    if name not in telemetry.sensors:
        return _NONE
    time_ns, value = telemetry.series(name)
    order = np.argsort(time_ns, kind="stable")
    return np.asarray(time_ns, np.int64)[order], np.asarray(value, float)[order]

COLUMNS = ["submit_ns", "latency_ns", "length_bytes", "op"]
POWER_KEYS = ("energy_j", "average_w", "mb_per_j", "kiops_per_w")


@dataclass
class ClassStats:
    """Sums over the completed I/Os of one class."""

    ops: int = 0
    bytes: int = 0
    service_ns: int = 0
    max_ns: int | None = None

    @property
    def mean_ns(self) -> float | None:
        return self.service_ns / self.ops if self.ops else None

    def __add__(self, other: "ClassStats") -> "ClassStats":
        maxima = [value for value in (self.max_ns, other.max_ns) if value is not None]
        return ClassStats(self.ops + other.ops, self.bytes + other.bytes, self.service_ns + other.service_ns,
                          max(maxima, default=None))


@dataclass
class StepStats:
    """Takes batches with COLUMNS. withheld: metrics of the run, by its verdict. begin_ns, end_ns: first submit and last
    completion. covered: while the power meter has samples."""

    sensors: Sensors
    withheld: frozenset[str] = frozenset()
    begin_ns: int = 0
    end_ns: int = 0
    covered_bytes: int = 0
    covered_ops: int = 0
    classes: list[ClassStats] = field(default_factory=lambda: [ClassStats() for _ in CLASSES])
    is_empty: bool = True

    @classmethod
    def of(cls, directory: Path, trace: Trace) -> Self:
        """Of a run, before its rows."""
        return cls(sensors_of(directory), frozenset(recorded(trace.account.verdict)["withheld"]))

    def feed(self, columns: Mapping[str, Array]) -> Array:
        """Add a batch; returns the completion times of its completed I/Os."""
        completed = columns["latency_ns"] >= 0
        submit_ns, latency_ns, length_bytes, op = (columns[name][completed] for name in COLUMNS)
        complete_ns: Array = submit_ns + latency_ns
        if not len(submit_ns):
            return complete_ns
        begin_ns, end_ns = int(submit_ns.min()), int(complete_ns.max())
        self.begin_ns = begin_ns if self.is_empty else min(self.begin_ns, begin_ns)
        self.end_ns = end_ns if self.is_empty else max(self.end_ns, end_ns)
        self.is_empty = False
        kinds = classes_of(op)
        for kind, stats in enumerate(self.classes):
            in_class = kinds == kind
            if in_class.any():
                stats.ops += int(in_class.sum())
                stats.bytes += int(length_bytes[in_class].sum())
                stats.service_ns += int(latency_ns[in_class].sum())
                stats.max_ns = max(stats.max_ns or 0, int(latency_ns[in_class].max()))
        if self.sensors.power is not None:
            covered = (kinds < 2) & self.sensors.power.covers(complete_ns)
            self.covered_bytes += int(length_bytes[covered].sum())
            self.covered_ops += int(covered.sum())
        return complete_ns

    @property
    def reads(self) -> ClassStats:
        return self.classes[0]

    @property
    def writes(self) -> ClassStats:
        return self.classes[1]

    @property
    def without_data(self) -> ClassStats:
        """Discards and other operations without data."""
        return self.classes[2]

    @property
    def data(self) -> ClassStats:
        """Reads and writes."""
        return self.classes[0] + self.classes[1]

    @property
    def makespan_ns(self) -> int:
        return self.end_ns - self.begin_ns

    @property
    def mb_s(self) -> float | None:
        """Bytes of reads and writes / makespan."""
        return mb_per_s(self.data.bytes, self.makespan_ns)

    @property
    def iops(self) -> float | None:
        return self.data.ops * SECOND_NS / self.makespan_ns if self.makespan_ns else None

    def energy(self) -> Energy | None:
        """None without a sample of power during the step."""
        if self.sensors.power is None or self.is_empty:
            return None
        energy = self.sensors.power.over(self.begin_ns, self.end_ns)
        return energy if energy.covered_ns else None

    def metrics(self) -> dict[str, Any]:
        """mb_s, iops, kiops, POWER_KEYS, and `why` power is missing. I/Os that completed in a gap of the meter are left
        out of power, as the energy of the gap is."""
        rates = {"mb_s": self.mb_s, "iops": self.iops, "kiops": None if self.iops is None else self.iops / 1000}
        energy = self.energy()
        if energy is None:
            why = self.sensors.no_power or "no sample of power during the step"
            return {**rates, **dict.fromkeys(POWER_KEYS), "why": dict.fromkeys(POWER_KEYS, why)}
        return {**rates, "why": {}, "energy_j": energy.joules, "average_w": energy.average_w,
                "mb_per_j": mb_per_joule(self.covered_bytes, energy.joules),
                "kiops_per_w": self.covered_ops / 1000 / energy.joules if energy.joules else None}


def arrays(trace: Trace, columns: list[str]) -> Iterator[dict[str, Array]]:
    """The rows of a run in batches, as {column: array}."""
    for batch in trace.batches(columns):
        yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns}


def step_stats(directory: Path, trace: Trace) -> StepStats:
    stats = StepStats.of(directory, trace)
    for columns in arrays(trace, COLUMNS):
        stats.feed(columns)
    return stats


def energy_note(steps: list[StepStats]) -> tuple[str, str]:
    """How energy was measured, or why not, for the method of a report."""
    measured = [(stats, energy) for stats in steps if (energy := stats.energy())]
    if not measured:
        reasons = sorted({stats.sensors.no_power or NO_POWER for stats in steps} or {NO_POWER})
        return "Energy", "; ".join(reasons)
    text = ("Joules are the integral of power from the first submit to the last completion of a step, linear between "
            "samples (D); MB/J = bytes read and written / joules, the same as MB/s/W. Meter: "
            + "; ".join(sorted({stats.sensors.meter or "" for stats, _ in measured})) + ".")
    gap_ns = sum(energy.active_ns - energy.covered_ns for _, energy in measured)
    if gap_ns:
        text += (f" The meter has no samples for {gap_ns / SECOND_NS:.3g} s of the "
                 f"{sum(energy.active_ns for _, energy in measured) / SECOND_NS:.4g} s: W and MB/J exclude that time "
                 "and the I/Os that completed in it.")
    if len(measured) < len(steps):
        text += f" Power of {len(steps) - len(measured)} of {len(steps)} steps was not measured."
    return "Energy", text


@dataclass
class BusyTime:
    """Takes batches with submit_ns, latency_ns and op, in the order of submit_ns. busy_ns: measure of the union of
    [submit, complete) over completed reads and writes. end_ns: last completion."""

    busy_ns: int = 0
    end_ns: int = 0

    def feed(self, columns: Mapping[str, Array]) -> None:
        data = (columns["latency_ns"] >= 0) & np.isin(columns["op"], (OPS["read"], *WRITE_CODES))
        submit_ns = columns["submit_ns"][data]
        if not len(submit_ns):
            return
        end_ns = np.maximum.accumulate(np.concatenate(([self.end_ns], submit_ns + columns["latency_ns"][data])))
        self.busy_ns += int((end_ns[1:] - np.maximum(end_ns[:-1], submit_ns)).clip(min=0).sum())
        self.end_ns = int(end_ns[-1])
