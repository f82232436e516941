"""Replays on a zoned drive: where its write pointers must be before the replay, and which rows it would not take.

A zone takes a write only at its write pointer, so a write elsewhere would be an error of the drive. Such a trace is
refused before the first write, because a replay that leaves writes out has no more rows at the pointer behind them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.units import format_bytes
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.zones import Zones, zones_of
from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.format.schema import OPS, WRITE_CODES, ZONE_MANAGEMENT_CODES
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.trace_survey import COLUMNS, select
from blkreel.traces.samples import called

from .extents import MappedBlocks
from .mapping import Mapping
from .survey import OnRows, traced_device

_APPEND, _RESET, _RESET_ALL, _OPEN, _CLOSE, _FINISH = (
    OPS[name] for name in ("zone_append", "zone_reset", "zone_reset_all", "zone_open", "zone_close", "zone_finish"))
_WRITING = (*WRITE_CODES, OPS["write_zeroes"])
_CHANGING = (*_WRITING, *ZONE_MANAGEMENT_CODES)
_READS_ONLY = "replay its reads only: --without writes"


@dataclass
class Refused:
    """Rows that the drive would not take. row: the first of them."""

    row: int
    first: str
    count: int = 0


@dataclass
class WritePointers:
    """The write pointers while I/O moves them. refused: by reason, filled by take()."""

    zones: Zones
    pointer_bytes: np.ndarray
    refused: dict[str, Refused] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._start, self._end = self.zones.start_bytes.tolist(), self.zones.end_bytes.tolist()
        self._pointer, self._is_sequential = self.pointer_bytes.tolist(), self.zones.is_sequential.tolist()
        self._active = {zone for zone, is_sequential in enumerate(self._is_sequential)
                        if is_sequential and self._start[zone] < self._pointer[zone] < self._end[zone]}

    @property
    def active(self) -> int:
        """Zones that are partly written or open."""
        return len(self._active)

    def take(self, op: np.ndarray, offset_bytes: np.ndarray, length_bytes: np.ndarray, row: np.ndarray) -> np.ndarray:
        """The offsets of the next rows on the drive: an append gets the place of the write pointer."""
        placed = offset_bytes.copy()
        at = np.flatnonzero(np.isin(op, _CHANGING))
        for index, code, offset, length in zip(at.tolist(), op[at].tolist(), offset_bytes[at].tolist(),
                                               length_bytes[at].tolist(), strict=True):
            zone = offset // self.zones.zone_bytes
            if code == _RESET_ALL:
                self._pointer = [start if is_sequential else pointer for start, pointer, is_sequential
                                 in zip(self._start, self._pointer, self._is_sequential, strict=True)]
                self._active.clear()
            elif not self._is_sequential[zone]:
                if code not in _WRITING:
                    self._refuse("operations on a zone without a write pointer", row[index], f"zone {zone}")
            elif code in _WRITING:
                placed[index] = offset = self._pointer[zone] if code == _APPEND else offset
                self._write(zone, offset, length, row[index])
            else:
                self._manage(zone, code, row[index])
        return placed

    def _write(self, zone: int, offset: int, length: int, row: int) -> None:
        if offset != self._pointer[zone]:
            self._refuse("writes that are not at the write pointer of their zone", row,
                         f"zone {zone}, {offset:,} instead of {self._pointer[zone]:,}")
        elif offset + length > self._end[zone]:
            self._refuse("writes beyond the capacity of their zone", row,
                         f"zone {zone}, to {offset + length:,}, capacity to {self._end[zone]:,}")
        elif self._activate(zone, row):
            self._pointer[zone] = offset + length
            if offset + length == self._end[zone]:
                self._active.discard(zone)

    def _manage(self, zone: int, code: int, row: int) -> None:
        if code == _OPEN:
            self._activate(zone, row)
        elif code == _CLOSE:
            if self._pointer[zone] == self._start[zone]:
                self._active.discard(zone)
        else:
            self._pointer[zone] = self._end[zone] if code == _FINISH else self._start[zone]
            self._active.discard(zone)

    def _activate(self, zone: int, row: int) -> bool:
        if zone not in self._active and 0 < self.zones.most_active <= len(self._active):
            self._refuse(f"writes to an empty zone beside {self.zones.most_active} active ones, the most of the drive",
                         row, f"zone {zone}")
            return False
        self._active.add(zone)
        return True

    def _refuse(self, reason: str, row: int, first: str) -> None:
        self.refused.setdefault(reason, Refused(int(row), first)).count += 1


@dataclass(frozen=True)
class ZonePlan:
    """What a replay does to the zones of a drive.

    resets: starts of the zones that are reset before it and then, as far as the trace found them written, filled.
    pointer_bytes: the write pointers at its start.
    """

    zones: Zones
    pointer_bytes: np.ndarray
    resets: np.ndarray

    def write_pointers(self) -> WritePointers:
        return WritePointers(self.zones, self.pointer_bytes)


def plan_zones(trace: Trace, target: Target, device: int, mapping: Mapping, *, prefill: bool, reads_only: bool,
               on_rows: OnRows) -> tuple[ZonePlan, MappedBlocks, MappedBlocks] | None:
    """The plan of the zones, the blocks to be written beforehand, and those that are read and cannot be written; None
    for a target without write pointers.

    prefill: whether write pointers are put where the trace found them. Raises BlkreelError if the drive would refuse
    rows, or has other zones than the traced one.
    """
    zones = zones_of(target)
    if zones is None or not zones.has_pointers:
        return None
    name, source = called(trace.path), traced_device(trace, device)
    on_zones = f"{target.path}, which has zones of {format_bytes(zones.zone_bytes)}"
    source_bytes = source.get("zone_bytes") or 0
    if source_bytes and source_bytes != zones.zone_bytes:
        raise BlkreelError(f"{name} is of a drive with zones of {format_bytes(source_bytes)}, so its zones do not fit "
                           f"{on_zones}", "replay it on a drive with equal zones, or on one without zones")
    pointer, blocks, resets = zones.pointer_bytes.copy(), BlockSet(), np.empty(0, np.int64)
    beyond = BlockSet()
    if prefill:
        trace_pointer, beyond = _found_pointers(trace, device, mapping, zones, on_rows, reads_only=reads_only)
        start = zones.start_bytes
        trace_pointer = np.minimum(trace_pointer, zones.end_bytes)
        if reads_only and zones.most_active:  # a full zone is not active
            trace_pointer = np.where(trace_pointer > start, zones.end_bytes, trace_pointer)
        wrong = np.flatnonzero((trace_pointer >= 0) & (trace_pointer != np.where(zones.is_sequential, pointer, start)))
        resets = start[wrong][zones.is_sequential[wrong] & (pointer[wrong] > start[wrong])]
        fills = wrong[trace_pointer[wrong] > start[wrong]]
        blocks.add(start[fills], trace_pointer[fills])
        pointer[wrong] = np.where(zones.is_sequential[wrong], trace_pointer[wrong], pointer[wrong])
    plan = ZonePlan(zones, pointer, resets)
    pointers = plan.write_pointers()
    if zones.most_active and pointers.active > zones.most_active:
        raise BlkreelError(f"{name} begins with {pointers.active:,} zones partly written, and {target.path} allows "
                           f"{zones.most_active:,}", _READS_ONLY)
    changes = 0
    for op, start_bytes, length_bytes, _, row in _rows(trace, device, mapping) if not reads_only else ():
        pointers.take(op, start_bytes, length_bytes, row)
        changes += int(np.isin(op, _CHANGING).sum())
    if pointers.refused:
        count = sum(refused.count for refused in pointers.refused.values())
        kinds = "; ".join(f"{refused.count:,} {reason} (the first is row {refused.row:,}: {refused.first})"
                          for reason, refused in pointers.refused.items())
        if not source.get("zoned"):
            remedy = f"replay a trace of a drive without zones on one, or {_READS_ONLY}"
        else:
            remedy = _READS_ONLY if prefill else "let the replay put the write pointers where they were: --prefill"
        raise BlkreelError(f"{name} cannot be replayed on {on_zones}: it would refuse {count:,} of {changes:,} writes "
                           f"and zone operations: {kinds}", remedy)
    return plan, MappedBlocks(blocks), MappedBlocks(beyond)


def check_options(zoned: bool, *, dependent: bool, streams: bool, threads: int | str) -> None:
    """Raise UsageError for options of a replay with writes on a zoned drive that do not keep the order in its zones."""
    if not zoned:
        return
    if dependent:
        raise UsageError("--pace dependent does not keep the order of writes, which a zoned drive needs",
                         "use --pace original or --pace paced, or --without writes")
    if streams:
        raise UsageError("streams with paces of their own do not keep the order of writes, which a zoned drive needs",
                         "give one pace for all")
    if threads not in (1, "auto"):
        raise UsageError(f"--threads {threads} does not keep the order of writes, which a zoned drive needs",
                         "leave out --threads")


def _rows(trace: Trace, device: int, mapping: Mapping) -> Iterator[tuple[np.ndarray, ...]]:
    """op, offset and length on the target, latency, and row of the I/Os in order."""
    row = 0
    for batch in trace.batches(COLUMNS):
        io, rows, _ = select(batch, device, row)
        row += batch.num_rows
        start, end = mapped(mapping, io["op"], io["offset_bytes"], io["length_bytes"])
        yield io["op"], start, end - start, io["latency_ns"], rows


def mapped(mapping: Mapping, op: np.ndarray, offset_bytes: np.ndarray,
           length_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As mapping.map(), with the offsets of zone management, which has no length."""
    start, end = mapping.map(offset_bytes, length_bytes)
    is_management = np.isin(op, ZONE_MANAGEMENT_CODES)
    return np.where(is_management, offset_bytes, start), np.where(is_management, offset_bytes, end)


