"""Joins what a capture recorded of the causes of I/Os with them: wake-ups of threads by others, with the I/Os that they
led to; the submit time of the I/O that one waited for, with its row number; first uses of pages, with their reads.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from blkreel.traces.format.schema import FLAGS, NOT_USED, UNKNOWN, WAKE_COLUMNS

from .blocks import write_all

# capture/bpf/records.h: a row of the spool that is no I/O. Its thread woke the one in `length_bytes`.
OP_WAKE = 125

# The columns of an I/O, and the columns of the row of the wake-up from which they come.
_COLUMNS_OF_WAKE = dict(zip(WAKE_COLUMNS, ("submit_ns", "tid", "think_ns", "blocked_ns", "slept_ns", "runnable_ns"),
                            strict=True))


def with_wakes(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Rows with the columns of the last wake-up of their thread before, instead of rows with the operation OP_WAKE.

    tables: in order of `submit_ns`, with WAKE_COLUMNS. A wake-up belongs to the next I/O of the woken thread, even if
    that is much later; without one it is dropped. An I/O that a kernel thread issued later (`deferred`) does not count.
    """
    waiting: dict[int, np.ndarray] = {}  # by woken thread: its last wake-up, as in _COLUMNS_OF_WAKE
    for table in tables:
        is_wake = table["op"].to_numpy() == OP_WAKE
        if not is_wake.any() and not waiting:
            yield table
            continue
        wakes = table.filter(pa.array(is_wake))
        rows = table.filter(pa.array(~is_wake))
        of_wakes = np.stack([wakes[name].to_numpy().astype(np.int64) for name in _COLUMNS_OF_WAKE.values()])
        at, columns = _joined(table, is_wake, of_wakes, waiting)
        columns[0] = np.where(at, rows["submit_ns"].to_numpy() - columns[0], UNKNOWN["woken_ns"])
        for name, values in zip(WAKE_COLUMNS, columns, strict=True):
            field = rows.schema.field(name)
            rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
        yield rows


def _joined(table: pa.Table, is_wake: np.ndarray, wakes: np.ndarray,
            waiting: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Which I/Os have a wake-up, and its columns. Takes those of earlier tables from `waiting`, and adds those left."""
    tid = np.where(is_wake, table["length_bytes"].to_numpy(), table["tid"].to_numpy())
    takes = ~is_wake & ((table["flags"].to_numpy() & FLAGS["deferred"]) == 0)
    selected = np.flatnonzero(is_wake | takes)
    # All events of a thread together, in their order: an I/O takes the event before it, if that is a wake-up.
    order = selected[np.argsort(tid[selected], kind="stable")]
    before = np.concatenate([[-1], order[:-1]])
    is_first = (before < 0) | (tid[order] != tid[before])
    wake_at = np.cumsum(is_wake) - 1
    has_wake = takes[order] & ~is_first & is_wake[before]
    taken = np.full((len(wakes), len(tid)), -1, np.int64)
    taken[:, order[has_wake]] = wakes[:, wake_at[before[has_wake]]]
    joined = np.zeros(len(tid), bool)
    joined[order[has_wake]] = True
    for row in order[is_first].tolist() if waiting else ():
        wake = waiting.pop(int(tid[row]), None)
        if wake is not None and takes[row]:
            taken[:, row], joined[row] = wake, True
    is_last = np.concatenate([tid[order[1:]] != tid[order[:-1]], [True]])[:len(order)]
    for row in order[is_last & is_wake[order]].tolist():
        waiting[int(tid[row])] = wakes[:, wake_at[row]]
    return joined[~is_wake], taken[:, ~is_wake]


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
            write_all(file, np.column_stack([submit_ns, submit_ns + latency_ns]).astype("i8").tobytes())
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


# capture/bpf/records.h: a row of the spool that is no I/O, the flag of a read whose pages were noted, and of a use that
# corrects an earlier one.
OP_USE = 127
FLAG_PAGES_NOTED = FLAG_CORRECTS = 1 << 30

# The columns of a read, and the columns of the row of its use from which they come.
_COLUMNS_OF_USE = {"used_ns": "latency_ns", "used_by": "tid", "used_think_ns": "think_ns",
                   "used_blocked_ns": "blocked_ns", "used_slept_ns": "slept_ns", "used_runnable_ns": "runnable_ns"}


def with_page_uses(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Rows with the columns of their first uses instead of rows with the operation OP_USE.

    tables: in order of `submit_ns`, all rows with the same one in the same table, with USE_COLUMNS and, if they have
    `slept_ns` and `runnable_ns`, USER_COLUMNS. A use has the `submit_ns` of its read, and as `latency_ns` the time from
    there. The first one counts, of those that correct an earlier one if there are any; that of a read that is not there
    is dropped.
    """
    for table in tables:
        op, flags = table["op"].to_numpy(), table["flags"].to_numpy()
        is_use = op == OP_USE
        is_noted = (flags & FLAG_PAGES_NOTED) != 0
        if not is_use.any() and not is_noted.any():
            yield table
            continue
        rows = table.filter(pa.array(~is_use))
        is_noted = is_noted[~is_use]
        columns = _first_uses(rows["submit_ns"].to_numpy()[is_noted], table.filter(pa.array(is_use)))
        for name, of_noted in columns.items():
            index = rows.schema.get_field_index(name)
            values = np.full(rows.num_rows, UNKNOWN[name], str(rows.schema.field(index).type))
            values[is_noted] = of_noted
            rows = rows.set_column(index, rows.schema.field(index), pa.array(values))
        index = rows.schema.get_field_index("flags")
        yield rows.set_column(index, rows.schema.field(index), pa.array(flags[~is_use] & ~FLAG_PAGES_NOTED))


def _first_uses(submit_ns: np.ndarray, uses: pa.Table) -> dict[str, np.ndarray]:
    """The columns of reads, which are in order."""
    names = [name for name in _COLUMNS_OF_USE if name in uses.column_names]
    result = {name: np.full(len(submit_ns), UNKNOWN[name], np.int64) for name in names}
    result["used_ns"][:] = NOT_USED
    of_ns, used_ns = uses["submit_ns"].to_numpy(), uses["latency_ns"].to_numpy()
    corrects = (uses["flags"].to_numpy() & FLAG_CORRECTS) != 0
    order = np.lexsort((used_ns, ~corrects, of_ns))
    first = order[np.unique(of_ns[order], return_index=True)[1]]
    at = np.searchsorted(of_ns[first], submit_ns)
    has_use = at < len(first)
    has_use[has_use] = of_ns[first][at[has_use]] == submit_ns[has_use]
    row = first[at[has_use]]
    for name in names:
        result[name][has_use] = uses[_COLUMNS_OF_USE[name]].to_numpy()[row]
    return result
