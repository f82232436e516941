"""The disk space that a recording takes, estimated before it starts: a full disk would end it early."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from blkreel.common.units import format_bytes

from .spool import RESERVE_GROWTH, reserve_bytes

_TRACE_IO_BYTES = 15  # of a compressed trace, at most; docs/tests.md


def shortage(output: str | Path, ios: Iterable[int | float], schema: pa.Schema) -> str | None:
    """A warning if recordings of that many I/Os, one after the other, need more than the free space; else None.

    A recording takes its rows and their reserve until they are sorted, then the space of its trace.
    """
    row_bytes = sum(field.type.bit_width // 8 for field in schema)
    needed_bytes = finished_bytes = 0.0
    for count in ios:
        rows_bytes = int(count * row_bytes)
        needed_bytes = max(needed_bytes, finished_bytes + rows_bytes + reserve_bytes(rows_bytes) * RESERVE_GROWTH)
        finished_bytes += count * _TRACE_IO_BYTES
    directory = next(parent for parent in Path(output).absolute().parents if parent.is_dir())
    free_bytes = shutil.disk_usage(directory).free
    if max(needed_bytes, finished_bytes) <= free_bytes:
        return None
    return (f"{directory} has {format_bytes(free_bytes)} free, and {output} takes up to about "
            f"{format_bytes(round(max(needed_bytes, finished_bytes)))}: a full disk ends the recording early; free "
            "space, or write to another disk: -o")
