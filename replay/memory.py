"""Keeping the memory of a replay down: it runs beside what it measures, for as long as the trace does."""

import ctypes

import pyarrow as pa

from blkreel.traces.no_pandas import keep_out_pandas

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_THRESHOLD_BYTES = 256 << 10


def keep_small() -> None:
    """For the process of a replay, before its first column of rows."""
    keep_out_pandas()
    _give_back_early()


def _give_back_early():
    """Have large blocks returned to the kernel as soon as they are let go.

    Allocators keep what was freed, each thread for itself, in the hope that it is asked for again: with batches of
    columns on their way through three threads that comes to 100 MiB and more.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # a C library that has no such call, and other habits
    mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    mallopt(_M_ARENA_MAX, 1)
