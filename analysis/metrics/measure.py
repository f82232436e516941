"""Read a trace or run once, into the metrics of a report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS
from blkreel.analysis.metrics.partials.latency_points import LatencyPoints
from blkreel.analysis.metrics.partials.threads import Threads
from blkreel.analysis.metrics.partials.timeline import Timeline
from blkreel.common.errors import TraceError
from blkreel.common.files.storage_url import Location, StorageUrl, parse_location
from blkreel.common.printable import printable_document
from blkreel.traces.format.check import refuse_layers
from blkreel.traces.format.metadata_types import HasMetadata
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS
from blkreel.traces.format.trace import Trace

from .accumulator import COLUMNS, EXACT_ROWS, RUN_COLUMNS, VIEW_COLUMNS, MetricsAccumulator, Partial

# Larger batches leave the CPU cache between decompression and counting.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Measured(HasMetadata):
    """The partial and the metadata of a trace or run. path: as named by the user.

    records, identity: the file that was read and its identity (footer.py); None if unknown.
    """

    path: Location
    metadata: dict[str, Any]
    rows: int
    partial: Partial
    records: Location | None = field(default=None, compare=False)
    identity: str | None = field(default=None, compare=False)

    @property
    def timeline(self) -> Timeline:
        assert self.partial.timeline is not None  # of one run
        return self.partial.timeline

    @property
    def latency_points(self) -> LatencyPoints:
        assert self.partial.latency_points is not None
        return self.partial.latency_points

    @property
    def threads(self) -> Threads:
        assert self.partial.threads is not None
        return self.partial.threads

    @property
    def is_stored(self) -> bool:
        """Whether it comes from a catalog: its partial is known, and its rows are not at hand."""
        return self.records is None and self.identity is not None

    @property
    def stored_account(self) -> dict[str, Any]:
        """As the file has it, with the keys that Run does not have; empty of a captured trace."""
        account: dict[str, Any] = self.metadata.get("run", {})
        return account


def measure(path: str | Path | StorageUrl, gap_ns: int = DEFAULT_GAP_NS,
            on_rows: Callable[[int, int], None] = lambda done, total: None,
            exact: bool | None = None) -> Measured:
    """Read a trace file or a run directory. Raises TraceError. on_rows(done, total) is called with each batch.

    exact: store every value in distributions; None: if there are at most EXACT_ROWS.
    """
    trace = open_trace(path)
    refuse_layers(trace)
    metrics = MetricsAccumulator(gap_ns, exact=trace.rows <= EXACT_ROWS if exact is None else exact,
                                 file_bytes=trace.footer.size_bytes)
    done = 0
    with naming(trace.path):
        for batch in trace.batches(columns_of(trace), BATCH_ROWS):
            metrics.feed_batch(batch)
            done += batch.num_rows
            on_rows(done, trace.rows)
    return Measured(parse_location(path), printable_document(trace.metadata), trace.rows, metrics.finish(), trace.path,
                    trace.footer.identity)


@contextmanager
def naming(path: Location) -> Iterator[None]:
    """Add the path to errors about rows."""
    try:
        yield
    except TraceError as error:
        if str(path) in error.message:
            raise
        raise TraceError(f"{path}: {error.message}", error.remedy) from None


def run_columns_of(trace: Trace) -> list[str]:
    """The columns of a run that the metrics need: idle_removed_ns only of a run that removed idle time."""
    return [name for name in RUN_COLUMNS if name in trace.schema.names]


def columns_of(trace: Trace) -> list[str]:
    """The columns of a trace that the metrics need."""
    run_columns = run_columns_of(trace)
    # Flags are read for issue lateness, which a captured trace does not have, and for the role of an I/O.
    needs_flags = bool(run_columns) or has_roles(trace)
    return [name for name in [*COLUMNS, *VIEW_COLUMNS] if needs_flags or name != "flags"] + run_columns


def has_roles(trace: Trace) -> bool:
    """Whether an I/O of the trace may have a role. The statistics of the file usually suffice."""
    return trace.greatest("flags") >= FLAGS["role_background"]
