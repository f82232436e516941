"""Limits of memory and open files: errors of a resource that ran out, with the command that raises the limit."""

import errno
import resource

from .errors import BlkreelError, TraceError
from .units import format_bytes

_FILES = 4096  # more than any command needs
_LEAST_FILES = 64
_LEAST_BYTES = 512 << 20  # of virtual memory
# Of what a command stores for each thread, file, burst or other key of the rows. A few bytes of a file can be a row
# with keys of its own: 58 KB were a million threads, whose sums took 1.3 GB.
_CONSTANT_BYTES, _LEAST_CONSTANT_BYTES, _TIMES_FILE = 128 << 20, 8 << 20, 16
# What the loader of shared libraries and numpy say without memory; what Python says without memory for a stack, too.
_MEMORY_TEXTS = ("failed to map segment from shared object", "cannot allocate memory", "can't allocate memory")
_THREAD_TEXT = "can't start new thread"
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_THRESHOLD_BYTES = 256 << 10


class LimitReached(BlkreelError):
    """A resource of this process or machine ran out."""

    code = "system"


def limit_reached(error: BaseException) -> LimitReached | None:
    """The error with the limit that caused it; None if it has another cause."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return _files()
    if number == errno.ENFILE:
        return LimitReached("too many open files on this machine", "raise the limit: sysctl fs.file-max")
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return out_of_memory()
    if isinstance(error, ImportError | RuntimeError) and any(text in str(error).lower() for text in _MEMORY_TEXTS):
        return out_of_memory()
    if isinstance(error, RuntimeError) and _THREAD_TEXT in str(error):
        return _limited_memory() or LimitReached(
            "too many threads", "raise the limit: ulimit -u, or pids.max of the control group")
    return None


def require_least() -> None:
    """Raises LimitReached where even the imports of a command fail, some of them by SIGSEGV."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _LEAST_FILES:
        raise _files()
    limit_bytes = address_space_limit_bytes()
    if limit_bytes is not None and limit_bytes < _LEAST_BYTES:
        raise out_of_memory()


def address_space_limit_bytes() -> int | None:
    """The limit of virtual memory (ulimit -v); None without one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def out_of_memory() -> LimitReached:
    return _limited_memory() or LimitReached("not enough memory", "end other programs; what is free: free -h")


def _limited_memory() -> LimitReached | None:
    for kind, option, name in ((resource.RLIMIT_AS, "v", "virtual memory"), (resource.RLIMIT_DATA, "d", "data")):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            return LimitReached(f"not enough memory: the {name} of this process is limited to {format_bytes(soft)}",
                                f"raise the limit: ulimit -{option} unlimited")
    return None


def _files() -> LimitReached:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needs_root = hard != resource.RLIM_INFINITY and hard < _FILES
    return LimitReached(f"too many open files: the limit of this process is {soft:,}",
                        f"raise the limit{', as root' if needs_root else ''}: ulimit -n {_FILES}")


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


def limit_memory_use() -> None:
    """Return large blocks to the kernel as soon as they are freed: a replay runs beside the workload that it measures.
    Call this before the first column of rows.

    malloc keeps freed memory per thread for reuse. Three threads that pass batches of columns on would keep 100 MiB
    and more. (pyarrow of a command uses malloc: cli/command_table.py.)
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)
    mallopt(_M_ARENA_MAX, 1)
