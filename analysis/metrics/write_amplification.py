"""Write amplification, from a drive's own counters of what it was written and what it wrote to its media."""

from dataclasses import dataclass
from typing import Self

from blkreel.common.units import digits, size
from blkreel.traces.format.metadata_types import Run

LARGEST_UNCERTAINTY = 0.1  # of a factor that is shown: half the width of its interval / the factor
LARGEST_DIFFERENCE = 0.1  # of the host counter from the bytes that the runs wrote / the counter


@dataclass(frozen=True)
class WriteCounts:
    """Growth of the counters, in unit: "B" or "page". Each growth is known to one step. `+` pools runs of one drive.

    written_bytes: by the runs; None if unknown.
    """

    unit: str
    host: int
    media: int
    host_step: int
    media_step: int
    written_bytes: int | None = None

    @classmethod
    def of(cls, run: Run) -> Self | None:
        """Of all drives of a run; None if one of them does not have these counters."""
        drives = [run.telemetry, *run.telemetry.drives.values()]
        counts = [writes for drive in drives if (writes := drive.smart.writes)]
        if len(counts) < len(drives) or len({count.unit for count in counts}) > 1:
            return None
        host, media, host_step, media_step = (sum(getattr(count, name) for count in counts)
                                              for name in ("host", "media", "host_step", "media_step"))
        return cls(counts[0].unit, host, media, host_step, media_step, run.written_bytes)

    def __add__(self, other: Self) -> Self:
        """Both have one unit."""
        has_bytes = self.written_bytes is not None and other.written_bytes is not None
        return type(self)(self.unit, self.host + other.host, self.media + other.media,
                          self.host_step + other.host_step, self.media_step + other.media_step,
                          (self.written_bytes or 0) + (other.written_bytes or 0) if has_bytes else None)

    @property
    def factor(self) -> "WriteAmplification | None":
        """Media / host, and the interval that holds it for certain; None if the host counter did not grow by more than
        its step.

        What was written between two readings of a counter with a step differs from its growth by less than the step, in
        either direction.
        """
        if self.host <= self.host_step:
            return None
        return WriteAmplification(self.media / self.host, max(self.media - self.media_step, 0)
                                  / (self.host + self.host_step), (self.media + self.media_step)
                                  / (self.host - self.host_step))

    @property
    def is_of_the_runs(self) -> bool:
        """Whether the host counter agrees with what the runs wrote, as far as both are known."""
        if self.unit != "B" or self.written_bytes is None:
            return True
        return abs(self.host - self.written_bytes) - self.host_step <= LARGEST_DIFFERENCE * self.host


@dataclass(frozen=True)
class WriteAmplification:
    value: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether the interval is narrow enough for the factor to be shown."""
        return self.value > 0 and (self.high - self.low) / 2 <= LARGEST_UNCERTAINTY * self.value


def write_amplification(counts: WriteCounts | None) -> WriteAmplification | None:
    """None where why_unknown() has a reason."""
    return counts.factor if counts and not why_unknown(counts) else None


def why_unknown(counts: WriteCounts | None) -> str:
    """Why the factor is not shown; empty if it is."""
    if counts is None:
        return "the drive has no counter of media writes"
    factor = counts.factor
    if factor is None:
        return "too few writes for the drive's counters"
    if not factor.is_certain:
        return f"too few writes for the drive's counters: {digits(factor.low)} to {digits(factor.high)}"
    if not counts.is_of_the_runs:
        return f"the drive counted {size(counts.host)} of writes, the run wrote {size(counts.written_bytes or 0)}"
    return ""
