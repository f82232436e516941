"""One trace or run, read once into everything that a page shows of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blkreel.traces.errors import TraceError
from blkreel.traces.places import Place, place
from blkreel.traces.reader import Trace, open_trace

from .bursts import DEFAULT_GAP_NS
from .metrics import COLUMNS, EXACT_ROWS, RUN_COLUMNS, VIEW_COLUMNS, MetricsAccumulator, Partial
from .threads import Threads
from .timeline import Heat, Timeline

# Larger batches fall out of the processor's cache between being unpacked and being counted.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Measured:
    """path is what the user named; metadata is the file's.

    records, fingerprint: the file that was read, and what tells it from another (footer.py); None where nobody knows.
    """

    path: Path
    metadata: dict
    rows: int
    partial: Partial
    records: Place | None = field(default=None, compare=False)
    fingerprint: str | None = field(default=None, compare=False)

    @property
    def timeline(self) -> Timeline:
        return self.partial.timeline

    @property
    def heat(self) -> Heat:
        return self.partial.heat

    @property
    def threads(self) -> Threads:
        return self.partial.threads

    @property
    def run(self) -> dict | None:
        """The account of a replay; None of a captured trace."""
        return self.metadata.get("run")


def measure(path, gap_ns: int = DEFAULT_GAP_NS, on_rows: Callable[[int, int], None] = lambda done, total: None,
            exact: bool | None = None) -> Measured:
    """Read a trace file or a run directory. Raises TraceError. on_rows(done, total) is told of each batch.

    exact: whether distributions keep every value; None: where there are at most EXACT_ROWS.
    """
    trace = open_trace(path)
    metrics = MetricsAccumulator(gap_ns, exact=trace.rows <= EXACT_ROWS if exact is None else exact)
    done = 0
    with naming(trace.path):
        for batch in trace.batches(columns_of(trace), BATCH_ROWS):
            metrics.feed_batch(batch)
            done += batch.num_rows
            on_rows(done, trace.rows)
    return Measured(place(path), trace.metadata, trace.rows, metrics.finish(), trace.path, trace.footer.fingerprint)


@contextmanager
def naming(path) -> Iterator[None]:
    """What is wrong with rows says of which file they are."""
    try:
        yield
    except TraceError as error:
        if str(path) in error.message:
            raise
        raise TraceError(f"{path}: {error.message}", error.remedy) from None


def columns_of(trace: Trace) -> list[str]:
    """The columns of a trace that figures are made of."""
    run_columns = [name for name in RUN_COLUMNS if name in trace.schema.names]
    # In a trace no I/O was late, and the flags tell nothing else here.
    return [name for name in [*COLUMNS, *VIEW_COLUMNS] if run_columns or name != "flags"] + run_columns
