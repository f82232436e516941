"""What background writes do to each read: its latency against what was written just before it, and is in flight.

For a read submitted at s, only rows of its drive before it in the file count, so that any split into batches gives the
same:

I/Os without completion are left out, reads as writes: whether the drive carried them out is unknown.

- written in the last X: bytes of the writes submitted in (s − X, s]. In an open-loop replay (original, scaled) the
  plan decides that, not the drive: of two drives under one plan it is a cause.
- in flight: writes with submit ≤ s < complete. A drive that stalls keeps writes and delays the read: this goes along
  with latency, and is partly its result. It is no cause.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blkreel.analysis.metrics.partials.distributions import PERCENTILES, ValueCounts
from blkreel.common.binning import LogLinearBins
from blkreel.common.verdict import enough
from blkreel.traces.format.exposure import COLUMNS
from blkreel.traces.format.schema import FLAGS, OPS, WRITE_CODES
from blkreel.traces.format.trace import Trace

Document = dict[str, Any]  # as in the JSON document

WINDOWS_NS = (10_000_000, 100_000_000, 1_000_000_000)
_BINS = LogLinearBins(7)
ERROR = 1 / 256  # of a percentile: latencies count as the middle of their bin
_FEWEST = 10  # reads from which on a correlation is given


@dataclass
class Against:
    """Latencies of reads by what stood against them: bins of none, 1, 2 to 3, 4 to 7 and so on."""

    bins: dict[int, ValueCounts] = field(default_factory=dict)
    totals_ns: dict[int, int] = field(default_factory=dict)
    sums: list[float] = field(default_factory=lambda: [0, 0.0, 0.0, 0.0, 0.0])  # n, Σx, Σy, Σxx, Σxy

    def add(self, x: np.ndarray, latency_ns: np.ndarray) -> None:
        bins, middles = np.frexp(x.astype(float))[1], _BINS.middles(_BINS.of(latency_ns))
        for index in np.unique(bins).tolist():
            in_bin = bins == index
            self.bins.setdefault(index, ValueCounts()).add(middles[in_bin])
            self.totals_ns[index] = self.totals_ns.get(index, 0) + int(latency_ns[in_bin].sum())
        x, y = x.astype(float), latency_ns.astype(float)
        for place, value in enumerate((len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum())):
            self.sums[place] += value

    def __add__(self, other: "Against") -> "Against":
        keys = sorted(self.bins.keys() | other.bins.keys())
        return Against({key: self.bins.get(key, ValueCounts()) + other.bins.get(key, ValueCounts()) for key in keys},
                       {key: self.totals_ns.get(key, 0) + other.totals_ns.get(key, 0) for key in keys},
                       [a + b for a, b in zip(self.sums, other.sums, strict=True)])

    def document(self) -> Document:
        """from is in the bin, to is not. slope: ns of latency a unit, by least squares over single reads."""
        n, x, y, xx, xy = self.sums
        spread = n * xx - x * x
        rows = []
        for index, values in sorted(self.bins.items()):
            count = values.count
            rows.append({"from": 1 << index - 1 if index else 0, "to": 1 << index, "n": count,
                         "mean_ns": self.totals_ns[index] / count,
                         **{f"{name}_ns": values.percentile(PERCENTILES[name]) if enough(count, PERCENTILES[name])
                            else None for name in ("p50", "p99")}})
        return {"bins": rows, "slope_ns": (n * xy - x * y) / spread if spread > 0 and len(self.bins) > 1 else None,
                "rank_correlation": self._rank_correlation()}

    def _rank_correlation(self) -> float | None:
        """Spearman's, of the bins and the classes of latency: those in one share the middle of their ranks."""
        if len(self.bins) < 2 or self.sums[0] < _FEWEST:
            return None
        items = [self.bins[index].items() for index in sorted(self.bins)]
        latencies = np.unique(np.concatenate([values for values, _ in items]))
        by_latency, by_bin = np.zeros(len(latencies)), np.array([counts.sum() for _, counts in items], float)
        places = [np.searchsorted(latencies, values) for values, _ in items]
        for place, (_, counts) in zip(places, items, strict=True):
            by_latency[place] += counts
        rank_x, rank_y = (np.cumsum(counts) - (counts + self.sums[0]) / 2 for counts in (by_bin, by_latency))
        covered = sum(rank * (counts * rank_y[place]).sum()
                      for rank, place, (_, counts) in zip(rank_x, places, items, strict=True))
        scale = np.sqrt((by_bin * rank_x**2).sum() * (by_latency * rank_y**2).sum())
        return float(covered / scale) if scale else None


