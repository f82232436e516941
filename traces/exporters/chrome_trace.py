"""Trace events of Chrome as JSON, for ui.perfetto.dev and chrome://tracing.

An I/O is a slice on a track of its device and on one of its thread (lanes.py). `waited_on` is an arrow between slices.
The format is "Trace Event Format" of the Chromium project; times are in us, with three decimals.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blkreel.traces.format.schema import FLAGS, OP_NAMES, TRACE_SCHEMA
from blkreel.traces.format.trace import Trace

from .export_format import Account, Columns, ExportFormat, batches, joined
from .lanes import NewTrack, Tracks

# An arrow can start at one of this many latest I/Os.
_REACH_ROWS = 1 << 20
_ARGUMENTS = ("queue_ns", "offset_bytes", "length_bytes", "cpu", "status", "waited_on", "think_ns")


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    tracks, arrows = Tracks(trace), _Arrows()
    file.write(b'{"displayTimeUnit":"ns","traceEvents":[')
    separator = b"\n"
    row = 0
    for columns in batches(trace, account):
        account.lose_columns(columns, set(TRACE_SCHEMA.names), set(FLAGS))
        count = len(columns["op"])
        rows = np.arange(row, row + count)
        on_device, on_thread = tracks.of_rows(columns)
        home = np.where((columns["tid"] >= 0)[:, None], on_thread, on_device)
        texts = [_names(tracks.take_new()), _slices(columns, home, _arguments(columns, rows))]
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


def _names(tracks: Iterable[NewTrack]) -> pa.Array:
    """Events that name tracks."""
    events: list[str] = []

    def name(what: str, track: NewTrack, number: int, arguments: dict[str, Any]) -> None:
        event = {"ph": "M", "name": what, "pid": track.group, "tid": number, "args": arguments}
        events.append(json.dumps(event, separators=(",", ":")) + ",\n")

    for track in tracks:
        if track.number is None:
            name("process_name", track, 0, {"name": track.name})
        else:
            name("thread_name", track, track.number, {"name": track.title})
            name("thread_sort_index", track, track.number, {"sort_index": track.number})
    return pa.array(events, pa.string())


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
