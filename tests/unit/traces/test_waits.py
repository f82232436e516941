"""Waits told by submit time become row numbers, held against the obvious way to find them."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.spool.causes import with_rows_waited_on


def tables_of(rows, sizes):
    """Tables of `sizes` rows each from (submit_ns, latency_ns, waited_on, think_ns)."""
    values = {name: np.zeros(len(rows), "i8") for name in TRACE_SCHEMA.names}
    for name, column in zip(("submit_ns", "latency_ns", "waited_on", "think_ns"), np.array(rows).T, strict=True):
        values[name] = column
    table = pa.table({field.name: pa.array(values[field.name]).cast(field.type) for field in TRACE_SCHEMA},
                     schema=TRACE_SCHEMA)
    start = 0
    for size in sizes:
        yield table.slice(start, size)
        start += size
    yield table.slice(start)


def resolved(rows, directory, sizes=()):
    table = pa.concat_tables(with_rows_waited_on(tables_of(rows, sizes), directory))
    assert table.schema.equals(TRACE_SCHEMA)
    return list(zip(table["waited_on"].to_pylist(), table["think_ns"].to_pylist(), strict=True))


@given(st.data())
def test_each_wait_finds_its_row_and_the_lost_are_unknown(data):
    ios = sorted(data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=30)))
    rows, expected = [], []
    for submit_ns, latency_ns in ios:
        ended = [number for number, (begun, took) in enumerate(ios) if begun + took <= submit_ns]
        if ended and data.draw(st.booleans()):
            parent = data.draw(st.sampled_from(ended))
            complete_ns = sum(ios[parent])
            rows.append((submit_ns, latency_ns, ios[parent][0], submit_ns - complete_ns))
            # Twins in time and duration can't be told apart: the first is as true as the other.
            expected.append((ios.index(ios[parent]), submit_ns - complete_ns))
        elif data.draw(st.booleans()):
            rows.append((submit_ns, latency_ns, 1000, 1))  # waited for what is not in the trace
            expected.append((-1, 0))
        else:
            rows.append((submit_ns, latency_ns, -1, 0))
            expected.append((-1, 0))
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=5))
    if rows:
        assert resolved(rows, Path(tempfile.gettempdir()), sizes) == expected


def test_of_two_with_one_submit_time_the_one_that_completed_then(tmp_path):
    rows = [(100, 50, -1, 0), (100, 30, -1, 0), (100, 70, -1, 0), (200, 10, 100, 30), (200, 10, 100, 31)]
    assert resolved(rows, tmp_path)[3:] == [(2, 30), (-1, 0)]


def test_no_room_for_what_was_seen_is_an_error(tmp_path, tiny_filesystem):
    rows = [(number, 1, -1, 0) for number in range(200_000)]
    with pytest.raises(OSError, match="No space left"):
        resolved(rows, tiny_filesystem)