@dataclass
class _Writes:
    """Of one drive: those of the longest window, and the completions of those in flight."""

    submit_ns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    length_bytes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    outstanding_ns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


class Interference:
    """Fed the batches of one run in order of submit_ns. It stores the writes of the longest window, by drive."""

    def __init__(self, windows_ns: tuple[int, ...] = WINDOWS_NS) -> None:
        self.windows_ns = tuple(windows_ns)
        self.reads = self.writes = 0
        self.windows = [Against() for _ in self.windows_ns]
        self.in_flight = Against()
        self._writes: dict[int, _Writes] = {}  # by device

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        """Take in a batch: COLUMNS."""
        for device in np.unique(columns["device"]).tolist():
            on_drive = columns["device"] == device
            self._feed_drive(self._writes.setdefault(device, _Writes()),
                             {name: column[on_drive] for name, column in columns.items()})

    def _feed_drive(self, writes: _Writes, columns: dict[str, np.ndarray]) -> None:
        submit_ns, latency_ns, op = columns["submit_ns"], columns["latency_ns"], columns["op"]
        is_write, is_read = (np.isin(op, codes) & (latency_ns >= 0) for codes in (WRITE_CODES, OPS["read"]))
        is_read &= (columns["flags"] & FLAGS["role_background"]) == 0
        written_ns = np.concatenate([writes.submit_ns, submit_ns[is_write]])
        written_bytes = np.concatenate([writes.length_bytes, columns["length_bytes"][is_write]])
        # A write with latency 0 was never in flight.
        completes = is_write & (latency_ns > 0)
        outstanding = np.concatenate([writes.outstanding_ns, (submit_ns + latency_ns)[completes]])
        if is_read.any():
            read_ns, taken_ns = submit_ns[is_read], latency_ns[is_read]
            before = len(writes.submit_ns) + np.cumsum(is_write)[is_read]
            sums = np.concatenate([[0], np.cumsum(written_bytes)])
            for window_ns, against in zip(self.windows_ns, self.windows, strict=True):
                begin = np.searchsorted(written_ns, read_ns - window_ns, side="right")
                against.add(sums[before] - sums[np.minimum(begin, before)], taken_ns)
            issued = len(writes.outstanding_ns) + np.cumsum(completes)[is_read]
            done = np.searchsorted(np.sort(outstanding), read_ns, side="right")
            self.in_flight.add(issued - done, taken_ns)
        last_ns = int(submit_ns[-1])
        self.reads, self.writes = self.reads + int(is_read.sum()), self.writes + int(is_write.sum())
        near = written_ns > last_ns - max(self.windows_ns)
        writes.submit_ns, writes.length_bytes = written_ns[near], written_bytes[near]
        writes.outstanding_ns = outstanding[outstanding > last_ns]

    def __add__(self, other: "Interference") -> "Interference":
        """Of two whole runs: reads pool one by one."""
        total = Interference(self.windows_ns)
        total.reads, total.writes = self.reads + other.reads, self.writes + other.writes
        total.windows = [a + b for a, b in zip(self.windows, other.windows, strict=True)]
        total.in_flight = self.in_flight + other.in_flight
        return total

    def document(self) -> Document:
        """As the document has it. from, to: bytes in the windows, writes in flight; slope_ns: a byte, a write."""
        return {"reads": self.reads, "writes": self.writes, "error": ERROR,
                "windows": [{"window_ns": window_ns, **against.document()}
                            for window_ns, against in zip(self.windows_ns, self.windows, strict=True)],
                "in_flight": self.in_flight.document()}


def interference(trace: Trace, windows_ns: tuple[int, ...] = WINDOWS_NS) -> Interference:
    """Of one open trace or run, read batch by batch. Raises TraceError."""
    result = Interference(windows_ns)
    for batch in trace.batches(COLUMNS):
        result.feed({name: batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS})
    return result
