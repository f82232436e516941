"""First uses of pages in a plan: a thread waits for read-ahead on a slower drive where the program would."""

import numpy as np
import pytest
from cases import cases
from columns import in_batches, joined
from engine_rule import issued
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.dependencies import Observed
from blkreel.replay.plan.events import NO_EVENT, Events
from blkreel.traces.format.schema import FLAGS, USE_COLUMNS

THREADS = {"1": {"pid": 1, "comm": "a"}, "2": {"pid": 1, "comm": "a"}}
READ_AHEAD = FLAGS["read_ahead"]


def program(steps, latency_ns):
    """Columns of the reads of a program of one thread, as a capture has them.

    steps: ("read", compute_ns) submits the next read after computing; ("use", compute_ns, read) computes, then needs
    the pages of a read before it, and sleeps until they are there. A capture records the first use of a read only.
    """
    at = blocked = 0
    woken, woken_ns = -1, -1
    io = {name: [] for name in ("submit_ns", "waited_on", "blocked_ns", *USE_COLUMNS)}
    for kind, compute_ns, *read in steps:
        at += compute_ns
        if kind == "read":
            for name, value in zip(io, (at, woken, blocked, -2, -1, -1, -1), strict=True):
                io[name].append(value)
            continue
        done_ns = io["submit_ns"][read[0]] + latency_ns[read[0]]
        if done_ns > at:
            blocked, at, woken, woken_ns = blocked + done_ns - at, done_ns, read[0], done_ns
        if io["used_ns"][read[0]] == -2:
            for name, value in (("used_ns", at - io["submit_ns"][read[0]]), ("used_by", 1),
                                ("used_think_ns", at - woken_ns if woken >= 0 else -1), ("used_blocked_ns", blocked)):
                io[name][read[0]] = value
    return completed({name: np.array(values, np.int64) for name, values in io.items()}, latency_ns)


def completed(io, latency_ns):
    count = len(io["submit_ns"])
    done_ns = io["submit_ns"] + np.array(latency_ns[:count], np.int64)
    return {"tid": np.ones(count, np.int64), "device": np.zeros(count, np.int64), "op": np.zeros(count, np.int64),
            "flags": np.full(count, READ_AHEAD), "latency_ns": np.array(latency_ns[:count], np.int64),
            "idle_removed_ns": np.zeros(count, np.int64),
            "think_ns": np.where(io["waited_on"] >= 0, io["submit_ns"] - done_ns[io["waited_on"]], 0), **io}


def planned(io, sizes=(None,), dependencies=None):
    """The plan with a row for each use, and which rows are reads."""
    dependencies, uses, parts = dependencies or Observed(THREADS), Events(), []
    for rows in in_batches(np.arange(len(io["submit_ns"])), sizes):
        part = {name: values[rows] for name, values in io.items()}
        part, source_row, submit_ns = uses.merged(part, rows, part["submit_ns"])
        parts.append(dependencies.columns(part, source_row, submit_ns)
                     | {"due_ns": submit_ns, "is_read": part["use_of"] == NO_EVENT})
    plan = joined(parts)
    return plan, plan.pop("is_read")


def submitted(io, latency_ns, sizes=(None,)):
    """When a replay with these latencies submits the reads."""
    plan, is_read = planned(io, sizes)
    latencies = np.zeros(len(is_read), np.int64)
    latencies[is_read] = latency_ns[:is_read.sum()]
    return np.array(issued(plan, latencies))[is_read].tolist()


def test_a_slower_drive_makes_the_thread_wait_where_it_uses_the_pages():
    """Two reads, 30 ns computing on the first, then the second, which was there since 20 ns."""
    steps = [("read", 0), ("read", 10), ("use", 0, 0), ("use", 30, 1), ("read", 5)]
    io = program(steps, [12, 10, 10])
    assert io["submit_ns"].tolist() == [0, 10, 47] and io["used_ns"].tolist() == [12, 32, -2]
    assert submitted(io, [12, 10, 10]) == [0, 10, 47]
    assert submitted(io, [12, 100, 10]) == [0, 10, 115]
    assert submitted(io, [100, 10, 10]) == [0, 10, 135]


