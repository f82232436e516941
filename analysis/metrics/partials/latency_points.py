"""Latency of single I/Os over time, in a fixed number of cells: the size does not depend on the length of the trace.

native/latency_points.c fills the cells: columns of submit time, and rows of latency, 4 per power of two. Each cell has
its slowest I/O and the number of its I/Os. An I/O that is slow, or alone, is therefore always among the points.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blkreel.common.binning import LogLinearBins

from .record import Record

FIRST_WIDTH_NS = 1 << 16
_ROWS = 164
_BINS = LogLinearBins(2)

Numbers = npt.NDArray[np.int64]


def _none() -> Numbers:
    return np.empty(0, np.int64)


@dataclass(eq=False)
class LatencyPoints(Record):
    """One array element per cell with I/Os, by class, column and row. Columns are width_ns wide.

    kind: 0 for reads, 1 for writes. since_ns: submit of the slowest I/O of the cell since the first submit of the run,
    of equally slow ones the first. latency_ns: of that I/O. ops: number of I/Os in the cell.
    """

    width_ns: int = FIRST_WIDTH_NS
    kind: Numbers = field(default_factory=_none)
    since_ns: Numbers = field(default_factory=_none)
    latency_ns: Numbers = field(default_factory=_none)
    ops: Numbers = field(default_factory=_none)

    @classmethod
    def of_native(cls, numbers: Numbers) -> "LatencyPoints":
        """From PART_LATENCY_POINTS of native/metrics.h."""
        return cls(int(numbers[0]), *(column.copy() for column in numbers[1:].reshape(-1, 4).T))

    @property
    def count(self) -> int:
        return len(self.ops)

    def join(self, later: "LatencyPoints") -> "LatencyPoints":
        """Join two consecutive parts of one run."""
        points = LatencyPoints(max(self.width_ns, later.width_ns), *(
            np.concatenate([getattr(self, name), getattr(later, name)])
            for name in ("kind", "since_ns", "latency_ns", "ops")))
        return points._gathered(points.kind, points.since_ns // points.width_ns, points._rows())

    def thinned(self, most: int) -> "LatencyPoints":
        """At most `most` points. The rows of a class with the most points get wider columns first, so that dense areas
        become thin and rare latencies keep their points. Of more rows than `most`, those of the lowest latencies
        go."""
        groups = self.kind * _ROWS + self._rows()
        columns = self.since_ns // self.width_ns
        counts = np.bincount(groups, minlength=2 * _ROWS)
        while counts.sum() > most and counts.max() > 1:
            densest = groups == int(counts.argmax())
            columns[densest] //= 2
            counts[counts.argmax()] = len(np.unique(columns[densest]))
        thin = self._gathered(self.kind, columns, self._rows())
        slowest = np.sort(np.argsort(-thin.latency_ns, kind="stable")[:most])
        return thin._taken(slowest)

    def _rows(self) -> Numbers:
        rows: Numbers = np.minimum(_BINS.of(self.latency_ns), _ROWS - 1)
        return rows

    def _gathered(self, kind: Numbers, column: Numbers, row: Numbers) -> "LatencyPoints":
        """One point for each different kind, column and row: its slowest I/O, and the sum of its numbers of I/Os."""
        order = np.lexsort((self.since_ns, -self.latency_ns, row, column, kind))
        cells = np.column_stack([kind, column, row])[order]
        begins = np.flatnonzero(np.any(np.diff(cells, axis=0, prepend=-1) != 0, axis=1))
        if not len(begins):
            return self
        ops = np.add.reduceat(self.ops[order], begins)
        taken = self._taken(order[begins])
        return LatencyPoints(self.width_ns, taken.kind, taken.since_ns, taken.latency_ns, ops)

    def _taken(self, places: Numbers) -> "LatencyPoints":
        return LatencyPoints(self.width_ns, self.kind[places], self.since_ns[places], self.latency_ns[places],
                             self.ops[places])

