"""The metrics of a run as additive records: `+` pools different runs, join() joins consecutive parts of one.

The formulas are those of docs/method.md; sums are integers throughout.
"""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Self

from .alignment import Alignment
from .boundary_state import CLASSES, Carry
from .bursts import BurstTable, late_starts
from .depth import Depth
from .distributions import Distribution, ValueCounts
from .formulas import Consistency, consistency_of
from .keep_up import KeepUp
from .latency_points import LatencyPoints
from .record import Record
from .seconds import Seconds
from .threads import Threads
from .timeline import Heat, Timeline, join_heats


@dataclass(eq=False)
class Additive(Record):
    """A record whose fields all add up."""

    def __add__(self, other: Self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(eq=False)
class ClassPartial(Additive):
    """The I/Os of one class with a completion, and the number of those without (unseen)."""

    ops: int = 0
    bytes: int = 0
    error_ops: int = 0
    unseen_ops: int = 0
    unseen_bytes: int = 0
    service_ns: int = 0
    busy_ns: int = 0
    makespan_ns: int = 0
    wait_ns: int = 0  # with at least one outstanding, or waiting for a full queue
    latency: Distribution = field(default_factory=ValueCounts)
    response: Distribution = field(default_factory=ValueCounts)
    queue: Distribution = field(default_factory=ValueCounts)
    sizes: Distribution = field(default_factory=ValueCounts)
    bursts: BurstTable = field(default_factory=lambda: BurstTable.of([]))
    planned: BurstTable = field(default_factory=lambda: BurstTable.of([]))  # start is a due time, end a completion
    late_bursts: int = 0  # planned bursts that were due before the earlier ones had ended
    seconds: Seconds = field(default_factory=Seconds)
    depth: Depth = field(default_factory=Depth)

    @property
    def planned_bursts(self) -> int:
        return len(self.planned)

    @cached_property
    def consistency(self) -> Consistency:
        return consistency_of(self.seconds.whole())


@dataclass(eq=False)
class WorkloadProfile(Additive):
    """Of I/Os with a completion. Sizes are in ClassPartial, depth in Partial, offsets in the heat map.

    submit_gaps: ns between consecutive submits. idle_gaps: ns without outstanding I/Os, between the first submit and
    the last completion. Sequential: begins at the byte where the previous I/O of its class, thread and drive ended.
    """

    submit_gaps: Distribution
    idle_gaps: Distribution
    sequential_read_ops: int = 0
    sequential_read_bytes: int = 0
    sequential_write_ops: int = 0
    sequential_write_bytes: int = 0


# join() adds these up.
_SUMS = ("ops", "bytes", "error_ops", "unseen_ops", "unseen_bytes", "service_ns", "busy_ns", "wait_ns",
         "latency", "response", "queue", "sizes")


@dataclass(eq=False)
class Partial(Additive):
    """The metrics of one run, of a part of it, or of several pooled runs. runs: number of runs.

    Only of one run: timeline, heats, threads, latency points, and the carry at both ends of the part. A later part has
    only what its rows add to the earlier ones, and is valid only joined to them.
    """

    runs: int
    gap_ns: int
    read: ClassPartial
    write: ClassPartial
    other: ClassPartial
    busy_ns: int  # with at least one I/O of any class outstanding
    makespan_ns: int
    idle_ns: int  # in gaps longer than gap_ns, with nothing outstanding
    keep_up: KeepUp
    lateness_host: Distribution
    lateness_device: Distribution  # the replay's queue was full: the drive made them late
    depth: Depth
    workload_profile: WorkloadProfile
    alignment: Alignment
    timeline: Timeline | None = None
    heats: tuple[Heat, ...] = ()  # of the devices with I/O
    threads: Threads | None = None
    latency_points: LatencyPoints | None = None
    begin: Carry | None = None
    end: Carry | None = None

    def __add__(self, other: Self) -> Self:
        if self.gap_ns != other.gap_ns:
            raise ValueError("partials with different burst gaps do not add up")
        added = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)
                 if f.name not in _OF_ONE_RUN}
        return type(self)(**{**added, "gap_ns": self.gap_ns})

    def classes(self) -> dict[str, ClassPartial]:
        return {name: getattr(self, name) for name in CLASSES}

    @cached_property
    def lateness(self) -> Distribution:
        return self.lateness_host + self.lateness_device


_OF_ONE_RUN = ("gap_ns", "timeline", "heats", "threads", "latency_points", "begin", "end")


def join(earlier: Partial, later: Partial) -> Partial:
    """The partial of two consecutive parts of one run. Raises ValueError for parts that are not consecutive."""
    if earlier.end is None or earlier.end != later.begin:
        raise ValueError("the later part was not measured with the carry of the earlier one")
    if earlier.gap_ns != later.gap_ns:
        raise ValueError("partials with different burst gaps do not join")
    end = later.end
    assert earlier.timeline and earlier.threads and earlier.latency_points  # of one run
    assert end and later.timeline and later.threads and later.latency_points
    threads = earlier.threads.join(later.threads)
    classes = {name: _join_class(kind, earlier, later) for kind, name in enumerate(CLASSES)}
    keep_up = earlier.keep_up.join(later.keep_up).judged(classes["write"].planned, classes["write"].unseen_bytes)
    return Partial(
        runs=1, gap_ns=earlier.gap_ns, **classes,
        busy_ns=earlier.busy_ns + later.busy_ns, makespan_ns=end.makespan_ns,
        idle_ns=earlier.idle_ns + later.idle_ns, keep_up=keep_up,
        lateness_host=earlier.lateness_host + later.lateness_host,
        lateness_device=earlier.lateness_device + later.lateness_device,
        depth=earlier.depth - rest(earlier.end) + later.depth,
        workload_profile=workload_profile_of(earlier.workload_profile.submit_gaps + later.workload_profile.submit_gaps,
                                             earlier.workload_profile.idle_gaps + later.workload_profile.idle_gaps,
                                             threads),
        alignment=earlier.alignment.join(later.alignment),
        timeline=earlier.timeline.join(later.timeline), heats=join_heats(earlier.heats, later.heats), threads=threads,
        latency_points=earlier.latency_points.join(later.latency_points),
        begin=earlier.begin, end=end)


def _join_class(kind: int, earlier: Partial, later: Partial) -> ClassPartial:
    before, after = (part.classes()[CLASSES[kind]] for part in (earlier, later))
    assert earlier.end and later.end
    planned = before.planned.join(after.planned, earlier.gap_ns)
    return ClassPartial(
        **{name: getattr(before, name) + getattr(after, name) for name in _SUMS},
        makespan_ns=later.end.makespan_of(kind), bursts=before.bursts.join(after.bursts, earlier.gap_ns),
        planned=planned, late_bursts=late_starts(planned),
        seconds=before.seconds.join(after.seconds, later.end.span_ns),
        depth=before.depth - rest(earlier.end, kind) + after.depth)


def rest(end: Carry, kind: int | None = None) -> Depth:
    """The depth after the last submit, of one class of CLASSES or of all, if nothing follows."""
    of_kind = end.outstanding if kind is None else end.outstanding[end.outstanding[:, 1] == kind]
    return Depth.of_rest(end.last_seen_submit_ns, of_kind[:, 0])


def workload_profile_of(submit_gaps: Distribution, idle_gaps: Distribution, threads: Threads) -> WorkloadProfile:
    return WorkloadProfile(submit_gaps, idle_gaps, *threads.sequential(0), *threads.sequential(1))
