"""One pass over the batches of a trace or run, into a Partial.

`+` pools partials of different runs: sums add, distributions pool I/O by I/O, bursts are concatenated. join() joins
parts of one run: any split gives the same digits. The formulas are those of docs/method.md.
"""

import numpy as np
import pyarrow as pa

from blkreel.analysis.metrics.partials.alignment import Alignment
from blkreel.analysis.metrics.partials.boundary_state import CLASSES, Carry, carry_after, classes_of
from blkreel.analysis.metrics.partials.bursts import DEFAULT_GAP_NS, BurstTable, late_starts
from blkreel.analysis.metrics.partials.depth import Depth
from blkreel.analysis.metrics.partials.distributions import Distribution, Histogram, ValueCounts
from blkreel.analysis.metrics.partials.keep_up import KeepUp
from blkreel.analysis.metrics.partials.latency_points import LatencyPoints
from blkreel.analysis.metrics.partials.partial import ClassPartial, Partial, join, rest, workload_profile_of
from blkreel.analysis.metrics.partials.seconds import SECOND_NS, Seconds
from blkreel.analysis.metrics.partials.threads import Threads
from blkreel.analysis.metrics.partials.timeline import HEAT_DEVICES, Heat, Timeline
from blkreel.common.limits import check_state

from . import native_library as native

__all__ = ["CLASSES", "COLUMNS", "EXACT_ROWS", "RUN_COLUMNS", "SECOND_NS", "VIEW_COLUMNS", "Carry", "ClassPartial",
           "MetricsAccumulator", "Partial", "Seconds", "carry_after", "classes_of", "join"]

COLUMNS = ["submit_ns", "latency_ns", "queue_ns", "length_bytes", "op", "flags", "status"]
VIEW_COLUMNS = ["offset_bytes", "tid", "device"]
RUN_COLUMNS = ["due_ns", "burst", "idle_removed_ns"]
# With at most this many rows in all, distributions store every value; otherwise bins, with an error below 1/256.
EXACT_ROWS = 4_000_000
# What, its parts, and the memory that a report takes for each of their numbers of 8 bytes, at its peak.
_STATES = (("threads", (native.THREADS,), 72), ("bursts", (native.BURSTS, native.PLANNED), 12),
           ("seconds", (native.SECONDS, native.KEEP_UP), 30), ("I/Os in flight", (native.DEPTH, native.CARRY), 30))
_VALUE_BYTES = 18  # of a value in an exact distribution


class MetricsAccumulator:
    """Reads the batches of one run in order of submit_ns; finish() returns its Partial.

    exact: store every value in distributions, not bins. carry: state after the previous part of the run
    (boundary_state.py). Batches have COLUMNS, RUN_COLUMNS if they are of a run, and VIEW_COLUMNS, which the heat maps
    and the sums per thread need. file_bytes: of the trace; its sums by thread, burst and second may take memory in
    proportion (state_limit.py); 0: without limit. files: number of traces that are compared. Raises TraceError beyond
    that, and for rows out of order or with impossible times, offsets or lengths.
    """

    def __init__(self, gap_ns: int = DEFAULT_GAP_NS, *, exact: bool = True, carry: Carry | None = None,
                 file_bytes: int = 0, files: int = 1) -> None:
        self._gap_ns = gap_ns
        self._file_bytes, self._files = file_bytes, files
        self._begin = carry or Carry()
        self._native = native.NativeMetrics(gap_ns, exact, carry)
        self._exact = [ValueCounts() for _ in range(native.DISTRIBUTIONS)] if exact else None

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        """Add a batch of arrays."""
        if len(columns["submit_ns"]):
            self._native.feed_arrays(columns)
            self._take()

    def feed_batch(self, batch: pa.RecordBatch) -> None:
        """Add an Arrow batch, without a copy."""
        if batch.num_rows:
            self._native.feed_batch(batch)
            self._take()

    def _take(self) -> None:
        if self._file_bytes:
            stored_bytes = {keys: bytes_each * self._native.lengths(*parts) for keys, parts, bytes_each in _STATES}
            stored_bytes["latencies or gaps"] = _VALUE_BYTES * sum(values.distinct for values in self._exact or ())
            largest = max(stored_bytes, key=lambda keys: stored_bytes[keys])
            check_state(sum(stored_bytes.values()), self._file_bytes, largest, self._files)
        if self._exact:
            for index, counts in enumerate(self._exact):
                counts.add(self._native.taken(index))

    def carry(self) -> Carry:
        """The boundary state after the rows so far, for the next part."""
        return Carry.of_numbers(self._native.read(native.CARRY))

    def finish(self) -> Partial:
        """The metrics of the rows so far. More batches may follow."""
        end = self.carry()
        threads = Threads.of_native(self._native.read(native.THREADS))
        busy_ns, _, idle_ns = self._native.read(native.SUMS, len(CLASSES))[6:].tolist()
        classes = {name: self._of_class(kind, end) for kind, name in enumerate(CLASSES)}
        write = classes["write"]
        return Partial(
            runs=1, gap_ns=self._gap_ns, **classes,
            busy_ns=busy_ns, makespan_ns=end.makespan_ns, idle_ns=idle_ns,
            keep_up=KeepUp.of_native(self._native.read(native.KEEP_UP)).judged(write.planned, write.unseen_bytes),
            lateness_host=self._distribution(native.LATENESS_HOST),
            lateness_device=self._distribution(native.LATENESS_DEVICE),
            depth=Depth(self._native.read(native.DEPTH, len(CLASSES))) + rest(end),
            workload_profile=workload_profile_of(self._distribution(native.SUBMIT_GAP),
                                                 self._distribution(native.IDLE_GAP), threads),
            alignment=Alignment.of_native(self._native.read(native.ALIGNMENT)),
            timeline=Timeline.of_native(self._native.read(native.TIMELINE), end.span_ns),
            heats=tuple(Heat.of_native(device, numbers) for device in range(HEAT_DEVICES)
                        if len(numbers := self._native.read(native.HEAT, device))), threads=threads,
            latency_points=LatencyPoints.of_native(self._native.read(native.LATENCY_POINTS)), begin=self._begin,
            end=end)

    def _of_class(self, kind: int, end: Carry) -> ClassPartial:
        (ops, length_bytes, error_ops, unseen_ops, unseen_bytes, service_ns, busy_ns, makespan_ns,
         wait_ns) = self._native.read(native.SUMS, kind).tolist()
        planned = BurstTable.of_native(*self._native.bursts(native.PLANNED, kind))
        return ClassPartial(
            ops, length_bytes, error_ops, unseen_ops, unseen_bytes, service_ns, busy_ns, makespan_ns, wait_ns,
            latency=self._distribution(native.LATENCY + kind),
            response=self._distribution(native.RESPONSE + kind), queue=self._distribution(native.QUEUE + kind),
            sizes=self._distribution(native.SIZE + kind),
            bursts=BurstTable.of_native(*self._native.bursts(native.BURSTS, kind)), planned=planned,
            late_bursts=late_starts(planned),
            seconds=Seconds.of_native(self._native.read(native.SECONDS, kind), end.span_ns),
            depth=Depth(self._native.read(native.DEPTH, kind)) + rest(end, kind))

    def _distribution(self, index: int) -> Distribution:
        if self._exact:
            return ValueCounts.of(*self._exact[index].items())
        numbers = self._native.read(native.HISTOGRAM, index)
        bins, counts, totals = numbers[4:].reshape(-1, 3).T
        return Histogram.of_bins(bins, counts, totals, int(numbers[2]), int(numbers[3]))
