"""How writes lie on blocks of 4 to 64 KiB, such as the mapping units of a drive, which it writes as a whole."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from .record import Record
from .timeline import HEAT_DEVICES

BLOCK_BYTES = (4096, 8192, 16_384, 32_768, 65_536)  # as in native/alignment.h

Counts = npt.NDArray[np.int64]


def _zeros() -> Counts:
    return np.zeros(len(BLOCK_BYTES), np.int64)


@dataclass(eq=False)
class Alignment(Record):
    """Of writes with a completion, by block size.

    unaligned: writes that begin or end within a block. repeated: writes that begin in the block in which the previous
    write to the drive ended. ends: by drive, the first byte of the first write and the last byte of the last one of a
    part; -1 without writes, and of pooled runs.
    """

    writes: int = 0
    unaligned: Counts = field(default_factory=_zeros)
    repeated: Counts = field(default_factory=_zeros)
    ends: Counts = field(default_factory=lambda: np.full((HEAT_DEVICES, 2), -1, np.int64))

    @classmethod
    def of_native(cls, numbers: Counts) -> "Alignment":
        """From PART_ALIGNMENT of native/metrics.h."""
        unaligned, repeated, ends = np.split(numbers[1:], [len(BLOCK_BYTES), 2 * len(BLOCK_BYTES)])
        return cls(int(numbers[0]), unaligned.copy(), repeated.copy(), ends.reshape(HEAT_DEVICES, 2).copy())

    def __add__(self, other: "Alignment") -> "Alignment":
        """Of different runs."""
        return Alignment(self.writes + other.writes, self.unaligned + other.unaligned, self.repeated + other.repeated)

    def join(self, later: "Alignment") -> "Alignment":
        """Of two consecutive parts of one run."""
        in_both = (self.ends[:, 1] >= 0) & (later.ends[:, 0] >= 0)
        continued = np.array([int((self.ends[in_both, 1] // size == later.ends[in_both, 0] // size).sum())
                              for size in BLOCK_BYTES], np.int64)
        first = np.where(self.ends[:, 0] >= 0, self.ends[:, 0], later.ends[:, 0])
        last = np.where(later.ends[:, 1] >= 0, later.ends[:, 1], self.ends[:, 1])
        added = self + later
        return replace(added, repeated=added.repeated + continued, ends=np.column_stack([first, last]))

