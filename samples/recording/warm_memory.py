"""Memory for a recording in a virtual machine that returns free memory to its host.

Such memory takes time to come back, about 0.4 ms per MB: time that a program or an emulated drive would seem to need.
"""

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blkreel.replay.emulated.host import memory_bytes

_RETURNS_MEMORY = Path("/sys/module/page_reporting")
_MOST_BYTES = 10 << 30
_LEFT_BYTES = 3 << 30  # for others
_AHEAD_BYTES = 384 << 20  # free for the recording at any time
_PIECE_BYTES = 64 << 20
_EVERY_S = 0.004
_PRIORITY = 4  # of SCHED_RR: before the programs that need the memory
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14


@contextmanager
def running(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """work(*arguments, ended) in a thread beside the block, after which `ended` is set."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(*arguments, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def warm_memory() -> Iterator[None]:
    """Take most of the free memory before the block, and release it in the block as fast as it is used up."""
    size_bytes = min(memory_bytes("MemFree") - _LEFT_BYTES, _MOST_BYTES) // _PIECE_BYTES * _PIECE_BYTES
    if not _RETURNS_MEMORY.exists() or size_bytes <= 0:
        yield
        return
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(_POPULATE_WRITE)
        with running(_release, memory, size_bytes, memory_bytes("MemFree") + _AHEAD_BYTES):
            yield


def _release(memory: mmap.mmap, left_bytes: int, free_bytes: int, ended: threading.Event) -> None:
    """free_bytes: what is to be free at any time."""
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR, os.sched_param(_PRIORITY))
    while left_bytes and not ended.wait(_EVERY_S):
        while left_bytes and memory_bytes("MemFree") < free_bytes:
            left_bytes -= _PIECE_BYTES
            memory.madvise(mmap.MADV_DONTNEED, left_bytes, _PIECE_BYTES)
