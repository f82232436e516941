"""Groups of values: added up, by their keys, and in log-linear bins of integers, the one binning of every distribution.

traces/native/binning.h has the same bins in C.
"""

import operator
from collections.abc import Iterable
from functools import reduce
from typing import TypeVar

import numpy as np

_K = TypeVar("_K")
_V = TypeVar("_V")


def grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """The values of each key in the order of the pairs, and the keys in that of their first values."""
    groups: dict[_K, list[_V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def sum_of(parts: Iterable[_V]) -> _V:
    """Of one part or more, of a type that has no zero."""
    return reduce(operator.add, parts)


class LogLinearBins:
    """2^bits bins per power of two; each integer below 2^(bits + 1) has its own bin.

    A bin is at most 2^-bits of its values wide. Numbers of bins ascend with the values, which are 0 to 2^62.
    """

    def __init__(self, bits: int):
        self.bits = bits

    def of(self, values: np.ndarray) -> np.ndarray:
        """The number of each value's bin."""
        values = np.asarray(values, np.int64)
        power = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
        # As floats, numbers just below a power of two above 2^53 round up to it.
        power -= (values >> np.maximum(power, 0) == 0) & (values > 0)
        octave = np.maximum(power - self.bits, 0)
        bins: np.ndarray = (octave << self.bits) + (values >> octave)
        return bins

    def starts(self, bins: np.ndarray) -> np.ndarray:
        """The least value of each bin."""
        bins = np.asarray(bins, np.int64)
        octave = self._octaves(bins)
        starts: np.ndarray = (bins - (octave << self.bits)) << octave
        return starts

    def middles(self, bins: np.ndarray) -> np.ndarray:
        """The middle of each bin, rounded down; the value itself where a bin has only one."""
        bins = np.asarray(bins, np.int64)
        middles: np.ndarray = self.starts(bins) + ((1 << self._octaves(bins)) >> 1)
        return middles

    def _octaves(self, bins: np.ndarray) -> np.ndarray:
        octaves: np.ndarray = np.maximum((bins >> self.bits) - 1, 0)
        return octaves
