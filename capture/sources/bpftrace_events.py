"""Turns the lines of blkreel.bt into events for the decoder: blktrace, version 8."""

import io
import os
import re
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from blkreel.common.errors import BlkreelError
from blkreel.traces.importers import operation_letters as letters
from blkreel.traces.importers.blktrace import EVENT_V8, MAGIC_V8

_QUEUE, _REQUEUE, _ISSUE, _COMPLETE = 1 << 4, 1 << 5, 1 << 6, 1 << 7
_ACTIONS = {"Q": 1 | _QUEUE << 16, "M": 2 | _QUEUE << 16, "F": 3 | _QUEUE << 16, "R": 6 | _REQUEUE << 16,
            "D": 7 | _ISSUE << 16, "C": 8 | _COMPLETE << 16, "X": 13}
_EVENT = np.dtype([*EVENT_V8.descr, ("payload", ">u8")])
_COLUMNS = {"kind": pa.dictionary(pa.int32(), pa.string()), "time_ns": pa.int64(), "cpu": pa.uint32(),
            "thread": pa.int64(), "device": pa.uint32(), "sector": pa.uint64(), "sectors": pa.uint64(),
            "operation": pa.dictionary(pa.int32(), pa.string())}
_OTHER_LINE = re.compile(rb"(?m)^(?![QMFXDRC] \d).*\n")
# A search for these is ten times faster than a match of each line: names, padding, losses, empty lines.
_SIGNS_OF_OTHERS = (b"T ", b"H ", b"  ", b"ost ", b"\n\n", b"...")
_SILENT_CPU_NS = 10_000_000_000  # a CPU that was switched off must not hold back the others


class EventLines:
    """Sorts the events of the output by time.

    The lines of each CPU are in order, but those of one CPU may arrive much later than those of another: an event waits
    until none can precede it.
    """

    def __init__(self, began_ns: int, now_ns: int):
        """began_ns: the script's clock at `now_ns` of CLOCK_MONOTONIC."""
        self._rest = b""
        self._held = np.empty(0, _EVENT)
        self._reached_ns: dict[int, int] = dict.fromkeys(os.sched_getaffinity(0), 0)
        self._shift_ns = clock_shift_ns(began_ns, now_ns)
        self._since_ns = 0

    def forget_before(self, since_ns: int) -> None:
        """Drop events before this time of CLOCK_MONOTONIC, also those to come."""
        self._since_ns = since_ns

    def has_reached(self, time_ns: int) -> bool:
        """Whether all lines up to this time of CLOCK_MONOTONIC were taken."""
        return min(self._reached_ns.values()) >= time_ns

    def take(self, chunk: bytes) -> list[bytes]:
        """Add output. Returns its lines that are no events."""
        data = self._rest + chunk
        whole = data.rfind(b"\n") + 1
        self._rest = data[whole:]
        data, other_lines = data[:whole], []
        if any(sign in data for sign in _SIGNS_OF_OTHERS):
            other_lines = [line for line in _OTHER_LINE.findall(data) if line.strip() and not self._is_heartbeat(line)]
            data = _OTHER_LINE.sub(b"", data)
        if data:
            self._held = np.concatenate([self._held, self._events(data)])
        return other_lines

    def ready(self, all_of_it: bool = False) -> bytes:
        """The events that no later line can precede."""
        newest_ns = max(self._reached_ns.values())
        limit_ns = max(min(self._reached_ns.values()), newest_ns - _SILENT_CPU_NS)
        self._held = self._held[np.argsort(self._held["time_ns"], kind="stable")]
        count = len(self._held) if all_of_it else np.searchsorted(self._held["time_ns"], limit_ns)
        done, self._held = self._held[:count], self._held[count:]
        # A joined array has the byte order of the machine.
        return done[done["time_ns"] >= self._since_ns].astype(_EVENT).tobytes()

    def _is_heartbeat(self, line: bytes) -> bool:
        if not line.startswith(b"H "):
            return False
        _, time_ns, cpu = line.split()
        self._reached_ns[int(cpu)] = int(time_ns) + self._shift_ns
        return True

    def _events(self, data: bytes) -> npt.NDArray[Any]:
        table = pa.csv.read_csv(
            io.BytesIO(data), pa.csv.ReadOptions(column_names=list(_COLUMNS), use_threads=False),
            pa.csv.ParseOptions(delimiter=" ", quote_char=False),
            pa.csv.ConvertOptions(column_types=_COLUMNS, strings_can_be_null=False)).combine_chunks()
        columns = {name: table[name].chunk(0) for name in table.column_names}
        kinds, operations = columns["kind"], columns["operation"]
        sectors = columns["sectors"].to_numpy()
        actions = np.array([_ACTIONS[kind] for kind in kinds.dictionary.to_pylist()], "u8")
        actions = actions[kinds.indices.to_numpy()]
        names = operations.dictionary.to_pylist()
        categories, with_data = (np.array([_category_of(name, has_data) for name in names], "u8")
                                 for has_data in (False, True))
        at = operations.indices.to_numpy()
        split, complete, queued = (actions & 0xFFFF == number for number in (13, 8, 1))
        events = np.zeros(len(table), _EVENT)
        events["magic"] = MAGIC_V8
        events["time_ns"] = columns["time_ns"].to_numpy() + self._shift_ns
        sector = columns["sector"].to_numpy()
        events["sector"] = np.where(sector == np.uint64(0xFFFFFFFFFFFFFFFF), 0, sector)  # without a place
        events["bytes"] = np.where(split, 0, sectors * 512)
        # A flush without data and the flush of the drive look alike, but one enters and the other is issued.
        entering = np.where(queued, np.uint64(letters.WRITE), np.uint64(0))
        categories = np.where(sectors > 0, with_data[at], categories[at] | entering)
        events["action"] = actions | categories << np.uint64(16)
        thread = columns["thread"].to_numpy()
        events["pid"] = np.where(complete, 0, thread)
        events["status"] = np.where(complete, thread, 0)
        events["device"], events["cpu"] = columns["device"].to_numpy(), columns["cpu"].to_numpy()
        events["payload_bytes"] = 8
        events["payload"] = np.where(split, sectors, 0)
        return events


def _category_of(operation: str, has_data: bool) -> int:
    """The category bits of the kernel's letters."""
    category = letters.category_of(operation.encode())
    if category == letters.INVALID_CATEGORY:
        category = letters.PASSTHROUGH
    if category & letters.PASSTHROUGH and has_data:
        # Kernels before 6.19 have no letter for write-zeroes; commands that are passed through have no sectors.
        category = category & ~letters.PASSTHROUGH | letters.WRITE | letters.WRITE_ZEROES
    return category


def clock_shift_ns(began_ns: int, now_ns: int) -> int:
    """From the script's clock to CLOCK_MONOTONIC: newer bpftrace counts the time of suspends too."""
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() + now_ns
    if abs(began_ns - now_ns) <= abs(began_ns - boot_ns):
        return 0
    if abs(began_ns - boot_ns) > 60_000_000_000:
        raise BlkreelError("bpftrace's clock is neither monotonic nor boot time", "take another source: --source bpf")
    return now_ns - boot_ns
