"""The figures of a run as records that add up: `+` pools different runs, join() puts together the parts of one.

The formulas are those of docs/method.md; sums are integers throughout.
"""

from dataclasses import dataclass, field, fields

from .bursts import BurstTable, late_starts
from .carry import CLASSES, Carry
from .depth import Depth
from .fingerprint import Fingerprint
from .percentiles import Distribution, ValueCounts
from .seconds import Seconds
from .threads import Threads
from .timeline import Heat, Timeline


@dataclass(eq=False)
class Additive:
    """A record whose fields all add up."""

    def __add__(self, other):
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __eq__(self, other):
        return type(self) is type(other) and all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self))

    __hash__ = None


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


# They add up whatever comes before or after.
_SUMS = ("ops", "bytes", "error_ops", "unseen_ops", "unseen_bytes", "service_ns", "busy_ns",
         "latency", "response", "queue", "sizes")


@dataclass(eq=False)
class Partial(Additive):
    """The figures of one run, of a part of it, or of several runs pooled. `runs` says how many.

    Of one run: over time (timeline, heat, threads), and the carry at both ends of the part. None of several pooled. A
    part that is not the first holds what its own rows add: only joined to those before it do they make sense.
    """

    runs: int
    gap_ns: int
    read: ClassPartial
    write: ClassPartial
    other: ClassPartial
    busy_ns: int  # with at least one I/O of any class outstanding
    makespan_ns: int
    lateness_host: Distribution
    lateness_device: Distribution  # the replay's queue was full: the drive made them late
    depth: Depth
    fingerprint: Fingerprint
    timeline: Timeline | None = None
    heat: Heat | None = None
    threads: Threads | None = None
    begin: Carry | None = None
    end: Carry | None = None

    def __add__(self, other):
        if self.gap_ns != other.gap_ns:
            raise ValueError("partials with different burst gaps do not add up")
        added = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)
                 if f.name not in _OF_ONE_RUN}
        return Partial(**{**added, "gap_ns": self.gap_ns})

    def classes(self) -> dict[str, ClassPartial]:
        return {name: getattr(self, name) for name in CLASSES}

    @property
    def lateness(self) -> Distribution:
        return self.lateness_host + self.lateness_device


_OF_ONE_RUN = ("gap_ns", "timeline", "heat", "threads", "begin", "end")


def join(earlier: Partial, later: Partial) -> Partial:
    """The partial of two parts of one run that follow each other. Raises ValueError where they do not."""
    if earlier.end is None or earlier.end != later.begin:
        raise ValueError("the later part was not measured with the carry of the earlier one")
    if earlier.gap_ns != later.gap_ns:
        raise ValueError("partials with different burst gaps do not join")
    end = later.end
    threads = earlier.threads.join(later.threads)
    return Partial(
        runs=1, gap_ns=earlier.gap_ns,
        **{name: _join_class(kind, earlier, later) for kind, name in enumerate(CLASSES)},
        busy_ns=earlier.busy_ns + later.busy_ns, makespan_ns=end.makespan_ns,
        lateness_host=earlier.lateness_host + later.lateness_host,
        lateness_device=earlier.lateness_device + later.lateness_device,
        depth=earlier.depth - rest(earlier.end) + later.depth,
        fingerprint=fingerprint_of(earlier.fingerprint.submit_gaps + later.fingerprint.submit_gaps,
                                   earlier.fingerprint.idle_gaps + later.fingerprint.idle_gaps, threads),
        timeline=earlier.timeline.join(later.timeline), heat=earlier.heat.join(later.heat), threads=threads,
        begin=earlier.begin, end=end)


def _join_class(kind, earlier, later):
    mine, theirs = (getattr(part, CLASSES[kind]) for part in (earlier, later))
    planned = mine.planned.join(theirs.planned, earlier.gap_ns)
    return ClassPartial(
        **{name: getattr(mine, name) + getattr(theirs, name) for name in _SUMS},
        makespan_ns=later.end.makespan_of(kind), bursts=mine.bursts.join(theirs.bursts, earlier.gap_ns),
        planned=planned, late_bursts=late_starts(planned),
        seconds=mine.seconds.join(theirs.seconds, later.end.span_ns),
        depth=mine.depth - rest(earlier.end, kind) + theirs.depth)


def rest(end: Carry, kind: int | None = None) -> Depth:
    """The depth behind the last submit, of a class of CLASSES or of all, if nothing follows."""
    of_kind = end.outstanding if kind is None else end.outstanding[end.outstanding[:, 1] == kind]
    return Depth.of_rest(end.last_seen_submit_ns, of_kind[:, 0])


def fingerprint_of(submit_gaps: Distribution, idle_gaps: Distribution, threads: Threads) -> Fingerprint:
    return Fingerprint(submit_gaps, idle_gaps, *threads.sequential(0), *threads.sequential(1))
