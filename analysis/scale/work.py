"""What a worker does: the carry or the figures of one part of one trace. The same in every process, anywhere."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from blkreel import __version__
from blkreel.traces.errors import BlkreelError, TraceError
from blkreel.traces.footer import read_footer
from blkreel.traces.places import Place, Url
from blkreel.traces.reader import open_trace

from ..carry import COLUMNS as CARRY_COLUMNS
from ..carry import Carry, carry_after
from ..measure import BATCH_ROWS, columns_of, naming
from ..metrics import MetricsAccumulator
from ..partial import Partial
from ..partial_file import VERSION, dump


@dataclass(frozen=True)
class Part:
    """Row groups of one trace, or all (None), as whoever plans the work saw them.

    place: of the records, absolute. carry: what earlier parts leave; None of the first.
    """

    place: Place
    fingerprint: str
    groups: range | None
    rows: int
    gap_ns: int
    exact: bool
    carry: Carry | None = None
    version: tuple = (__version__, VERSION)


def bytes_of(part: Part) -> bytes:
    """What partial_of gives, as it goes from process to process and is kept."""
    return dump(partial_of(part))


def partial_of(part: Part, on_rows: Callable[[int], None] = lambda done: None) -> Partial:
    """on_rows(done) is told of each batch. Raises TraceError."""
    trace = _opened(part)
    metrics = MetricsAccumulator(part.gap_ns, exact=part.exact, carry=part.carry)
    done = 0
    with naming(part.place):
        for batch in trace.batches(columns_of(trace), BATCH_ROWS, part.groups):
            metrics.feed_batch(batch)
            done += batch.num_rows
            on_rows(done)
    # Its rows are read by its path, which may have become another file's meanwhile. Not again over a network.
    if not isinstance(part.place, Url):
        _check_same(part, read_footer(part.place))
    return metrics.finish()


def carry_of(part: Part, on_rows: Callable[[int], None] = lambda done: None) -> Carry:
    """What the part by itself leaves to what follows. Raises TraceError."""
    with naming(part.place):
        return carry_after(_opened(part).batches(CARRY_COLUMNS, groups=part.groups))


def _opened(part):
    """The trace, which must be the one that was planned for: a worker elsewhere may see another under this path."""
    if part.version != (__version__, VERSION):
        raise BlkreelError(f"the worker on {socket.gethostname()} has blkreel {__version__} (figures {VERSION}), which "
                           f"is not the user's {part.version[0]} (figures {part.version[1]})",
                           "install one version everywhere")
    trace = open_trace(part.place)
    _check_same(part, trace.footer)
    return trace


def _check_same(part, footer):
    if footer.fingerprint != part.fingerprint:
        raise TraceError(f"{part.place} changed while it was read, or is another file on {socket.gethostname()}",
                         "wait until it is whole; workers must see the same files under the same paths")
