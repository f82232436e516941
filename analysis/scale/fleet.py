"""From what a user names to the figures of each trace: kept ones, or read here, over a pool, or over a cluster."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from blkreel.traces.errors import BlkreelError, TraceError
from blkreel.traces.places import Place, Url
from blkreel.traces.reader import open_trace

from ..bursts import DEFAULT_GAP_NS
from ..measure import Measured
from ..metrics import EXACT_ROWS
from ..partial import Partial, join
from ..partial_file import dump, load
from .cluster import Cluster
from .dataset import expand
from .far import AT_ONCE, Far
from .here import Here
from .kept import Keeper, Key
from .pool import Pool, cores
from .work import Part, carry_of

# About what one process reads while two others start and share it out.
POOL_ROWS = 8_000_000
# A larger part of a file than this may go to another worker than the rest.
PART_ROWS = 4_000_000
_LOOKS_AT_ONCE = 16
# Of the metadata, what only a replay asks for, and is as long as the trace: a fleet's would not fit into memory.
_NOT_HELD = ("boundary", "survey")


@dataclass
class Way:
    """How traces are read. jobs: processes, as many as cores where None. cluster: a scheduler's address instead.

    keep: look for kept figures and keep new ones. exact: percentiles of each value, however many. skip_unreadable: go
    on without traces that cannot be read; they are then in `left_out` as (path, why), for the caller's exit code.
    """

    jobs: int | None = None
    cluster: str | None = None
    keep: bool = True
    skip_unreadable: bool = False
    exact: bool = False
    left_out: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Fleet:
    """measured: in the order named. notes: what a reader must know. kept: the account of kept figures."""

    measured: list[Measured]
    notes: list[str]
    kept: dict


@dataclass
class _Trace:
    """A trace whose footer was read."""

    named: Place
    records: Place
    metadata: dict
    rows: int
    group_rows: list[int]
    key: Key
    partial: Partial | None = None


def measure_all(paths, *, gap_ns: int = DEFAULT_GAP_NS, exact: bool | None = None, jobs: int | None = None,
                cluster: str | None = None, keep: bool = True,
                on_rows: Callable[[str, int, int], None] = lambda path, done, total: None) -> list[Measured]:
    """The figures of each trace or run of `paths`: paths, directories, patterns, URLs. Raises as `measure_fleet` does.
    """
    return measure_fleet(paths, gap_ns=gap_ns, exact=exact, way=Way(jobs, cluster, keep), on_rows=on_rows).measured


def measure_fleet(paths, *, gap_ns: int = DEFAULT_GAP_NS, exact: bool | None = None, way: Way | None = None,
                  on_rows: Callable[[str, int, int], None] = lambda path, done, total: None) -> Fleet:
    """As measure_all, with what is to be said of it.

    exact: percentiles of each value; None: where there are at most EXACT_ROWS rows in all. on_rows(path, rows done of
    all, rows of all) is told of progress; rows whose figures were kept count as done. Raises TraceError for a trace
    that cannot be read, UsageError for one named twice, BlkreelError for what is wrong with the pool or the cluster.
    """
    way = way or Way()
    found = expand(paths)
    traces = _open_all(found.places, way)
    total = sum(trace.rows for trace in traces)
    exact = way.exact or total <= EXACT_ROWS if exact is None else exact
    for trace in traces:
        trace.key = replace(trace.key, gap_ns=gap_ns, exact=exact)
    keeper = Keeper(way.keep)
    _look(traces, keeper)
    missing = [trace for trace in traces if trace.partial is None]
    progress = _Progress(total, sum(trace.rows for trace in traces if trace.partial), on_rows)
    if missing:
        _read(missing, way, keeper, progress)
    measured = [Measured(trace.named, trace.metadata, trace.rows, trace.partial, trace.records, trace.key.fingerprint)
                for trace in traces if trace.partial]
    if not measured:
        raise TraceError(f"none of {len(found.places)} traces could be read: {way.left_out[0][1]}")
    return Fleet(measured, _notes(found, way), keeper.account(len(measured)))


def _open_all(places, way) -> list[_Trace]:
    """The footers. Of remote ones many at once: each is a round trip or three."""
    remote = sum(isinstance(place, Url) for place in places) > 1
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) if remote else nullcontext() as threads:
        opened = (threads.map if remote else map)(_open, places)
        return [each for each in (_sound(trace, place, len(places), way) for trace, place
                                  in zip(opened, places, strict=True)) if each]


def _open(place):
    try:
        trace = open_trace(place)
        metadata = {key: value for key, value in trace.metadata.items() if key not in _NOT_HELD}
        return _Trace(place, _absolute(trace.path), metadata, trace.rows, trace.group_rows,
                      Key(trace.footer.fingerprint, 0, True))
    except TraceError as error:
        return error


def _absolute(path):
    return path.absolute() if isinstance(path, Path) else path


def _sound(trace, place, count, way):
    if not isinstance(trace, BlkreelError):
        return trace
    _leave_out(place, trace, count, way)
    return None


def _leave_out(place, error, count, way):
    """Note it, or stop for it."""
    if not way.skip_unreadable or not isinstance(error, TraceError):
        if isinstance(error, TraceError) and count > 1:
            error.remedy = "; or ".join(filter(None, [error.remedy, "go on without it: --skip-unreadable"]))
        raise error
    way.left_out.append((str(place), str(error)))


def _look(traces, keeper):
    def look(trace):
        trace.partial = keeper.look(trace.records, trace.rows, trace.key)

    remote = any(isinstance(trace.records, Url) for trace in traces)
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) if remote else nullcontext() as threads:
        list((threads.map if remote else map)(look, traces))
    keeper.read = sum(trace.partial is not None for trace in traces)


def _read(traces, way, keeper, progress):
    with _runner(traces, way) as runner:
        whole = _planned(traces, runner.parallel)
        failed = {}
        parts = _with_carries(whole, runner, failed, progress)
        done = {}
        for index, result in runner.run(runner.figures, [part for _, part in parts], progress.of(parts)):
            trace = parts[index][0]
            if isinstance(result, BlkreelError):
                failed.setdefault(id(trace), result)
                _stop_early(trace, failed, len(traces), way)
                continue
            mine = done.setdefault(id(trace), {})
            mine[index] = result
            if len(mine) == sum(other is trace for other, _ in parts):
                trace.partial = _joined([mine[at] for at in sorted(mine)])
                whole = result if len(mine) == 1 and isinstance(result, bytes) else None
                keeper.keep(trace.records, trace.rows, trace.key, lambda whole=whole, trace=trace: (
                    whole or dump(trace.partial)))
                del done[id(trace)]
    for trace in traces:
        if id(trace) in failed:
            _leave_out(trace.named, failed[id(trace)], len(traces), way)


def _stop_early(trace, failed, count, way):
    if not way.skip_unreadable or not isinstance(failed[id(trace)], TraceError):
        _leave_out(trace.named, failed[id(trace)], count, way)


def _runner(traces, way):
    if way.cluster:
        nowhere = [trace.named for trace in traces if isinstance(trace.records, Url)
                   and trace.records.protocol == "memory"]
        if nowhere:
            raise TraceError(f"{nowhere[0]} is in this process only, where no worker sees it", "go without --cluster")
        return Cluster(way.cluster)
    jobs = way.jobs or cores()
    alone = len(traces) == 1 and traces[0].rows <= PART_ROWS
    if jobs == 1 or alone:
        return Here()
    if any(isinstance(trace.records, Url) for trace in traces):
        return Far(way.jobs or AT_ONCE)
    small = sum(trace.rows for trace in traces) < POOL_ROWS
    return Here() if small else Pool(jobs)


def _planned(traces, parallel) -> list[tuple[_Trace, list[Part]]]:
    """The parts of each trace. A trace is cut only where one worker would be busy with it when the others have ended,
    for what it carries from part to part has to be found first. The longest come first."""
    share = sum(trace.rows for trace in traces) / (2 * parallel)
    planned = []
    for trace in sorted(traces, key=lambda trace: -trace.rows):
        whole = Part(trace.records, trace.key.fingerprint, None, trace.rows, trace.key.gap_ns, trace.key.exact)
        cut = parallel > 1 and trace.rows > max(share, PART_ROWS)
        planned.append((trace, _cut(whole, trace.group_rows) if cut else [whole]))
    return planned


def _cut(whole, group_rows) -> list[Part]:
    parts, begin, rows = [], 0, 0
    for group, count in enumerate(group_rows):
        rows += count
        if rows >= PART_ROWS or group == len(group_rows) - 1:
            parts.append(replace(whole, groups=range(begin, group + 1), rows=rows))
            begin, rows = group + 1, 0
    return parts


def _with_carries(planned, runner, failed, progress) -> list[tuple[_Trace, Part]]:
    """All parts, each with what those before it leave: found of each by itself, and composed."""
    asked = [(trace, part) for trace, parts in planned for part in parts[:-1]]
    found = {}
    for index, result in runner.run(carry_of, [part for _, part in asked], progress.silent) if asked else ():
        trace, part = asked[index]
        if isinstance(result, BlkreelError):
            failed.setdefault(id(trace), result)
        else:
            found[id(trace), part.groups] = result
    ready = []
    for trace, parts in planned:
        carry = None
        for part in parts if id(trace) not in failed else ():
            ready.append((trace, replace(part, carry=carry)))
            mine = found.get((id(trace), part.groups))
            try:
                carry = mine if carry is None else carry.then(mine) if mine is not None else None
            except TraceError as error:
                failed[id(trace)] = TraceError(f"{trace.named}: {error.message}", error.remedy)
    return [(trace, part) for trace, part in ready if id(trace) not in failed]


def _joined(parts: list) -> Partial:
    partials = (load(part) if isinstance(part, bytes) else part for part in parts)
    return functools.reduce(join, partials)


class _Progress:
    def __init__(self, total, done, on_rows):
        self._total, self._before, self._on_rows = total, done, on_rows
        self._done = {}

    def of(self, parts):
        def told(index, done):
            self._done[index] = done
            self._on_rows(str(parts[index][0].named), self._before + sum(self._done.values()), self._total)

        return told

    def silent(self, index, done):
        """The pass for the carries is short, and its rows will be read again."""


def _notes(found, way):
    notes = []
    if way.left_out:
        notes.append(f"{len(way.left_out)} of {len(found.places)} traces could not be read and are left out: "
                     + "; ".join(why for _, why in way.left_out))
    if found.tests:
        notes.append(f"Directories of tests are left out here: {', '.join(found.tests)}.")
    return notes
