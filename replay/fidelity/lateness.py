"""Lateness of issued I/Os: nearest-rank percentiles of any number of them in fixed memory."""

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.traces.format import metadata_types
from blkreel.traces.format.schema import FLAGS

# Below 1 ms each nanosecond is one class, so that the percentiles of a verdict are exact. Above, a percentile is
# rounded down by at most 1/1024. The maximum is exact.
_EXACT_NS = 1 << 20
_BINS = LogLinearBins(10)
_FIRST_BIN = int(_BINS.of(np.array([_EXACT_NS]))[0])
_BLOCK = 1024  # classes
_BIN_COUNT = int(_BINS.of(np.array([1 << 61]))[0]) - _FIRST_BIN

# Limits of a rate that calibration accepts, and of a late I/O (docs/replay.md, "Causes of late I/O").
HOST_P99_LIMIT_NS = 100_000
HOST_MAX_LIMIT_NS = 10_000_000
DRIFT_LIMIT_NS = 1_000_000
_TAIL_IOS = 64


class Histogram:
    """Counts of non-negative times."""

    def __init__(self) -> None:
        self.total = 0
        self.max_ns = 0
        self._counts = np.zeros(_EXACT_NS + _BIN_COUNT, np.int64)
        # To sum up all classes takes milliseconds and 8 MB of memory, beside the replay.
        self._block_counts = np.zeros(-(-len(self._counts) // _BLOCK), np.int64)

    def add(self, values_ns: np.ndarray) -> None:
        if not len(values_ns):
            return
        self.total += len(values_ns)
        self.max_ns = max(self.max_ns, int(values_ns.max()))
        classes = np.where(values_ns < _EXACT_NS, values_ns, _EXACT_NS - _FIRST_BIN + _BINS.of(values_ns))
        np.add.at(self._counts, classes, 1)
        np.add.at(self._block_counts, classes // _BLOCK, 1)

    def percentile_ns(self, per_mille: int) -> int | None:
        """The value at rank ceil(n p), p in thousandths; None without values."""
        if not self.total:
            return None
        rank = -(-self.total * per_mille // 1000)
        block = int(np.searchsorted(np.cumsum(self._block_counts), rank))
        rank_in_block = rank - int(self._block_counts[:block].sum())
        start = block * _BLOCK
        index = start + int(np.searchsorted(np.cumsum(self._counts[start:start + _BLOCK]), rank_in_block))
        return index if index < _EXACT_NS else int(_BINS.starts(np.array(index - _EXACT_NS + _FIRST_BIN)))


class Lateness:
    """Lateness of I/Os with a deadline.

    With a full queue the drive delayed the I/O (device-limited), otherwise this machine did (host-limited).
    """

    def __init__(self) -> None:
        self._all, self._host = Histogram(), Histogram()
        self._queue_full = self._host_late = 0
        self._tail_due_ns = self._tail_late_ns = np.empty(0, np.int64)

    def add(self, due_ns: np.ndarray, submit_ns: np.ndarray, flags: np.ndarray) -> None:
        timed = due_ns >= 0
        due_ns, flags = due_ns[timed], flags[timed]
        late_ns = np.maximum(submit_ns[timed] - due_ns, 0)
        host = (flags & FLAGS["queue_full"]) == 0
        self._all.add(late_ns)
        self._host.add(late_ns[host])
        self._queue_full += int((~host).sum())
        self._host_late += int((late_ns[host] > HOST_P99_LIMIT_NS).sum())
        self._keep_tail(due_ns[host], late_ns[host])

    @property
    def max_ns(self) -> int:
        return self._all.max_ns

    def account(self) -> metadata_types.Lateness | None:
        """None if no I/O had a deadline."""
        if not self._all.total:
            return None
        return {"p50_ns": self._all.percentile_ns(500) or 0, "p99_ns": self._all.percentile_ns(990) or 0,
                "max_ns": self._all.max_ns, "host_p99_ns": self._host.percentile_ns(990) or 0,
                "host_max_ns": self._host.max_ns, "queue_full_ops": self._queue_full,
                "host_late_ops": self._host_late}

    def drift_ns(self) -> int:
        """How far the replay was behind its plan at the end: the least lateness of the last I/Os.

        A drift delays all of them; a single interruption delays a few, and counts as their lateness only.
        """
        return int(self._tail_late_ns.min()) if len(self._tail_late_ns) else 0

    def _keep_tail(self, due_ns: np.ndarray, late_ns: np.ndarray) -> None:
        due_ns = np.concatenate([self._tail_due_ns, due_ns])
        late_ns = np.concatenate([self._tail_late_ns, late_ns])
        last = np.argsort(due_ns, kind="stable")[-_TAIL_IOS:]
        self._tail_due_ns, self._tail_late_ns = due_ns[last], late_ns[last]