@st.composite
def programs(draw):
    steps, reads = [], 0
    for _ in range(draw(st.integers(1, 14))):
        # A computing time of 0 would give two rows one time, and completions that are not told apart.
        compute_ns = draw(st.integers(1, 50))
        if reads and draw(st.booleans()):
            steps.append(("use", compute_ns, draw(st.integers(0, reads - 1))))
        else:
            steps.append(("read", compute_ns))
            reads += 1
    return steps


@cases(50)
@given(steps=programs(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_a_program_takes_the_time_that_it_takes_on_any_drive(steps, sizes, data):
    count = sum(step[0] == "read" for step in steps)
    # Nanoseconds times 100, so that no completion has the time of another one or of a row.
    captured, other = ([300 * value + row + 1 for row, value in enumerate(data.draw(
        st.lists(st.integers(1, most), min_size=count, max_size=count)))] for most in (60, 300))
    steps = [(kind, 100 * compute_ns, *read) for kind, compute_ns, *read in steps]
    # The use of a page again adds nothing on any drive: it is there.
    io = program(steps, captured)
    assert submitted(io, captured, sizes) == io["submit_ns"].tolist()
    assert submitted(io, other, sizes) == program(steps, other)["submit_ns"].tolist()


def test_read_ahead_with_a_use_is_not_in_time():
    """Only that of which nothing is known may be waited for on a slower drive; what nobody used never is."""
    io = program([("read", 1), ("read", 1), ("read", 1), ("use", 9, 0)], [1, 1, 1])
    io["used_ns"][2] = -1
    dependencies = Observed(THREADS)
    planned(io, dependencies=dependencies)
    assert dependencies.in_time.ios(of_workload=False) == 1
    assert dependencies.counts["used"] == 0, "after the last read: nothing follows it"


def test_of_uses_that_were_lost_nothing_is_concluded():
    io = program([("read", 1), ("read", 1), ("use", 9, 0), ("read", 1)], [1, 1, 1])
    columns, *_ = Events(complete=False).merged(io, np.arange(3), io["submit_ns"])
    assert columns["used_ns"][columns["use_of"] == NO_EVENT].tolist() == [10, -1, -1]


def test_a_use_of_another_thread_makes_that_one_wait():
    """Thread 2 computes from its own read on until it uses a page that thread 1 read."""
    io = completed({"submit_ns": np.array([0, 1, 50]), "waited_on": np.full(3, -1), "blocked_ns": np.zeros(3, np.int64),
                    "used_ns": np.array([40, -2, -2]), "used_by": np.array([2, -1, -1]),
                    "used_think_ns": np.full(3, -1), "used_blocked_ns": np.zeros(3, np.int64)}, [5, 5, 5])
    io["tid"] = np.array([1, 2, 2])
    assert submitted(io, [5, 5, 5]) == [0, 1, 50]
    assert submitted(io, [100, 5, 5]) == [0, 1, 110]


@pytest.mark.parametrize(("latency_ns", "used_ns"), [(-1, 30), (40, 30)])
def test_a_use_before_the_completion_is_not_planned(latency_ns, used_ns):
    io = program([("read", 0), ("use", 30, 0), ("read", 5)], [10, 10])
    io["latency_ns"][0], io["used_ns"][0] = latency_ns, used_ns
    plan, is_read = planned(io)
    assert is_read.all() and len(plan["due_ns"]) == 2


def test_idle_time_that_the_plan_removes_moves_uses_too():
    io = program([("read", 0), ("use", 30, 0), ("read", 1000)], [10, 10])
    moved_ns = np.array([0, 130])
    io["idle_removed_ns"] = io["submit_ns"] - moved_ns
    columns, source_row, submit_ns = Events().merged(io, np.arange(2), moved_ns)
    assert submit_ns.tolist() == [0, 30, 130] and source_row.tolist() == [0, 0, 1]
    assert columns["use_of"].tolist() == [NO_EVENT, 0, NO_EVENT]
