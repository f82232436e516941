"""The tasks of a worker: the carry or the partial of one part of one trace, in any process on any machine."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

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
