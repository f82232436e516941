"""Metrics of the same I/Os with other times, and a queue that computes completions, in native code.

native/host_effect.h specifies the functions. Calls release the GIL.
"""

import ctypes
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from blkreel.common.system import native_library
from blkreel.traces.format.schema import OPS

_LIBRARY = Path(__file__).with_name("libblkreel-host-effect.so")
_COUNT, _SUM, _WAIT, _RESPONSE_COUNT = range(4)
READ, WRITE = OPS["read"], OPS["write"]


@dataclass(frozen=True)
class QueueModel:
    """A drive as a queue: an I/O occupies a channel for the latency of its operation, then the bus of its direction.

    latency_ns: by code of the operation. ns_per_byte: of reads and of writes. misfit: mean of |log2(modeled latency /
    measured latency)| over the I/Os that it was fitted to.
    """

    latency_ns: tuple[float, ...]
    ns_per_byte: tuple[float, float]
    channels: int
    misfit: float = 0.0

    def service_ns(self, op: np.ndarray, length_bytes: np.ndarray) -> np.ndarray:
        """The time of each I/O on an idle drive."""
        per_byte = np.zeros(len(OPS))
        per_byte[:2] = self.ns_per_byte
        service: np.ndarray = (np.array(self.latency_ns)[op] + per_byte[op] * length_bytes).astype(np.int64)
        return service


@dataclass(frozen=True)
class Ios:
    """I/Os in the order of their arrival. waited_ns: how long a full queue of the drive delayed each before it.

    late_ns: arrival - due, -1 without a deadline. workload: whether it is workload I/O.
    """

    arrive_ns: np.ndarray
    op: np.ndarray
    length_bytes: np.ndarray
    waited_ns: np.ndarray
    late_ns: np.ndarray
    workload: np.ndarray


class _Model(ctypes.Structure):
    _fields_ = [("latency_ns", ctypes.c_double * len(OPS)), ("ns_per_byte", ctypes.c_double * 2),
                ("channels", ctypes.c_double)]


class _Arrivals(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_int64), ("arrive_ns", ctypes.c_void_p), ("length_bytes", ctypes.c_void_p),
                ("op", ctypes.c_void_p)]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "fit": (ctypes.c_double, [ctypes.POINTER(_Model), ctypes.POINTER(_Arrivals), ctypes.c_void_p, ctypes.c_int64]),
    "new": (ctypes.c_void_p, []),
    "free": (None, [ctypes.c_void_p]),
    "add": (None, [ctypes.c_void_p, ctypes.POINTER(_Model), ctypes.POINTER(_Arrivals), *[ctypes.c_void_p] * 4]),
    "value": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]),
    "percentile": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64]),
    "load_time": (ctypes.c_int64, [ctypes.c_void_p]),
}


class QueueMetrics:
    """Latencies, responses, waits and load time of I/Os that come in batches, in fixed memory."""

    def __init__(self) -> None:
        self._library = _native()
        self._handle = self._library.new()
        if not self._handle:
            raise MemoryError

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.free(self._handle)

    def add(self, model: QueueModel, ios: Ios, complete_ns: np.ndarray | None = None) -> None:
        """complete_ns None: the queue computes the completions."""
        native, arrays = _columns(ios.arrive_ns, ios.length_bytes, ios.op)
        more = [None if column is None else np.ascontiguousarray(column, kind) for column, kind in (
            (complete_ns, np.int64), (ios.waited_ns, np.int64), (ios.late_ns, np.int64), (ios.workload, np.uint8))]
        self._library.add(self._handle, _native_model(model), native,
                          *(None if column is None else column.ctypes.data for column in more))
        del arrays  # alive until here

    @property
    def load_time_ns(self) -> int:
        return int(self._library.load_time(self._handle))

    def count(self, direction: int, response: bool = False) -> int:
        return self._value(direction, _RESPONSE_COUNT if response else _COUNT)

    def service_time_ns(self, direction: int) -> int:
        return self._value(direction, _SUM)

    def wait_ns(self, direction: int) -> int:
        """Time with at least one outstanding."""
        return self._value(direction, _WAIT)

    def percentile_ns(self, direction: int, numerator: int, denominator: int, response: bool = False) -> int:
        """Nearest rank, rounded down by at most 1/1024."""
        rank = -(-self.count(direction, response) * numerator // denominator)
        return int(self._library.percentile(self._handle, direction, response, rank))

    def _value(self, direction: int, value: int) -> int:
        return int(self._library.value(self._handle, direction, value))


def first_guess(op: np.ndarray, length_bytes: np.ndarray, latency_ns: np.ndarray) -> QueueModel:
    """Latencies from the fastest tenth of each operation, bandwidth from the slope over the lengths."""
    latencies, per_byte = [], [0.3, 0.6]
    for code in sorted(OPS.values()):
        of = op == code
        latencies.append(max(1.0, float(np.percentile(latency_ns[of], 10))) if of.any() else 1.0)
        if code in (READ, WRITE) and of.any() and (large := of & (length_bytes >= np.median(length_bytes[of]))).any():
            slope = np.median((latency_ns[large] - latencies[-1]) / np.maximum(length_bytes[large], 1))
            per_byte[code] = min(max(float(slope) / 2, 0.05), 1e5)
    return QueueModel(tuple(latencies), (per_byte[0], per_byte[1]), 8, math.inf)


def fit(start: QueueModel, arrive_ns: np.ndarray, op: np.ndarray, length_bytes: np.ndarray, latency_ns: np.ndarray,
        chunk_rows: int) -> QueueModel:
    """The queue whose latencies fit the measured ones best, from `start` on. It is empty at each chunk's start."""
    model = _native_model(start)
    native, arrays = _columns(arrive_ns, length_bytes, op)
    latency_ns = np.ascontiguousarray(latency_ns, np.int64)
    misfit = _native().fit(model, native, latency_ns.ctypes.data, chunk_rows)
    del arrays  # alive until here
    return QueueModel(tuple(model.latency_ns), (model.ns_per_byte[0], model.ns_per_byte[1]), int(model.channels),
                      float(misfit))


def _columns(arrive_ns: np.ndarray, length_bytes: np.ndarray, op: np.ndarray) -> tuple[_Arrivals, list[np.ndarray]]:
    arrays = [np.ascontiguousarray(column, kind) for column, kind in (
        (arrive_ns, np.int64), (length_bytes, np.int64), (op, np.int8))]
    return _Arrivals(len(arrive_ns), *(array.ctypes.data for array in arrays)), arrays


def _native_model(model: QueueModel) -> _Model:
    return _Model((ctypes.c_double * len(OPS))(*model.latency_ns), (ctypes.c_double * 2)(*model.ns_per_byte),
                  float(model.channels))


@functools.cache
def _native() -> SimpleNamespace:
    return native_library(_LIBRARY, "host_effect", _SIGNATURES)
