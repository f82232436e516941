"""The accumulator in C, by ctypes: native/metrics.h is the contract. Calls run without the interpreter's lock."""

import ctypes
import errno
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from blkreel.analysis.metrics.partials.boundary_state import CLASSES, Carry, out_of_order, out_of_range
from blkreel.common.errors import TraceError
from blkreel.common.system import native_library
from blkreel.traces.format.schema import COLUMN_TYPES

# In the order of struct metrics_columns.
COLUMNS = ("submit_ns", "latency_ns", "queue_ns", "offset_bytes", "length_bytes", "due_ns",
           "idle_removed_ns", "op", "flags", "tid", "burst", "device", "status")
# As the enumerations of metrics.h have them.
LATENCY, RESPONSE, QUEUE, SIZE, LATENESS_HOST, LATENESS_DEVICE, SUBMIT_GAP, IDLE_GAP = 0, 3, 6, 9, 12, 13, 14, 15
DISTRIBUTIONS = 16
BURST_MEMBERS = 8
(SUMS, HISTOGRAM, BURSTS, PLANNED, SECONDS, DEPTH, TIMELINE, HEAT, THREADS, CARRY, KEEP_UP,
 LATENCY_POINTS, ALIGNMENT) = range(13)

_LIBRARY = Path(__file__).with_name("libblkreel-metrics.so")
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_TYPES = {name: np.dtype(str(COLUMN_TYPES[name])) for name in COLUMNS}


class _Columns(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_int64), *((name, _POINTER) for name in COLUMNS)]


_SIGNATURES = {
    "new": (_POINTER, [ctypes.c_int64, ctypes.c_int, _POINTER, _SIZE]),
    "free": (None, [_POINTER]),
    "feed": (ctypes.c_int, [_POINTER, ctypes.POINTER(_Columns)]),
    "taken": (ctypes.c_int64, [_POINTER, ctypes.c_int, ctypes.POINTER(_POINTER)]),
    "bursts": (ctypes.c_int64, [_POINTER, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64),
                                ctypes.POINTER(_POINTER)]),
    "read": (ctypes.c_int64, [_POINTER, ctypes.c_int, ctypes.c_int, _POINTER, _SIZE]),
}


class NativeMetrics:
    """Takes batches and gives parts of metrics.h as arrays of int64."""

    def __init__(self, gap_ns: int, exact: bool, carry: Carry | None) -> None:
        self._library = _native()
        numbers = None if carry is None else np.ascontiguousarray(carry.to_numbers())
        self._handle = self._library.new(gap_ns, exact, None if numbers is None else numbers.ctypes.data,
                                         0 if numbers is None else len(numbers))
        if not self._handle:
            raise MemoryError("no memory for figures, or not a carry")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.free(self._handle)

    def feed_arrays(self, columns: dict[str, np.ndarray]) -> None:
        """Columns as arrays; of another type than the trace's they are copied."""
        arrays = {name: np.ascontiguousarray(columns[name], _TYPES[name]) for name in COLUMNS if name in columns}
        self._feed(len(arrays["submit_ns"]), {name: array.ctypes.data for name, array in arrays.items()})

    def feed_batch(self, batch: pa.RecordBatch) -> None:
        """The columns of a batch that is not empty, without a copy."""
        addresses = {}
        for name in COLUMNS:
            index = batch.schema.get_field_index(name)
            if index >= 0:
                column = batch.column(index)
                if column.type != COLUMN_TYPES[name] or column.null_count:
                    raise TraceError(f"column {name} has {column.null_count} values missing, or is not "
                                     f"{COLUMN_TYPES[name]}", "it was changed after it was written: record it again")
                addresses[name] = column.buffers()[1].address + column.offset * _TYPES[name].itemsize
        self._feed(batch.num_rows, addresses)

    def _feed(self, rows: int, addresses: dict[str, int]) -> None:
        result = self._library.feed(self._handle, ctypes.byref(_Columns(rows, **addresses)))
        if result == 0:
            return
        if result == -errno.EILSEQ:
            raise out_of_order()
        if result == -errno.ERANGE:
            raise out_of_range()
        raise MemoryError

    def lengths(self, *parts: int) -> int:
        """Numbers of these parts of all classes together, without a copy."""
        return sum(max(self._library.read(self._handle, part, which, None, 0), 0) for part in parts
                   for which in range(len(CLASSES)))

    def taken(self, distribution: int) -> np.ndarray:
        """The values of a distribution in the last batch; valid until the next batch."""
        pointer = _POINTER()
        count = self._library.taken(self._handle, distribution, ctypes.byref(pointer))
        if not count:
            return np.empty(0, np.int64)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int64)), (count,))

    def bursts(self, part: int, which: int) -> tuple[int, np.ndarray]:
        """reach_ns, and the members of struct burst of each burst, valid until the next batch. part: BURSTS or
        PLANNED."""
        reach_ns, pointer = ctypes.c_int64(), _POINTER()
        count = self._library.bursts(self._handle, part, which, ctypes.byref(reach_ns), ctypes.byref(pointer))
        if not count:
            return reach_ns.value, np.empty((0, BURST_MEMBERS), np.int64)
        numbers = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int64))
        return reach_ns.value, np.ctypeslib.as_array(numbers, (count, BURST_MEMBERS))

    def read(self, part: int, which: int = 0) -> np.ndarray:
        length = self._library.read(self._handle, part, which, None, 0)
        values = np.empty(length, np.int64)
        self._library.read(self._handle, part, which, values.ctypes.data, length)
        return values


@cache
def _native() -> SimpleNamespace:
    """Loaded with the first accumulator."""
    return native_library(_LIBRARY, "metrics", _SIGNATURES)
