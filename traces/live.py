"""What drives did in one interval of a capture or a replay that is under way, for whoever watches.

Latencies are counted in buckets: exact below 16 ns, then 16 to an octave, so that a percentile is within 1/32 of the
value. The capture helper counts the same way (capture/native/live.h).
"""

from dataclasses import dataclass, field

import numpy as np

from .schema import OP_NAMES, OPS

BUCKETS = 1024
_SUB_BITS = 4
_SUBS = 1 << _SUB_BITS
_MANTISSA_BITS = 52
_LONGEST_NS = 1 << 50


def buckets_of(values_ns: np.ndarray) -> np.ndarray:
    """The bucket of each value, which is at least 0."""
    # The exponent and the first bits of the mantissa; up to 13 days a float is exact.
    kept = np.minimum(values_ns, _LONGEST_NS).astype(np.int64)
    bits = kept.astype(np.float64).view(np.int64) >> (_MANTISSA_BITS - _SUB_BITS)
    return np.where(kept < _SUBS, kept, bits - ((1023 + _SUB_BITS - 1) << _SUB_BITS))


def value_of(bucket: int) -> int:
    """The middle of a bucket, in ns."""
    if bucket < _SUBS:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((_SUBS + (bucket & (_SUBS - 1))) << shift) + ((1 << shift) >> 1)


@dataclass
class Counts:
    """I/Os of some kind. ops: those whose completion was seen; bytes, latency_ns (a sum) and buckets are of these."""

    ops: int = 0
    bytes: int = 0
    unseen: int = 0
    errors: int = 0
    latency_ns: int = 0
    longest_ns: int = 0
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))

    def add(self, other: "Counts") -> None:
        self.ops += other.ops
        self.bytes += other.bytes
        self.unseen += other.unseen
        self.errors += other.errors
        self.latency_ns += other.latency_ns
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.buckets = self.buckets + other.buckets

    @property
    def mean_ns(self) -> float | None:
        return self.latency_ns / self.ops if self.ops else None

    def percentile_ns(self, numerator: int, denominator: int) -> int | None:
        """By nearest rank, within 1/32 of the value. None where nothing was counted."""
        return percentile_ns(self.buckets, numerator, denominator)


