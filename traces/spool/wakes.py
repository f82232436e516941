"""Joins the wake-ups of threads by other threads, which a capture recorded, with the I/Os that they led to."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from blkreel.traces.format.schema import FLAGS, UNKNOWN, WAKE_COLUMNS

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
