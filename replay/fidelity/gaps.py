"""Gaps between submissions, compared with the plan's: added up as records pass, in bounded memory."""

from typing import NamedTuple

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.traces.format import metadata_types

# Two rows submitted by one call have one time stamp, so gaps below 1 us are one class.
_LEAST_NS = 1024
_BINS = LogLinearBins(5)
_FIRST_BIN = int(_BINS.of(np.array([_LEAST_NS]))[0])
_BIN_COUNT = int(_BINS.of(np.array([1 << 55]))[0]) - _FIRST_BIN
_STARTS_NS = np.concatenate([[0], _BINS.starts(_FIRST_BIN + np.arange(_BIN_COUNT))])  # of each class

# A row that takes longer than this to complete, or that so many others overtook, is misplaced.
WINDOW_NS = 10**9
WINDOW_ROWS = 1 << 18
_SORT_ROWS = 1 << 16


class SubmitTimes(NamedTuple):
    """other_columns: more columns of the same rows."""

    submit_ns: np.ndarray
    due_ns: np.ndarray
    complete_ns: np.ndarray
    other_columns: tuple[np.ndarray, ...] = ()


class InSubmitOrder:
    """Sorts rows by submission within a window: take() returns them later, in that order.

    misplaced: rows that came after a row with a later submission had been returned.
    """

    def __init__(self) -> None:
        self.misplaced = 0
        self._waiting: list[list[np.ndarray]] = []
        self._count, self._sort_at = 0, _SORT_ROWS
        self._until_ns = np.iinfo(np.int64).min

    def take(self, submit_ns: np.ndarray, due_ns: np.ndarray, complete_ns: np.ndarray,
             until_ns: int, *other_columns: np.ndarray) -> SubmitTimes | None:
        """Rows submitted before until_ns, which no later call precedes; None while there are too few."""
        self._waiting.append([column.copy() for column in (submit_ns, due_ns, complete_ns, *other_columns)])
        self._count += len(submit_ns)
        return self._sorted(until_ns) if self._count >= self._sort_at else None

    def drain(self) -> SubmitTimes | None:
        """All remaining rows."""
        return self._sorted(np.iinfo(np.int64).max) if self._count else None

    def _sorted(self, until_ns: int) -> SubmitTimes | None:
        columns = [np.concatenate(parts) for parts in zip(*self._waiting, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        columns = [column[order] for column in columns]
        count = int(np.searchsorted(columns[0], until_ns))
        if len(order) - count > WINDOW_ROWS:
            count = len(order) - WINDOW_ROWS // 2
        self._waiting = [[column[count:] for column in columns]]
        self._count = len(order) - count
        # The rest is sorted again, but not before as many rows have been added.
        self._sort_at = min(max(_SORT_ROWS, 2 * self._count), WINDOW_ROWS + _SORT_ROWS)
        if not count:
            return None
        self.misplaced += int(np.searchsorted(columns[0][:count], self._until_ns))
        self._until_ns = max(self._until_ns, int(columns[0][count - 1]))
        submit_ns, due_ns, complete_ns, *other_columns = (column[:count] for column in columns)
        return SubmitTimes(submit_ns, due_ns, complete_ns, tuple(other_columns))


class Gaps:
    """Counts of gaps in classes of 1/32 relative width; gaps below 1 us are one class."""

    def __init__(self) -> None:
        self.total = self.sum_ns = 0
        self.counts = np.zeros(len(_STARTS_NS), np.int64)

    def add(self, gaps_ns: np.ndarray) -> None:
        gaps_ns = np.maximum(gaps_ns, 0)
        classes = np.where(gaps_ns < _LEAST_NS, 0, 1 - _FIRST_BIN + _BINS.of(gaps_ns))
        self.counts += np.bincount(np.minimum(classes, len(self.counts) - 1), minlength=len(self.counts))
        self.total += len(gaps_ns)
        self.sum_ns += int(gaps_ns.sum())

    def percentile_ns(self, per_mille: int) -> int:
        """The value at rank ceil(n p), rounded down to its class; 0 below 1 us."""
        rank = -(-self.total * per_mille // 1000)
        return int(_STARTS_NS[int(np.searchsorted(np.cumsum(self.counts), rank))])

    def account(self) -> metadata_types.Gaps:
        return {"mean_ns": self.sum_ns // self.total, "p50_ns": self.percentile_ns(500),
                "p99_ns": self.percentile_ns(990)}


def distance(a: Gaps, b: Gaps) -> tuple[float, float]:
    """Of the two distribution functions: (the Kolmogorov-Smirnov statistic, the area between them in ns).

    The area is the mean difference between gaps of the same rank.
    """
    difference = np.abs(np.cumsum(a.counts) / a.total - np.cumsum(b.counts) / b.total)
    return float(difference.max()), float((difference[:-1] * np.diff(_STARTS_NS)).sum())


class Arrivals:
    """Gaps of rows with a deadline: between their submissions, and between their deadlines."""

    def __init__(self) -> None:
        self._issued, self._planned, self._changed = Gaps(), Gaps(), Gaps()
        self._last: tuple[int, int, int] | None = None
        self._max_change_ns = 0

    def add(self, submit_ns: np.ndarray, due_ns: np.ndarray) -> None:
        """Rows in the order of submission."""
        timed = due_ns >= 0
        submit_ns, due_ns = submit_ns[timed], due_ns[timed]
        if not len(submit_ns):
            return
        late_ns = submit_ns - due_ns
        ordered_ns = np.sort(due_ns, kind="stable")  # fast for nearly sorted values
        if self._last is not None:
            last_submit_ns, last_due_ns, last_late_ns = self._last
            submit_ns = np.concatenate([[last_submit_ns], submit_ns])
            ordered_ns = np.concatenate([[last_due_ns], ordered_ns])
            late_ns = np.concatenate([[last_late_ns], late_ns])
        self._last = int(submit_ns[-1]), int(ordered_ns[-1]), int(late_ns[-1])
        changed_ns = np.abs(np.diff(late_ns))
        self._issued.add(np.diff(submit_ns))
        self._planned.add(np.diff(ordered_ns))
        self._changed.add(changed_ns)
        self._max_change_ns = max(self._max_change_ns, int(changed_ns.max(initial=0)))

    def account(self) -> metadata_types.Arrivals | None:
        """None for fewer than two rows with a deadline."""
        if not self._issued.total:
            return None
        ks, area_ns = distance(self._issued, self._planned)
        return {"gaps": self._issued.total, "planned": self._planned.account(), "issued": self._issued.account(),
                "ks": round(ks, 4), "mean_shift_ns": round(area_ns),
                "changed": {"p50_ns": self._changed.percentile_ns(500), "p99_ns": self._changed.percentile_ns(990),
                            "max_ns": self._max_change_ns}}