def percentile_ns(buckets: np.ndarray, numerator: int, denominator: int) -> int | None:
    """The percentile of what was counted in buckets; None of nothing."""
    count = int(buckets.sum())
    if not count:
        return None
    rank = max(1, -(-count * numerator // denominator))
    return value_of(int(np.searchsorted(np.cumsum(buckets), rank)))


@dataclass
class Interval:
    """From begin_ns to end_ns of a run's or a capture's own clock; every I/O falls into exactly one interval.

    classes: by (number of the drive, name of the operation). in_flight: of each drive, when the interval was told;
    None where not known. lost: since the start, None where not known yet. threads: (tid, ops, read bytes, write bytes,
    sum of latencies in ns), those that the drives served longest; others: the sum of the rest, likewise. lateness: of a
    replay, as buckets. limits: what it cannot tell, and why.
    """

    begin_ns: int
    end_ns: int
    classes: dict[tuple[int, str], Counts] = field(default_factory=dict)
    in_flight: list[int | None] = field(default_factory=list)
    lost: int | None = 0
    threads: list[tuple] = field(default_factory=list)
    others: tuple | None = None
    lateness: np.ndarray | None = None
    latest_ns: int = 0
    limits: str = ""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    def counts(self, drive: int | None = None, op: str | None = None) -> Counts:
        """Of one drive or all, of one operation or all."""
        found = Counts()
        for (number, name), counts in self.classes.items():
            if drive in (None, number) and op in (None, name):
                found.add(counts)
        return found

    def depth(self, drive: int | None = None) -> float:
        """Mean number outstanding, by Little's law: sum of the latencies of what completed, over the time.

        An I/O that took longer than the interval is counted whole where it ends.
        """
        return self.counts(drive).latency_ns / max(1, self.end_ns - self.begin_ns)


def interval_of(note: dict) -> Interval:
    """What the capture helper told."""
    classes = {}
    for entry in note["classes"]:
        buckets = np.zeros(BUCKETS, np.int64)
        if entry["buckets"]:
            where, counts = zip(*entry["buckets"], strict=True)
            buckets[list(where)] = counts
        classes[entry["device"], OP_NAMES[entry["op"]]] = Counts(
            entry["ops"], entry["bytes"], entry["unseen"], entry["errors"], entry["latency_ns"], entry["longest_ns"],
            buckets)
    others = tuple(note["others"])
    return Interval(note["begin_ns"], note["end_ns"], classes, note["in_flight"], note["lost"],
                    [tuple(thread) for thread in note["threads"]], others if others[1] else None)


class RunCounter:
    """Intervals of a replay, of the rows as they come back from the engine. Times are those of the run's clock."""

    def __init__(self):
        self._classes: dict[tuple[int, str], Counts] = {}
        self._lateness = np.zeros(BUCKETS, np.int64)
        self._latest_ns = 0
        self._begin_ns = self._newest_ns = 0

    def add(self, rows: dict[str, np.ndarray]) -> None:
        """A batch of records of the engine: cheap, since somebody replays meanwhile."""
        if not len(rows["submit_ns"]):
            return
        submit_ns, complete_ns, length_bytes = rows["submit_ns"], rows["complete_ns"], rows["length_bytes"]
        kind = rows["target"].astype(np.int64) * len(OPS) + rows["op"]
        kinds = int(kind.max()) + 1
        self._count_errors(kind[rows["status"] != 0])
        seen = complete_ns >= submit_ns
        if not seen.all():
            for code, unseen in enumerate(np.bincount(kind[~seen]).tolist()):
                self._class(code).unseen += unseen
            kind, length_bytes = kind[seen], length_bytes[seen]
            latency_ns = complete_ns[seen] - submit_ns[seen]
        else:
            latency_ns = complete_ns - submit_ns
        ops = np.bincount(kind, minlength=kinds).tolist()
        # As floats, which are exact up to 2 ** 53: 104 days of latency in one batch.
        moved = np.bincount(kind, length_bytes, kinds).tolist()
        took_ns = np.bincount(kind, latency_ns, kinds).tolist()
        buckets = np.bincount(kind * BUCKETS + buckets_of(latency_ns), minlength=kinds * BUCKETS).reshape(-1, BUCKETS)
        for code in np.flatnonzero(ops).tolist():
            here = latency_ns if ops[code] == len(kind) else latency_ns[kind == code]
            self._class(code).add(Counts(ops[code], int(moved[code]), 0, 0, int(took_ns[code]), int(here.max()),
                                         buckets[code]))
        due = rows["due_ns"] >= 0
        if due.any():
            late_ns = np.maximum(0, (submit_ns - rows["due_ns"]) if due.all() else (submit_ns - rows["due_ns"])[due])
            self._lateness += np.bincount(buckets_of(late_ns), minlength=BUCKETS)
            self._latest_ns = max(self._latest_ns, int(late_ns.max()))
        self._newest_ns = max(self._newest_ns, int(complete_ns.max()))

    def _class(self, code) -> Counts:
        drive, op = divmod(code, len(OPS))
        return self._classes.setdefault((drive, OP_NAMES[op]), Counts())

    def _count_errors(self, kind):
        for code in kind.tolist():
            self._class(code).errors += 1

    def take(self, waited_ns: int = 0) -> Interval:
        """What came since this was called last. waited_ns: the time since then, which counts where nothing came."""
        end_ns = self._newest_ns if self._newest_ns > self._begin_ns else self._begin_ns + waited_ns
        found = Interval(self._begin_ns, end_ns, self._classes, lateness=self._lateness, latest_ns=self._latest_ns)
        self._begin_ns, self._classes, self._latest_ns = end_ns, {}, 0
        self._lateness = np.zeros(BUCKETS, np.int64)
        return found
