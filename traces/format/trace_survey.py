"""The survey of a trace: counts and touched blocks, which a replay needs before its first I/O.

Reading a long trace for it takes a minute, so the writer, which sees every row anyway, stores it in the metadata (key
`survey`), unless its block sets are too large.
"""

import base64
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
import pyarrow as pa

from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import mismatch
from blkreel.traces.blocksets.block_set import BlockSet, FirstTouch, too_scattered

from .schema import FLAGS, OP_NAMES, OPS, READING_CODES, WITHOUT_DATA_CODES, WRITE_FLAGS, Metadata

VERSION = 1
COLUMNS = ["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op", "flags", "device"]
# Block sizes of drives: for each, I/Os that are not whole blocks are counted.
BLOCK_SIZES = [512 << shift for shift in range(8)]
_MOST_METADATA_BYTES = 4 << 20
_MOST_MEMORY_BYTES = 24 << 20  # larger sets do not fit into the metadata at any compression
_MOST_STORED_BYTES = 48 << 20  # that stored sets take: malloc's share was not counted when older ones were written
_DEVICE_BYTES = 1536  # of a device beside its sets


@dataclass
class DeviceSurvey:
    """One device. Times are of the trace's clock.

    unfinished: I/Os without a completion. left_out: empty I/Os, which cannot be issued. longest_bytes: length of the
    longest I/O. unaligned: I/Os that are not whole blocks, for each of BLOCK_SIZES. write_flags: bytes of the writes
    with each of WRITE_FLAGS that there is.
    """

    ios: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    first_submit_ns: int = 0
    last_submit_ns: int = 0
    unfinished: int = 0
    left_out: int = 0
    longest_bytes: int = 0
    unaligned: list[int] = field(default_factory=lambda: [0] * len(BLOCK_SIZES))
    write_flags: dict[str, int] = field(default_factory=dict)
    touched: BlockSet = field(default_factory=BlockSet)
    read_first: BlockSet = field(default_factory=BlockSet)

    @property
    def total_ios(self) -> int:
        return sum(self.ios.values())

    def _add(self, io: dict[str, np.ndarray], touch: FirstTouch) -> None:
        if not self.ios:
            self.first_submit_ns = int(io["submit_ns"][0])
        self.last_submit_ns = int(io["submit_ns"][-1])
        self.unfinished += int((io["latency_ns"] < 0).sum())
        self.longest_bytes = max(self.longest_bytes, int(io["length_bytes"].max()))
        alignment_bits = io["offset_bytes"] | io["length_bytes"]
        self.unaligned = [count + int(np.count_nonzero(alignment_bits & (size - 1)))
                          for count, size in zip(self.unaligned, BLOCK_SIZES, strict=True)]
        for code in np.flatnonzero(np.bincount(io["op"].astype(np.uint8))):
            # The writer takes unknown operations, and survey_from() and readers of the rows refuse them.
            name, matches = OP_NAMES.get(int(code), str(code)), io["op"].astype(np.uint8) == code
            self.ios[name] = self.ios.get(name, 0) + int(matches.sum())
            self.bytes[name] = self.bytes.get(name, 0) + int(io["length_bytes"][matches].sum())
        add_write_flags(self.write_flags, io["flags"], io["length_bytes"])
        touch.add(io["offset_bytes"], io["offset_bytes"] + io["length_bytes"],
                  np.isin(io["op"], READING_CODES))


def add_write_flags(sums: dict[str, int], flags: np.ndarray, length_bytes: np.ndarray) -> None:
    """Add the bytes of the rows with each of WRITE_FLAGS that there is."""
    present = int(np.bitwise_or.reduce(flags)) if len(flags) else 0
    for name in WRITE_FLAGS:
        if present & FLAGS[name]:
            sums[name] = sums.get(name, 0) + int(length_bytes[flags & FLAGS[name] != 0].sum())


class SurveyScan:
    """Takes the rows of a trace in order; by_device is the result."""

    def __init__(self, *, max_memory_bytes: int = 0):
        """max_memory_bytes: of one block set, and of half of all; 0: no limit."""
        self.by_device: dict[int, DeviceSurvey] = {}
        self.memory_bytes = 0
        self._max_memory_bytes = max_memory_bytes
        self._touch: dict[int, FirstTouch] = {}

    def add(self, columns: dict[str, np.ndarray]) -> None:
        """The next rows, with at least COLUMNS. Raises BlkreelError beyond the limit of memory."""
        for device, rows in _by_device(columns):
            io, _, left_out = select(rows, device, 0)
            if device not in self.by_device:
                self._touch[device] = touch = FirstTouch(self._max_memory_bytes)
                self.memory_bytes += touch.memory_bytes + _DEVICE_BYTES
                self.by_device[device] = DeviceSurvey(touched=touch.touched, read_first=touch.read_first)
            survey = self.by_device[device]
            survey.left_out += left_out
            if len(io["op"]):
                touch = self._touch[device]
                before_bytes = touch.memory_bytes
                survey._add(io, touch)
                self.memory_bytes += touch.memory_bytes - before_bytes
            if self._max_memory_bytes and self.memory_bytes > 2 * self._max_memory_bytes:
                raise too_scattered()


