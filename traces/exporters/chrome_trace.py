"""Trace events of Chrome as JSON, for ui.perfetto.dev and chrome://tracing.

An I/O is a slice on a track of its device and on one of its thread. Slices of a track cannot overlap, so a device and a
thread have as many tracks (lanes) as they have I/Os in flight. `waited_on` is an arrow between slices. The format is
"Trace Event Format" of the Chromium project; times are in us, with three decimals.
"""

import json
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blkreel.traces.format.reader import Trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES, TRACE_SCHEMA

from .export_format import Account, Columns, ExportFormat, batches, check_export_state, device_names, joined

# Process and thread numbers of Linux are below 2^22. Tracks without a thread have numbers from here on.
_FIRST_NUMBER = 1 << 24
# An arrow can start at one of this many latest I/Os.
_REACH_ROWS = 1 << 20
_TRACK_BYTES, _LANE_BYTES = 800, 260  # of what is stored of a device or thread, and of each of its lanes
_ARGUMENTS = ("queue_ns", "offset_bytes", "length_bytes", "cpu", "status", "waited_on", "think_ns")


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    tracks, arrows = _Tracks(trace), _Arrows()
    file.write(b'{"displayTimeUnit":"ns","traceEvents":[')
    separator = b"\n"
    row = 0
    for columns in batches(trace, account):
        account.lose_columns(columns, set(TRACE_SCHEMA.names), set(FLAGS))
        count = len(columns["op"])
        rows = np.arange(row, row + count)
        on_device, on_thread = tracks.of_rows(columns)
        home = np.where((columns["tid"] >= 0)[:, None], on_thread, on_device)
        texts = [tracks.take_names(), _slices(columns, home, _arguments(columns, rows))]
        again = columns["tid"] >= 0
        texts.append(_slices({name: values[again] for name, values in columns.items()}, on_device[again],
                             _text(rows[again], '{{"row":{}}}')))
        texts.append(arrows.of_rows(columns, rows, home, account))
        for text in texts:
            if len(text):
                # Each event ends with a comma and a line break; the last one must not.
                file.write(separator + joined(text)[:-2])
                separator = b",\n"
                account.records += len(text)
        row += count
    file.write(b"\n]}\n")


