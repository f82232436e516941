"""What happened in a trace or a run: one pass over its batches, into partial results that add up.

Partials of different runs are pooled with `+`: sums add, distributions pool I/O by I/O, bursts line up. Parts of one
run are joined with join(): any split gives the same digits. The formulas are those of docs/method.md.
"""

import numpy as np
import pyarrow as pa

from . import native_metrics as native
from .bursts import DEFAULT_GAP_NS, BurstTable, late_starts
from .carry import CLASSES, Carry, carry_after, classes_of
from .depth import Depth
from .histogram import Histogram
from .partial import ClassPartial, Partial, fingerprint_of, join, rest
from .percentiles import Distribution, ValueCounts
from .seconds import SECOND_NS, Seconds
from .threads import Threads
from .timeline import Heat, Timeline

__all__ = ["CLASSES", "COLUMNS", "EXACT_ROWS", "RUN_COLUMNS", "SECOND_NS", "VIEW_COLUMNS", "Carry", "ClassPartial",
           "MetricsAccumulator", "Partial", "Seconds", "carry_after", "classes_of", "join"]

COLUMNS = ["submit_ns", "latency_ns", "queue_ns", "length_bytes", "op", "flags", "status"]
VIEW_COLUMNS = ["offset_bytes", "tid", "device"]
RUN_COLUMNS = ["due_ns", "burst"]
# Up to so many rows in a whole computation, distributions keep every value. More are binned, at most 1/256 off.
EXACT_ROWS = 4_000_000


class MetricsAccumulator:
    """Fed the batches of one run in order of submit_ns; `finish()` gives its Partial.

    exact: whether distributions keep every value, or bins. carry: of the part of the run that lies before, where this
    is not the first; see carry.py. Batches have COLUMNS, RUN_COLUMNS where they are of a run, and VIEW_COLUMNS, without
    which there is no heat map and nothing about threads. Raises TraceError for rows out of order, or with times, places
    or lengths that cannot be.
    """

    def __init__(self, gap_ns: int = DEFAULT_GAP_NS, *, exact: bool = True, carry: Carry | None = None):
        self._gap_ns = gap_ns
        self._begin = carry or Carry()
        self._native = native.NativeMetrics(gap_ns, exact, carry)
        self._exact = [ValueCounts() for _ in range(native.DISTRIBUTIONS)] if exact else None

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        """Take in a batch as arrays."""
        if len(columns["submit_ns"]):
            self._native.feed_arrays(columns)
            self._take()

    def feed_batch(self, batch: pa.RecordBatch) -> None:
        """Take in a batch as Arrow has it. Nothing is copied."""
        if batch.num_rows:
            self._native.feed_batch(batch)
            self._take()

    def _take(self):
        if self._exact:
            for index, counts in enumerate(self._exact):
                counts.add(self._native.taken(index))

    def carry(self) -> Carry:
        """What the rows so far, and those before them, leave to the next part."""
        return Carry.of_numbers(self._native.read(native.CARRY))

    def finish(self) -> Partial:
        """The figures of what was fed. More may be fed afterwards."""
        end = self.carry()
        threads = Threads.of_native(self._native.read(native.THREADS))
        return Partial(
            runs=1, gap_ns=self._gap_ns,
            **{name: self._of_class(kind, end) for kind, name in enumerate(CLASSES)},
            busy_ns=int(self._native.read(native.SUMS, len(CLASSES))[6]), makespan_ns=end.makespan_ns,
            lateness_host=self._distribution(native.LATENESS_HOST),
            lateness_device=self._distribution(native.LATENESS_DEVICE),
            depth=Depth(self._native.read(native.DEPTH, len(CLASSES))) + rest(end),
            fingerprint=fingerprint_of(self._distribution(native.SUBMIT_GAP), self._distribution(native.IDLE_GAP),
                                       threads),
            timeline=Timeline.of_native(self._native.read(native.TIMELINE), end.span_ns),
            heat=Heat.of_native(self._native.read(native.HEAT)), threads=threads, begin=self._begin, end=end)

    def _of_class(self, kind, end):
        sums = self._native.read(native.SUMS, kind).tolist()
        planned = BurstTable.of_native(self._native.read(native.PLANNED, kind))
        return ClassPartial(
            *sums, latency=self._distribution(native.LATENCY + kind),
            response=self._distribution(native.RESPONSE + kind), queue=self._distribution(native.QUEUE + kind),
            sizes=self._distribution(native.SIZE + kind),
            bursts=BurstTable.of_native(self._native.read(native.BURSTS, kind)), planned=planned,
            late_bursts=late_starts(planned),
            seconds=Seconds.of_native(self._native.read(native.SECONDS, kind), end.span_ns),
            depth=Depth(self._native.read(native.DEPTH, kind)) + rest(end, kind))

    def _distribution(self, index) -> Distribution:
        if self._exact:
            return self._exact[index] + ValueCounts()
        numbers = self._native.read(native.HISTOGRAM, index)
        bins, counts, totals = numbers[4:].reshape(-1, 3).T
        return Histogram.of_bins(bins, counts, totals, int(numbers[2]), int(numbers[3]))
