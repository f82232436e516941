"""The space of a drive that no I/O has touched."""

import numpy as np

_MOST_UNITS = 1 << 25
# Bounds of a search: ranges passed, and units outside the wanted region.
_MOST_STEPS = 128
_MOST_DISTANT_UNITS = 1 << 18
_USED, _FREE = b"\1", b"\0"


class FreeSpace:
    """Finds free ranges in memory of at most 32 MiB: one byte for each unit of unit_bytes, a power of two."""

    def __init__(self, capacity_bytes: int, unit_bytes: int):
        self.unit_bytes = unit_bytes
        while capacity_bytes > self.unit_bytes * _MOST_UNITS:
            self.unit_bytes *= 2
        self._units = -(-capacity_bytes // self.unit_bytes)
        self._used = bytearray(self._units)
        self._full: dict[int, int] = {}  # by begin of a region: the least number of units for which none is left

    def use(self, begin_bytes: int, end_bytes: int) -> None:
        """Mark the units of a range as used; what lies behind the capacity is left out."""
        begin, end = begin_bytes // self.unit_bytes, min(-(-end_bytes // self.unit_bytes), self._units)
        if begin < end:
            self._used[begin:end] = _USED * (end - begin)

    def allocate(self, near_bytes: np.ndarray, region_bytes: np.ndarray, length_bytes: np.ndarray) -> np.ndarray:
        """Use a free range near each wanted begin, one after the other, and return the begins.

        A range is the first behind the wanted begin in its region, else in the region, else outside. Where a bounded
        search finds none, it is the wanted one, which overlaps others. Positions within a unit stay.
        """
        used, all_units = self._used, self._units
        position_bytes = near_bytes % self.unit_bytes
        units_needed = -(-(length_bytes + position_bytes) // self.unit_bytes)
        begins = []
        for near, units, row in zip((near_bytes // self.unit_bytes).tolist(), units_needed.tolist(),
                                    range(len(near_bytes)), strict=True):
            begin = near
            if used.find(_USED, near, near + units) >= 0 or near + units > all_units:
                begin = self._nearest(near, int(near_bytes[row] // region_bytes[row] * region_bytes[row]),
                                      int(region_bytes[row]), units)
            end = min(begin + units, all_units)
            used[begin:end] = _USED * (end - begin)
            begins.append(begin)
        begin_bytes: np.ndarray = np.array(begins, np.int64) * self.unit_bytes + position_bytes
        return begin_bytes

    def _nearest(self, near: int, region: int, region_bytes: int, units: int) -> int:
        begin, end = region // self.unit_bytes, -(-(region + region_bytes) // self.unit_bytes)
        if units >= self._full.get(region, self._units + 1):
            return near
        for first, last in ((near, end), (begin, near), (end, end + _MOST_DISTANT_UNITS),
                            (max(begin - _MOST_DISTANT_UNITS, 0), begin)):
            at = self._first_free(first, min(last, self._units - units + 1), units)
            if at is not None:
                return at
        self._full[region] = units
        return near

    def _first_free(self, at: int, last: int, units: int) -> int | None:
        """The first of so many free units, begun before `last`."""
        for _ in range(_MOST_STEPS):
            if at >= last:
                break
            # The last obstacle, so that one step passes over all of them.
            obstacle = self._used.rfind(_USED, at, at + units)
            if obstacle < 0:
                return at
            free = self._used.find(_FREE, obstacle + 1, last)
            if free < 0:
                break
            at = free + 1  # not where a range ends: an I/O there would continue it
        return None
