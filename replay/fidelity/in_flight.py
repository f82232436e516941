"""Number of I/Os in flight, weighted by time: added up as they pass, in bounded memory."""

from collections.abc import Iterator

import numpy as np

from blkreel.traces.format import metadata_types

_DEEPEST = 1 << 16  # more count as so many


class InFlight:
    """Takes I/Os in the order of their submission.

    The distribution covers the time with at least one I/O in flight, so that removed idle time does not change it.
    """

    def __init__(self) -> None:
        self.time_ns = np.zeros(_DEEPEST + 1)
        self._depth = 0
        self._at_ns: int | None = None
        self._ends_ns = np.empty(0, np.int64)

    def add(self, start_ns: np.ndarray, end_ns: np.ndarray) -> None:
        """An end before the start means unknown: such an I/O is left out."""
        has_end = end_ns >= start_ns
        if not has_end.any():
            return
        start_ns, end_ns = start_ns[has_end], end_ns[has_end]
        if self._at_ns is None:
            self._at_ns = int(start_ns[0])
        ends_ns = np.concatenate([self._ends_ns, end_ns])
        until_ns = max(self._at_ns, int(start_ns[-1]))
        over = ends_ns <= until_ns
        self._pass(start_ns, ends_ns[over], until_ns)
        self._ends_ns = ends_ns[~over]

    def account(self) -> metadata_types.InFlight | None:
        """None if no I/O was in flight."""
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
        """Share of the busy time with at most n I/Os in flight, by n."""
        time_ns = self._time_ns()
        shares: np.ndarray = np.cumsum(time_ns) / max(time_ns.sum(), 1)
        return shares

    def _time_ns(self) -> np.ndarray:
        time_ns = self.time_ns.copy()
        for depth, span_ns in self._tail():
            time_ns[depth] += span_ns
        time_ns[0] = 0
        return time_ns

    def _tail(self) -> Iterator[tuple[int, int]]:
        """(depth, duration) from the last submission to the last end."""
        if not len(self._ends_ns):
            return
        ends_ns = np.sort(self._ends_ns)
        spans_ns = np.diff(np.concatenate([[self._at_ns], ends_ns]))
        for place, span_ns in enumerate(spans_ns):
            yield min(len(ends_ns) - place, _DEEPEST), span_ns

    def _pass(self, starts_ns: np.ndarray, ends_ns: np.ndarray, until_ns: int) -> None:
        """Add the time up to until_ns, with the I/Os that start and end until then."""
        assert self._at_ns is not None
        # Starts before ends of the same time: an I/O without duration must not make the depth negative.
        times_ns = np.maximum(np.concatenate([starts_ns, ends_ns]), self._at_ns)
        steps = np.concatenate([np.ones(len(starts_ns), np.int64), np.full(len(ends_ns), -1)])
        order = np.argsort(times_ns, kind="stable")
        depths = np.concatenate([[self._depth], self._depth + np.cumsum(steps[order])])
        spans_ns = np.diff(np.concatenate([[self._at_ns], times_ns[order], [until_ns]]))
        self.time_ns += np.bincount(np.clip(depths, 0, _DEEPEST), weights=spans_ns, minlength=len(self.time_ns))
        self._depth = int(depths[-1])
        self._at_ns = until_ns


def distance(a: InFlight, b: InFlight) -> float:
    """The Kolmogorov-Smirnov statistic of the two distributions."""
    return float(np.abs(a.shares() - b.shares()).max())
