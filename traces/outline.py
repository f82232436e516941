"""What a trace holds for whoever replays it, whatever the target: counts, and the blocks it touches.

A replay must know this before its first I/O. To read a long trace through for it takes a minute, so the writer of a
trace, who sees every row anyway, puts it into the metadata (key `survey`), unless its sets of blocks are too large.
"""

import base64
import binascii
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from .block_set import BlockSet, FirstTouch
from .errors import BlkreelError
from .schema import FLAGS, OP_NAMES, OPS

VERSION = 1
COLUMNS = ["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op", "flags", "device"]
# Sizes of a drive's blocks: I/Os that are not whole ones of them are counted for each.
BLOCK_SIZES = [512 << shift for shift in range(8)]
_MOST_METADATA_BYTES = 4 << 20
_MOST_MEMORY_BYTES = 24 << 20  # sets that are larger would not fit, however well they can be packed


@dataclass
class DeviceOutline:
    """One device. Times are of the trace's clock.

    unfinished: I/Os without a completion. left_out: I/Os of nothing, which no drive could be given. longest_bytes: of
    the longest I/O. unaligned: how many I/Os are not whole blocks, for each of BLOCK_SIZES.
    """

    ios: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    first_submit_ns: int = 0
    last_submit_ns: int = 0
    unfinished: int = 0
    left_out: int = 0
    longest_bytes: int = 0
    unaligned: list[int] = field(default_factory=lambda: [0] * len(BLOCK_SIZES))
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
        both = io["offset_bytes"] | io["length_bytes"]
        self.unaligned = [count + int(np.count_nonzero(both & (size - 1)))
                          for count, size in zip(self.unaligned, BLOCK_SIZES, strict=True)]
        for code in np.flatnonzero(np.bincount(io["op"].astype(np.uint8))):
            # One that no version knows is counted under its number: who replays the trace will say so.
            name, here = OP_NAMES.get(int(code), str(code)), io["op"].astype(np.uint8) == code
            self.ios[name] = self.ios.get(name, 0) + int(here.sum())
            self.bytes[name] = self.bytes.get(name, 0) + int(io["length_bytes"][here].sum())
        touch.add(io["offset_bytes"], io["offset_bytes"] + io["length_bytes"], io["op"] == OPS["read"])


class Outline:
    """Takes the rows of a trace in order; by_device is what they come to."""

    def __init__(self, only: set[int] | None = None):
        """only: the devices that count; None for all."""
        self.by_device: dict[int, DeviceOutline] = {}
        self._only = only
        self._touch: dict[int, FirstTouch] = {}

    def add(self, columns: dict[str, np.ndarray]) -> None:
        """The next rows, with at least COLUMNS."""
        for device in _values(columns["device"]):
            if self._only is not None and device not in self._only:
                continue
            io, _, left_out = select(columns, device, 0)
            if device not in self.by_device:
                self._touch[device] = touch = FirstTouch()
                self.by_device[device] = DeviceOutline(touched=touch.touched, read_first=touch.read_first)
            found = self.by_device[device]
            found.left_out += left_out
            if len(io["op"]):
                found._add(io, self._touch[device])

    @property
    def memory_bytes(self) -> int:
        return sum(touch.memory_bytes for touch in self._touch.values())


class KeptOutline:
    """The outline that a writer keeps, as long as there is a chance that it will fit into the metadata."""

    def __init__(self):
        self._outline: Outline | None = Outline()

    def add(self, columns: dict[str, np.ndarray]) -> None:
        if self._outline is None:
            return
        try:
            self._outline.add(columns)
        except BlkreelError:
            self._outline = None  # an I/O out of all bounds is to be written as it was seen
        if self._outline is not None and self._outline.memory_bytes > _MOST_MEMORY_BYTES:
            self._outline = None

    def metadata(self, places: list[int]) -> dict:
        """The key `survey` and its value; nothing where it is too large. places: where the row groups lie."""
        if self._outline is None:
            return {}
        devices, size_bytes = {}, 0
        for device, found in self._outline.by_device.items():
            facts, sets = facts_of(found)
            devices[str(device)] = facts
            for name, blocks in sets.items():
                saved = blocks.saved()
                packed = pa.compress(saved, codec="zstd", asbytes=True)
                facts[name] = {"bytes": len(saved), "zstd": base64.b64encode(packed).decode()}
                size_bytes += len(facts[name]["zstd"])
        if size_bytes > _MOST_METADATA_BYTES:
            return {}
        return {"survey": {"version": VERSION, "row_groups_at": places, "devices": devices}}


