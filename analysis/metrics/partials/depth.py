"""Number of outstanding I/Os, weighted by time."""

from dataclasses import dataclass, field

import numpy as np

from .record import Record


@dataclass(eq=False)
class Depth(Record):
    """ns[n]: time with n I/Os outstanding, from the first submit to the last completion. `+` pools runs.

    The sum of n ns[n] is the total service time (Little); that of ns[1:] is the busy time.
    """

    ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        used = np.flatnonzero(self.ns)
        self.ns = np.asarray(self.ns[:used[-1] + 1 if len(used) else 0], np.int64)

    def __add__(self, other: "Depth") -> "Depth":
        total = np.zeros(max(len(self.ns), len(other.ns)), np.int64)
        total[:len(self.ns)] += self.ns
        total[:len(other.ns)] += other.ns
        return Depth(total)

    def __sub__(self, other: "Depth") -> "Depth":
        return self + Depth(-other.ns)


    @classmethod
    def of_rest(cls, now_ns: int | None, complete_ns: np.ndarray) -> "Depth":
        """The depth after now_ns of I/Os that complete at these sorted times, if no other is submitted."""
        if now_ns is None or not len(complete_ns):
            return cls()
        return cls(np.concatenate([[0], np.diff(complete_ns, prepend=now_ns)[::-1]]))

    @property
    def busy_ns(self) -> int:
        return int(self.ns[1:].sum())

    @property
    def mean(self) -> float | None:
        """Over the time with at least one outstanding."""
        return int((self.ns * np.arange(len(self.ns))).sum()) / self.busy_ns if self.busy_ns else None

    @property
    def maximum(self) -> int:
        return max(0, len(self.ns) - 1)

    def percentile(self, fraction: tuple[int, int]) -> int | None:
        """The smallest depth that was not exceeded in this share of the busy time."""
        if not self.busy_ns:
            return None
        numerator, denominator = fraction
        return 1 + int(np.searchsorted(np.cumsum(self.ns[1:]), -(-self.busy_ns * numerator // denominator)))