class SurveyBuilder:
    """Builds the survey while a trace is written, as long as it may fit into the metadata."""

    def __init__(self) -> None:
        self._survey: SurveyScan | None = SurveyScan(max_memory_bytes=_MOST_MEMORY_BYTES)

    def add(self, columns: dict[str, np.ndarray]) -> None:
        if self._survey is None:
            return
        try:
            self._survey.add(columns)
        except BlkreelError:
            self._survey = None  # the I/Os are still written as recorded
        if self._survey is not None and self._survey.memory_bytes > _MOST_MEMORY_BYTES:
            self._survey = None

    def metadata(self, row_groups_at: list[int]) -> Metadata:
        """The key `survey` and its value; empty if it is too large. row_groups_at: file offsets of the row groups."""
        if self._survey is None:
            return {}
        devices: Metadata = {}
        size_bytes = 0
        for device, survey in self._survey.by_device.items():
            facts, sets = facts_of(survey)
            devices[str(device)] = facts
            for name, blocks in sets.items():
                saved = blocks.saved()
                packed = pa.compress(saved, codec="zstd", asbytes=True)
                facts[name] = {"bytes": len(saved), "zstd": base64.b64encode(packed).decode()}
                size_bytes += len(facts[name]["zstd"])
        if size_bytes > _MOST_METADATA_BYTES:
            return {}
        return {"survey": {"version": VERSION, "row_groups_at": row_groups_at, "devices": devices}}


def surveyed_bytes(metadata: Metadata, row_groups_at: list[int]) -> dict[str, int] | None:
    """Bytes by operation of all devices, without unpacking the block sets. Parameters and None as for survey_in."""
    stored = _stored(metadata, row_groups_at)
    if stored is None:
        return None
    sums: dict[str, int] = {}
    for facts in stored["devices"].values():
        for op, count in facts["bytes"].items():
            sums[op] = sums.get(op, 0) + count
    return sums


def survey_in(metadata: Metadata, row_groups_at: list[int]) -> dict[int, DeviceSurvey] | None:
    """The survey in a trace's metadata, by device; None without one, or if it belongs to another file.

    row_groups_at: file offsets of the row groups. A tool that writes some of the rows to a new file often copies the
    metadata; the row groups then have other offsets.
    """
    stored = _stored(metadata, row_groups_at)
    if stored is None:
        return None
    try:
        by_device: dict[int, DeviceSurvey] = {}
        memory_bytes = 0
        for device, facts in stored["devices"].items():
            sets = {"touched": _unpacked(facts["touched"]), "read_first": _unpacked(facts["read_first"])}
            by_device[int(device)] = survey = survey_from({**facts}, sets, _MOST_STORED_BYTES)
            memory_bytes += survey.touched.memory_bytes + survey.read_first.memory_bytes + _DEVICE_BYTES
            if memory_bytes > _MOST_STORED_BYTES:
                return None
        return by_device
    except (ValueError, OSError, pa.ArrowException):
        return None


def _stored(metadata: Metadata, row_groups_at: list[int]) -> "_Stored | None":
    stored = metadata.get("survey")
    if mismatch(stored, _Stored):
        return None
    checked = cast(_Stored, stored)
    return checked if checked["version"] == VERSION and checked["row_groups_at"] == row_groups_at else None


def facts_of(survey: DeviceSurvey) -> tuple[dict[str, Any], dict[str, BlockSet]]:
    """A survey as numbers for JSON, and its block sets."""
    facts = {name: getattr(survey, name) for name in _NUMBERS}
    if survey.write_flags:
        facts["write_flags"] = survey.write_flags
    return facts, {"touched": survey.touched, "read_first": survey.read_first}


