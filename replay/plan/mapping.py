"""Mapping of offsets: from the traced device to the target."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from blkreel.common.errors import BlkreelError, UsageError, choice_remedy
from blkreel.common.units import format_bytes
from blkreel.replay.drive.target import Target
from blkreel.traces.blocksets.block_set import BlockSet, PackedSet

# Alignment that every map preserves: flash pages and file system blocks are at least this large.
_ALIGNMENT_BYTES = 4096
# Unit of `scale`: within a region, distances stay.
_REGION_BYTES = 1 << 20
_MAX_COPIES = 1024
_TILED_ROWS = 65_536
_NAMES = ("identity", "compact", "wrap", "scale", "tile")
_CHOICES = ("identity or refuse (the same offsets, or an error), compact (packed), wrap (modulo the target's size), "
            "scale (spread or squeezed), tile or tile=N (N copies side by side)")


@dataclass(frozen=True)
class Part:
    """The bytes of a target that one trace or workload may use."""

    start_bytes: int
    size_bytes: int

    @property
    def end_bytes(self) -> int:
        return self.start_bytes + self.size_bytes


class DoesNotFit(BlkreelError):
    """The trace touches more bytes than the target has."""


@dataclass(frozen=True)
class Mapping:
    """The same offsets, and the base of the other maps.

    block_bytes: of the target; I/Os grow to whole blocks. copies: how often each I/O is issued, stride_bytes apart.
    folds: whether different blocks of the source may become one block of the target. Then a pass over the mapped
    trace is needed to find the blocks that are read first. start_bytes: added to all offsets, for a part of the target.
    """

    name: str = "identity"
    block_bytes: int = 512
    copies: int = 1
    stride_bytes: int = 0
    start_bytes: int = 0
    folds: ClassVar[bool] = False

    def map(self, offset_bytes: np.ndarray, length_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(start, end) of I/Os on the target, in whole blocks. I/Os of no bytes go to 0."""
        start = offset_bytes // self.block_bytes * self.block_bytes
        length = -(-(offset_bytes + length_bytes) // self.block_bytes) * self.block_bytes - start
        not_empty = length_bytes > 0
        start, length = np.where(not_empty, start, 0), np.where(not_empty, length, 0)
        start = np.where(not_empty, self.start_bytes + self._mapped(start, length), 0)
        return start, start + length

    def map_bytes(self, offset_bytes: np.ndarray) -> np.ndarray:
        """Offsets on the target of single bytes that the trace touches."""
        return self.start_bytes + self._mapped(offset_bytes, np.ones(len(offset_bytes), np.int64))

    def tiled(self, columns: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Mapped rows of a plan, each repeated for all copies, in the order of the rows.

        All copies of a row have its times. A flush has no offset and stays at 0.
        """
        if self.copies == 1:
            yield columns
            return
        rows = len(columns["op"])
        step = max(1, _TILED_ROWS // self.copies)
        for low in range(0, rows, step):
            part = {name: np.repeat(values[low:low + step], self.copies) for name, values in columns.items()}
            shift = np.tile(np.arange(self.copies) * self.stride_bytes, len(part["op"]) // self.copies)
            part["offset_bytes"] = part["offset_bytes"] + np.where(part["length_bytes"] > 0, shift, 0)
            yield part

    def holds(self, blocks: BlockSet) -> bool:
        """Whether the map refers to this set."""
        return False

    def key(self) -> str:
        """Identifies the result of map(), for maps that fold."""
        return repr(self)

    def account(self) -> dict[str, Any]:
        """The entry `map` of the run's account."""
        return {"name": self.name, **({"start_bytes": self.start_bytes} if self.start_bytes else {})}

    def _mapped(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        return start


IDENTITY = Mapping()


@dataclass(frozen=True)
class Compact(Mapping):
    """Touched blocks side by side: neighbors, overlaps and order stay."""

    packed: PackedSet = field(kw_only=True)

    def holds(self, blocks: BlockSet) -> bool:
        return self.packed.blocks is blocks

    def _mapped(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        return np.asarray(self.packed.move(start))


@dataclass(frozen=True)
class Wrap(Mapping):
    """Offset modulo span. An I/O that would cross the end of the span is moved back to end there."""

    span_bytes: int = 0
    folds: ClassVar[bool] = True

    def _mapped(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(start % self.span_bytes, self.span_bytes - length))

    def account(self) -> dict[str, Any]:
        return {**super().account(), "span_bytes": self.span_bytes}


@dataclass(frozen=True)
class Scale(Mapping):
    """Regions of the source map to regions of the target in proportion; within a region distances stay."""

    region_bytes: int = _REGION_BYTES
    source_regions: int = 1
    target_regions: int = 1
    folds: ClassVar[bool] = True

    def _mapped(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        region, within = np.divmod(start, self.region_bytes)
        mapped = region * self.target_regions // self.source_regions * self.region_bytes + within
        return np.asarray(np.minimum(mapped, self.target_regions * self.region_bytes - length))

    def account(self) -> dict[str, Any]:
        return {**super().account(), "region_bytes": self.region_bytes,
                "factor": self.target_regions / self.source_regions}


@dataclass(frozen=True)
class Tile(Mapping):
    """Copies of the trace side by side, issued together. map() gives offsets of the first copy."""

    def account(self) -> dict[str, Any]:
        return {**super().account(), "copies": self.copies, "stride_bytes": self.stride_bytes}


def parse_map(text: str | None) -> str | None:
    """A value of --map, `refuse` as `identity`. Raises UsageError."""
    if text == "refuse":
        return "identity"
    if text is None or text in _NAMES:
        return text
    if match := re.fullmatch(r"tile=([0-9]{1,9})", text):
        if 1 <= int(match[1]) <= _MAX_COPIES:
            return text
        raise UsageError(f"--map {text}: out of range", f"use tile=1 to tile={_MAX_COPIES}")
    raise UsageError(f"invalid --map: {text!r}", choice_remedy(text, _NAMES, _CHOICES))


_LARGER = "replay it on a larger drive: blkreel drives lists their sizes"


def choose_mapping(name: str | None, touched: BlockSet, target: Target, trace_name: str, *,
                   source_bytes: int | None = None, longest_bytes: int = 0, part: Part | None = None) -> Mapping:
    """The map of that name, as parse_map() gives it; without a name identity if the trace fits, else compact.

    source_bytes: size of the traced device. longest_bytes: of the longest I/O. part: of the target, default all of it.
    Raises BlkreelError if the trace does not fit.
    """
    part = part or Part(0, target.size_bytes)
    room = _exact(part.size_bytes)
    fits = _up(touched.limit_bytes, target.block_bytes) <= part.size_bytes
    kind = (name or ("identity" if fits else "compact")).partition("=")[0]
    span_bytes = _down(part.size_bytes, _granule(target))
    # Growing to whole blocks at both ends may add two blocks.
    wraps = longest_bytes + 2 * target.block_bytes <= span_bytes
    wrap = "; or use --map wrap" if wraps else ""  # never a map that is refused too
    if kind == "compact":
        packed = touched.grown(_granule(target))
        if packed.bytes > part.size_bytes:
            raise DoesNotFit(
                f"{trace_name} touches {_exact(packed.bytes)}, more than the {room} of {target.path}",
                f"{_LARGER}{wrap}")
        return Compact("compact", target.block_bytes, start_bytes=part.start_bytes, packed=PackedSet(packed))
    if kind in ("wrap", "scale"):
        if not wraps:
            raise BlkreelError(f"{trace_name} has an I/O of {_exact(longest_bytes)}, too long for --map {kind} on the "
                               f"{room} of {target.path}", _LARGER)
        if kind == "wrap":
            return Wrap("wrap", target.block_bytes, start_bytes=part.start_bytes, span_bytes=span_bytes)
        return _scale(max(source_bytes or 0, touched.limit_bytes), target, part)
    if not fits:
        compacts = not target.drive.zoned and touched.grown(_granule(target)).bytes <= part.size_bytes
        raise BlkreelError(
            f"{trace_name} reaches to {_exact(touched.limit_bytes)}, {target.path} ends at {room}",
            "use --map compact, or a larger drive" if compacts else f"{_LARGER}{wrap}")
    if kind == "tile":
        drive_bytes = max(touched.limit_bytes, min(source_bytes or 0, part.size_bytes))
        return _tile(name or kind, drive_bytes, touched.limit_bytes, target, part, trace_name)
    return Mapping("identity", target.block_bytes, start_bytes=part.start_bytes)


def end_of(mapping: Mapping, touched: BlockSet, target: Target) -> int:
    """The byte of the target behind the last one that the mapped trace may touch."""
    if isinstance(mapping, Compact):
        return mapping.start_bytes + mapping.packed.blocks.bytes
    if isinstance(mapping, Wrap):
        return mapping.start_bytes + mapping.span_bytes
    if isinstance(mapping, Scale):
        return mapping.start_bytes + mapping.target_regions * mapping.region_bytes
    last_bytes = (mapping.copies - 1) * mapping.stride_bytes + touched.limit_bytes
    return mapping.start_bytes + _up(last_bytes, _granule(target))


def _scale(source_bytes: int, target: Target, part: Part) -> Scale:
    region_bytes = _REGION_BYTES
    while region_bytes > part.size_bytes:
        region_bytes //= 2
    source_regions, target_regions = -(-source_bytes // region_bytes) or 1, part.size_bytes // region_bytes
    # Keep the product within 63 bits, even for a damaged trace with an absurd device size.
    while source_regions * target_regions >= 1 << 62:
        region_bytes *= 2
        source_regions, target_regions = -(-source_regions // 2), target_regions // 2
    return Scale("scale", target.block_bytes, start_bytes=part.start_bytes, region_bytes=region_bytes,
                 source_regions=source_regions, target_regions=target_regions)


def _tile(name: str, source_bytes: int, limit_bytes: int, target: Target, part: Part, trace_name: str) -> Tile:
    """`tile`: as many copies as the traced device fits on the part. `tile=N`: limit_bytes must fit N times."""
    granule = _granule(target)
    least_bytes = max(_up(limit_bytes, granule), granule)
    if "=" not in name:
        stride_bytes = _up(max(source_bytes, least_bytes), granule)
        copies = max(1, min(_down(part.size_bytes, granule) // stride_bytes, _MAX_COPIES))
        return Tile("tile", target.block_bytes, copies, stride_bytes, part.start_bytes)
    copies = int(name.partition("=")[2])
    stride_bytes = _down(part.size_bytes // copies, granule)
    if copies > 1 and stride_bytes < least_bytes:
        raise BlkreelError(
            f"{trace_name} reaches to {_exact(limit_bytes)}: {target.path}, which ends at {_exact(part.size_bytes)}, "
            f"has no room for {copies} copies", f"use --map tile={max(1, part.size_bytes // least_bytes)}")
    return Tile("tile", target.block_bytes, copies, stride_bytes if copies > 1 else 0, part.start_bytes)


def _granule(target: Target) -> int:
    """The unit that maps keep whole: a power of two."""
    least_bytes = max(_ALIGNMENT_BYTES, target.block_bytes, target.drive.physical_block_bytes)
    return min(1 << (least_bytes - 1).bit_length(), 32 << 20)


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _down(count: int, unit: int) -> int:
    return count // unit * unit


def _exact(count: int) -> str:
    return f"{format_bytes(count)} ({count:,} bytes)"
