"""Giving the space of a file's head back, while its tail is still being written."""

import ctypes
import errno
import os

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_GRAIN_BYTES = 64 << 10  # at least the block of any file system: only whole ones are given back

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def can_punch(fd: int) -> bool:
    """Whether this file's file system gives space back; asked behind its end, where nothing is."""
    return _punch(fd, os.fstat(fd).st_size, _GRAIN_BYTES) != errno.EOPNOTSUPP


def punch_head(fd: int, keep_bytes: int, begin_bytes: int, end_bytes: int) -> None:
    """Free what stands between begin and end. All before begin is free already, but for the first keep_bytes.

    Raises OSError.
    """
    begin_bytes = max(keep_bytes, begin_bytes // _GRAIN_BYTES * _GRAIN_BYTES)
    if end_bytes > begin_bytes:
        code = _punch(fd, begin_bytes, end_bytes - begin_bytes)
        if code:
            raise OSError(code, os.strerror(code))


def _punch(fd, offset_bytes, length_bytes):
    failed = _libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, offset_bytes, length_bytes)
    return ctypes.get_errno() if failed else 0
