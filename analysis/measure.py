"""One trace or run, read once into everything that a page shows of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.reader import open_trace

from .bursts import DEFAULT_GAP_NS
from .metrics import COLUMNS, RUN_COLUMNS, MetricsAccumulator, Partial
from .threads import Threads
from .timeline import Heat, Timeline

VIEW_COLUMNS = ["offset_bytes", "tid"]


@dataclass(frozen=True)
class Measured:
    """path is what the user named; metadata is the file's."""

    path: Path
    metadata: dict
    rows: int
    partial: Partial
    timeline: Timeline
    heat: Heat
    threads: Threads

    @property
    def run(self) -> dict | None:
        """The account of a replay; None of a captured trace."""
        return self.metadata.get("run")


def measure(path, gap_ns: int = DEFAULT_GAP_NS,
            on_rows: Callable[[int, int], None] = lambda done, total: None) -> Measured:
    """Read a trace file or a run directory. Raises TraceError. on_rows(done, total) is told of each batch."""
    trace = open_trace(path)
    metrics, timeline, heat, threads = MetricsAccumulator(gap_ns), Timeline(), Heat(), Threads()
    columns = COLUMNS + VIEW_COLUMNS + [name for name in RUN_COLUMNS if name in trace.schema.names]
    done = 0
    for batch in trace.batches(columns):
        arrays = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns}
        for accumulator in (metrics, timeline, heat, threads):
            accumulator.feed(arrays)
        done += batch.num_rows
        on_rows(done, trace.rows)
    return Measured(Path(path), trace.metadata, trace.rows, metrics.finish(), timeline, heat, threads)
