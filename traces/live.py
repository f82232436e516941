"""Statistics of one interval of a running capture or replay, for the live view.

Latencies are counted in log-linear buckets, 16 per power of two, so that a percentile is within 1/32 of
the value. The capture helper uses the same buckets (capture/native/rows/live.h).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.traces.format.schema import OP_NAMES, OPS

BUCKETS = 1024
_BINS = LogLinearBins(4)
_LONGEST_NS = 1 << 50


def buckets_of(values_ns: np.ndarray) -> np.ndarray:
    """The bucket of each value, which must be at least 0."""
    return _BINS.of(np.minimum(values_ns, _LONGEST_NS))


@dataclass
class Counts:
    """Counts of one class of I/O. ops: completed I/Os; bytes, latency_ns (a sum) and buckets cover these."""

    ops: int = 0
    bytes: int = 0
    unseen: int = 0
    errors: int = 0
    latency_ns: int = 0
    longest_ns: int = 0
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))

    def add(self, counts: "Counts") -> None:
        self.ops += counts.ops
        self.bytes += counts.bytes
        self.unseen += counts.unseen
        self.errors += counts.errors
        self.latency_ns += counts.latency_ns
        self.longest_ns = max(self.longest_ns, counts.longest_ns)
        self.buckets = self.buckets + counts.buckets

    @property
    def mean_ns(self) -> float | None:
        return self.latency_ns / self.ops if self.ops else None

    def percentile_ns(self, numerator: int, denominator: int) -> int | None:
        """By nearest rank, within 1/32 of the value. None without I/Os."""
        return percentile_ns(self.buckets, numerator, denominator)


def percentile_ns(buckets: np.ndarray, numerator: int, denominator: int) -> int | None:
    """The percentile of counts in buckets; None if all are 0."""
    count = int(buckets.sum())
    if not count:
        return None
    rank = max(1, -(-count * numerator // denominator))
    return int(_BINS.middles(np.array(np.searchsorted(np.cumsum(buckets), rank))))


# tid, ops, read bytes, write bytes, sum of latencies in ns.
ThreadCounts = tuple[int, int, int, int, int]


@dataclass
class Interval:
    """From begin_ns to end_ns of the run's or the capture's clock; each I/O is in exactly one interval.

    classes: by (number of the drive, name of the operation). in_flight: per drive at the end of the interval, None if
    unknown. lost: events since the start, None if unknown. threads: those with the most latency; other_threads: the
    sum of the others. lateness: of a replay, in buckets. limits: what the source cannot measure, and why.
    """

    begin_ns: int
    end_ns: int
    classes: dict[tuple[int, str], Counts] = field(default_factory=dict)
    in_flight: list[int | None] = field(default_factory=list)
    lost: int | None = 0
    threads: list[ThreadCounts] = field(default_factory=list)
    other_threads: ThreadCounts | None = None
    lateness: np.ndarray | None = None
    latest_ns: int = 0
    limits: str = ""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def counts(self, drive: int | None = None, op: str | None = None) -> Counts:
        """Sum over one drive or all, one operation or all."""
        total = Counts()
        for (number, name), counts in self.classes.items():
            if drive in (None, number) and op in (None, name):
                total.add(counts)
        return total

    def depth(self, drive: int | None = None) -> float:
        """Mean number in flight by Little's law: sum of latencies of completed I/Os / time.

        An I/O longer than the interval counts completely in the interval in which it ends.
        """
        return self.counts(drive).latency_ns / max(1, self.end_ns - self.begin_ns)


def interval_of(note: dict[str, Any]) -> Interval:
    """An interval from a status of the capture helper."""
    classes = {}
    for entry in note["classes"]:
        buckets = np.zeros(BUCKETS, np.int64)
        if entry["buckets"]:
            where, counts = zip(*entry["buckets"], strict=True)
            buckets[list(where)] = counts
        classes[entry["device"], OP_NAMES[entry["op"]]] = Counts(
            entry["ops"], entry["bytes"], entry["unseen"], entry["errors"], entry["latency_ns"], entry["longest_ns"],
            buckets)
    other_threads = _thread_counts(note["others"])
    return Interval(note["begin_ns"], note["end_ns"], classes, note["in_flight"], note["lost"],
                    [_thread_counts(thread) for thread in note["threads"]], other_threads if other_threads[1] else None)


def _thread_counts(values: list[int]) -> ThreadCounts:
    tid, ops, read_bytes, write_bytes, latency_ns = values
    return tid, ops, read_bytes, write_bytes, latency_ns


class RunCounter:
    """Makes intervals from the rows that the engine returns. Times are those of the run's clock."""

    def __init__(self) -> None:
        self._classes: dict[tuple[int, str], Counts] = {}
        self._lateness = np.zeros(BUCKETS, np.int64)
        self._latest_ns = 0
        self._begin_ns = self._newest_ns = 0

    def add(self, rows: dict[str, np.ndarray]) -> None:
        """Add a batch of records. Must be cheap, since it runs during a replay."""
        if not len(rows["submit_ns"]):
            return
        submit_ns, complete_ns, length_bytes = rows["submit_ns"], rows["complete_ns"], rows["length_bytes"]
        kind = rows["target"].astype(np.int64) * len(OPS) + rows["op"]
        kinds = int(kind.max()) + 1
        self._count_errors(kind[rows["status"] != 0])
        has_latency = complete_ns >= submit_ns
        if not has_latency.all():
            for code, unseen in enumerate(np.bincount(kind[~has_latency]).tolist()):
                self._class(code).unseen += unseen
            kind, length_bytes = kind[has_latency], length_bytes[has_latency]
            latency_ns = complete_ns[has_latency] - submit_ns[has_latency]
        else:
            latency_ns = complete_ns - submit_ns
        ops = np.bincount(kind, minlength=kinds).tolist()
        # As floats, which are exact up to 2 ** 53: 104 days of latency in one batch.
        moved = np.bincount(kind, length_bytes, kinds).tolist()
        took_ns = np.bincount(kind, latency_ns, kinds).tolist()
        buckets = np.bincount(kind * BUCKETS + buckets_of(latency_ns), minlength=kinds * BUCKETS).reshape(-1, BUCKETS)
        for code in np.flatnonzero(ops).tolist():
            latencies_ns = latency_ns if ops[code] == len(kind) else latency_ns[kind == code]
            self._class(code).add(Counts(ops[code], int(moved[code]), 0, 0, int(took_ns[code]), int(latencies_ns.max()),
                                         buckets[code]))
        due = rows["due_ns"] >= 0
        if due.any():
            late_ns = np.maximum(0, (submit_ns - rows["due_ns"]) if due.all() else (submit_ns - rows["due_ns"])[due])
            self._lateness += np.bincount(buckets_of(late_ns), minlength=BUCKETS)
            self._latest_ns = max(self._latest_ns, int(late_ns.max()))
        self._newest_ns = max(self._newest_ns, int(complete_ns.max()))

    def _class(self, code: int) -> Counts:
        drive, op = divmod(code, len(OPS))
        return self._classes.setdefault((drive, OP_NAMES[op]), Counts())

    def _count_errors(self, kind: np.ndarray) -> None:
        for code in kind.tolist():
            self._class(code).errors += 1

    def take(self, waited_ns: int = 0) -> Interval:
        """The interval since the last call. waited_ns: its duration if no row arrived."""
        end_ns = self._newest_ns if self._newest_ns > self._begin_ns else self._begin_ns + waited_ns
        interval = Interval(self._begin_ns, end_ns, self._classes, lateness=self._lateness, latest_ns=self._latest_ns)
        self._begin_ns, self._classes, self._latest_ns = end_ns, {}, 0
        self._lateness = np.zeros(BUCKETS, np.int64)
        return interval
