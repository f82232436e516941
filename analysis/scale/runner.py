"""Runners do tasks on parts of traces: here in this process, in pool.py and cluster.py in others."""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from blkreel import __version__
from blkreel.analysis.metrics.accumulator import MetricsAccumulator
from blkreel.analysis.metrics.measure import BATCH_ROWS, columns_of, has_roles, naming
from blkreel.analysis.metrics.partials.boundary_state import COLUMNS as CARRY_COLUMNS
from blkreel.analysis.metrics.partials.boundary_state import QUEUE_COLUMNS, Carry, carry_after
from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.analysis.metrics.partials.partial_file import VERSION, dump
from blkreel.common.errors import BlkreelError, TraceError
from blkreel.common.files.storage_url import Location, StorageUrl
from blkreel.traces.format.footer import Footer, read_footer
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.trace import Trace


@dataclass(frozen=True)
class Part:
    """Row groups of one trace, or all (None).

    location: of the records, absolute. identity: of the file when the work was planned. carry: of the parts before
    it; None for the first. version: of blkreel and of partials where the work was planned. traces:
    number of traces whose partials are in memory at a time.
    """

    location: Location
    identity: str
    groups: range | None
    rows: int
    gap_ns: int
    exact: bool
    carry: Carry | None = None
    traces: int = 1
    version: tuple[str, int] = (__version__, VERSION)


def bytes_of(part: Part) -> bytes:
    """As partial_of, in the form that is sent and cached."""
    return dump(partial_of(part))


def partial_of(part: Part, on_rows: Callable[[int], None] = lambda done: None) -> Partial:
    """on_rows(done) is called with each batch. Raises TraceError."""
    trace = _opened(part)
    metrics = MetricsAccumulator(part.gap_ns, exact=part.exact, carry=part.carry,
                                 file_bytes=trace.footer.size_bytes, files=part.traces)
    done = 0
    with naming(part.location):
        for batch in trace.batches(columns_of(trace), BATCH_ROWS, part.groups):
            metrics.feed_batch(batch)
            done += batch.num_rows
            on_rows(done)
    # Rows are read by path, which may name another file now. Remote files are not checked again.
    if not isinstance(part.location, StorageUrl):
        _check_same(part, read_footer(part.location))
    return metrics.finish()


def carry_of(part: Part, on_rows: Callable[[int], None] = lambda done: None) -> Carry:
    """The carry behind the part, measured of the part alone. Raises TraceError."""
    with naming(part.location):
        trace = _opened(part)
        of_run = QUEUE_COLUMNS if "due_ns" in trace.schema.names else ["flags"] if has_roles(trace) else []
        return carry_after(trace.batches([*CARRY_COLUMNS, *of_run], groups=part.groups))


def _opened(part: Part) -> Trace:
    """The trace, which must be the planned one: another machine may have another file under this path."""
    if part.version != (__version__, VERSION):
        raise BlkreelError(f"the worker on {socket.gethostname()} has blkreel {__version__} (partials {VERSION}), the "
                           f"user has {part.version[0]} (partials {part.version[1]})",
                           "install one version everywhere")
    trace = open_trace(part.location)
    _check_same(part, trace.footer)
    return trace


def _check_same(part: Part, footer: Footer) -> None:
    if footer.identity != part.identity:
        raise TraceError(f"{part.location} changed while it was read, or is another file on {socket.gethostname()}",
                         "wait until it is whole; workers must see the same files under the same paths")

# Each thread holds the ranges of a row group in memory.
THREADS = 8
_LOOKUPS = 16  # at once, of remote files

T = TypeVar("T")
U = TypeVar("U")
Task = Callable[..., Any]  # of a Part, and in this process of a callback that takes rows done
RowsOfPart = Callable[[int, int], None]  # index of the part, rows of it that are done
Results = Iterator[tuple[int, Any]]


class Runner(Protocol):
    """parallel: number of tasks at once. figures: the task that measures a part, as a Partial or as its bytes."""

    @property
    def parallel(self) -> int: ...

    @property
    def figures(self) -> Callable[..., Partial | bytes]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        """(index, function(part) or the BlkreelError that it raised) of each part, in the order in which they end.

        on_rows is called when a part ends, and while it is read if the runner can see it.
        """
        ...


@contextmanager
def mapping(is_remote: bool) -> Iterator[Callable[[Callable[[T], U], Iterable[T]], Iterable[U]]]:
    """map(), for remote files with many calls at once: each is a round trip or three."""
    if not is_remote:
        yield map
        return
    with ThreadPoolExecutor(_LOOKUPS) as threads:
        yield threads.map


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


class SerialRunner:
    """A runner that does one task after the other, in this process."""

    parallel = 1
    figures = staticmethod(partial_of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        for index, part in enumerate(parts):
            try:
                result = function(part, lambda done, index=index: on_rows(index, done))
            except BlkreelError as error:
                result = error
            on_rows(index, part.rows)
            yield index, result


class ThreadRunner:
    """A runner of threads, for remote traces: most of the time a thread waits for the storage, not for a processor.
    Unpacking and counting run in parallel too, because neither is Python code."""

    figures = staticmethod(partial_of)

    def __init__(self, threads: int = THREADS):
        self.parallel = cores()
        self._pool = ThreadPoolExecutor(threads, "blkreel-remote")
        self._threads = threads
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def run(self, function: Task, parts: Sequence[Part], on_rows: RowsOfPart) -> Results:
        waiting = list(reversed(range(len(parts))))
        running: dict[Future[Any], int] = {}
        while waiting or running:
            while waiting and len(running) < self._threads:
                index = waiting.pop()
                running[self._pool.submit(function, parts[index], self._check_stopped)] = index
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(done)
                try:
                    result = done.result()
                except BlkreelError as error:
                    result = error
                on_rows(index, parts[index].rows)
                yield index, result

    def _check_stopped(self, _: int) -> None:
        if self._stopped.is_set():
            raise InterruptedError("the runner was closed")
