"""What happened in a trace or a run: one pass over its batches, into partial results that add up.

Partials of different runs are pooled with `+`: sums add, distributions pool I/O by I/O, bursts line up.
The formulas are those of docs/methodology.md, section 1; sums are integers throughout.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from blkreel.traces.errors import TraceError
from blkreel.traces.schema import FLAGS, OPS

from .bursts import DEFAULT_GAP_NS, BurstFinder, BurstTable, late_starts
from .percentiles import ValueCounts

CLASSES = ("read", "write", "other")
COLUMNS = ["submit_ns", "latency_ns", "queue_ns", "length_bytes", "op", "flags", "status"]
RUN_COLUMNS = ["due_ns", "burst"]
SECOND_NS = 10**9


def classes_of(op: np.ndarray) -> np.ndarray:
    """Index into CLASSES of each row: reads, writes, and all that moves no data to or from the host."""
    return np.where(op == OPS["read"], 0, np.where(op == OPS["write"], 1, 2))


@dataclass(eq=False)
class Additive:
    """A record whose fields all add up."""

    def __add__(self, other):
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __eq__(self, other):
        return type(self) is type(other) and all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self))

    __hash__ = None


@dataclass(frozen=True)
class Seconds:
    """Completions in 1 s bins since the first submit, empty bins included: one (bins, whole seconds) per run."""

    runs: tuple[tuple[np.ndarray, int], ...] = ()

    def __add__(self, other):
        return Seconds(self.runs + other.runs)

    def __eq__(self, other):
        return len(self.runs) == len(other.runs) and all(
            whole_a == whole_b and np.array_equal(bins_a, bins_b)
            for (bins_a, whole_a), (bins_b, whole_b) in zip(self.runs, other.runs, strict=True))

    __hash__ = None

    def whole(self) -> np.ndarray:
        """The seconds that were measured to their end: a last, cut-off second says nothing of the rate."""
        return np.concatenate([bins[:whole] for bins, whole in self.runs] + [np.empty(0, np.int64)])


@dataclass(eq=False)
class ClassPartial(Additive):
    """The I/Os of one class whose completion was seen, and apart from them how many were not."""

    ops: int = 0
    bytes: int = 0
    error_ops: int = 0
    unseen_ops: int = 0
    unseen_bytes: int = 0
    service_ns: int = 0
    busy_ns: int = 0
    makespan_ns: int = 0
    latency: ValueCounts = field(default_factory=ValueCounts)
    response: ValueCounts = field(default_factory=ValueCounts)
    queue: ValueCounts = field(default_factory=ValueCounts)
    sizes: ValueCounts = field(default_factory=ValueCounts)
    bursts: BurstTable = field(default_factory=lambda: BurstTable.of([]))
    planned_bursts: int = 0
    late_bursts: int = 0  # planned bursts that were due before the earlier ones had ended
    seconds: Seconds = field(default_factory=Seconds)


@dataclass(eq=False)
class Partial(Additive):
    """The figures of one run, or of several pooled. `runs` says how many."""

    runs: int
    gap_ns: int
    read: ClassPartial
    write: ClassPartial
    other: ClassPartial
    busy_ns: int  # with at least one I/O of any class outstanding
    makespan_ns: int
    lateness_host: ValueCounts
    lateness_device: ValueCounts  # the replay's queue was full: the drive made them late

    def __add__(self, other):
        if self.gap_ns != other.gap_ns:
            raise ValueError("partials with different burst gaps do not add up")
        pooled = super().__add__(other)
        pooled.gap_ns = self.gap_ns
        return pooled

    def classes(self) -> dict[str, ClassPartial]:
        return {name: getattr(self, name) for name in CLASSES}

    @property
    def lateness(self) -> ValueCounts:
        return self.lateness_host + self.lateness_device


class _Span:
    """Busy time and makespan of intervals fed in order of their submit: the carry is one number."""

    def __init__(self):
        self.first_ns = self.reach_ns = None
        self.busy_ns = 0

    def add(self, submit_ns, complete_ns):
        if not len(submit_ns):
            return
        if self.first_ns is None:
            self.first_ns = self.reach_ns = int(submit_ns[0])
        reached = np.maximum(np.maximum.accumulate(complete_ns), self.reach_ns)
        before = np.concatenate([[self.reach_ns], reached[:-1]])
        self.busy_ns += int(np.maximum(0, complete_ns - np.maximum(submit_ns, before)).sum())
        self.reach_ns = int(reached[-1])

    @property
    def makespan_ns(self):
        return 0 if self.first_ns is None else self.reach_ns - self.first_ns


class MetricsAccumulator:
    """Fed the batches of one run in order of submit_ns; `finish()` gives its Partial."""

    def __init__(self, gap_ns: int = DEFAULT_GAP_NS):
        self._gap_ns = gap_ns
        self._span = _Span()
        self._spans = [_Span() for _ in CLASSES]
        self._classes = [ClassPartial() for _ in CLASSES]
        self._bursts = [BurstFinder(gap_ns) for _ in CLASSES]
        self._planned = [BurstFinder(gap_ns) for _ in CLASSES]
        self._bins = [np.zeros(0, np.int64) for _ in CLASSES]
        self._lateness_host, self._lateness_device = ValueCounts(), ValueCounts()
        self._last_submit_ns = None

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        """Take in a batch: COLUMNS, and RUN_COLUMNS where it is of a run."""
        submit_ns = columns["submit_ns"]
        if not len(submit_ns):
            return
        self._check_order(submit_ns)
        seen = columns["latency_ns"] >= 0
        kinds = classes_of(columns["op"])
        for kind, partial in enumerate(self._classes):
            unseen = ~seen & (kinds == kind)
            partial.unseen_ops += int(unseen.sum())
            partial.unseen_bytes += int(columns["length_bytes"][unseen].sum())
        rows = {name: column[seen] for name, column in columns.items()}
        rows["complete_ns"] = rows["submit_ns"] + rows["latency_ns"]
        self._span.add(rows["submit_ns"], rows["complete_ns"])
        if "due_ns" in rows:
            self._feed_lateness(rows)
        kinds = kinds[seen]
        for kind in range(len(CLASSES)):
            mine = kinds == kind
            if mine.any():
                self._feed_class(kind, {name: column[mine] for name, column in rows.items()})

    def _check_order(self, submit_ns):
        earlier = self._last_submit_ns
        if (earlier is not None and submit_ns[0] < earlier) or (np.diff(submit_ns) < 0).any():
            raise TraceError("rows are not in the order of submit_ns",
                             "sort the file by submit_ns, or record it again")
        self._last_submit_ns = int(submit_ns[-1])

    def _feed_lateness(self, rows):
        timed = rows["due_ns"] >= 0
        lateness_ns = rows["submit_ns"] - rows["due_ns"]
        device = (rows["flags"] & FLAGS["queue_full"]) != 0
        self._lateness_host.add(lateness_ns[timed & ~device])
        self._lateness_device.add(lateness_ns[timed & device])

    def _feed_class(self, kind, rows):
        partial = self._classes[kind]
        submit_ns, complete_ns, length_bytes = rows["submit_ns"], rows["complete_ns"], rows["length_bytes"]
        partial.ops += len(submit_ns)
        partial.bytes += int(length_bytes.sum())
        partial.error_ops += int((rows["status"] != 0).sum())
        partial.service_ns += int(rows["latency_ns"].sum())
        partial.latency.add(rows["latency_ns"])
        partial.queue.add(rows["queue_ns"][rows["queue_ns"] >= 0])
        partial.sizes.add(length_bytes)
        self._spans[kind].add(submit_ns, complete_ns)
        labels = rows.get("burst")
        self._bursts[kind].add(submit_ns, complete_ns, complete_ns, length_bytes, labels)
        self._count_seconds(kind, complete_ns)
        if "due_ns" in rows:
            timed = rows["due_ns"] >= 0
            due_ns = rows["due_ns"][timed]
            partial.response.add(complete_ns[timed] - due_ns)
            self._planned[kind].add(due_ns, due_ns, complete_ns[timed], length_bytes[timed],
                                    None if labels is None else labels[timed])

    def _count_seconds(self, kind, complete_ns):
        counts = np.bincount((complete_ns - self._span.first_ns) // SECOND_NS)
        longer, shorter = sorted((self._bins[kind], counts.astype(np.int64)), key=len, reverse=True)
        longer[:len(shorter)] += shorter
        self._bins[kind] = longer

    def finish(self) -> Partial:
        makespan_ns = self._span.makespan_ns
        whole, length = makespan_ns // SECOND_NS, -(-makespan_ns // SECOND_NS)
        for kind, partial in enumerate(self._classes):
            partial.busy_ns = self._spans[kind].busy_ns
            partial.makespan_ns = self._spans[kind].makespan_ns
            partial.bursts = self._bursts[kind].table()
            planned = self._planned[kind].table()
            partial.planned_bursts, partial.late_bursts = len(planned), late_starts(planned)
            bins = self._bins[kind]
            partial.seconds = Seconds(((np.pad(bins, (0, max(0, length - len(bins)))), whole),))
        return Partial(runs=1, gap_ns=self._gap_ns, **dict(zip(CLASSES, self._classes, strict=True)),
                       busy_ns=self._span.busy_ns, makespan_ns=makespan_ns,
                       lateness_host=self._lateness_host, lateness_device=self._lateness_device)
