"""Where on the target the I/Os of a trace go."""

from dataclasses import dataclass

import numpy as np

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from .extents import Extents

# What no map may shift an I/O against: flash pages and file system blocks are at least this large, and an
# I/O that was aligned to them on the source must be on the target.
_KEPT_ALIGNMENT_BYTES = 4096


@dataclass(frozen=True)
class Mapping:
    """name: identity or compact. extents: for compact, what was touched, in source bytes."""

    name: str
    extents: Extents | None = None
    new_start: np.ndarray | None = None

    def move(self, offset_bytes: np.ndarray) -> np.ndarray:
        """The offsets on the target. Every one must lie in the extents that the map was made of."""
        if self.extents is None or not len(self.extents):
            return offset_bytes
        index = np.searchsorted(self.extents.start, offset_bytes, "right") - 1
        return self.new_start[index] + offset_bytes - self.extents.start[index]

    def move_extents(self, extents: Extents) -> Extents:
        """The same for whole ranges; each must lie inside one extent of the map."""
        start = self.move(extents.start)
        return Extents.of(start, start + extents.end - extents.start)


IDENTITY = Mapping("identity")


def choose_mapping(wanted: str | None, touched: Extents, target, trace_path) -> Mapping:
    """Identity where the trace fits the target, compact otherwise; or the one that is wanted.

    Compact packs the touched extents, so that neighbours stay neighbours and overlaps stay overlaps.
    target has size_bytes and block_bytes. Raises BlkreelError where the trace does not fit.
    """
    block_bytes = max(_KEPT_ALIGNMENT_BYTES, target.block_bytes, target.drive.physical_block_bytes)
    whole = touched.aligned(target.block_bytes)
    if wanted != "compact":
        if whole.limit_bytes <= target.size_bytes:
            return IDENTITY
        if wanted == "identity":
            raise BlkreelError(
                f"{trace_path} reaches to {_exact(whole.limit_bytes)}, {target.path} ends at "
                f"{_exact(target.size_bytes)}", "use --map compact, or a larger drive")
    packed = touched.aligned(block_bytes)
    length = packed.end - packed.start
    if packed.bytes > target.size_bytes:
        raise BlkreelError(
            f"{trace_path} touches {_exact(packed.bytes)}, more than the {_exact(target.size_bytes)} of "
            f"{target.path}", "replay it on a larger drive: blkreel drives lists their sizes")
    return Mapping("compact", packed, np.cumsum(length) - length)


def _exact(count: int) -> str:
    return f"{format_bytes(count)} ({count:,} bytes)"
