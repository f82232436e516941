"""When a workload submits: gaps, their order as a Markov chain, and how counts vary over windows."""

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.traces.format.schema import OP_NAMES, OPS

from .workload_model import GAP_BOUNDS_NS, GAP_CLASSES, RATE_CLASSES, RATE_IOS, State

_BINS = LogLinearBins(5)
_COUNT = int(_BINS.of(np.array([(1 << 62) - 1]))[0]) + 1


class Histograms:
    """Several distributions of values from 0 to 2^62, in bins at most 3 % wide; the mean of a bin is exact."""

    def __init__(self, groups: int):
        self.counts = np.zeros((groups, _COUNT), np.int64)
        self._sums = np.zeros((groups, _COUNT), np.float64)

    def add(self, groups: np.ndarray, values: np.ndarray) -> None:
        """groups: the number of each value's distribution."""
        keys, at = np.unique(groups.astype(np.int64) * _COUNT + _BINS.of(values), return_inverse=True)
        self.counts.reshape(-1)[keys] += np.bincount(at, minlength=len(keys))
        self._sums.reshape(-1)[keys] += np.bincount(at, values.astype(np.float64), len(keys))

    def equally_likely(self, group: int, most: int) -> list[int]:
        """The distribution as at most `most` values of equal probability, each the mean of its share; [] if empty."""
        total = int(self.counts[group].sum())
        if not total:
            return []
        edges = np.concatenate([[0], np.cumsum(self.counts[group])])
        sums = np.concatenate([[0.0], np.cumsum(self._sums[group])])
        parts = min(most, total)
        values = np.diff(np.interp(np.linspace(0, total, parts + 1), edges, sums)) * parts / total
        if values.max() - values.min() < 1:
            values = values[:1]
        return [int(value) for value in np.rint(values)]

    def quantile(self, share: float) -> float | None:
        """Of all groups together, nearest rank, as the mean of the bin; None if empty."""
        counts = self.counts.sum(axis=0)
        total = int(counts.sum())
        if not total:
            return None
        at = int(np.searchsorted(np.cumsum(counts), max(1, np.ceil(share * total))))
        return float(self._sums[:, at].sum() / counts[at])

WINDOWS_NS = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
_LEAST_WINDOWS = 10
_CODES = len(OPS) * 2 * GAP_CLASSES * RATE_CLASSES


class Arrivals:
    """Takes I/Os in order of submission, in pieces whose length, but for the last, is a multiple of RATE_IOS."""

    def __init__(self) -> None:
        self.gaps = Histograms(GAP_CLASSES)
        self.first_ns = self._last_ns = -1
        self._first_code = self._last_code = -1
        self._transitions: dict[int, int] = {}
        self._last_exit: dict[int, int] = {}
        self._windows = {window_ns: _Window(window_ns) for window_ns in WINDOWS_NS}

    def add(self, submit_ns: np.ndarray, op: np.ndarray, sequential: np.ndarray) -> None:
        if self.first_ns < 0:
            self.first_ns = self._last_ns = int(submit_ns[0])
        gaps_ns = np.diff(submit_ns, prepend=self._last_ns)
        classes = np.searchsorted(GAP_BOUNDS_NS, gaps_ns, "right")
        gap_rows = slice(1 if self._first_code < 0 else 0, None)
        self.gaps.add(classes[gap_rows], gaps_ns[gap_rows])
        blocks = np.arange(len(gaps_ns)) // RATE_IOS
        mean_ns = np.bincount(blocks, gaps_ns) / np.bincount(blocks)
        rate = (np.searchsorted(GAP_BOUNDS_NS, mean_ns, "right") // 2)[blocks]
        codes = ((op.astype(np.int64) * 2 + sequential) * GAP_CLASSES + classes) * RATE_CLASSES + rate
        self._follow(codes)
        for window in self._windows.values():
            window.add(submit_ns - self.first_ns)
        self._last_ns = int(submit_ns[-1])

    def _follow(self, codes: np.ndarray) -> None:
        if self._first_code < 0:
            self._first_code = int(codes[0])
        else:
            codes = np.concatenate([[self._last_code], codes])
        self._last_code = int(codes[-1])
        pairs, counts = np.unique(codes[:-1] * _CODES + codes[1:], return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            self._transitions[pair] = self._transitions.get(pair, 0) + count
        left, at = np.unique(codes[:-1][::-1], return_index=True)
        self._last_exit |= zip(left.tolist(), codes[1:][::-1][at].tolist(), strict=True)

    @property
    def duration_ns(self) -> int:
        return self._last_ns - self.first_ns

    def fano_factor(self, window_ns: int) -> float | None:
        return self._windows[window_ns].fano_factor(self.duration_ns)

    def chain(self) -> tuple[list[State], list[list[int]], list[int], int]:
        """States, transitions, last exits and the first state, as in WorkloadModel."""
        codes = sorted({self._first_code, self._last_code, *(pair // _CODES for pair in self._transitions)})
        number = {code: position for position, code in enumerate(codes)}
        transitions = [[number[pair // _CODES], number[pair % _CODES], count]
                       for pair, count in sorted(self._transitions.items())]
        exits = [number[self._last_exit[code]] if code in self._last_exit else -1 for code in codes]
        return [_state(code) for code in codes], transitions, exits, number[self._first_code]


def _state(code: int) -> State:
    code, rate_class = divmod(code, RATE_CLASSES)
    code, gap_class = divmod(code, GAP_CLASSES)
    return State(OP_NAMES[code // 2], bool(code % 2), gap_class, rate_class)


class _Window:
    """Counts of I/Os in consecutive windows."""

    def __init__(self, window_ns: int):
        self._window_ns = window_ns
        self._open = 0
        self._open_count = 0
        self._squares = 0
        self._ios = 0

    def add(self, elapsed_ns: np.ndarray) -> None:
        numbers, counts = np.unique(elapsed_ns // self._window_ns, return_counts=True)
        if numbers[0] == self._open:
            counts[0] += self._open_count
        else:
            self._close(self._open_count)
        self._close(counts[:-1])
        self._open, self._open_count = int(numbers[-1]), int(counts[-1])

    def _close(self, counts: np.ndarray | int) -> None:
        self._ios += int(np.sum(counts))
        self._squares += int(np.sum(np.square(counts)))

    def fano_factor(self, duration_ns: int) -> float | None:
        """Variance / mean of the counts of whole windows; None with too few windows."""
        windows = duration_ns // self._window_ns
        if windows < _LEAST_WINDOWS or not self._ios:
            return None
        mean = self._ios / windows
        return (self._squares / windows - mean * mean) / mean
