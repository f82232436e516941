"""Whether a writer keeps up with its plan: bytes written by the time the last write was due, and the lag of the end."""

from dataclasses import dataclass, field, replace

import numpy as np

from .bursts import BurstTable
from .distributions import merged
from .record import Record

KEPT_UP_SHARE = (99, 100)  # of the bytes due that a writer must have written
KEPT_UP_LAG_NS = 100_000_000  # of the last write, which may be in flight
MS = 1_000_000  # ns; completions are stored by millisecond
_NONE = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class KeepUp(Record):
    """Writes with a due time. `+` pools runs, join() joins consecutive parts of one.

    bytes: of all; by_due_bytes: of those that completed in the millisecond of the last due time or before. lag_ns: last
    completion − last due time, at least 0; the largest of pooled runs. ended_late: number of runs that fell behind at
    their end (judged()). Only of one run: last_due_ns and reach_ns (last completion), None without such writes, and the
    milliseconds after the last due time with the bytes completed in each.
    """

    bytes: int = 0
    by_due_bytes: int = 0
    lag_ns: int = 0
    ended_late: int = 0
    last_due_ns: int | None = None
    reach_ns: int | None = None
    later_ms: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    later_bytes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of_native(cls, numbers: np.ndarray) -> "KeepUp":
        """From PART_KEEP_UP of native/metrics.h."""
        last_due_ns, reach_ns, count_bytes, by_due_bytes = numbers[:4].tolist()
        if last_due_ns == _NONE:
            return cls()
        later_ms, later_bytes = numbers[4:].reshape(-1, 2).T
        order = np.argsort(later_ms)
        return cls._of(count_bytes, by_due_bytes, last_due_ns, reach_ns, later_ms[order], later_bytes[order])

    @classmethod
    def _of(cls, count_bytes: int, by_due_bytes: int, last_due_ns: int, reach_ns: int, later_ms: np.ndarray,
            later_bytes: np.ndarray) -> "KeepUp":
        due = int(np.searchsorted(later_ms, last_due_ns // MS, "right"))
        return cls(count_bytes, by_due_bytes + int(later_bytes[:due].sum()), max(0, reach_ns - last_due_ns), 0,
                   last_due_ns, reach_ns, later_ms[due:].copy(), later_bytes[due:].copy())

    def __add__(self, other: "KeepUp") -> "KeepUp":
        return KeepUp(self.bytes + other.bytes, self.by_due_bytes + other.by_due_bytes, max(self.lag_ns, other.lag_ns),
                      self.ended_late + other.ended_late)

    def judged(self, planned: BurstTable, unseen_bytes: int) -> "KeepUp":
        """With ended_late of one run. planned: its write bursts, by due times; unseen_bytes: never written.

        A run ended late if less than KEPT_UP_SHARE was written by the time the last write was due, and the lag is above
        KEPT_UP_LAG_NS and the mean distance of the bursts: the next one would have begun before the last had ended.
        """
        numerator, denominator = KEPT_UP_SHARE
        is_short = self.by_due_bytes * denominator < (self.bytes + unseen_bytes) * numerator
        starts_ns = planned.uncut_start_ns
        distance_ns = int(starts_ns[-1] - starts_ns[0]) // (len(planned) - 1) if len(planned) > 1 else 0
        return replace(self, ended_late=int(is_short and self.lag_ns > max(KEPT_UP_LAG_NS, distance_ns)))

    def join(self, later: "KeepUp") -> "KeepUp":
        """Join two consecutive parts of one run."""
        if self.last_due_ns is None or self.reach_ns is None:
            return later
        if later.last_due_ns is None or later.reach_ns is None:
            return self
        return KeepUp._of(self.bytes + later.bytes, self.by_due_bytes + later.by_due_bytes,
                          max(self.last_due_ns, later.last_due_ns), max(self.reach_ns, later.reach_ns),
                          *merged(np.concatenate([self.later_ms, later.later_ms]),
                                  np.concatenate([self.later_bytes, later.later_bytes])))
