"""Perfetto's own format: a stream of packets of Protocol Buffers, for ui.perfetto.dev, trace_processor and traceconv.

An I/O is a slice on a track of its device and on one of its thread (lanes.py). `waited_on` is a flow between slices.
The messages and the numbers of their fields are those of protos/perfetto/trace/trace_packet.proto and the files that
it imports. Readers sort packets by time, and keep the order of the file for equal times: the end of a slice stands
before the next slice of its track.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from blkreel.traces.format.schema import FLAGS, OP_NAMES, TRACE_SCHEMA, UNKNOWN
from blkreel.traces.format.trace import Trace

from . import wire_format as wire
from .export_format import Account, Columns, ExportFormat, batches
from .lanes import NewTrack, Tracks

_ROWS = 4096  # that are encoded at once: a row with all its arrows takes up to 2 KB
# An arrow leads to one of this many later I/Os, and this many leave one I/O.
_REACH_ROWS, _MOST_ARROWS = 1 << 20, 32

_PACKET, _SEQUENCE = 1, 1
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT, _INTERNED_DATA, _SEQUENCE_FLAGS, _TRACK_DESCRIPTOR = 8, 10, 11, 12, 13, 60
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_CATEGORIES, _ANNOTATIONS, _TYPE, _NAME, _TRACK, _FLOWS, _TERMINATING_FLOWS = 3, 4, 9, 10, 11, 47, 48
_BEGIN, _END, _INSTANT = 1, 2, 3
_ANNOTATION_NAME, _INTEGER, _STRING = 1, 4, 6
_CATEGORY = 1
_EXPLICIT_ORDER = 3
# A track's id is its number or that of its process, in a range of their own.
_LANES, _GROUPS = 1 << 32, 1 << 33
_COLUMNS = ("queue_ns", "offset_bytes", "length_bytes", "cpu", "status", "waited_on", "think_ns")
_ARGUMENTS = ("row", *_COLUMNS, "flags")


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    tracks, arrows = Tracks(trace), _Arrows(trace)
    file.write(_packet(wire.content(_INTERNED_DATA, _names()) + wire.integer(_SEQUENCE_FLAGS, _STATE_CLEARED)))
    account.records += 1
    groups: dict[int, str] = {}
    row = 0
    for batch in batches(trace, account):
        account.lose_columns(batch, set(TRACE_SCHEMA.names), set(FLAGS))
        count = len(batch["op"])
        early = batch["submit_ns"] < 0
        account.omit("submitted before the time 0 of the trace", early)
        on_device, on_thread = (lanes[:, 1] for lanes in tracks.of_rows(batch))
        for track in tracks.take_new():
            # A process has threads that begin at any time.
            if track.number is not None or groups.get(track.group) != track.name:
                file.write(_packet(wire.content(_TRACK_DESCRIPTOR, _descriptor(track))))
                account.records += 1
            if track.number is None:
                groups[track.group] = track.name
        for at in range(0, count, _ROWS):
            part = slice(at, min(at + _ROWS, count))
            rows = np.arange(row + part.start, row + part.stop)
            flows = arrows.of_rows(rows, account)
            packets, number = _packets({name: values[part] for name, values in batch.items()}, rows,
                                       on_device[part], on_thread[part], flows, ~early[part])
            file.write(packets)
            account.records += number
        row += count


@dataclass(frozen=True)
class _Flows:
    """The arrows of some rows. begin_row, begin_rank, number: of those that begin, the row (from 0), the rank among
    those of the row, and the number, which is the row of the end in the trace plus 1. ends: mask of the rows at which
    one ends.
    """

    begin_row: np.ndarray
    begin_rank: np.ndarray
    number: np.ndarray
    ends: np.ndarray


@dataclass
class _Arrows:
    """Arrows from an I/O to those that waited for it, which follow in the trace: reads `waited_on` in advance."""

    trace: Trace
    _first: int = 0
    _targets: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    _has_arrow: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    _ahead: Iterator[np.ndarray] | None = None

    def of_rows(self, rows: np.ndarray, account: Account) -> _Flows:
        """Counts the dependencies that become no arrow."""
        first, last = int(rows[0]), int(rows[-1])
        self._read_until(first, last + 1 + _REACH_ROWS)
        own = self._targets[:len(rows)]
        waited = (own >= 0) & (own < rows)
        account.lose(f"waited_on beyond {_REACH_ROWS:,} rows, as an arrow", waited & (rows - own > _REACH_ROWS))
        later = first + np.flatnonzero((self._targets >= first) & (self._targets <= last))
        source = self._targets[later - first]
        near = (later > source) & (later - source <= _REACH_ROWS)
        later, source = later[near], source[near]
        order = np.argsort(source, kind="stable")
        later, source = later[order], source[order]
        begins = np.searchsorted(source, source)
        rank = np.arange(len(source)) - begins
        account.lose(f"waited_on of more than {_MOST_ARROWS} I/Os for one, as an arrow", rank >= _MOST_ARROWS)
        later, source, rank = (values[rank < _MOST_ARROWS] for values in (later, source, rank))
        self._has_arrow[later - first] = True
        return _Flows(source - first, rank, later + 1, self._has_arrow[:len(rows)])

    def _read_until(self, first: int, end: int) -> None:
        if self._ahead is None:
            self._ahead = (batch["waited_on"].to_numpy() for batch in self.trace.batches(["waited_on"]))
        targets, has_arrow = [self._targets[first - self._first:]], [self._has_arrow[first - self._first:]]
        self._first, read = first, first + len(targets[0])
        while read < end and (batch := next(self._ahead, None)) is not None:
            targets.append(batch)
            has_arrow.append(np.zeros(len(batch), bool))
            read += len(batch)
        self._targets, self._has_arrow = np.concatenate(targets), np.concatenate(has_arrow)


def _packets(columns: Columns, rows: np.ndarray, on_device: np.ndarray, on_thread: np.ndarray, flows: _Flows,
             mask: np.ndarray) -> tuple[bytes, int]:
    """The packets of some rows, and how many. mask: the rows that are written."""
    count, has_thread = len(rows), columns["tid"] >= 0
    has_end = columns["latency_ns"] >= 0
    begin_ns, end_ns = columns["submit_ns"], columns["submit_ns"] + columns["latency_ns"].clip(0)
    kind, end = wire.integers(_TYPE, np.where(has_end, _BEGIN, _INSTANT)), wire.integers(_TYPE, np.full(count, _END))
    category = wire.integers(_CATEGORIES, np.full(count, _CATEGORY))
    name = wire.integers(_NAME, columns["op"] + 1)
    arrows = wire.joined(
        wire.numbers_of_rows(_FLOWS, count, flows.begin_row, flows.begin_rank, flows.number),
        wire.numbers_of_rows(_TERMINATING_FLOWS, count, np.arange(count), np.zeros(count, int), rows + 1
                             ).where(flows.ends))
    home = wire.integers(_TRACK, np.where(has_thread, on_thread, on_device) + _LANES)
    device = wire.integers(_TRACK, on_device + _LANES)
    again = mask & has_thread
    parts = [_event(begin_ns, category, _annotations(columns, rows), kind, name, home, arrows).where(mask),
             _event(end_ns, end, home).where(mask & has_end),
             _event(begin_ns, category, _annotation("row", wire.integers(_INTEGER, rows)), kind, name, device
                    ).where(again),
             _event(end_ns, end, device).where(again & has_end)]
    number = sum(map(np.count_nonzero, (mask, mask & has_end, again, again & has_end)))
    return wire.joined(*parts).tobytes(), int(number)


def _event(time_ns: np.ndarray, *fields: wire.Part) -> wire.Part:
    return wire.messages(_PACKET, wire.integers(_TIMESTAMP, time_ns),
                         wire.constant(wire.integer(_SEQUENCE_ID, _SEQUENCE), len(time_ns)),
                         wire.messages(_TRACK_EVENT, *fields),
                         wire.constant(wire.integer(_SEQUENCE_FLAGS, _NEEDS_STATE), len(time_ns)))


def _annotations(columns: Columns, rows: np.ndarray) -> wire.Part:
    """What is known of an I/O."""
    parts = [_annotation("row", wire.integers(_INTEGER, rows))]
    for name in _COLUMNS:
        values = columns[name]
        has_value = values != UNKNOWN[name] if name in UNKNOWN else np.ones(len(values), bool)
        parts.append(_annotation(name, wire.integers(_INTEGER, values)).where(has_value))
    flags, which = np.unique(columns["flags"], return_inverse=True)
    words = ["+".join(name for name, bit in FLAGS.items() if value & bit) for value in flags.tolist()]
    parts.append(_annotation("flags", wire.texts(_STRING, words, which)).where(columns["flags"] != 0))
    return wire.joined(*parts)


def _annotation(name: str, value: wire.Part) -> wire.Part:
    number = wire.constant(wire.integer(_ANNOTATION_NAME, _ARGUMENTS.index(name) + 1), len(value.data))
    return wire.messages(_ANNOTATIONS, number, value)


def _names() -> bytes:
    """InternedData: numbers, from 1 on, for the names of categories, slices and arguments."""
    def of_field(number: int, names: Iterable[str]) -> bytes:
        return b"".join(wire.content(number, wire.integer(1, at) + wire.content(2, name))
                        for at, name in enumerate(names, 1))

    return of_field(1, ["io"]) + of_field(2, [OP_NAMES.get(code, "") for code in range(max(OP_NAMES) + 1)]) \
        + of_field(3, _ARGUMENTS)


def _descriptor(track: NewTrack) -> bytes:
    ordered = wire.integer(11, _EXPLICIT_ORDER)
    if track.number is None:
        process = wire.integer(1, track.group) + wire.content(6, track.name)
        return wire.integer(1, _GROUPS + track.group) + (
            wire.content(2, track.name) if track.is_device else wire.content(3, process)) + ordered
    own, rank = wire.integer(1, _LANES + track.number), wire.integer(12, track.lane)
    if track.tid is not None and not track.lane:
        thread = wire.integer(1, track.group) + wire.integer(2, track.tid) + wire.content(5, track.name)
        return own + wire.content(4, thread) + wire.integer(5, _GROUPS + track.group) + ordered + rank
    parent = _GROUPS + track.group if track.tid is None else _LANES + track.tid
    return own + wire.content(2, track.title) + wire.integer(5, parent) + rank


def _packet(fields: bytes) -> bytes:
    return wire.content(_PACKET, wire.integer(_SEQUENCE_ID, _SEQUENCE) + fields)


FORMAT = ExportFormat("perfetto", "Perfetto trace, for ui.perfetto.dev and trace_processor", ".perfetto-trace", _write)
