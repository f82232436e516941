"""Sets of drive blocks, in native code: what a trace touches, and what it reads before it writes it.

A set takes at most 32 MiB of memory per TiB, less for contiguous ranges, and eight times as much for I/Os that are not
whole 4 KiB blocks. An I/O far from all others takes about 100 bytes. native/block_set.h specifies the functions; calls
release the GIL.
"""

import ctypes
import errno
import functools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from blkreel.common.errors import BlkreelError
from blkreel.common.system import native_library

# bytes is also the name of a property of BlockSet, which hides the type inside the class.
Buffer = bytes | memoryview
_BATCH_RANGES = 65_536
_LIBRARY = Path(__file__).with_name("libblkreel-blocks.so")
_SET, _I8, _U1, _SIZE = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t
_SIGNATURES = {
    "new": (_SET, []),
    "free": (None, [_SET]),
    "limit_memory": (None, [_SET, ctypes.c_int64]),
    "add": (ctypes.c_int, [_SET, _I8, _I8, _SIZE]),
    "first_touch": (ctypes.c_int, [_SET, _SET, _I8, _I8, _U1, _SIZE]),
    "bytes": (ctypes.c_int64, [_SET]),
    "limit": (ctypes.c_int64, [_SET]),
    "count": (ctypes.c_int64, [_SET]),
    "memory": (ctypes.c_int64, [_SET]),
    "next": (ctypes.c_int64, [_SET, _I8, _I8, _I8, _SIZE]),
    "is_grown": (ctypes.c_int, [_SET, ctypes.c_int64]),
    "grown": (_SET, [_SET, ctypes.c_int64]),
    "rank": (ctypes.c_int, [_SET]),
    "pack": (None, [_SET, _I8, _I8, _SIZE]),
    "save": (ctypes.c_int64, [_SET, _U1, _SIZE]),
    "load": (_SET, [_U1, _SIZE, ctypes.c_int64]),
}


