"""Stalls: seconds in which no I/O completed while one was outstanding, as behind a connection that breaks off."""

from dataclasses import dataclass

import numpy as np

from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.traces.blocksets.intervals import union

_SECOND_NS = 10**9


@dataclass(frozen=True)
class Stalls:
    """In whole seconds: each lasted up to two seconds longer. since_s: of the longest, from the first submit on."""

    count: int
    longest_s: int
    since_s: int

    @property
    def words(self) -> str:
        """`no I/O completed for at least 3 s from 12 s on, with I/O in flight; 2 stalls in all`."""
        stalls_in_all = f"; {self.count:,} stalls in all" if self.count > 1 else ""
        return (f"no I/O completed for at least {self.longest_s:,} s from {self.since_s:,} s on, with I/O in flight"
                f"{stalls_in_all}")


def stalls(partial: Partial) -> Stalls | None:
    """Of one run or trace; None without a stall, and of pooled runs.

    The slowest I/Os are among the latency points, and each completion is in the seconds of its class.
    """
    points = partial.latency_points
    if points is None:
        return None
    first = -(-points.since_ns // _SECOND_NS)
    behind = (points.since_ns + points.latency_ns) // _SECOND_NS
    outstanding = np.flatnonzero(behind > first)
    if not len(outstanding):
        return None
    filled = np.unique(np.concatenate([bins.filled for kind in partial.classes().values()
                                       for bins in kind.seconds.runs]))
    spans: list[tuple[int, int]] = []  # (length, first second)
    for begin, end in zip(*union(first[outstanding], behind[outstanding]), strict=True):
        within = filled[np.searchsorted(filled, begin):np.searchsorted(filled, end)]
        edges = np.concatenate([[begin - 1], within, [end]])
        lengths = np.diff(edges) - 1
        spans += [(int(lengths[at]), int(edges[at]) + 1) for at in np.flatnonzero(lengths)]
    if not spans:
        return None
    longest_s, since_s = max(spans, key=lambda stall: (stall[0], -stall[1]))
    return Stalls(len(spans), longest_s, since_s)
