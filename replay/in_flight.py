"""How many I/Os were in flight, weighted by time: added up as they pass, in bounded memory."""

import numpy as np

_DEEPEST = 1 << 16  # more count as so many


class InFlight:
    """Takes I/Os in the order of their submission. What the distribution is of is time with at least one in flight.

    So it is the same whatever was done to the idle time between I/Os.
    """

    def __init__(self):
        self.time_ns = np.zeros(_DEEPEST + 1)
        self._depth = 0
        self._at_ns: int | None = None
        self._ends_ns = np.empty(0, np.int64)

    def add(self, start_ns: np.ndarray, end_ns: np.ndarray) -> None:
        """Where the end comes before the start, nobody saw it: such an I/O is left out."""
        known = end_ns >= start_ns
        if not known.any():
            return
        start_ns, end_ns = start_ns[known], end_ns[known]
        if self._at_ns is None:
            self._at_ns = int(start_ns[0])
        ends_ns = np.concatenate([self._ends_ns, end_ns])
        until_ns = max(self._at_ns, int(start_ns[-1]))
        over = ends_ns <= until_ns
        self._pass(start_ns, ends_ns[over], until_ns)
        self._ends_ns = ends_ns[~over]

    def account(self) -> dict | None:
        """What is in flight still counts up to the last submission. None where nothing was."""
        time_ns = self._time_ns()
        total_ns = time_ns.sum()
        if not total_ns:
            return None
        passed_ns = np.cumsum(time_ns)
        return {"mean": round(float((time_ns * np.arange(len(time_ns))).sum() / total_ns), 3),
                "p50": int(np.searchsorted(passed_ns, total_ns * 0.5)),
                "p99": int(np.searchsorted(passed_ns, total_ns * 0.99)),
                "max": int(np.flatnonzero(time_ns)[-1]), "busy_ns": int(total_ns)}

    def shares(self) -> np.ndarray:
        """The share of the busy time with at most so many in flight."""
        time_ns = self._time_ns()
        return np.cumsum(time_ns) / max(time_ns.sum(), 1)

    def _time_ns(self):
        time_ns = self.time_ns.copy()
        for depth, span_ns in self._tail():
            time_ns[depth] += span_ns
        time_ns[0] = 0
        return time_ns

    def _tail(self):
        """(depth, for how long) from the last submission to the last end."""
        if not len(self._ends_ns):
            return
        ends_ns = np.sort(self._ends_ns)
        spans_ns = np.diff(np.concatenate([[self._at_ns], ends_ns]))
        for place, span_ns in enumerate(spans_ns):
            yield min(len(ends_ns) - place, _DEEPEST), span_ns

    def _pass(self, starts_ns, ends_ns, until_ns):
        """From where it stands up to until_ns, with what begins and ends on the way."""
        # Beginnings before ends at one moment: an I/O that took no time must not count below nothing.
        times_ns = np.maximum(np.concatenate([starts_ns, ends_ns]), self._at_ns)
        steps = np.concatenate([np.ones(len(starts_ns), np.int64), np.full(len(ends_ns), -1)])
        order = np.argsort(times_ns, kind="stable")
        depths = np.concatenate([[self._depth], self._depth + np.cumsum(steps[order])])
        spans_ns = np.diff(np.concatenate([[self._at_ns], times_ns[order], [until_ns]]))
        self.time_ns += np.bincount(np.clip(depths, 0, _DEEPEST), weights=spans_ns, minlength=len(self.time_ns))
        self._depth = int(depths[-1])
        self._at_ns = until_ns


def distance(one: InFlight, other: InFlight) -> float:
    """The greatest difference of the two distributions, as Kolmogorov and Smirnov take it."""
    return float(np.abs(one.shares() - other.shares()).max())