def _found_pointers(trace: Trace, device: int, mapping: Mapping, zones: Zones, on_rows: OnRows, *,
                    reads_only: bool) -> tuple[np.ndarray, BlockSet]:
    """Where the write pointer of each zone was before the trace: at its first write, or behind all that was read before
    it was reset; -1 where the trace does not tell. reads_only: nothing is written or reset, so behind all reads.

    Also the blocks that are read behind the capacity of their zone on the drive, which nothing can write.
    """
    count, none = len(zones.end_bytes), np.iinfo(np.int64).max
    written, known_from, read = [none] * count, [none] * count, np.full(count, -1, np.int64)
    beyond = BlockSet()
    for op, start, length, latency_ns, row in _rows(trace, device, mapping):
        zone = start // zones.zone_bytes
        for index in np.flatnonzero(np.isin(op, _CHANGING)).tolist() if not reads_only else ():
            code, at, number = int(op[index]), int(zone[index]), int(row[index])
            if code == _RESET_ALL:
                known_from = [min(known, number) for known in known_from]
            elif code in (_RESET, _FINISH):
                known_from[at] = min(known_from[at], number)
            # An append without a completion has the start of its zone.
            elif code in _WRITING and known_from[at] == none and (code != _APPEND or latency_ns[index] >= 0):
                written[at] = min(written[at], int(start[index]))
        is_read = op == OPS["read"]
        zone, start, end = zone[is_read], start[is_read], (start + length)[is_read]
        found = row[is_read] < np.array(known_from)[zone]
        np.maximum.at(read, zone[found], end[found])
        behind = np.maximum(start, zones.end_bytes[zone])
        beyond.add(behind[behind < end], end[behind < end])
        on_rows(int(row[-1]) + 1 if len(row) else 0)
    first_write = np.array(written)
    return np.where(zones.is_sequential & (first_write < none), first_write, read), beyond
