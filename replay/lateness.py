"""How late I/Os were issued: nearest-rank percentiles over any number of them in fixed memory."""

import numpy as np

from blkreel.traces.schema import FLAGS

# Below, each nanosecond is counted by itself, so that the percentiles a verdict hangs on are exact; above,
# a percentile is rounded down by at most one part in 1024. The maximum is always exact.
_EXACT_NS = 1 << 20
_EXACT_BITS = 20
_SUB_BITS = 10
_OCTAVES = 42

# What a run may not exceed (docs/method.md, "Verdict on a run").
HOST_P99_LIMIT_NS = 100_000
HOST_MAX_LIMIT_NS = 10_000_000
DRIFT_LIMIT_NS = 1_000_000
_TAIL_IOS = 64


class Histogram:
    """Counts of non-negative times."""

    def __init__(self):
        self.total = 0
        self.max_ns = 0
        self._counts = np.zeros(_EXACT_NS + (_OCTAVES << _SUB_BITS), np.int64)

    def add(self, values_ns: np.ndarray) -> None:
        if not len(values_ns):
            return
        self.total += len(values_ns)
        self.max_ns = max(self.max_ns, int(values_ns.max()))
        octave = np.maximum(np.frexp(values_ns.astype(np.float64))[1] - 1, _EXACT_BITS)
        coarse = ((octave - _EXACT_BITS) << _SUB_BITS) + (values_ns >> (octave - _SUB_BITS)) - (1 << _SUB_BITS)
        np.add.at(self._counts, np.where(values_ns < _EXACT_NS, values_ns, _EXACT_NS + coarse), 1)

    def percentile_ns(self, per_mille: int) -> int | None:
        """The value at rank ceil(n p), p in thousandths; None of nothing."""
        if not self.total:
            return None
        rank = -(-self.total * per_mille // 1000)
        index = int(np.searchsorted(np.cumsum(self._counts), rank))
        if index < _EXACT_NS:
            return index
        octave, sub = divmod(index - _EXACT_NS, 1 << _SUB_BITS)
        return (sub + (1 << _SUB_BITS)) << (octave + _EXACT_BITS - _SUB_BITS)


class Lateness:
    """Of I/Os with a deadline: how late each was issued, and whose doing that was.

    Late because the replay's queue was full: the drive had not finished earlier ones (device-limited). Late
    otherwise: this machine was (host-limited).
    """

    def __init__(self):
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

    def account(self) -> dict | None:
        """As a run's metadata tells it; None where no I/O had a deadline."""
        if not self._all.total:
            return None
        return {"p50_ns": self._all.percentile_ns(500), "p99_ns": self._all.percentile_ns(990),
                "max_ns": self._all.max_ns, "host_p99_ns": self._host.percentile_ns(990) or 0,
                "host_max_ns": self._host.max_ns, "queue_full_ops": self._queue_full,
                "host_late_ops": self._host_late}

    def drift_ns(self) -> int:
        """How far the replay's clock had fallen behind the plan's at the end.

        The least lateness of the last I/Os: a drift moves all of them, while a single interruption of this
        machine moves a few, and counts as their lateness.
        """
        return int(self._tail_late_ns.min()) if len(self._tail_late_ns) else 0

    def _keep_tail(self, due_ns, late_ns):
        due_ns = np.concatenate([self._tail_due_ns, due_ns])
        late_ns = np.concatenate([self._tail_late_ns, late_ns])
        last = np.argsort(due_ns, kind="stable")[-_TAIL_IOS:]
        self._tail_due_ns, self._tail_late_ns = due_ns[last], late_ns[last]
