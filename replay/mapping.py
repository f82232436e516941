"""Where on the target the I/Os of a trace go."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blkreel.traces.block_set import BlockSet, PackedSet
from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.units import format_bytes

# What no map may shift an I/O against: flash pages and file system blocks are at least this large, and an
# I/O that was aligned to them on the source must be on the target.
_KEPT_ALIGNMENT_BYTES = 4096
# What `scale` moves as one piece: inside, I/Os keep their distances.
_REGION_BYTES = 1 << 20
_MOST_COPIES = 1024
_TILED_ROWS = 65_536
_CHOICES = ("identity or refuse (the same offsets, or an error), compact (packed), wrap (modulo the target's size), "
            "scale (spread or squeezed), tile or tile=N (N copies side by side)")


@dataclass(frozen=True)
class Mapping:
    """The same offsets; what other maps have in common.

    block_bytes: of the target; what does not begin or end at one grows to it. copies: how often each I/O is issued,
    a stride apart. folds: whether blocks that are apart on the source may meet on the target, so that only there
    can be told which of them a read touches first.
    """

    name: str = "identity"
    block_bytes: int = 512
    copies: int = 1
    stride_bytes: int = 0
    folds = False

    def place(self, offset_bytes: np.ndarray, length_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where I/Os go: [start, end), in whole blocks of the target. What has no length goes to 0."""
        start = offset_bytes // self.block_bytes * self.block_bytes
        length = -(-(offset_bytes + length_bytes) // self.block_bytes) * self.block_bytes - start
        some = length_bytes > 0
        start, length = np.where(some, start, 0), np.where(some, length, 0)
        start = np.where(some, self._moved(start, length), 0)
        return start, start + length

    def move(self, offset_bytes: np.ndarray) -> np.ndarray:
        """Where single bytes go that the trace touches."""
        return self._moved(offset_bytes, np.ones(len(offset_bytes), np.int64))

    def tiled(self, columns: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Rows of a plan that were placed, each as often as there are copies, side by side, in the order of the rows.

        What goes with a time goes with it in all copies. A flush has no place, and stays at 0.
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
        """Whether the map is made of this very set."""
        return False

    def key(self) -> str:
        """All that decides where an I/O goes, for maps that fold."""
        return repr(self)

    def account(self) -> dict:
        """As a run's metadata tells it."""
        return {"name": self.name}

    def _moved(self, start, length):
        return start


IDENTITY = Mapping()


@dataclass(frozen=True)
class Compact(Mapping):
    """Touched blocks laid side by side: neighbours stay neighbours, overlaps overlaps, and order stays."""

    packed: PackedSet | None = None

    def holds(self, blocks: BlockSet) -> bool:
        return self.packed.blocks is blocks

    def _moved(self, start, length):
        return self.packed.move(start)


@dataclass(frozen=True)
class Wrap(Mapping):
    """Offset modulo span. What would reach over the end of the span is moved back to end there."""

    span_bytes: int = 0
    folds = True

    def _moved(self, start, length):
        return np.minimum(start % self.span_bytes, self.span_bytes - length)

    def account(self) -> dict:
        return {"name": self.name, "span_bytes": self.span_bytes}


@dataclass(frozen=True)
class Scale(Mapping):
    """Regions of the source go to regions of the target in proportion; within a region distances stay."""

    region_bytes: int = _REGION_BYTES
    source_regions: int = 1
    target_regions: int = 1
    folds = True

    def _moved(self, start, length):
        region, within = np.divmod(start, self.region_bytes)
        moved = region * self.target_regions // self.source_regions * self.region_bytes + within
        return np.minimum(moved, self.target_regions * self.region_bytes - length)

    def account(self) -> dict:
        return {"name": self.name, "region_bytes": self.region_bytes,
                "factor": self.target_regions / self.source_regions}


@dataclass(frozen=True)
class Tile(Mapping):
    """Copies of the trace side by side, issued together. Places are those of the first copy."""

    def account(self) -> dict:
        return {"name": self.name, "copies": self.copies, "stride_bytes": self.stride_bytes}


def parse_map(text: str | None) -> str | None:
    """What --map names, `refuse` as identity. Raises UsageError."""
    if text == "refuse":
        return "identity"
    if text is None or text in ("identity", "compact", "wrap", "scale", "tile"):
        return text
    if match := re.fullmatch(r"tile=([0-9]{1,9})", text):
        if 1 <= int(match[1]) <= _MOST_COPIES:
            return text
        raise UsageError(f"--map {text} is out of range", f"use tile=1 to tile={_MOST_COPIES}")
    raise UsageError(f"--map {text!r} is none of the choices", f"use {_CHOICES}")


def choose_mapping(wanted: str | None, touched: BlockSet, target, trace_path, *, source_bytes: int | None = None,
                   longest_bytes: int = 0) -> Mapping:
    """Identity where the trace fits the target, compact otherwise; or the one that is wanted, as parse_map() gives it.

    target has size_bytes, block_bytes and drive.physical_block_bytes. source_bytes: size of the device that was
    recorded. longest_bytes: of the longest I/O. Raises BlkreelError where the trace does not fit.
    """
    fits = _up(touched.limit_bytes, target.block_bytes) <= target.size_bytes
    kind = (wanted or ("identity" if fits else "compact")).partition("=")[0]
    if kind == "compact":
        return _compact(touched, target, trace_path)
    if kind in ("wrap", "scale"):
        _check_longest(longest_bytes, target, trace_path, kind)
        return _wrap(target) if kind == "wrap" else _scale(max(source_bytes or 0, touched.limit_bytes), target)
    if not fits:
        raise BlkreelError(
            f"{trace_path} reaches to {_exact(touched.limit_bytes)}, {target.path} ends at "
            f"{_exact(target.size_bytes)}", "use --map compact, or a larger drive")
    if kind == "tile":
        return _tile(wanted, max(touched.limit_bytes, min(source_bytes or 0, target.size_bytes)), touched.limit_bytes,
                     target, trace_path)
    return Mapping("identity", target.block_bytes)


def _compact(touched, target, trace_path):
    packed = touched.grown(_granule(target))
    if packed.bytes > target.size_bytes:
        raise BlkreelError(
            f"{trace_path} touches {_exact(packed.bytes)}, more than the {_exact(target.size_bytes)} of "
            f"{target.path}", "replay it on a larger drive: blkreel drives lists their sizes; or use --map wrap")
    return Compact("compact", target.block_bytes, packed=PackedSet(packed))


def _wrap(target):
    return Wrap("wrap", target.block_bytes, span_bytes=_down(target.size_bytes, _granule(target)))


def _scale(source_bytes, target):
    region_bytes = _REGION_BYTES
    while region_bytes > target.size_bytes:
        region_bytes //= 2
    source_regions, target_regions = -(-source_bytes // region_bytes) or 1, target.size_bytes // region_bytes
    # Their product has to stay within 63 bits, whatever a damaged trace says of its device.
    while source_regions * target_regions >= 1 << 62:
        region_bytes *= 2
        source_regions, target_regions = -(-source_regions // 2), target_regions // 2
    return Scale("scale", target.block_bytes, region_bytes=region_bytes, source_regions=source_regions,
                 target_regions=target_regions)


def _tile(wanted, source_bytes, limit_bytes, target, trace_path):
    """Without a number as many copies as drives like the source's fit; with one, what the trace reaches to must fit."""
    granule = _granule(target)
    least_bytes = max(_up(limit_bytes, granule), granule)
    if "=" not in wanted:
        stride_bytes = _up(max(source_bytes, least_bytes), granule)
        copies = max(1, min(_down(target.size_bytes, granule) // stride_bytes, _MOST_COPIES))
        return Tile("tile", target.block_bytes, copies, stride_bytes)
    copies = int(wanted.partition("=")[2])
    stride_bytes = _down(target.size_bytes // copies, granule)
    if copies > 1 and stride_bytes < least_bytes:
        raise BlkreelError(
            f"{trace_path} reaches to {_exact(limit_bytes)}: {target.path}, which ends at {_exact(target.size_bytes)}, "
            f"has no room for {copies} copies", f"use --map tile={max(1, target.size_bytes // least_bytes)}")
    return Tile("tile", target.block_bytes, copies, stride_bytes if copies > 1 else 0)


def _check_longest(longest_bytes, target, trace_path, kind):
    # Grown to whole blocks at both ends it may be a block longer.
    if longest_bytes + 2 * target.block_bytes > _down(target.size_bytes, _granule(target)):
        raise BlkreelError(f"{trace_path} has an I/O of {_exact(longest_bytes)}, too long for --map {kind} on the "
                           f"{_exact(target.size_bytes)} of {target.path}",
                           "replay it on a larger drive: blkreel drives lists their sizes")


def _granule(target) -> int:
    """What maps keep whole: a power of two."""
    wanted = max(_KEPT_ALIGNMENT_BYTES, target.block_bytes, target.drive.physical_block_bytes)
    return min(1 << (wanted - 1).bit_length(), 32 << 20)


def _up(count, unit) -> int:
    return -(-count // unit) * unit


def _down(count, unit) -> int:
    return count // unit * unit


def _exact(count: int) -> str:
    return f"{format_bytes(count)} ({count:,} bytes)"
