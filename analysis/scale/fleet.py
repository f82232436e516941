"""From paths to the metrics of each trace: cached ones, or measured in this process, a pool or a cluster."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from blkreel.analysis.metrics.accumulator import EXACT_ROWS
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.boundary_state import Carry
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.metrics.partials.partial import Partial, join
from blkreel.analysis.metrics.partials.partial_file import dump, load
from blkreel.common.errors import BlkreelError, TraceError, UsageError
from blkreel.common.files.storage_url import Location, StorageUrl
from blkreel.common.printable import printable_document
from blkreel.traces.format.check import refuse_layers
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.trace_survey import surveyed_bytes

from .dataset import Dataset, expand
from .partial_cache import CacheReport, PartialCache, PartialKey
from .runner import THREADS, Part, Runner, SerialRunner, ThreadRunner, carry_of, cores, mapping

RowProgress = Callable[[str, int, int], None]
Failures = dict[int, BlkreelError]  # by index of the trace

# One process reads about as many rows while two others start.
POOL_ROWS = 8_000_000
# A file is cut into parts of at least this many rows.
PART_ROWS = 4_000_000
# Metadata that only a replay needs. It is as long as the trace: that of a fleet would not fit into memory.
_NOT_HELD = ("boundary", "survey")


@dataclass
class ReadOptions:
    """How traces are read. jobs: processes; None: as many as cores. cluster: address of a scheduler, used instead.

    keep: use and write cached partials. exact: exact percentiles for any number of I/Os. skip_unreadable: continue
    without traces that cannot be read; they are then in `left_out` as (path, reason).
    """

    jobs: int | None = None
    cluster: str | None = None
    keep: bool = True
    skip_unreadable: bool = False
    exact: bool = False
    left_out: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Fleet:
    """measured: in the order named. notes: for the reader of a report."""

    measured: list[Measured]
    notes: list[str]
    cache: CacheReport


@dataclass
class _Trace:
    """A trace whose footer was read. index: in the order named."""

    index: int
    named: Location
    records: Location
    metadata: dict[str, Any]
    rows: int
    group_rows: list[int]
    identity: str
    op_bytes: dict[str, int] | None  # from its footer; None if unknown
    partial: Partial | None = None


def measure_fleet(paths: Iterable[str | Path | StorageUrl], *, gap_ns: int = DEFAULT_GAP_NS,
                  exact: bool | None = None, read_options: ReadOptions | None = None,
                  on_rows: RowProgress = lambda path, done, total: None) -> Fleet:
    """The metrics of each trace or run of `paths`: paths, directories, patterns, URLs.

    exact: exact percentiles; None: if there are at most EXACT_ROWS rows in all. on_rows(path, rows done of all, rows of
    all): progress; rows with cached partials count as done. Raises TraceError for a trace that cannot be read,
    UsageError for a trace named twice, BlkreelError for a failure of the pool or the cluster.
    """
    read_options = read_options or ReadOptions()
    dataset = expand(paths)
    traces = _open_all(dataset.locations, read_options)
    _refuse_copies(traces)
    total = sum(trace.rows for trace in traces)
    exact = read_options.exact or total <= EXACT_ROWS if exact is None else exact
    plan = _Plan(gap_ns, exact, len(traces))
    cache = PartialCache(read_options.keep)
    _look_up(traces, plan, cache)
    missing = [trace for trace in traces if trace.partial is None]
    progress = _Progress(total, sum(trace.rows for trace in traces if trace.partial), on_rows)
    if missing:
        _read(missing, plan, read_options, cache, progress)
    measured = [Measured(trace.named, trace.metadata, trace.rows, trace.partial, trace.records, trace.identity)
                for trace in traces if trace.partial]
    if not measured:
        raise TraceError(f"none of {len(dataset.locations)} traces could be read: {read_options.left_out[0][1]}")
    return Fleet(measured, _notes(dataset, read_options), cache.report(len(measured)))


@dataclass(frozen=True)
class _Plan:
    gap_ns: int
    exact: bool
    traces: int

    def key(self, trace: _Trace) -> PartialKey:
        return PartialKey(trace.identity, self.gap_ns, self.exact, trace.rows, trace.op_bytes)


def _open_all(locations: list[Location], read_options: ReadOptions) -> list[_Trace]:
    """The footers."""
    traces = []
    with mapping(sum(isinstance(location, StorageUrl) for location in locations) > 1) as mapped:
        for location, trace in zip(locations, mapped(_open, enumerate(locations)), strict=True):
            if isinstance(trace, TraceError):
                _leave_out(location, trace, len(locations), read_options)
            else:
                traces.append(trace)
    return traces


def _refuse_copies(traces: Iterable[_Trace]) -> None:
    """Raise UsageError if two of the traces are copies of one run: a copy is no repetition."""
    runs: dict[str, _Trace] = {}
    for trace in traces:
        if "run" in trace.metadata and (first := runs.setdefault(trace.identity, trace)) is not trace:
            raise UsageError(f"{trace.named} is a copy of {first.named}",
                             "name each run once: one run is not two repetitions")


def _open(numbered: tuple[int, Location]) -> _Trace | TraceError:
    index, location = numbered
    try:
        trace = open_trace(location)
        refuse_layers(trace)
        metadata = printable_document({key: value for key, value in trace.metadata.items() if key not in _NOT_HELD})
        records = trace.path.absolute() if isinstance(trace.path, Path) else trace.path
        return _Trace(index, location, records, metadata, trace.rows, trace.group_rows, trace.footer.identity,
                      surveyed_bytes(trace.metadata, trace.row_groups_at))
    except TraceError as error:
        return error


def _leave_out(location: Location, error: BlkreelError, count: int, read_options: ReadOptions) -> None:
    """Note it, or stop for it."""
    if not read_options.skip_unreadable or not isinstance(error, TraceError):
        if isinstance(error, TraceError) and count > 1:
            error.remedy = "; or ".join(filter(None, [error.remedy, "go on without it: --skip-unreadable"]))
        raise error
    read_options.left_out.append((str(location), str(error)))


def _look_up(traces: list[_Trace], plan: _Plan, cache: PartialCache) -> None:
    def look_up(trace: _Trace) -> None:
        trace.partial = cache.get(trace.records, trace.rows, plan.key(trace))

    with mapping(any(isinstance(trace.records, StorageUrl) for trace in traces)) as mapped:
        list(mapped(look_up, traces))
    cache.hits = sum(trace.partial is not None for trace in traces)


def _read(traces: list[_Trace], plan: _Plan, read_options: ReadOptions, cache: PartialCache,
          progress: "_Progress") -> None:
    with _runner(traces, read_options) as runner:
        failed: Failures = {}
        parts = _with_carries(_planned(traces, plan, runner.parallel), runner, failed, progress)
        results: dict[int, dict[int, Partial | bytes]] = {}  # by trace, by part
        for index, result in runner.run(runner.figures, [part for _, part in parts], progress.of(parts)):
            trace = parts[index][0]
            if isinstance(result, BlkreelError):
                failed.setdefault(trace.index, result)
                if not read_options.skip_unreadable or not isinstance(result, TraceError):
                    _leave_out(trace.named, failed[trace.index], len(traces), read_options)
                continue
            own = results.setdefault(trace.index, {})
            own[index] = result
            if len(own) == sum(part_trace is trace for part_trace, _ in parts):
                _finish(trace, [own[at] for at in sorted(own)], plan, cache)
                del results[trace.index]
    for trace in traces:
        if trace.index in failed:
            _leave_out(trace.named, failed[trace.index], len(traces), read_options)


def _finish(trace: _Trace, parts: list[Partial | bytes], plan: _Plan, cache: PartialCache) -> None:
    partial = functools.reduce(join, (load(part) if isinstance(part, bytes) else part for part in parts))
    trace.partial = partial
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else None
    cache.put(trace.records, trace.rows, plan.key(trace), lambda: whole or dump(partial))


def _runner(traces: list[_Trace], read_options: ReadOptions) -> Runner:
    # Each loads modules for 30 ms that few commands need.
    if read_options.cluster:
        for trace in traces:
            if isinstance(trace.records, StorageUrl) and trace.records.protocol == "memory":
                raise TraceError(f"{trace.named} is in the memory of this process, which no worker can read",
                                 "go without --cluster")
        from .cluster import Cluster

        return Cluster(read_options.cluster)
    jobs = read_options.jobs or cores()
    is_alone = len(traces) == 1 and traces[0].rows <= PART_ROWS
    if jobs == 1 or is_alone:
        return SerialRunner()
    if any(isinstance(trace.records, StorageUrl) for trace in traces):
        return ThreadRunner(read_options.jobs or THREADS)
    if sum(trace.rows for trace in traces) < POOL_ROWS:
        return SerialRunner()
    from .pool import Pool

    return Pool(jobs)


def _planned(traces: list[_Trace], plan: _Plan, parallel: int) -> list[tuple[_Trace, list[Part]]]:
    """The parts of each trace, the longest traces first.

    A trace is cut only if one worker would still read it when the others have ended: the carries between the parts
    cost another pass.
    """
    share = sum(trace.rows for trace in traces) / (2 * parallel)
    planned = []
    for trace in sorted(traces, key=lambda trace: -trace.rows):
        whole = Part(trace.records, trace.identity, None, trace.rows, plan.gap_ns, plan.exact,
                     traces=plan.traces)
        is_cut = parallel > 1 and trace.rows > max(share, PART_ROWS)
        planned.append((trace, _cut(whole, trace.group_rows) if is_cut else [whole]))
    return planned


def _cut(whole: Part, group_rows: list[int]) -> list[Part]:
    parts, begin, rows = [], 0, 0
    for group, count in enumerate(group_rows):
        rows += count
        if rows >= PART_ROWS or group == len(group_rows) - 1:
            parts.append(replace(whole, groups=range(begin, group + 1), rows=rows))
            begin, rows = group + 1, 0
    return parts


def _with_carries(planned: list[tuple[_Trace, list[Part]]], runner: Runner, failed: Failures,
                  progress: "_Progress") -> list[tuple[_Trace, Part]]:
    """All parts, each with the carry of the parts before it: measured of each by itself, and composed."""
    asked = [(trace, part) for trace, parts in planned for part in parts[:-1]]
    carries: dict[tuple[int, range | None], Carry] = {}
    for index, result in runner.run(carry_of, [part for _, part in asked], progress.silent) if asked else ():
        trace, part = asked[index]
        if isinstance(result, BlkreelError):
            failed.setdefault(trace.index, result)
        else:
            carries[trace.index, part.groups] = result
    ready = []
    for trace, parts in planned:
        carry = None
        for part in parts if trace.index not in failed else ():
            ready.append((trace, replace(part, carry=carry)))
            own = carries.get((trace.index, part.groups))
            try:
                carry = own if carry is None else carry.then(own) if own is not None else None
            except TraceError as error:
                failed[trace.index] = TraceError(f"{trace.named}: {error.message}", error.remedy)
    return [(trace, part) for trace, part in ready if trace.index not in failed]


class _Progress:
    """Rows done of all traces, from rows done of each part."""

    def __init__(self, total: int, done: int, on_rows: RowProgress):
        self._total, self._before, self._on_rows = total, done, on_rows
        self._done: dict[int, int] = {}

    def of(self, parts: list[tuple[_Trace, Part]]) -> Callable[[int, int], None]:
        def report(index: int, done: int) -> None:
            self._done[index] = done
            self._on_rows(str(parts[index][0].named), self._before + sum(self._done.values()), self._total)

        return report

    def silent(self, index: int, done: int) -> None:
        """The pass for the carries is short, and its rows are read again."""


def _notes(dataset: Dataset, read_options: ReadOptions) -> list[str]:
    notes = []
    if read_options.left_out:
        notes.append(f"{len(read_options.left_out)} of {len(dataset.locations)} traces could not be read and are left "
                     "out: " + "; ".join(why for _, why in read_options.left_out))
    if dataset.tests:
        notes.append(f"Directories of tests are left out here: {', '.join(dataset.tests)}.")
    return notes
