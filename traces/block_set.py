"""Sets of the blocks of a drive, in native code: what a trace touches, and what it reads before it wrote it.

However many I/Os there are, a set takes 32 MiB of memory for each TiB that is touched all over, less for what is
touched in stretches, and eight times as much where I/Os are not whole blocks of 4 KiB. block_set.h is the contract.
Calls run without the interpreter's lock.
"""

import ctypes
import errno
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .errors import BlkreelError

_BATCH_RANGES = 65_536
_LIBRARY = Path(__file__).with_name("libblkreel-blocks.so")
_SET, _I8, _U1, _SIZE = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t
_SIGNATURES = {
    "new": (_SET, []),
    "free": (None, [_SET]),
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
    "load": (_SET, [_U1, _SIZE]),
}


class BlockSet:
    """A set of bytes of a drive, in whole sectors of 512: ranges that are not are grown outward.

    Raises BlkreelError for ranges below 0 or beyond 4 EiB, and where more than 128 TiB are touched.
    """

    def __init__(self, handle=None):
        self._library = _native()
        self._forgotten: tuple[int, int, int] | None = None
        self._held = handle or self._library.new()
        if not self._held:
            raise MemoryError

    def __del__(self):
        if getattr(self, "_held", None):
            self._library.free(self._held)

    @property
    def _handle(self):
        if self._held is None:
            raise RuntimeError("the set was forgotten")
        return self._held

    def forget(self) -> None:
        """Free the memory. How much there was stays known: len(), bytes and limit_bytes; nothing else may be asked."""
        if self._forgotten is None:
            self._forgotten = (len(self), self.bytes, self.limit_bytes)
            self._library.free(self._held)
            self._held = None

    @classmethod
    def of(cls, start: np.ndarray, end: np.ndarray) -> "BlockSet":
        """The union of ranges [start, end) in any order."""
        found = cls()
        found.add(start, end)
        return found

    def add(self, start: np.ndarray, end: np.ndarray) -> None:
        start, end = _integers(start), _integers(end)
        _check(self._library.add(self._handle, _at(start), _at(end), len(start)))

    def __len__(self) -> int:
        """How many ranges there are, neighbours joined."""
        return self._forgotten[0] if self._forgotten else _check(self._library.count(self._handle))

    @property
    def bytes(self) -> int:
        return self._forgotten[1] if self._forgotten else self._library.bytes(self._handle)

    @property
    def limit_bytes(self) -> int:
        """The end of the last range: the size that a drive must have at least."""
        return self._forgotten[2] if self._forgotten else _check(self._library.limit(self._handle))

    @property
    def memory_bytes(self) -> int:
        return self._library.memory(self._handle)

    def ranges(self, most: int = _BATCH_RANGES) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All ranges in ascending order, as arrays of starts and ends of at most that many, neighbours joined."""
        cursor = ctypes.c_int64(0)
        while True:
            start, end = np.empty(most, np.int64), np.empty(most, np.int64)
            count = _check(self._library.next(self._handle, ctypes.byref(cursor), _at(start), _at(end), most))
            if not count:
                return
            yield start[:count], end[:count]

    def grown(self, block_bytes: int) -> "BlockSet":
        """The same, grown outward to whole blocks of a power of two of bytes, up to 32 MiB.

        Itself where that changes nothing: sets are large.
        """
        if block_bytes & (block_bytes - 1) or not 512 <= block_bytes <= 32 << 20:
            raise ValueError(f"blocks of {block_bytes} bytes")
        if self._library.is_grown(self._handle, block_bytes):
            return self
        handle = self._library.grown(self._handle, block_bytes)
        if not handle:
            raise MemoryError
        return BlockSet(handle)

    def saved(self) -> memoryview:
        """Bytes for BlockSet.load(), on a machine of the same byte order."""
        length = _check(self._library.save(self._handle, None, 0))
        buffer = np.empty(length, np.uint8)
        _check(self._library.save(self._handle, buffer.ctypes.data_as(_U1), length))
        return buffer.data

    @staticmethod
    def load(saved) -> "BlockSet":
        """Raises ValueError for what saved() cannot have given."""
        buffer = np.frombuffer(saved, np.uint8)
        handle = _native().load(buffer.ctypes.data_as(_U1), len(buffer))
        if not handle:
            raise ValueError("not a saved set of blocks")
        return BlockSet(handle)


class PackedSet:
    """A set of whole 4 KiB blocks, packed to the beginning of a drive: neighbours stay neighbours, order stays."""

    def __init__(self, blocks: BlockSet):
        self.blocks = blocks
        _check(blocks._library.rank(blocks._handle))

    def move(self, offset_bytes: np.ndarray) -> np.ndarray:
        """Where offsets go. Every one must lie in the set."""
        offset_bytes = _integers(offset_bytes)
        moved = np.empty(len(offset_bytes), np.int64)
        self.blocks._library.pack(self.blocks._handle, _at(offset_bytes), _at(moved), len(moved))
        return moved


class FirstTouch:
    """Takes I/Os in order. touched: all they cover. read_first: the part that a read touched first.

    A drive answers a read of a block that was never written without touching its flash, so these blocks are written
    once beforehand. Whether a block needs that depends on its first toucher alone.
    """

    def __init__(self):
        self.touched = BlockSet()
        self.read_first = BlockSet()

    def add(self, start: np.ndarray, end: np.ndarray, is_read: np.ndarray) -> None:
        """The next I/Os, in their order. A discard touches like a write: what it unmaps was meant to be."""
        start, end, is_read = _integers(start), _integers(end), np.ascontiguousarray(is_read, np.uint8)
        _check(self.touched._library.first_touch(self.touched._handle, self.read_first._handle, _at(start), _at(end),
                                                 is_read.ctypes.data_as(_U1), len(start)))

    @property
    def memory_bytes(self) -> int:
        return self.touched.memory_bytes + self.read_first.memory_bytes


def _integers(values) -> np.ndarray:
    return np.ascontiguousarray(values, np.int64)


def _at(array):
    return array.ctypes.data_as(_I8)


def _check(result: int) -> int:
    if result >= 0:
        return result
    if result == -errno.ERANGE:
        raise BlkreelError("an I/O lies outside of any drive: below 0 or beyond 4 EiB",
                           "see what is wrong with the trace: blkreel check TRACE")
    if result == -errno.EFBIG:
        raise BlkreelError("more than 128 TiB are touched, which is more than is kept account of",
                           "see whether the trace is sound: blkreel check TRACE")
    if result == -errno.EINVAL:
        raise ValueError("only whole blocks can be packed")
    raise MemoryError


class _Functions:
    pass


_loaded = None


def _native():
    """The library, loaded when the first set is made."""
    global _loaded
    if _loaded is None:
        library, functions = ctypes.CDLL(str(_LIBRARY)), _Functions()
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, f"block_set_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(functions, name, function)
        _loaded = functions
    return _loaded
