"""Read-ahead that a thread had used when it was submitted: a slower drive makes the thread wait for it."""

import numpy as np
import pytest
from cases import cases
from engine_rule import issued, planned, waited_for
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.dependencies import Observed
from blkreel.replay.plan.infer import Inferred
from blkreel.traces.format.schema import FLAGS

THREADS = {"1": {"pid": 1, "comm": "a"}, "2": {"pid": 1, "comm": "a"}}
READ_AHEAD, DEFERRED = FLAGS["read_ahead"], FLAGS["deferred"]
ROW_BYTES = 4096


def read_to_the_end(windows, latency_ns):
    """A thread that reads a file of these windows: (rows in flight together, computing time on them).

    The kernel reads a window ahead when the thread reaches the first page of the window before; the thread then waits
    for that page, and computes. Returns columns of the rows, as a capture has them.
    """
    at, blocked, waited, row = 0, 0, -1, 0
    columns = {name: [] for name in ("submit_ns", "queue_ns", "waited_on", "blocked_ns")}
    numbers = []

    def read_ahead():
        nonlocal at, row
        count = windows[len(numbers)][0]
        at += 2
        for _ in range(count):
            for name, value in (("submit_ns", at), ("queue_ns", 1), ("waited_on", waited), ("blocked_ns", blocked)):
                columns[name].append(value)
        numbers.append(range(row, row + count))
        row += count

    read_ahead()
    for number, (_, compute_ns) in enumerate(windows):
        if number + 1 < len(windows):
            read_ahead()
        done_ns = {each: columns["submit_ns"][each] + latency_ns[each] for each in numbers[number]}
        last = max(done_ns, key=done_ns.get)
        if done_ns[last] > at:
            blocked, at, waited = blocked + done_ns[last] - at, done_ns[last], last
        at += compute_ns
    io = {name: np.array(values, np.int64) for name, values in columns.items()}
    return file_of(io | {"latency_ns": np.array(latency_ns, np.int64)})


def file_of(io):
    """Complete the columns of rows that one thread read of one file."""
    count = len(io["submit_ns"])
    done_ns = io["submit_ns"] + io["latency_ns"]
    return {"tid": np.ones(count, np.int64), "device": np.zeros(count, np.int64), "op": np.zeros(count, np.int64),
            "inode": np.full(count, 7), "flags": np.full(count, READ_AHEAD),
            "offset_bytes": np.arange(count) * ROW_BYTES, "length_bytes": np.full(count, ROW_BYTES),
            "think_ns": np.where(io["waited_on"] >= 0, io["submit_ns"] - done_ns[io["waited_on"]], 0), **io}


# Read in time by the thread of the trace: it waits for the first window only.
IN_TIME = [(1, 100)] * 8


@cases(33)
@given(windows=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60)), min_size=1, max_size=9),
       sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), data=st.data())
def test_a_file_takes_the_time_that_the_program_takes_on_any_drive(windows, sizes, data):
    count = sum(rows for rows, _ in windows)
    captured, other = (data.draw(st.lists(st.integers(1, most), min_size=count, max_size=count)) for most in (80, 400))
    io = read_to_the_end(windows, captured)
    plan = planned(Observed(THREADS), io, sizes)
    assert issued(plan, captured) == io["submit_ns"].tolist()
    assert issued(plan, other) == read_to_the_end(windows, other)["submit_ns"].tolist()


def test_what_was_read_ahead_and_waited_for_is_not_counted_as_in_time():
    dependencies = Observed(THREADS)
    planned(dependencies, read_to_the_end([(2, 100)] * 8, [10] * 16), (5,))
    assert dependencies.in_time.ios(of_workload=False) == 4, "the last two windows, which nothing follows"
    assert dependencies.counts["windowed"] == 6


def test_a_long_file_goes_on_in_another_extent():
    io = read_to_the_end(IN_TIME, [10] * 8)
    io["offset_bytes"] = io["offset_bytes"] + (np.arange(8) >= 5) * (1 << 30)
    assert [waited_for(planned(Observed(THREADS), io), row) for row in range(3, 8)] == [{1}, {2}, {3}, {4}, {5}]


@pytest.mark.parametrize("change", [
    {"inode": [7, 8] * 4}, {"inode": [-1] * 8, "offset_bytes": [0, 1 << 20] * 4}, {"offset_bytes": [0, 1 << 20] * 4},
    {"tid": [1, 2] * 4}, {"flags": [0] * 8}, {"flags": [READ_AHEAD | DEFERRED] * 8}, {"op": [1] * 8},
    {"queue_ns": [-1] * 8}, {"queue_ns": [10_000] * 8}, {"device": [0, 1] * 4}], ids=str)
def test_what_is_no_read_ahead_of_one_file_in_windows_is_not_waited_for(change):
    """Other files, random places, other threads, rows of one call (all in the queue at once)."""
    io = read_to_the_end(IN_TIME, [10] * 8)
    io |= {name: np.array(values) for name, values in change.items()}
    dependencies = Observed(THREADS)
    planned(dependencies, io)
    assert dependencies.counts["windowed"] == 0


def test_a_trace_without_queue_times_is_planned_without_windows():
    io = read_to_the_end(IN_TIME, [10] * 8)
    del io["queue_ns"]
    assert waited_for(planned(Observed(THREADS), io), 3) == set()
    assert waited_for(planned(Inferred(), io), 3)


def test_more_files_than_are_held_are_read_from_anew(monkeypatch):
    monkeypatch.setattr("blkreel.replay.plan.events._MAX_FILES", 2)
    io = read_to_the_end(IN_TIME, [10] * 8)
    io["inode"] = np.array([1, 2, 1, 2, 1, 2, 3, 1])
    io["offset_bytes"] = np.array([0, 0, 1, 1, 2, 2, 0, 3]) * ROW_BYTES
    dependencies = Observed(THREADS)
    planned(dependencies, io)
    assert dependencies.counts["windowed"] == 2
