"""The times of threads in traces made from others."""

import pytest

from blkreel.common.errors import UsageError
from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.transform.anonymize import anonymize
from blkreel.traces.transform.concat import concat
from blkreel.traces.transform.merge import merge
from blkreel.traces.transform.slice import Selection, slice_trace
from blkreel.traces.transform.write_trace import write_trace

TIMES_NS = [0, -1, 40, 70]
OF_THREADS = ["blocked_ns", "slept_ns", "runnable_ns"]
OF_EVENTS = [f"{event}_{name}" for event in ("used", "woken") for name in OF_THREADS]


@pytest.fixture
def trace(tmp_path):
    """trace(name, **columns) is an open trace of four reads by one thread."""
    def make(name, **columns):
        rows = {"submit_ns": [0, 100, 200, 300], "latency_ns": [50] * 4, "op": [0] * 4, "offset_bytes": [0] * 4,
                "length_bytes": [4096] * 4, "tid": [7] * 4}
        write_trace(tmp_path / f"{name}.parquet", rows | columns)
        return open_trace(tmp_path / f"{name}.parquet")

    return make


def times_ns(path, column):
    return open_trace(path).table([column])[column].to_pylist()


@pytest.mark.parametrize(("transform", "expected"), [
    (lambda trace, output: slice_trace(trace, output, Selection(from_ns=150)), [40, 70]),
    (lambda trace, output: anonymize(trace, output, key=b"key"), TIMES_NS)], ids=["slice", "anonymize"])
def test_a_part_has_those_of_its_rows_also_without_names(trace, tmp_path, transform, expected):
    """They are sums of the thread, so rows that are left out change nothing."""
    transform(trace("a", **dict.fromkeys(OF_THREADS + OF_EVENTS, TIMES_NS)), tmp_path / "made.parquet")
    for column in OF_THREADS + OF_EVENTS:
        assert times_ns(tmp_path / "made.parquet", column) == expected, column


@pytest.mark.parametrize(("join", "options"), [(concat, {}), (merge, {"align": "start"})])
def test_of_a_trace_without_they_are_unknown(trace, tmp_path, join, options):
    traces = [trace("a", **dict.fromkeys(OF_THREADS + OF_EVENTS, TIMES_NS)), trace("b")]
    join(traces, tmp_path / "both.parquet", **options)
    for column in OF_THREADS + OF_EVENTS:
        assert sorted(times_ns(tmp_path / "both.parquet", column)) == sorted(TIMES_NS + [-1] * 4), column
    assert not check(open_trace(tmp_path / "both.parquet")).errors


@pytest.mark.parametrize(("time", "thread"), [("used_ns", "used_by"), ("woken_ns", "woken_by")])
def test_the_thread_of_an_event_gets_its_new_number(trace, tmp_path, time, thread):
    """Of another boot, in merge and concat, as `tid`; its name stays with it."""
    traces = [trace("a"), trace("b", **{time: [60, 0, -1, 90], thread: [8, -1, -1, 7]})]
    for join, options in ((concat, {}), (merge, {"align": "start"})):
        join(traces, tmp_path / "both.parquet", force=True, **options)
        both = open_trace(tmp_path / "both.parquet")
        rows = [row for row in both.table(["tid", time, thread]).to_pylist() if row[time] != -1]
        moved = max(row["tid"] for row in rows) - 7
        assert moved > 0 and [row[thread] for row in rows] == [8 + moved, -1, 7 + moved]
        assert not check(both).errors


@pytest.mark.parametrize(("time", "thread"), [("used_ns", "used_by"), ("woken_ns", "woken_by")])
def test_no_thread_of_another_boot_gets_the_number_of_one_that_only_has_an_event(trace, tmp_path, time, thread):
    merge([trace("a", **{time: [60] * 4, thread: [900] * 4}), trace("b", tid=[892] * 4)], tmp_path / "both.parquet",
          align="start")
    both = open_trace(tmp_path / "both.parquet").table(["tid", thread]).to_pydict()
    assert not set(both["tid"]) & {900} and set(both[thread]) == {900, -1}


@pytest.mark.parametrize(("column", "value", "least"), [
    ("used_ns", -3, "-2"),
    *((column, -2, "-1") for column in ("used_by", "woken_by", "woken_ns", "used_think_ns", *OF_THREADS, *OF_EVENTS))])
def test_a_value_below_the_least_is_an_error(trace, column, value, least):
    with pytest.raises(UsageError, match=f"1 row: {column} below {least}"):
        trace("a", **{column: [0, value, 0, 0]})
