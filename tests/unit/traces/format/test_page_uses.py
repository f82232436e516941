"""First uses of pages that a capture recorded become columns of the reads."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.traces.format.schema import COLUMN_TYPES, FLAGS, NOT_USED, TRACE_SCHEMA, USE_COLUMNS, USER_COLUMNS
from blkreel.traces.spool.causes import FLAG_CORRECTS, FLAG_PAGES_NOTED, OP_USE, with_page_uses

COLUMNS = [*TRACE_SCHEMA.names, "blocked_ns", *USE_COLUMNS]
THREAD_COLUMNS = ["slept_ns", "runnable_ns", *USER_COLUMNS]


def table_of(rows, columns=COLUMNS):
    """rows: {column: value} each; what is missing is 0."""
    return pa.table({name: pa.array([row.get(name, 0) for row in rows], COLUMN_TYPES[name]) for name in columns})


def read(submit_ns, noted=True):
    return {"submit_ns": submit_ns, "flags": FLAGS["own"] | (FLAG_PAGES_NOTED if noted else 0), **USE_COLUMNS}


def use(submit_ns, after_ns, tid=7, corrects=False):
    return {"op": OP_USE, "flags": FLAG_CORRECTS if corrects else 0, "submit_ns": submit_ns, "latency_ns": after_ns,
            "tid": tid, "think_ns": 3, "blocked_ns": 4, "slept_ns": 5, "runnable_ns": 6}


@given(reads=st.lists(st.tuples(st.integers(0, 40), st.booleans()), unique_by=lambda row: row[0]),
       uses=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 9), st.booleans())),
       order=st.randoms())
def test_each_read_has_its_first_use(reads, uses, order):
    rows = [read(*row) for row in reads] + [use(*row) for row in uses]
    order.shuffle(rows)
    rows.sort(key=lambda row: row["submit_ns"])  # stable: a use may arrive before its read
    (table,) = with_page_uses(iter([table_of(rows)]))
    assert table.num_rows == len(reads)
    for row in table.to_pylist():
        noted = dict(reads)[row["submit_ns"]]
        all_mine = [tuple(after) for submit_ns, *after in uses if noted and submit_ns == row["submit_ns"]]
        mine = [after[:2] for after in all_mine if after[2]] or [after[:2] for after in all_mine]
        assert row["op"] == 0 and row["flags"] == FLAGS["own"]
        if mine:
            assert row["used_ns"] == min(mine)[0] and (row["used_ns"], row["used_by"]) in mine
            assert (row["used_think_ns"], row["used_blocked_ns"]) == (3, 4)
        else:
            assert row["used_ns"] == (NOT_USED if noted else -1)
            assert {row[name] for name in USE_COLUMNS if name != "used_ns"} == {-1}


@pytest.mark.parametrize(("columns", "values"), [(COLUMNS, {}), (
    COLUMNS + THREAD_COLUMNS, {"used_slept_ns": [5, -1], "used_runnable_ns": [6, -1]})])
def test_a_use_has_the_times_of_its_thread_that_the_rows_have(columns, values):
    (table,) = with_page_uses(iter([table_of([read(1), use(1, 9), read(2)], columns)]))
    assert {name: table[name].to_pylist() for name in USER_COLUMNS if name in table.column_names} == values


def test_a_trace_without_uses_stays_as_it_is():
    table = table_of([read(1, noted=False)])
    assert next(with_page_uses(iter([table]))) is table


def test_a_read_in_another_table_than_its_use_is_not_invented():
    """A read that the ring lost has no row: its use is dropped."""
    (table,) = with_page_uses(iter([table_of([use(5, 1), read(6)])]))
    assert table["submit_ns"].to_pylist() == [6]
    assert np.array(table["used_ns"])[0] == NOT_USED