def outline_in(metadata: dict, row_groups_at: list[int]) -> dict[int, DeviceOutline] | None:
    """What the writer of a trace left in its metadata, by device; None where it did not, or for another file.

    row_groups_at: where the row groups of the file lie that has this metadata. A tool that writes some of the rows into
    a new file often takes the metadata along as it is; there, row groups lie elsewhere.
    """
    kept = metadata.get("survey")
    try:
        if kept["version"] != VERSION or kept["row_groups_at"] != row_groups_at:
            return None
        return {int(device): outline_from(facts, {name: _unpacked(facts[name]) for name in ("touched", "read_first")})
                for device, facts in kept["devices"].items()}
    except (KeyError, TypeError, ValueError, OSError, binascii.Error, pa.ArrowException):
        return None


def facts_of(found: DeviceOutline) -> tuple[dict, dict[str, BlockSet]]:
    """An outline as numbers for JSON, and its sets."""
    facts = {name: getattr(found, name) for name in _NUMBERS}
    return facts, {"touched": found.touched, "read_first": found.read_first}


def outline_from(facts: dict, sets) -> DeviceOutline:
    """The outline again, of its numbers and of sets[name] as they were saved.

    Raises KeyError, TypeError or ValueError for what facts_of() cannot have given.
    """
    for name in ("ios", "bytes"):
        if not isinstance(facts[name], dict) or not all(key in OPS and isinstance(value, int)
                                                        for key, value in facts[name].items()):
            raise ValueError(name)
    if not isinstance(facts["unaligned"], list):
        raise TypeError("unaligned")
    numbers = [facts[name] for name in _NUMBERS[2:-1]] + facts["unaligned"]
    if not all(isinstance(number, int) for number in numbers) or len(facts["unaligned"]) != len(BLOCK_SIZES):
        raise ValueError("not counts")
    return DeviceOutline(**{name: facts[name] for name in _NUMBERS},
                         **{name: BlockSet.load(sets[name]) for name in ("touched", "read_first")})


_NUMBERS = ("ios", "bytes", "first_submit_ns", "last_submit_ns", "unfinished", "left_out", "longest_bytes", "unaligned")


def select(columns, device: int | Collection[int], first_row: int) -> tuple[dict[str, np.ndarray], np.ndarray, int]:
    """The I/Os of a device or several among some rows, their rows in the trace, and how many are left out as empty.

    A write of nothing that asks for a flush is a flush. Any other I/O of nothing has no counterpart on a
    drive. A flush has no place: whatever offset it carries is dropped.
    """
    io = {name: np.asarray(columns[name]) for name in COLUMNS}
    mine = io["device"] == device if isinstance(device, int) else np.isin(io["device"], list(device))
    empty = (io["length_bytes"] == 0) & (io["op"] != OPS["flush"])
    flush = empty & (io["op"] == OPS["write"]) & ((io["flags"] & FLAGS["preflush"]) != 0)
    kept = mine & (~empty | flush)
    row = first_row + np.flatnonzero(kept)
    io = {name: values[kept] for name, values in io.items()}
    io["op"] = np.where(flush[kept], np.int8(OPS["flush"]), io["op"])
    is_flush = io["op"] == OPS["flush"]
    io["offset_bytes"] = np.where(is_flush, 0, io["offset_bytes"])
    io["length_bytes"] = np.where(is_flush, 0, io["length_bytes"])
    return io, row, int((mine & empty & ~flush).sum())


def _values(column) -> list[int]:
    """The values of a narrow column; one is the rule."""
    column = np.asarray(column)
    if not len(column) or (column == column[0]).all():
        return [int(value) for value in column[:1]]
    return [int(value) for value in np.unique(column)]


def _unpacked(kept) -> bytes:
    packed = base64.b64decode(kept["zstd"], validate=True)
    # A set of the size that a writer keeps, not what a damaged number asks for.
    if not 0 < kept["bytes"] <= 2 * _MOST_MEMORY_BYTES:
        raise ValueError("size")
    return pa.decompress(packed, decompressed_size=kept["bytes"], codec="zstd", asbytes=True)
