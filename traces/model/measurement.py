"""One pass over a workload: what a model is fitted to, and what it is compared by."""

from collections.abc import Iterable, Iterator

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.traces.format.schema import OP_NAMES, OPS

from .arrivals import Arrivals, Histograms
from .placement import MOST_SAMPLED_IOS, Placement
from .workload_model import LATENCY_LENGTHS_BYTES, RATE_IOS

COLUMNS = ["submit_ns", "op", "offset_bytes", "length_bytes", "latency_ns"]
LENGTH_CLASSES = len(LATENCY_LENGTHS_BYTES) + 1
PIECE_IOS = 1024 * RATE_IOS
_DEEPEST = 1 << 16
_EXACT_LENGTHS_BYTES = 4 << 20
_LENGTH_BINS = LogLinearBins(5)

Columns = dict[str, np.ndarray]


class Measurement:
    """Takes I/Os in order of submission, in pieces of PIECE_IOS but for the last, as pieces() makes them.

    capacity_bytes, most_sampled_ios: as in Placement.
    """

    def __init__(self, capacity_bytes: int, ios: int, most_sampled_ios: int = MOST_SAMPLED_IOS):
        self.capacity_bytes = capacity_bytes
        self.arrivals = Arrivals()
        self.placement = Placement(capacity_bytes, ios, most_sampled_ios)
        self.latencies = Histograms(len(OPS) * LENGTH_CLASSES)
        self.lengths: dict[tuple[str, bool], dict[int, int]] = {}
        self.ios = np.zeros(len(OPS), np.int64)
        self.bytes = np.zeros(len(OPS), np.int64)
        self.depths = np.zeros(_DEEPEST + 1, np.int64)
        self._pending_ns = np.empty(0, np.int64)

    def add(self, columns: Columns) -> None:
        submit_ns, op, offset_bytes, length_bytes, latency_ns = (columns[name] for name in COLUMNS)
        sequential = self.placement.add(op, offset_bytes, length_bytes)
        self.arrivals.add(submit_ns, op, sequential)
        self.ios += np.bincount(op, minlength=len(OPS))
        for code in np.unique(op).tolist():
            rows = op == code
            self.bytes[code] += int(length_bytes[rows].sum())
            for kind in (False, True):
                self._count_lengths(OP_NAMES[code], kind, length_bytes[rows & (sequential == kind)])
        has_latency = latency_ns >= 0
        length_class = np.searchsorted(LATENCY_LENGTHS_BYTES, length_bytes[has_latency])
        self.latencies.add(op[has_latency].astype(np.int64) * LENGTH_CLASSES + length_class, latency_ns[has_latency])
        self._add_depth(submit_ns, latency_ns)

    def _count_lengths(self, op: str, sequential: bool, length_bytes: np.ndarray) -> None:
        if not len(length_bytes):
            return
        # Lengths that no application uses are rounded, so that their number is bounded.
        exact = (length_bytes % 512 == 0) & (length_bytes <= _EXACT_LENGTHS_BYTES)
        rounded = np.where(exact, length_bytes, _LENGTH_BINS.starts(_LENGTH_BINS.of(length_bytes)))
        counts = self.lengths.setdefault((op, sequential), {})
        for length, count in zip(*(part.tolist() for part in np.unique(rounded, return_counts=True)), strict=True):
            counts[length] = counts.get(length, 0) + count

    def _add_depth(self, submit_ns: np.ndarray, latency_ns: np.ndarray) -> None:
        """Counts the I/Os in flight that each I/O meets, itself included."""
        has_latency = latency_ns >= 0
        submit_ns, latency_ns = submit_ns[has_latency], latency_ns[has_latency]
        if not len(submit_ns):
            return
        ends_ns = np.sort(np.concatenate([self._pending_ns, submit_ns + latency_ns]))
        submitted = len(self._pending_ns) + np.arange(1, len(submit_ns) + 1)
        depth = submitted - np.searchsorted(ends_ns, submit_ns, "right")
        # An I/O without latency that was submitted at the same time counts as ended.
        self.depths += np.bincount(depth.clip(1, _DEEPEST), minlength=_DEEPEST + 1)
        # Of more I/Os in flight than are counted, those that end last: the number of them bounds memory and time.
        self._pending_ns = ends_ns[ends_ns > submit_ns[-1]][-_DEEPEST:]


def pieces(batches: Iterable[Columns]) -> Iterator[Columns]:
    """The same rows in pieces of PIECE_IOS, but for the last: rates are those of groups of RATE_IOS."""
    waiting: list[Columns] = []
    count = 0
    for batch in batches:
        waiting.append({name: batch[name] for name in COLUMNS})
        count += len(batch["submit_ns"])
        if count < PIECE_IOS:
            continue
        joined = _joined(waiting)
        whole = count - count % PIECE_IOS
        for begin in range(0, whole, PIECE_IOS):
            yield {name: values[begin:begin + PIECE_IOS] for name, values in joined.items()}
        waiting, count = [{name: values[whole:] for name, values in joined.items()}], count - whole
    if count:
        yield _joined(waiting)


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}


def measured(batches: Iterable[Columns], capacity_bytes: int, ios: int,
             most_sampled_ios: int = MOST_SAMPLED_IOS) -> Measurement:
    result = Measurement(capacity_bytes, ios, most_sampled_ios)
    for piece in pieces(batches):
        result.add(piece)
    return result
