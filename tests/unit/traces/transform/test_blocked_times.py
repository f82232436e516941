"""The blocked times of threads in traces made from others."""

import pytest

from blkreel.common.errors import UsageError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.transform.concat import concat
from blkreel.traces.transform.merge import merge
from blkreel.traces.transform.slice import Selection, slice_trace
from blkreel.traces.transform.write_trace import write_trace

BLOCKED_NS = [0, -1, 40, 70]


@pytest.fixture
def trace(tmp_path):
    """trace(name, **columns) is an open trace of four reads by one thread."""
    def make(name, **columns):
        rows = {"submit_ns": [0, 100, 200, 300], "latency_ns": [50] * 4, "op": [0] * 4, "offset_bytes": [0] * 4,
                "length_bytes": [4096] * 4, "tid": [7] * 4}
        write_trace(tmp_path / f"{name}.parquet", rows | columns)
        return open_trace(tmp_path / f"{name}.parquet")

    return make


def blocked_ns(path):
    return open_trace(path).table(["blocked_ns"])["blocked_ns"].to_pylist()


def test_a_part_has_those_of_its_rows(trace, tmp_path):
    """They count since the first I/O of the capture, so rows that are left out change nothing."""
    slice_trace(trace("a", blocked_ns=BLOCKED_NS), tmp_path / "part.parquet", Selection(from_ns=150))
    assert blocked_ns(tmp_path / "part.parquet") == [40, 70]


@pytest.mark.parametrize(("join", "options"), [(concat, {}), (merge, {"align": "start"})])
def test_of_a_trace_without_they_are_unknown(trace, tmp_path, join, options):
    join([trace("a", blocked_ns=BLOCKED_NS), trace("b")], tmp_path / "both.parquet", **options)
    assert sorted(blocked_ns(tmp_path / "both.parquet")) == sorted(BLOCKED_NS + [-1] * 4)
    assert not check(open_trace(tmp_path / "both.parquet")).errors


def test_the_thread_of_a_use_gets_its_new_number(trace, tmp_path):
    """Of another boot, in merge and concat, as `tid`; its name stays with it."""
    used = {"used_ns": [60, -2, -1, 90], "used_by": [8, -1, -1, 7]}
    traces = [trace("a"), trace("b", **used)]
    for join, options in ((concat, {}), (merge, {"align": "start"})):
        join(traces, tmp_path / "both.parquet", force=True, **options)
        both = open_trace(tmp_path / "both.parquet")
        rows = [row for row in both.table(["tid", "used_ns", "used_by"]).to_pylist() if row["used_ns"] != -1]
        moved = max(row["tid"] for row in rows) - 7
        assert moved > 0 and [row["used_by"] for row in rows] == [8 + moved, -1, 7 + moved]
        assert not check(both).errors


@pytest.mark.parametrize(("column", "value", "least"), [
    *((column, -3, "") for column in ("used_ns", "used_by", "used_think_ns", "used_blocked_ns")),
    ("blocked_ns", -2, "-1")])
def test_a_value_below_the_least_is_an_error(trace, column, value, least):
    with pytest.raises(UsageError, match=f"1 rows: {column} below {least}"):
        trace("a", **{column: [0, value, 0, 0]})
