"""Sums of one step in one pass: what of it needs no distribution takes no memory, however long the step was."""

from dataclasses import dataclass, field

import numpy as np

from blkreel.traces.reader import Trace

from ..energy import Energy, mb_per_joule
from ..metrics import CLASSES, SECOND_NS, classes_of
from ..summary import mb_per_s
from .directory import arrays
from .sensors import NO_POWER, Sensors, sensors_of

COLUMNS = ["submit_ns", "latency_ns", "length_bytes", "op"]



@dataclass
class Sums:
    """Of the I/Os of one class whose completion was seen."""

    ops: int = 0
    bytes: int = 0
    service_ns: int = 0
    longest_ns: int | None = None

    @property
    def mean_ns(self) -> float | None:
        return self.service_ns / self.ops if self.ops else None

    def __add__(self, other):
        longest = [each for each in (self.longest_ns, other.longest_ns) if each is not None]
        return Sums(self.ops + other.ops, self.bytes + other.bytes, self.service_ns + other.service_ns,
                    max(longest, default=None))


@dataclass
class Tally:
    """Fed batches with COLUMNS. begin_ns, end_ns: first submit and last completion."""

    sensors: Sensors
    begin_ns: int | None = None
    end_ns: int | None = None
    covered_bytes: int = 0
    covered_ops: int = 0
    classes: list[Sums] = field(default_factory=lambda: [Sums() for _ in CLASSES])

    def feed(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """Take in a batch; gives the completion times of what has one."""
        seen = columns["latency_ns"] >= 0
        submit_ns, latency_ns, length_bytes, op = (columns[name][seen] for name in COLUMNS)
        complete_ns = submit_ns + latency_ns
        if not len(submit_ns):
            return complete_ns
        self.begin_ns = int(submit_ns.min()) if self.begin_ns is None else min(self.begin_ns, int(submit_ns.min()))
        self.end_ns = max(self.end_ns or 0, int(complete_ns.max()))
        kinds = classes_of(op)
        for kind, sums in enumerate(self.classes):
            mine = kinds == kind
            if mine.any():
                sums.ops += int(mine.sum())
                sums.bytes += int(length_bytes[mine].sum())
                sums.service_ns += int(latency_ns[mine].sum())
                sums.longest_ns = max(sums.longest_ns or 0, int(latency_ns[mine].max()))
        if self.sensors.power is not None:
            covered = (kinds < 2) & self.sensors.power.covers(complete_ns)
            self.covered_bytes += int(length_bytes[covered].sum())
            self.covered_ops += int(covered.sum())
        return complete_ns

    @property
    def reads(self) -> Sums:
        return self.classes[0]

    @property
    def writes(self) -> Sums:
        return self.classes[1]

    @property
    def others(self) -> Sums:
        """Discards and whatever else moves no data."""
        return self.classes[2]

    @property
    def data(self) -> Sums:
        """Reads and writes."""
        return self.classes[0] + self.classes[1]

    @property
    def makespan_ns(self) -> int:
        return 0 if self.begin_ns is None else self.end_ns - self.begin_ns

    @property
    def mb_s(self) -> float | None:
        """Bytes of reads and writes by makespan."""
        return mb_per_s(self.data.bytes, self.makespan_ns)

    @property
    def iops(self) -> float | None:
        return self.data.ops * SECOND_NS / self.makespan_ns if self.makespan_ns else None

    def energy(self) -> Energy | None:
        """None where there is no sample of power in its time."""
        if self.sensors.power is None or self.begin_ns is None:
            return None
        used = self.sensors.power.over(self.begin_ns, self.end_ns)
        return used if used.covered_ns else None

    def power_figures(self) -> dict:
        """average_w, energy_j, mb_per_j, kiops_per_w, and `why` where there is none. What completed in a gap of the
        meter is left out of the work, as its energy is left out of the joules."""
        used = self.energy()
        if used is None:
            why = self.sensors.no_power or "no sample of power while it was active"
            return {"energy_j": None, "average_w": None, "mb_per_j": None, "kiops_per_w": None,
                    "why": dict.fromkeys(("energy_j", "average_w", "mb_per_j", "kiops_per_w"), why)}
        return {"energy_j": used.joules, "average_w": used.average_w,
                "mb_per_j": mb_per_joule(self.covered_bytes, used.joules),
                "kiops_per_w": self.covered_ops / 1000 / used.joules if used.joules else None}


def tally(step, trace: Trace) -> Tally:
    """The sums of one run."""
    sums = Tally(sensors_of(step.directory))
    for columns in arrays(trace, COLUMNS):
        sums.feed(columns)
    return sums


POWER_COLUMNS = [("average_w", "Power", "W"), ("mb_per_j", "Efficiency", "MB/J")]


def energy_note(tallies: list[Tally]) -> tuple[str, str]:
    """How energy was measured, or why it was not, for the method of a report."""
    used = [(each, energy) for each in tallies if (energy := each.energy())]
    if not used:
        reasons = sorted({each.sensors.no_power or NO_POWER for each in tallies} or {NO_POWER})
        return "Energy", "; ".join(reasons)
    text = ("Joules are the integral of power from the first submit to the last completion of a step, straight lines "
            "between samples (D); MB/J = bytes read and written / joules, the same as MB/s/W. Meter: "
            + "; ".join(sorted({each.sensors.meter for each, _ in used})) + ".")
    gap_ns = sum(energy.active_ns - energy.covered_ns for _, energy in used)
    if gap_ns:
        text += (f" The meter has no samples for {gap_ns / SECOND_NS:.3g} s of the "
                 f"{sum(energy.active_ns for _, energy in used) / SECOND_NS:.4g} s: that time, and what completed in "
                 "it, is left out of watts and MB/J.")
    without = len(tallies) - len(used)
    if without:
        text += f" {without} of {len(tallies)} steps have no power."
    return "Energy", text