class BlockSet:
    """A set of bytes of a drive. Ranges are extended to whole sectors of 512 bytes.

    Raises BlkreelError for ranges below 0 or beyond 4 EiB, for more than 128 TiB touched, and beyond max_memory_bytes.
    """

    def __init__(self, handle: int | None = None, *, max_memory_bytes: int = 0):
        """max_memory_bytes: 0 for no limit."""
        self._library = _native()
        self._forgotten: tuple[int, int, int] | None = None
        self._held = handle or self._library.new()
        if not self._held:
            raise MemoryError
        if max_memory_bytes:
            self._library.limit_memory(self._held, max_memory_bytes)

    def __del__(self) -> None:
        if getattr(self, "_held", None):
            self._library.free(self._held)

    @property
    def _handle(self) -> int:
        if self._held is None:
            raise RuntimeError("the set was freed")
        return self._held

    def forget(self) -> None:
        """Free the memory. len(), bytes and limit_bytes keep their values; other calls raise RuntimeError."""
        if self._forgotten is None:
            self._forgotten = (len(self), self.bytes, self.limit_bytes)
            self._library.free(self._held)
            self._held = None

    @classmethod
    def of(cls, start: np.ndarray, end: np.ndarray) -> "BlockSet":
        """The union of ranges [start, end) in any order."""
        blocks = cls()
        blocks.add(start, end)
        return blocks

    def add(self, start: np.ndarray, end: np.ndarray) -> None:
        start, end = _integers(start), _integers(end)
        _check(self._library.add(self._handle, _at(start), _at(end), len(start)))

    def __len__(self) -> int:
        """Number of ranges; adjacent ranges count as one."""
        return self._forgotten[0] if self._forgotten else _check(self._library.count(self._handle))

    @property
    def bytes(self) -> int:
        return self._forgotten[1] if self._forgotten else int(self._library.bytes(self._handle))

    @property
    def limit_bytes(self) -> int:
        """The end of the last range: the least size of a drive that holds it."""
        return self._forgotten[2] if self._forgotten else _check(self._library.limit(self._handle))

    @property
    def memory_bytes(self) -> int:
        return int(self._library.memory(self._handle))

    def ranges(self, most: int = _BATCH_RANGES) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All ranges in ascending order, as arrays of at most `most` starts and ends; adjacent ranges are joined."""
        cursor = ctypes.c_int64(0)
        while True:
            start, end = np.empty(most, np.int64), np.empty(most, np.int64)
            count = _check(self._library.next(self._handle, ctypes.byref(cursor), _at(start), _at(end), most))
            if not count:
                return
            yield start[:count], end[:count]

    def grown(self, block_bytes: int) -> "BlockSet":
        """The set extended to whole blocks of a power of two of bytes, up to 32 MiB; itself if nothing changes."""
        if block_bytes & (block_bytes - 1) or not 512 <= block_bytes <= 32 << 20:
            raise ValueError(f"blocks of {block_bytes} bytes")
        if self._library.is_grown(self._handle, block_bytes):
            return self
        handle = self._library.grown(self._handle, block_bytes)
        if not handle:
            raise MemoryError
        return BlockSet(handle)

    def saved(self) -> memoryview:
        """Bytes for BlockSet.load() on a machine with the same byte order."""
        length = _check(self._library.save(self._handle, None, 0))
        buffer = np.empty(length, np.uint8)
        _check(self._library.save(self._handle, buffer.ctypes.data_as(_U1), length))
        return buffer.data

    @staticmethod
    def load(saved: Buffer, *, max_memory_bytes: int = 0) -> "BlockSet":
        """Raises ValueError for anything but the result of saved(), and beyond max_memory_bytes (0: no limit)."""
        buffer = np.frombuffer(saved, np.uint8)
        handle = _native().load(buffer.ctypes.data_as(_U1), len(buffer), max_memory_bytes)
        if not handle:
            raise ValueError("not a saved set of blocks")
        return BlockSet(handle)


class PackedSet:
    """Maps a set of whole 4 KiB blocks to the beginning of a drive, in the same order, without gaps."""

    def __init__(self, blocks: BlockSet):
        self.blocks = blocks
        _check(blocks._library.rank(blocks._handle))

    def move(self, offset_bytes: np.ndarray) -> np.ndarray:
        """The new offsets. Each offset must be in the set."""
        offset_bytes = _integers(offset_bytes)
        moved = np.empty(len(offset_bytes), np.int64)
        self.blocks._library.pack(self.blocks._handle, _at(offset_bytes), _at(moved), len(moved))
        return moved


class FirstTouch:
    """Takes I/Os in order. touched: all blocks they cover. read_first: blocks whose first access is a read.

    A drive answers a read of a block that was never written without accessing its flash, so these blocks are written
    before a replay.
    """

    def __init__(self, max_memory_bytes: int = 0) -> None:
        """max_memory_bytes: of each of both sets; 0 for no limit."""
        self.touched = BlockSet(max_memory_bytes=max_memory_bytes)
        self.read_first = BlockSet(max_memory_bytes=max_memory_bytes)

    def add(self, start: np.ndarray, end: np.ndarray, is_read: np.ndarray) -> None:
        """Add the next I/Os in order. A discard counts as a write: the unmapped blocks are intended."""
        start, end, is_read = _integers(start), _integers(end), np.ascontiguousarray(is_read, np.uint8)
        _check(self.touched._library.first_touch(self.touched._handle, self.read_first._handle, _at(start), _at(end),
                                                 is_read.ctypes.data_as(_U1), len(start)))

    @property
    def memory_bytes(self) -> int:
        return self.touched.memory_bytes + self.read_first.memory_bytes


def max_memory_bytes(file_bytes: int) -> int:
    """Of one set of the blocks of a file's I/Os. A command has up to three of the same I/Os at a time."""
    return (24 << 20) + 4 * file_bytes


def too_scattered() -> BlkreelError:
    return BlkreelError("the I/Os touch too many separate ranges: a set of the touched blocks would take more memory "
                        "than 24 MiB and 4 times the file",
                        "work on a part of the trace: blkreel slice TRACE --to 60s -o PART")


def _integers(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.int64)


def _at(array: np.ndarray) -> Any:
    return array.ctypes.data_as(_I8)


def _check(result: int) -> int:
    if result >= 0:
        return result
    if result == -errno.ERANGE:
        raise BlkreelError("an I/O is outside any drive: below 0 or beyond 4 EiB",
                           "check the trace: blkreel check TRACE")
    if result == -errno.EFBIG:
        raise BlkreelError("more than 128 TiB are touched (limit 128 TiB)",
                           "check the trace: blkreel check TRACE")
    if result == -errno.E2BIG:
        raise too_scattered()
    if result == -errno.EINVAL:
        raise ValueError("only whole blocks can be packed")
    raise MemoryError


@functools.cache
def _native() -> SimpleNamespace:
    """Loaded when the first set is made."""
    return native_library(_LIBRARY, "block_set", _SIGNATURES)
