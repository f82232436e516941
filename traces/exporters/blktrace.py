"""Binary events of blktrace, version 7, of all devices and CPUs in one file, as `blkparse -d` writes them.

Version 7 has no bit for write-zeroes, which are writes there as in files of the kernel.

include/uapi/linux/blktrace_api.h of the kernel is the format.
"""

import struct
from typing import IO

import numpy as np

from blkreel.traces.format.trace import Trace

from .block_events import COMPLETE, QUEUE, BlockEvents, flag
from .export_format import Account, Columns, ExportFormat, is_op, thread_names

_MAGIC = 0x65617407
_EVENT = np.dtype([("magic", "<u4"), ("sequence", "<u4"), ("time_ns", "<u8"), ("sector", "<u8"), ("bytes", "<u4"),
                   ("action", "<u4"), ("pid", "<u4"), ("device", "<u4"), ("cpu", "<u4"), ("status", "<i2"),
                   ("payload_bytes", "<u2")])
_ACTIONS = np.array([1, 7, 8], np.uint32)  # queued, issued, completed
_CATEGORY_SHIFT = 16
_READ, _WRITE, _FLUSH, _SYNC, _QUEUE, _ISSUE, _COMPLETE, _FS, _NOTIFY, _AHEAD, _META, _DISCARD, _FUA = (
    np.uint32(1 << bit) for bit in (0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 15))
_STAGES = np.array([_QUEUE, _ISSUE, _COMPLETE], np.uint32)
_CATEGORIES = {"sync": _SYNC, "metadata": _META, "read_ahead": _AHEAD, "fua": _FUA}
_PROCESS_NOTICE, _TIME_NOTICE = 0, 1
NAME_BYTES = 16  # of a thread, as in the kernel


def _write(trace: Trace, file: IO[bytes], account: Account) -> None:
    events = BlockEvents(trace, account)
    file.write(_notices(trace, events))
    for part in events:
        file.write(_encoded(part).tobytes())


def _encoded(events: Columns) -> np.ndarray:
    encoded = np.zeros(len(events["time_ns"]), _EVENT)
    encoded["magic"] = _MAGIC
    for name in ("sequence", "time_ns", "sector", "bytes", "device", "cpu"):
        encoded[name] = events[name]
    encoded["pid"] = events["tid"]
    encoded["status"] = np.where(events["stage"] == COMPLETE, events["status"], 0)
    encoded["action"] = _ACTIONS[events["stage"]] | categories(events) << np.uint32(_CATEGORY_SHIFT)
    return encoded


def categories(events: Columns) -> np.ndarray:
    """The category bits of each event."""
    category: np.ndarray = _STAGES[events["stage"]] | _FS
    category |= np.where(is_op(events, "read", "flush"), _READ, _WRITE)
    category |= np.where(is_op(events, "discard"), _DISCARD, np.uint32(0))
    # Readers take a queued flush before a write for an I/O of its own.
    preflush = flag(events, "preflush") & (events["stage"] != QUEUE)
    category |= np.where(is_op(events, "flush") | preflush, _FLUSH, np.uint32(0))
    for name, bit in _CATEGORIES.items():
        category |= np.where(flag(events, name), bit, np.uint32(0))
    return category


def _notices(trace: Trace, events: BlockEvents) -> bytes:
    """The wall-clock time of the first event, and the names of threads."""
    notices = []
    pairs = trace.metadata.get("clock_pairs") or []
    if pairs:
        real_ns = pairs[0]["realtime_ns"] + events.start_ns - pairs[0]["monotonic_ns"]
        if 0 <= real_ns < 10**9 << 32:
            notices.append(_notice(_TIME_NOTICE, events.start_ns, 0, struct.pack("<II", *divmod(real_ns, 10**9))))
    for tid, name in thread_names(trace).items():
        if tid > 0 and name:
            payload = name.encode("utf-8", "surrogateescape")[:NAME_BYTES - 1].ljust(NAME_BYTES, b"\0")
            notices.append(_notice(_PROCESS_NOTICE, events.start_ns, tid, payload))
    return b"".join(notices)


def _notice(number: int, time_ns: int, tid: int, payload: bytes) -> bytes:
    head = np.zeros(1, _EVENT)
    head["magic"], head["time_ns"], head["pid"], head["payload_bytes"] = _MAGIC, time_ns, tid, len(payload)
    head["action"] = number | int(_NOTIFY) << _CATEGORY_SHIFT
    return head.tobytes() + payload


FORMAT = ExportFormat("blktrace", "binary events of blktrace, version 7", ".dump", _write)