def survey_from(facts: dict[str, Any], sets: Mapping[str, bytes], max_memory_bytes: int = 0) -> DeviceSurvey:
    """A survey from its numbers and its saved sets. max_memory_bytes: of each set; 0 for no limit. Raises ValueError
    for invalid ones."""
    if wrong := mismatch(facts, _Facts):
        raise ValueError(wrong)
    write_flags = facts.get("write_flags", {})
    counts = [facts["unfinished"], facts["left_out"], facts["longest_bytes"], *facts["unaligned"],
              *facts["ios"].values(), *facts["bytes"].values(), *write_flags.values()]
    if not all(0 <= count < 1 << 63 for count in counts) or len(facts["unaligned"]) != len(BLOCK_SIZES) or not (
            {*facts["ios"], *facts["bytes"]} <= set(OPS) and set(write_flags) <= set(WRITE_FLAGS)):
        raise ValueError("not counts of I/Os")
    if not -1 << 63 <= facts["first_submit_ns"] <= facts["last_submit_ns"] < 1 << 63:
        raise ValueError("not times")
    touched, read_first = (BlockSet.load(sets[name], max_memory_bytes=max_memory_bytes)
                           for name in ("touched", "read_first"))
    return DeviceSurvey(**{name: facts[name] for name in _NUMBERS}, write_flags=write_flags, touched=touched,
                        read_first=read_first)


class _Facts(TypedDict):
    ios: dict[str, int]
    bytes: dict[str, int]
    first_submit_ns: int
    last_submit_ns: int
    unfinished: int
    left_out: int
    longest_bytes: int
    unaligned: list[int]
    write_flags: NotRequired[dict[str, int]]  # absent without any


class _Set(TypedDict):
    bytes: int
    zstd: str


class _StoredFacts(_Facts):
    touched: _Set
    read_first: _Set


class _Stored(TypedDict):
    version: int
    row_groups_at: list[int]
    devices: dict[str, _StoredFacts]


_NUMBERS = ("ios", "bytes", "first_submit_ns", "last_submit_ns", "unfinished", "left_out", "longest_bytes", "unaligned")


def select(columns: Mapping[str, np.ndarray], device: int | Collection[int],
           first_row: int) -> tuple[dict[str, np.ndarray], np.ndarray, int]:
    """The I/Os of one or several devices, their row numbers in the trace, and the number of empty I/Os left out.

    An empty write with preflush is a flush. Other empty I/Os cannot be issued. The offset of a flush is dropped.
    """
    io = {name: np.asarray(columns[name]) for name in COLUMNS}
    selected = io["device"] == device if isinstance(device, int) else np.isin(io["device"], list(device))
    empty = (io["length_bytes"] == 0) & ~np.isin(io["op"], WITHOUT_DATA_CODES)
    flush = empty & (io["op"] == OPS["write"]) & ((io["flags"] & FLAGS["preflush"]) != 0)
    issued = selected & (~empty | flush)
    row = first_row + np.flatnonzero(issued)
    io = {name: values[issued] for name, values in io.items()}
    io["op"] = np.where(flush[issued], np.int8(OPS["flush"]), io["op"])
    is_flush = io["op"] == OPS["flush"]
    io["offset_bytes"] = np.where(is_flush, 0, io["offset_bytes"])
    io["length_bytes"] = np.where(is_flush, 0, io["length_bytes"])
    return io, row, int((selected & empty & ~flush).sum())


def flags_with_flush_rows(metadata: Mapping[str, Any], device: int, flush_rows: int) -> int:
    """The flags of a device's writes whose flushes have rows of their own: with both, a drive would get each twice.

    Where requests are recorded, a write with flushes around it is one row with the flags, and a row for each flush of
    the drive. Bios have no such rows. flush_rows: of the device in the trace; a slice may have lost them.
    """
    devices = metadata.get("devices") or []
    entry = devices[device] if device < len(devices) else {}
    if entry.get("layer", metadata.get("capture_layer")) != "request" or not flush_rows:
        return 0
    # Earlier traces do not have the key. The loop driver never had FUA.
    has_fua = entry.get("fua", False if entry.get("kind") == "loop" else None)
    return FLAGS["preflush"] | (FLAGS["fua"] if has_fua is False else 0)


def _by_device(columns: Mapping[str, np.ndarray]) -> Iterator[tuple[int, Mapping[str, np.ndarray]]]:
    """The rows of each device, in order; mostly there is one."""
    device = np.asarray(columns["device"])
    if not len(device) or (device == device[0]).all():
        yield from ((int(value), columns) for value in device[:1])
        return
    order = np.argsort(device, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(device[order])) + 1):
        yield int(device[rows[0]]), {name: np.asarray(columns[name])[rows] for name in COLUMNS}


def _unpacked(stored: _Set) -> bytes:
    packed = base64.b64decode(stored["zstd"], validate=True)
    # The largest set that a writer stores; a damaged number must not allocate more.
    if not 0 < stored["bytes"] <= _MOST_MEMORY_BYTES:
        raise ValueError("size")
    return bytes(pa.decompress(packed, decompressed_size=stored["bytes"], codec="zstd", asbytes=True))
