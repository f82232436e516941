"""The columns of a trace, version 1: names, types, codes and encodings. docs/trace-format.md is their contract."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

# The file-level keys of a trace, decoded. Any key but schema_version may be missing: docs/trace-format.md.
Metadata = dict[str, Any]
SCHEMA_VERSION = 1
KEY_PREFIX = "blkreel."

OPS = {"read": 0, "write": 1, "flush": 2, "discard": 3, "write_zeroes": 4, "zone_append": 5, "zone_reset": 6,
       "zone_reset_all": 7, "zone_open": 8, "zone_close": 9, "zone_finish": 10, "verify": 11,
       "compare": 12}
OP_NAMES = {code: name for name, code in OPS.items()}
# An append is a write whose offset the drive chooses.
WRITES = ("write", "zone_append")
# offset_bytes is the start of the zone, 0 for all zones; length_bytes is 0.
ZONE_MANAGEMENT = ("zone_reset", "zone_reset_all", "zone_open", "zone_close", "zone_finish")
ZONE_OPS = ("zone_append", *ZONE_MANAGEMENT)
WITHOUT_DATA = ("flush", *ZONE_MANAGEMENT)
# The drive reads a range and the program gets no data: commands, which the block layer does not have.
CHECKS = ("verify", "compare")
# A drive answers these faster for blocks that were never written.
READING_CODES = [OPS[name] for name in ("read", *CHECKS)]
WRITE_CODES, ZONE_MANAGEMENT_CODES, WITHOUT_DATA_CODES = (
    [OPS[name] for name in names] for names in (WRITES, ZONE_MANAGEMENT, WITHOUT_DATA))
FLAGS = {
    "sync": 1 << 0,
    "metadata": 1 << 1,
    "read_ahead": 1 << 2,
    "fua": 1 << 3,
    "preflush": 1 << 4,
    "background": 1 << 5,
    "idle": 1 << 6,
    # A write of zeros after which the drive may keep nothing for these blocks.
    "may_unmap": 1 << 7,
    "priority_realtime": 1 << 8,
    "priority_best_effort": 1 << 9,
    "priority_idle": 1 << 10,
    # Caused by the captured command and its children, --pid or --cgroup.
    "own": 1 << 11,
    # Issued by a kernel thread long after `tid` asked for it, as writeback is.
    "deferred": 1 << 12,
    # Another thread waited for `waited_on`, and then woke or started this one.
    "inherited": 1 << 13,
    # In the background of other I/O of the trace, whatever its source: `replay --background`, `merge --as-background`.
    "role_background": 1 << 14,
    # Of a capture with files: data of more files than that of `inode`, in one request.
    "several_files": 1 << 15,
    # A run only: late because the drive's queue was full.
    "queue_full": 1 << 16,
    # A run only: in flight together with an overlapping I/O; in the source they were not.
    "hazard": 1 << 17,
    # A run only: the deadline depended on other I/Os of the run, not on the clock.
    "anchored": 1 << 18,
    # A run only: the host was stalled while the I/O was issued or completed.
    "host_stalled": 1 << 19,
    # A write that the drive executes completely or not at all.
    "atomic": 1 << 23,
    # A command of a program to the drive: uring_cmd, SG_IO, NVME_IOCTL_IO_CMD.
    "passthrough": 1 << 24,
    # The write hint, RWH_WRITE_LIFE_NONE to RWH_WRITE_LIFE_EXTREME: at most one of these. None of them: not set.
    "hint_none": 1 << 25,
    "hint_short": 1 << 26,
    "hint_medium": 1 << 27,
    "hint_long": 1 << 28,
    "hint_extreme": 1 << 29,
}
# In the order of the kernel's numbers, from 1.
HINTS = ("hint_none", "hint_short", "hint_medium", "hint_long", "hint_extreme")
HINT_FLAGS = sum(FLAGS[name] for name in HINTS)
# Of a write, for the drive. Bytes are counted for each.
WRITE_FLAGS = (*HINTS, "atomic")
RUN_FLAGS = ("queue_full", "hazard", "anchored", "host_stalled")
# No I/O completes at this time (73 years) or later, and no time is as long: TIME_LIMIT_NS of native/codes.h.
TIME_LIMIT_NS = 1 << 61
# Where extents end at most, and the length that an I/O does not reach: the limits of block_set.c and metrics.c.
MOST_END_BYTES, LENGTH_LIMIT_BYTES = 1 << 62, 1 << 50
# An I/O with the flag `queue_full` counts as waiting for at most this long before its submission.
QUEUED_LIMIT_NS = 60 * 10**9

_TRACE_COLUMNS = [
    ("submit_ns", pa.int64()),
    ("latency_ns", pa.int64()),
    ("queue_ns", pa.int64()),
    ("offset_bytes", pa.int64()),
    ("length_bytes", pa.int64()),
    ("op", pa.int8()),
    ("flags", pa.int32()),
    ("device", pa.int16()),
    ("cpu", pa.int16()),
    ("status", pa.int16()),
    ("tid", pa.int32()),
    ("waited_on", pa.int64()),
    ("think_ns", pa.int64()),
]
_RUN_COLUMNS = [
    ("due_ns", pa.int64()),
    ("stream", pa.int16()),
    ("burst", pa.int32()),
    ("source_row", pa.int64()),
]
_COMPRESSED_RUN_COLUMNS = [("idle_removed_ns", pa.int64())]
_USE_COLUMNS = [("used_ns", pa.int64()), ("used_by", pa.int32()), ("used_think_ns", pa.int64()),
                ("used_blocked_ns", pa.int64())]
_USER_COLUMNS = [("used_slept_ns", pa.int64()), ("used_runnable_ns", pa.int64())]
_WAKE_COLUMNS = [("woken_ns", pa.int64()), ("woken_by", pa.int32()), ("woken_think_ns", pa.int64()),
                 ("woken_blocked_ns", pa.int64()), ("woken_slept_ns", pa.int64()), ("woken_runnable_ns", pa.int64())]
_OPTIONAL_COLUMNS = [("blocked_ns", pa.int64()), ("slept_ns", pa.int64()), ("runnable_ns", pa.int64()), *_USE_COLUMNS,
                     *_USER_COLUMNS, *_WAKE_COLUMNS, ("inode", pa.int64()), ("cgroup", pa.int64()),
                     ("stream", pa.int16())]

DICTIONARY_COLUMNS = ["op", "flags", "device", "cpu", "status", "tid", "used_by", "woken_by", "stream", "burst"]
# Columns that increase row by row. Packing the differences of durations takes more space than zstd alone.
DELTA_COLUMNS = ["submit_ns", "waited_on", "due_ns", "source_row", "idle_removed_ns"]

# Values of unknown fields. Columns that are not listed must be given.
UNKNOWN = {"latency_ns": -1, "queue_ns": -1, "inode": -1, "cgroup": -1, "waited_on": -1, "think_ns": 0, "cpu": -1,
           "tid": -1, "flags": 0, "device": 0, "status": 0, "due_ns": -1, "stream": 0, "burst": -1, "source_row": -1,
           "idle_removed_ns": 0, "blocked_ns": -1, "slept_ns": -1, "runnable_ns": -1, "used_ns": -1, "used_by": -1,
           "used_think_ns": -1, "used_blocked_ns": -1, "used_slept_ns": -1, "used_runnable_ns": -1,
           **{name: -1 for name, _ in _WAKE_COLUMNS}}

LAYOUT_NAMES = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}


def _schema(columns: list[tuple[str, pa.DataType]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


TRACE_SCHEMA = _schema(_TRACE_COLUMNS)
RUN_SCHEMA = _schema(_TRACE_COLUMNS + _RUN_COLUMNS)
# Of a run that removed idle time of its trace.
COMPRESSED_RUN_SCHEMA = _schema(_TRACE_COLUMNS + _RUN_COLUMNS + _COMPRESSED_RUN_COLUMNS)
OPTIONAL_COLUMNS = [name for name, _ in _OPTIONAL_COLUMNS]
# First use of the pages that a read brought into the page cache, and their values for unknown.
USE_COLUMNS = {name: UNKNOWN[name] for name, _ in _USE_COLUMNS}
# Of that use, in traces that have `slept_ns` and `runnable_ns` too.
USER_COLUMNS = [name for name, _ in _USER_COLUMNS]
# The last time before an I/O at which another thread woke its thread.
WAKE_COLUMNS = [name for name, _ in _WAKE_COLUMNS]
NOT_USED = -2  # of used_ns: no thread used the pages before the end of the recording
COLUMN_TYPES = dict(_TRACE_COLUMNS + _RUN_COLUMNS + _COMPRESSED_RUN_COLUMNS + _OPTIONAL_COLUMNS)


def with_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The schema with these columns behind its own; those that it has stay where they are."""
    for name in names:
        if name not in schema.names:
            schema = schema.append(pa.field(name, COLUMN_TYPES[name], nullable=False))
    return schema


def layout_of(schema: pa.Schema) -> list[tuple[str, str]]:
    """The columns of `schema` as blocks.py names them: (name, numpy type without byte order)."""
    return [(field.name, LAYOUT_NAMES[field.type]) for field in schema]
