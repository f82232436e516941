"""Traces of a few rows: of the columns that a test is about, and one that has every kind of value."""

import numpy as np

from blkreel.traces.format.schema import FLAGS, TRACE_SCHEMA
from blkreel.traces.format.writer import TraceWriter


def some_rows(submit_ns, **columns):
    """Columns of rows; those that are not given are of reads of 4 KiB one behind the other; a value is that of all."""
    at = np.arange(len(submit_ns))
    columns = {"submit_ns": submit_ns, "latency_ns": 100, "offset_bytes": at * 4096, "length_bytes": 4096, "op": 0,
               **columns}
    return {name: np.broadcast_to(values, len(at)) for name, values in columns.items()}


def new_trace(path, metadata=None, *, drive_bytes=None, schema=TRACE_SCHEMA, submit_ns=None, **columns):
    """The path of a trace of some_rows(), 1 us apart if no times are given, in place of one that is there. drive_bytes:
    of its drive, `src`."""
    if submit_ns is None:
        submit_ns = np.arange(next(len(values) for values in columns.values() if np.ndim(values))) * 1000
    with TraceWriter(path, schema, force=True) as out:
        out.write(some_rows(submit_ns, **columns))
        drive = {"name": "src"} | ({"size_bytes": drive_bytes} if drive_bytes else {})
        out.close({"devices": [drive]} if metadata is None else metadata)
    return path


LONG_BYTES = 5 << 30  # more than 32 bits


def write_trace(path, **changes):
    """One row of each operation, on two devices, with every kind of unknown value; the last two at one place."""
    columns = {
        "submit_ns": [1_500, 2_000, 3_000_000_000, 3_000_000_001, 3_000_000_999, 4_000_000_000, 4_000_001_000],
        "latency_ns": [490, 70_000, 1_000, 2_000, -1, 600, 700],
        "queue_ns": [100, -1, 5_000, 0, -1, -1, 10],
        "offset_bytes": [4096, 8192, 0, 1 << 30, 512, 4096, 4096],
        "length_bytes": [4096, 512, 0, LONG_BYTES, 1 << 20, 8192, 4096],
        "op": [0, 1, 2, 3, 4, 1, 0],
        "flags": [FLAGS["read_ahead"], FLAGS["fua"] | FLAGS["sync"], 0, 0, 0, FLAGS["own"] | FLAGS["metadata"], 0],
        "device": [0, 1, 1, 0, 0, 0, 0],
        "cpu": [0, 3, -1, 1, 1, 0, 0],
        "status": [0, 0, 0, 0, 0, -5, 0],
        "tid": [41, 42, -1, 41, 41, 41, 42],
        "waited_on": [-1, 0, -1, -1, -1, 3, 5],
        "think_ns": [0, 7, 0, 0, 0, 9, 11]} | changes
    with TraceWriter(path) as out:
        out.write({name: np.array(values) for name, values in columns.items()})
        out.close({"source_format": "test", "epoch_ns": 10**12, "duration_ns": 4_000_002_000,
                   "devices": [{"name": "nvme0n1", "path": "/dev/nvme0n1", "major": 259, "minor": 0},
                               {"name": "disk two", "path": "/dev/sdb"}],
                   "threads": {"41": {"comm": 'qu"ote, comma', "pid": 40}, "42": {"comm": "writer", "pid": 42}}})
    return path
