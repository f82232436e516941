"""Resolves which row each I/O waited for: the capture records its submit time, a trace has its row number."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from blkreel.traces.format.schema import FLAGS

# I/Os that share a submit time, on as many processors.
_MOST_TWINS = 64


def with_rows_waited_on(tables: Iterator[pa.Table], directory: Path) -> Iterator[pa.Table]:
    """Turn `waited_on` from the `submit_ns` of the I/O waited for into its row number.

    tables: rows in order of `submit_ns`, with `think_ns` = submit − completion of that I/O; both together identify it.
    If that I/O is not in the trace (lost, or submitted before the recording began), the dependency is unknown: −1,
    think time 0, and not `inherited`. Rows are kept in a temporary file in `directory`, 16 bytes each, so that memory
    stays bounded for any distance. Raises OSError if the disk is full.
    """
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        rows = 0
        for table in tables:
            submit_ns, latency_ns = (table[name].to_numpy() for name in ("submit_ns", "latency_ns"))
            _write(file, np.column_stack([submit_ns, submit_ns + latency_ns]).astype("i8").tobytes())
            rows += table.num_rows
            waited_on, think_ns, flags = (table[name].to_numpy() for name in ("waited_on", "think_ns", "flags"))
            if not (waited_on >= 0).any():
                yield table
                continue
            row_times_ns = np.memmap(file, "i8", "r", shape=(rows, 2))
            waited_on, think_ns = _resolved(row_times_ns, submit_ns, waited_on, think_ns)
            flags = np.where(waited_on >= 0, flags, flags & ~FLAGS["inherited"])
            for name, column in (("waited_on", waited_on), ("think_ns", think_ns), ("flags", flags)):
                table = table.set_column(table.schema.get_field_index(name), table.schema.field(name),
                                         pa.array(column))
            yield table


def _write(file: IO[bytes], data: bytes) -> None:
    # An unbuffered file writes less only if the disk gets full; the next call then fails.
    view = memoryview(data)
    while view:
        view = view[file.write(view):]


def _resolved(row_times_ns: np.ndarray, submit_ns: np.ndarray, waited_on: np.ndarray,
              think_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.full(len(waited_on), -1, "i8")
    open_rows = np.flatnonzero(waited_on >= 0)
    parent_submit_ns = waited_on[open_rows]
    parent_complete_ns = submit_ns[open_rows] - think_ns[open_rows]
    candidate = np.searchsorted(row_times_ns[:, 0], parent_submit_ns)
    for _ in range(_MOST_TWINS):
        inside = candidate < len(row_times_ns)
        open_rows, candidate = open_rows[inside], candidate[inside]
        parent_submit_ns, parent_complete_ns = parent_submit_ns[inside], parent_complete_ns[inside]
        at = row_times_ns[candidate]
        match = (at[:, 0] == parent_submit_ns) & (at[:, 1] == parent_complete_ns)
        rows[open_rows[match]] = candidate[match]
        going_on = ~match & (at[:, 0] == parent_submit_ns)
        if not going_on.any():
            break
        open_rows, candidate = open_rows[going_on], candidate[going_on] + 1
        parent_submit_ns, parent_complete_ns = parent_submit_ns[going_on], parent_complete_ns[going_on]
    return rows, np.where(rows >= 0, think_ns, 0)
