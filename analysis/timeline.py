"""A run over time, reduced while it is read: memory and marks stay the same however long the trace is.

native/views.c fills the bins. They are 1 ms wide until more are needed than there are; then they double, neighbours
adding up, so that any split into parts ends in the same bins.
"""

from dataclasses import dataclass, field

import numpy as np

MAX_BINS = 400
FIRST_WIDTH_NS = 1_000_000
HEAT_ROWS, HEAT_COLUMNS = 32, 64
HEAT_FIRST_BYTES = 1 << 20
DATA_CLASSES = ("read", "write")


@dataclass(eq=False)
class Timeline:
    """Bytes and I/Os completed per bin, reads and writes apart: arrays of (2, MAX_BINS). Time counts from the first
    submit of the run, and span_ns is from there to the last completion; None where there was none."""

    width_ns: int = FIRST_WIDTH_NS
    bytes: np.ndarray = field(default_factory=lambda: np.zeros((len(DATA_CLASSES), MAX_BINS), np.int64))
    ops: np.ndarray = field(default_factory=lambda: np.zeros((len(DATA_CLASSES), MAX_BINS), np.int64))
    span_ns: int | None = None

    @classmethod
    def of_native(cls, numbers: np.ndarray, span_ns: int | None) -> "Timeline":
        """From PART_TIMELINE of native/metrics.h."""
        bins = numbers[1:].reshape(2, len(DATA_CLASSES), MAX_BINS)
        return cls(int(numbers[0]), bins[0].copy(), bins[1].copy(), span_ns)

    def coarsen(self) -> None:
        """Bins twice as wide. Runs that are drawn on one time scale are brought to the same width with it."""
        self.width_ns *= 2
        self.bytes, self.ops = _paired(self.bytes, 1), _paired(self.ops, 1)

    @property
    def used(self) -> int:
        """How many bins the run spans."""
        return 0 if self.span_ns is None else self.span_ns // self.width_ns + 1

    def copy(self) -> "Timeline":
        return Timeline(self.width_ns, self.bytes.copy(), self.ops.copy(), self.span_ns)

    def join(self, later: "Timeline") -> "Timeline":
        """Of two parts of one run, that count from the same origin."""
        mine, theirs = self.copy(), later.copy()
        for line, other in ((mine, theirs), (theirs, mine)):
            while line.width_ns < other.width_ns:
                line.coarsen()
        spans = [each.span_ns for each in (self, later) if each.span_ns is not None]
        return Timeline(mine.width_ns, mine.bytes + theirs.bytes, mine.ops + theirs.ops, max(spans, default=None))

    def __eq__(self, other) -> bool:
        return (isinstance(other, Timeline) and (self.width_ns, self.span_ns) == (other.width_ns, other.span_ns)
                and np.array_equal(self.bytes, other.bytes) and np.array_equal(self.ops, other.ops))

    __hash__ = None


@dataclass(eq=False)
class Heat:
    """Bytes by place on the device and by the time of their submit, from the first of the run; reads and writes apart.

    cells: (2, HEAT_ROWS, HEAT_COLUMNS), each height_bytes by width_ns.
    """

    width_ns: int = FIRST_WIDTH_NS
    height_bytes: int = HEAT_FIRST_BYTES
    cells: np.ndarray = field(default_factory=lambda: np.zeros((len(DATA_CLASSES), HEAT_ROWS, HEAT_COLUMNS), np.int64))

    @classmethod
    def of_native(cls, numbers: np.ndarray) -> "Heat":
        """From PART_HEAT of native/metrics.h."""
        cells = numbers[2:].reshape(len(DATA_CLASSES), HEAT_ROWS, HEAT_COLUMNS)
        return cls(int(numbers[0]), int(numbers[1]), cells.copy())

    def _with(self, width_ns, height_bytes):
        cells = self.cells
        for axis, (size, wanted) in ((2, (self.width_ns, width_ns)), (1, (self.height_bytes, height_bytes))):
            for _ in range((wanted // size).bit_length() - 1):
                cells = _paired(cells, axis)
        return cells

    def join(self, later: "Heat") -> "Heat":
        """Of two parts of one run, that count from the same origin."""
        size = (max(self.width_ns, later.width_ns), max(self.height_bytes, later.height_bytes))
        return Heat(*size, self._with(*size) + later._with(*size))

    def __eq__(self, other) -> bool:
        return (isinstance(other, Heat) and np.array_equal(self.cells, other.cells)
                and (self.width_ns, self.height_bytes) == (other.width_ns, other.height_bytes))

    __hash__ = None


def _paired(cells, axis):
    evens, odds = (np.take(cells, np.arange(start, cells.shape[axis], 2), axis) for start in (0, 1))
    return np.concatenate([evens + odds, np.zeros_like(evens)], axis)
