"""Wake-ups that a capture recorded become columns of the next I/O of the thread that was woken."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from blkreel.traces.format.schema import COLUMN_TYPES, FLAGS, TRACE_SCHEMA, WAKE_COLUMNS
from blkreel.traces.spool.causes import OP_WAKE, with_wakes

COLUMNS = [*TRACE_SCHEMA.names, "blocked_ns", "slept_ns", "runnable_ns", *WAKE_COLUMNS]


def table_of(rows):
    """rows: {column: value} each; what is missing is 0."""
    return pa.table({name: pa.array([row.get(name, 0) for row in rows], COLUMN_TYPES[name]) for name in COLUMNS})


def io(submit_ns, tid, flags=0):
    return {"submit_ns": submit_ns, "tid": tid, "flags": flags, **dict.fromkeys(WAKE_COLUMNS, -1)}


def wake(at_ns, woken_tid, tid):
    return {"op": OP_WAKE, "submit_ns": at_ns, "tid": tid, "length_bytes": woken_tid, "think_ns": 3,
            "blocked_ns": at_ns, "slept_ns": 5, "runnable_ns": 6}


@given(kinds=st.lists(st.tuples(st.sampled_from(["io", "wake", "deferred"]), st.integers(1, 3), st.integers(7, 9)),
                      max_size=30), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_an_io_has_the_last_wake_up_of_its_thread(kinds, sizes):
    rows, expected, last = [], [], {}
    for at_ns, (kind, tid, by) in enumerate(kinds):
        if kind == "wake":
            rows.append(wake(at_ns, tid, by))
            last[tid] = at_ns, by
            continue
        rows.append(io(at_ns, tid, FLAGS["deferred"] if kind == "deferred" else 0))
        woken = last.pop(tid, None) if kind == "io" else None
        expected.append((at_ns, -1, -1, -1, -1, -1, -1) if woken is None else
                        (at_ns, at_ns - woken[0], woken[1], 3, woken[0], 5, 6))
    tables, begin = [], 0
    while begin < len(rows):
        size = sizes[len(tables) % len(sizes)]
        tables.append(table_of(rows[begin:begin + size]))
        begin += size
    joined = [row for table in with_wakes(iter(tables)) for row in table.to_pylist()]
    assert [tuple(row[name] for name in ("submit_ns", *WAKE_COLUMNS)) for row in joined] == expected
    assert all(row["op"] == 0 for row in joined)


def test_a_trace_without_wake_ups_stays_as_it_is():
    table = table_of([io(1, 7)])
    assert next(with_wakes(iter([table]))) is table
