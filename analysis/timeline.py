"""A run over time, reduced while it is read: memory and marks stay the same however long the trace is."""

import numpy as np

from .metrics import classes_of

MAX_BINS = 400
FIRST_WIDTH_NS = 1_000_000
HEAT_ROWS, HEAT_COLUMNS = 32, 64
HEAT_FIRST_BYTES = 1 << 20
DATA_CLASSES = ("read", "write")


class Timeline:
    """Bytes and I/Os completed per bin, reads and writes apart.

    Bins are 1 ms wide until more than MAX_BINS are needed; then they double, neighbours adding up, so that
    any split into batches ends in the same bins. Time counts from the first submit.
    """

    def __init__(self):
        self.width_ns = FIRST_WIDTH_NS
        self.bytes = np.zeros((len(DATA_CLASSES), MAX_BINS), np.int64)
        self.ops = np.zeros_like(self.bytes)
        self._origin_ns = self._end_ns = None

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        seen = columns["latency_ns"] >= 0
        if not seen.any():
            return
        complete_ns = (columns["submit_ns"] + columns["latency_ns"])[seen]
        if self._origin_ns is None:
            self._origin_ns = self._end_ns = int(columns["submit_ns"][seen][0])
        self._end_ns = max(self._end_ns, int(complete_ns.max()))
        while (self._end_ns - self._origin_ns) // self.width_ns >= MAX_BINS:
            self.coarsen()
        bins = (complete_ns - self._origin_ns) // self.width_ns
        kinds = classes_of(columns["op"][seen])
        length_bytes = columns["length_bytes"][seen]
        for kind in range(len(DATA_CLASSES)):
            mine = kinds == kind
            np.add.at(self.bytes[kind], bins[mine], length_bytes[mine])
            np.add.at(self.ops[kind], bins[mine], 1)

    def coarsen(self) -> None:
        """Bins twice as wide. Runs that are drawn on one time scale are brought to the same width with it."""
        self.width_ns *= 2
        for counts in (self.bytes, self.ops):
            paired = counts[:, 0::2] + counts[:, 1::2]
            counts[:] = 0
            counts[:, :paired.shape[1]] = paired

    @property
    def used(self) -> int:
        """How many bins the run spans."""
        return 0 if self._origin_ns is None else (self._end_ns - self._origin_ns) // self.width_ns + 1


class Heat:
    """Bytes by place on the device and by time, reads and writes apart: a fixed grid whose cells double as needed."""

    def __init__(self):
        self.width_ns = FIRST_WIDTH_NS
        self.height_bytes = HEAT_FIRST_BYTES
        self.cells = np.zeros((len(DATA_CLASSES), HEAT_ROWS, HEAT_COLUMNS), np.int64)
        self._origin_ns = None

    def feed(self, columns: dict[str, np.ndarray]) -> None:
        kinds = classes_of(columns["op"])
        rows = (columns["latency_ns"] >= 0) & (kinds < len(DATA_CLASSES))
        if not rows.any():
            return
        submit_ns, offset_bytes = columns["submit_ns"][rows], columns["offset_bytes"][rows]
        if self._origin_ns is None:
            self._origin_ns = int(submit_ns[0])
        while (int(submit_ns[-1]) - self._origin_ns) // self.width_ns >= HEAT_COLUMNS:
            self.width_ns *= 2
            self.cells = _paired(self.cells, axis=2)
        while int(offset_bytes.max()) // self.height_bytes >= HEAT_ROWS:
            self.height_bytes *= 2
            self.cells = _paired(self.cells, axis=1)
        where = (kinds[rows], offset_bytes // self.height_bytes, (submit_ns - self._origin_ns) // self.width_ns)
        np.add.at(self.cells, where, columns["length_bytes"][rows])


def _paired(cells, axis):
    evens, odds = (np.take(cells, np.arange(start, cells.shape[axis], 2), axis) for start in (0, 1))
    return np.concatenate([evens + odds, np.zeros_like(evens)], axis)
