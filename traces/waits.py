"""Which row each I/O waited for: a recording knows it by its submit time, a trace by its number."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from .schema import FLAGS

# I/Os that share a submit time, on as many processors, and one of which was waited for.
_MOST_TWINS = 64


def with_rows_waited_on(tables: Iterator[pa.Table], directory: Path) -> Iterator[pa.Table]:
    """Turn `waited_on` from the `submit_ns` of the I/O waited for into its row number.

    tables: rows in order of `submit_ns`, with `think_ns` = submit − that completion, which together name one I/O.
    Where that I/O is not in the trace (it was lost, or submitted before the recording began), the cause is
    unknown: −1, think time 0, and not `inherited`. What has been seen is kept in a file in `directory`, 16
    bytes a row, so that memory stays bounded however far back a wait reaches; an OSError is raised where it has
    no room.
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
            seen = np.memmap(file, "i8", "r", shape=(rows, 2))
            waited_on, think_ns = _resolved(seen, submit_ns, waited_on, think_ns)
            flags = np.where(waited_on >= 0, flags, flags & ~FLAGS["inherited"])
            for name, column in (("waited_on", waited_on), ("think_ns", think_ns), ("flags", flags)):
                table = table.set_column(table.schema.get_field_index(name), table.schema.field(name),
                                         pa.array(column))
            yield table


def _write(file, data):
    # An unbuffered file takes a part only where the disk gets full; the next call says so.
    view = memoryview(data)
    while view:
        view = view[file.write(view):]


def _resolved(seen, submit_ns, waited_on, think_ns):
    found = np.full(len(waited_on), -1, "i8")
    open_rows = np.flatnonzero(waited_on >= 0)
    parent_submit_ns = waited_on[open_rows]
    parent_complete_ns = submit_ns[open_rows] - think_ns[open_rows]
    candidate = np.searchsorted(seen[:, 0], parent_submit_ns)
    for _ in range(_MOST_TWINS):
        inside = candidate < len(seen)
        open_rows, candidate = open_rows[inside], candidate[inside]
        parent_submit_ns, parent_complete_ns = parent_submit_ns[inside], parent_complete_ns[inside]
        at = seen[candidate]
        match = (at[:, 0] == parent_submit_ns) & (at[:, 1] == parent_complete_ns)
        found[open_rows[match]] = candidate[match]
        going_on = ~match & (at[:, 0] == parent_submit_ns)
        if not going_on.any():
            break
        open_rows, candidate = open_rows[going_on], candidate[going_on] + 1
        parent_submit_ns, parent_complete_ns = parent_submit_ns[going_on], parent_complete_ns[going_on]
    return found, np.where(found >= 0, think_ns, 0)
