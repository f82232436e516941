"""Distributions of times in bounded memory."""

import numpy as np

from blkreel.common.binning import LogLinearBins

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