@dataclass
class _Tracks:
    """Gives each I/O a lane on the tracks of its device and of its thread."""

    trace: Trace
    _lanes: dict[tuple[int, int], "_Lanes"] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _next_number: int = _FIRST_NUMBER
    _stored_bytes: int = 0

    def of_rows(self, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """(process, thread) number of the lanes on the device's and the thread's tracks: two arrays (rows, 2)."""
        devices = device_names(self.trace, int(columns["device"].max()))
        threads = self.trace.metadata.get("threads") or {}
        start_ns = columns["submit_ns"].tolist()
        # A slice without duration ends after its start, or the next one would be inside it.
        end_ns = (columns["submit_ns"] + np.maximum(columns["latency_ns"], 1)).tolist()
        device_lanes, thread_lanes = [], []
        for device, tid, start, end in zip(columns["device"].tolist(), columns["tid"].tolist(), start_ns, end_ns,
                                           strict=True):
            lanes = self._lanes.get((-1, device))
            if lanes is None:
                lanes = self._add((-1, device), self._number(), f"device {devices[device]}", devices[device], None)
            device_lanes.append((lanes.process, self._take(lanes, start, end)))
            if tid < 0:
                thread_lanes.append((0, 0))
                continue
            lanes = self._lanes.get((0, tid))
            if lanes is None:
                known = threads.get(str(tid), {})
                comm = known.get("comm") or f"thread {tid}"
                lanes = self._add((0, tid), int(known.get("pid") or tid), known.get("process") or comm, comm, tid)
            thread_lanes.append((lanes.process, self._take(lanes, start, end)))
        check_export_state(self.trace, self._stored_bytes + _TRACK_BYTES * len(self._lanes),
                           "threads or I/Os in flight")
        return np.array(device_lanes), np.array(thread_lanes)

    def take_names(self) -> pa.Array:
        """Events that name the tracks that were added since the last call."""
        names, self._names = self._names, []
        return pa.array(names, pa.string())

    def _add(self, key: tuple[int, int], process: int, process_name: str, name: str, tid: int | None) -> "_Lanes":
        self._name("process_name", process, 0, {"name": process_name})
        self._lanes[key] = lanes = _Lanes(process, name, tid)
        return lanes

    def _take(self, lanes: "_Lanes", start_ns: int, end_ns: int) -> int:
        """The number of the lane of an I/O, which is named when it is first used."""
        lane = lanes.take(start_ns, end_ns)
        if lane == len(lanes.numbers):
            number = lanes.tid if lanes.tid is not None and lane == 0 else self._number()
            name = f"{lanes.name} {lane + 1}" if lane else lanes.name
            self._name("thread_name", lanes.process, number, {"name": name})
            self._name("thread_sort_index", lanes.process, number, {"sort_index": number})
            lanes.numbers.append(number)
            self._stored_bytes += _LANE_BYTES
        return lanes.numbers[lane]

    def _name(self, what: str, process: int, number: int, arguments: dict[str, Any]) -> None:
        event = {"ph": "M", "name": what, "pid": process, "tid": number, "args": arguments}
        self._names.append(json.dumps(event, separators=(",", ":")) + ",\n")

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number - 1


@dataclass(slots=True)
class _Lanes:
    """Lanes of one device or thread. process: its number. numbers: the thread number of each lane."""

    process: int
    name: str
    tid: int | None
    numbers: list[int] = field(default_factory=list)
    _busy: list[tuple[int, int]] = field(default_factory=list)  # (end, lane)
    _free: list[int] = field(default_factory=list)

    def take(self, start_ns: int, end_ns: int) -> int:
        """The lowest lane that is free at the start; a new one if none is. Starts do not step back."""
        while self._busy and self._busy[0][0] <= start_ns:
            heappush(self._free, heappop(self._busy)[1])
        lane = heappop(self._free) if self._free else len(self.numbers)
        heappush(self._busy, (end_ns, lane))
        return lane


@dataclass
class _Arrows:
    """Arrows from the I/Os that were waited for. Remembers the tracks of the latest rows."""

    _process: np.ndarray = field(default_factory=lambda: np.zeros(_REACH_ROWS, np.int64))
    _thread: np.ndarray = field(default_factory=lambda: np.zeros(_REACH_ROWS, np.int64))
    _start_ns: np.ndarray = field(default_factory=lambda: np.zeros(_REACH_ROWS, np.int64))

    def of_rows(self, columns: Columns, rows: np.ndarray, home: np.ndarray, account: Account) -> pa.Array:
        at = rows % _REACH_ROWS
        self._process[at], self._thread[at], self._start_ns[at] = home[:, 0], home[:, 1], columns["submit_ns"]
        target = columns["waited_on"]
        waited = (target >= 0) & (target < rows) & (columns["latency_ns"] >= 0)
        # Of a batch, the first rows may have been overwritten by the last ones' tracks.
        near = waited & (target > rows[-1] - _REACH_ROWS)
        account.lose(f"waited_on beyond {_REACH_ROWS:,} rows, as an arrow", waited & ~near)
        source = target[near] % _REACH_ROWS
        number = _text(rows[near])
        begin = _event("s", _numbers(self._start_ns[source]), self._process[source], self._thread[source], number, "")
        end = _event("f", _numbers(columns["submit_ns"][near]), home[near, 0], home[near, 1], number, '"bp":"e",')
        return pa.concat_arrays([begin, end])


def _event(phase: str, time: pa.Array, process: np.ndarray, thread: np.ndarray, number: pa.Array,
           more: str) -> pa.Array:
    return _concatenated(f'{{"ph":"{phase}","name":"waited_on","cat":"dependency",{more}"id":', number, ',"ts":', time,
                         ',"pid":', _text(process), ',"tid":', _text(thread), "},\n")


def _slices(columns: Columns, track: np.ndarray, arguments: pa.Array) -> pa.Array:
    """Slices, and instants for I/Os of which no completion was recorded. track: shape (rows, 2)."""
    latency_ns = columns["latency_ns"]
    length = pc.if_else(pa.array(latency_ns >= 0),
                        _concatenated('"ph":"X","dur":', _numbers(latency_ns.clip(0))), '"ph":"i","s":"t"')
    names = pa.array([OP_NAMES.get(code, "") for code in range(max(OP_NAMES) + 1)])
    return _concatenated("{", length, ',"name":"', names.take(pa.array(columns["op"])), '","cat":"io","ts":',
                         _numbers(columns["submit_ns"]), ',"pid":', _text(track[:, 0]), ',"tid":', _text(track[:, 1]),
                         ',"args":', arguments, "},\n")


def _arguments(columns: Columns, rows: np.ndarray) -> pa.Array:
    flags, at = np.unique(columns["flags"], return_inverse=True)
    names = pa.array(["+".join(name for name, bit in FLAGS.items() if value & bit) for value in flags.tolist()],
                     pa.string())
    parts: list[Any] = ['{"row":', _text(rows)]
    for name in _ARGUMENTS:
        parts += [f',"{name}":', _text(columns[name])]
    return _concatenated(*parts, ',"flags":"', names.take(pa.array(at)), '"}')


def _numbers(time_ns: np.ndarray) -> pa.Array:
    """Times in us. As text: a float has no digits for the ns of a long trace."""
    return pc.binary_join_element_wise(_text(time_ns // 1000), pc.utf8_lpad(_text(time_ns % 1000), 3, "0"), ".")


def _text(numbers: np.ndarray, form: str = "{}") -> pa.Array:
    text = pa.array(np.asarray(numbers, np.int64)).cast(pa.string())
    before, after = form.format("\0").split("\0")
    return _concatenated(before, text, after) if before or after else text


def _concatenated(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


FORMAT = ExportFormat("chrome-trace", "Chrome trace events, for ui.perfetto.dev", ".json", _write)
