"""Low memory use for a replay: it runs beside the workload that it measures, for as long as the trace is."""

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_THRESHOLD_BYTES = 256 << 10


def limit_memory_use() -> None:
    """Return large blocks to the kernel as soon as they are freed. Call this before the first column of rows.

    malloc keeps freed memory per thread for reuse. Three threads that pass batches of columns on would keep 100 MiB
    and more. (pyarrow of a command uses malloc: cli/command_table.py.)
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    mallopt(_M_ARENA_MAX, 1)
