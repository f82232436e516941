"""A run over time in a fixed number of bins: memory and chart size do not depend on the length of the trace.

native/views.c fills the bins. They start 1 ms wide. When the run outgrows them, their width doubles and
neighbors add up, so that any split into parts gives the same bins.
"""

from dataclasses import dataclass, field

import numpy as np

from .record import Record

MAX_BINS = 400
FIRST_WIDTH_NS = 1_000_000
# As in native/metrics.h: devices from HEAT_DEVICES on have no heat map.
HEAT_ROWS, HEAT_COLUMNS, HEAT_DEVICES = 32, 64, 16
HEAT_FIRST_BYTES = 1 << 20
DATA_CLASSES = ("read", "write")


@dataclass(eq=False)
class Timeline(Record):
    """Bytes and I/Os completed per bin: arrays of (2, MAX_BINS), reads and writes. Time starts at the first submit of
    the run; span_ns is from there to the last completion, None if there was no completion."""

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
        """Double the width of the bins, to bring runs in one chart to the same width."""
        self.width_ns *= 2
        self.bytes, self.ops = _coarser(self.bytes, 1), _coarser(self.ops, 1)

    @property
    def used(self) -> int:
        """Number of bins that the run spans."""
        return 0 if self.span_ns is None else self.span_ns // self.width_ns + 1

    def copy(self) -> "Timeline":
        return Timeline(self.width_ns, self.bytes.copy(), self.ops.copy(), self.span_ns)

    def join(self, later: "Timeline") -> "Timeline":
        """Join two consecutive parts of one run."""
        first, second = self.copy(), later.copy()
        for line, partner in ((first, second), (second, first)):
            while line.width_ns < partner.width_ns:
                line.coarsen()
        spans = [timeline.span_ns for timeline in (self, later) if timeline.span_ns is not None]
        return Timeline(first.width_ns, first.bytes + second.bytes, first.ops + second.ops, max(spans, default=None))



@dataclass(eq=False)
class Heat(Record):
    """Bytes of one device by offset and by time of submit since the first submit of the run.

    cells: (2, HEAT_ROWS, HEAT_COLUMNS), reads and writes; each cell is height_bytes by width_ns.
    """

    device: int
    width_ns: int = FIRST_WIDTH_NS
    height_bytes: int = HEAT_FIRST_BYTES
    cells: np.ndarray = field(default_factory=lambda: np.zeros((len(DATA_CLASSES), HEAT_ROWS, HEAT_COLUMNS), np.int64))

    @classmethod
    def of_native(cls, device: int, numbers: np.ndarray) -> "Heat":
        """From PART_HEAT of native/metrics.h."""
        cells = numbers[2:].reshape(len(DATA_CLASSES), HEAT_ROWS, HEAT_COLUMNS)
        return cls(device, int(numbers[0]), int(numbers[1]), cells.copy())

    def _resized(self, width_ns: int, height_bytes: int) -> np.ndarray:
        cells = self.cells
        for axis, (size, new_size) in ((2, (self.width_ns, width_ns)), (1, (self.height_bytes, height_bytes))):
            for _ in range((new_size // size).bit_length() - 1):
                cells = _coarser(cells, axis)
        return cells

    def join(self, later: "Heat") -> "Heat":
        """Join two consecutive parts of one run."""
        size = (max(self.width_ns, later.width_ns), max(self.height_bytes, later.height_bytes))
        return Heat(self.device, *size, self._resized(*size) + later._resized(*size))



def join_heats(earlier: tuple[Heat, ...], later: tuple[Heat, ...]) -> tuple[Heat, ...]:
    """Those of two consecutive parts of one run, in the order of devices."""
    joined = {heat.device: heat for heat in earlier}
    for heat in later:
        before = joined.get(heat.device)
        joined[heat.device] = before.join(heat) if before else heat
    return tuple(joined[device] for device in sorted(joined))


def _coarser(cells: np.ndarray, axis: int) -> np.ndarray:
    """Neighbors along the axis added up, then zeros up to the same length."""
    evens, odds = (np.take(cells, np.arange(start, cells.shape[axis], 2), axis) for start in (0, 1))
    return np.concatenate([evens + odds, np.zeros_like(evens)], axis)
