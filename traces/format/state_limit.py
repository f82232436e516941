"""Limit of what a command stores for each thread, file, burst or other key of the rows.

A few bytes of a file can be a row with keys of its own: 58 KB were a million threads, whose sums took 1.3 GB.
"""

from blkreel.common.errors import TraceError
from blkreel.common.units import format_bytes

_CONSTANT_BYTES, _LEAST_CONSTANT_BYTES, _TIMES_FILE = 128 << 20, 8 << 20, 16


def max_state_bytes(file_bytes: int, files: int = 1) -> int:
    """Memory for the keys of all rows of a file. With Python and its libraries a command stays within 256 MiB and 20
    times the file. files: number of files that a command stores at a time, which share what does not grow with them."""
    return max(_LEAST_CONSTANT_BYTES, _CONSTANT_BYTES // files) + _TIMES_FILE * file_bytes


def check_state(stored_bytes: int, file_bytes: int, keys: str, files: int = 1) -> None:
    """Raises TraceError beyond max_state_bytes(). keys: plural, such as `threads`. stored_bytes: an estimate."""
    if stored_bytes > max_state_bytes(file_bytes, files):
        raise TraceError(f"the I/Os have too many {keys}: what is stored for each would take more memory than "
                         f"{format_bytes(max_state_bytes(file_bytes, files))}",
                         "work on a part of the trace: blkreel slice TRACE --to 60s -o PART")
