"""Wake-ups in a plan: a thread that waits for another one goes on when that one gets there, on any drive."""

import numpy as np
from cases import cases
from columns import in_batches, joined
from engine_rule import issued
from hypothesis import given
from hypothesis import strategies as st

from blkreel.replay.plan.dependencies import Observed
from blkreel.replay.plan.events import Events, is_event
from blkreel.traces.format.schema import FLAGS, WAKE_COLUMNS

READER, ASKER = 1, 2
THREADS = {"1": {"pid": 1, "comm": "a"}, "2": {"pid": 1, "comm": "a"}}


def program(works_ns, thinks_ns, latency_ns):
    """Columns of the reads of a thread, each of a block that another thread asks for, as a capture has them.

    works_ns: what the asker, which does no I/O, computes before each request but the first. thinks_ns: what the reader
    computes from the end of a read, or from its wake-up, to the next read.
    """
    submit_ns, woken_ns, blocked_ns, slept_ns = [0], [-1], [0], [0]
    asked_ns = 0
    for work_ns, think_ns, latency in zip(works_ns, thinks_ns, latency_ns, strict=False):
        asked_ns += work_ns
        done_ns = submit_ns[-1] + latency
        blocked_ns.append(blocked_ns[-1] + latency)
        slept_ns.append(slept_ns[-1] + max(0, asked_ns - done_ns))
        submit_ns.append(max(done_ns, asked_ns) + think_ns)
        woken_ns.append(submit_ns[-1] - asked_ns if asked_ns > done_ns else -1)
    columns = {name: np.array(values) for name, values in (
        ("submit_ns", submit_ns), ("woken_ns", woken_ns), ("blocked_ns", blocked_ns), ("slept_ns", slept_ns))}
    count = len(submit_ns)
    latency = np.array([*latency_ns, 1][:count])
    of_asker = {name: np.where(columns["woken_ns"] >= 0, value, -1)
                for name, value in zip(WAKE_COLUMNS[1:], (ASKER, -1, 0, 0, 0), strict=True)}
    waited_on = np.arange(-1, count - 1)
    think_ns = np.where(waited_on >= 0, columns["submit_ns"] - (columns["submit_ns"] + latency)[waited_on], 0)
    zeros = np.zeros(count, np.int64)
    return {"tid": np.full(count, READER), "device": zeros, "op": zeros, "flags": zeros, "idle_removed_ns": zeros,
            "latency_ns": latency, "waited_on": waited_on, "think_ns": think_ns, "runnable_ns": zeros, **columns,
            **of_asker}


def submitted(io, latency_ns, sizes=(None,), processors=0):
    """When a replay with these latencies submits the reads, and how it found their dependencies."""
    dependencies, events, parts = Observed(THREADS, processors=processors), Events(), []
    for rows in in_batches(np.arange(len(io["submit_ns"])), sizes):
        part, source_row, submit_ns = events.merged({name: values[rows] for name, values in io.items()}, rows,
                                                    io["submit_ns"][rows])
        parts.append(dependencies.columns(part, source_row, submit_ns)
                     | {"due_ns": submit_ns, "is_read": ~is_event(part)})
    plan = joined(parts)
    is_read = plan.pop("is_read")
    latencies = np.zeros(len(is_read), np.int64)
    latencies[is_read] = latency_ns[:is_read.sum()]
    return np.array(issued(plan, latencies, processors))[is_read].tolist(), dependencies


def test_the_reader_waits_for_the_one_that_asks():
    io = program([100, 100, 100], [1, 1, 1], [10, 10, 10])
    assert io["submit_ns"].tolist() == [0, 101, 201, 301]
    on_captured, dependencies = submitted(io, [10, 10, 10, 10])
    assert on_captured == [0, 101, 201, 301]
    assert dependencies.counts["woken"] == 3
    assert dependencies.thread_times.shares(of_workload=False)["asleep_share"] == 0, "its sleep has no length"
    # The first read takes three requests long; then the reader catches up.
    assert submitted(io, [250, 10, 10, 10])[0] == [0, 251, 262, 301]


def test_what_the_waking_thread_slept_is_sleep_by_the_clock():
    for slept_ns in (29_999_000, 0):
        io = program([100, 30_000_000], [1, 1], [10, 10, 10])
        io["woken_slept_ns"] = np.array([-1, 0, slept_ns])
        sleeps = submitted(io, [10, 10, 10])[1].sleeps
        assert (sleeps.before(1), sleeps.before(2)) == (0, slept_ns), "else it computed"


@cases(50)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20), st.integers(1, 40), st.integers(0, 200)),
                min_size=1, max_size=12), st.integers(0, 2))
def test_a_slower_drive_delays_the_reads_as_it_does_in_the_program(steps, processors):
    # Odd and even numbers, so that no completion has the time of another event.
    works_ns, thinks_ns, latency_ns, more_ns = (np.array(values) * 2 for values in zip(*steps, strict=True))
    slower_ns = latency_ns + more_ns
    io = program(works_ns, thinks_ns, latency_ns)
    count = len(io["submit_ns"])
    for latencies in (latency_ns, slower_ns):
        expected = program(works_ns, thinks_ns, latencies)["submit_ns"].tolist()
        # Two processors, one for each thread: no difference.
        reads, _ = submitted(io, [*latencies, 1][:count], processors=2 if processors else 0)
        assert reads == expected


def test_the_threads_share_one_processor():
    """The reader computes for 40 ns beside the asker, which is late by as much on one processor."""
    io = program([100, 100, 100], [40, 40, 40], [10, 10, 10, 10])
    io["runnable_ns"] = np.array([0, 0, 0, 0])
    alone, _ = submitted(io, [10] * 4, processors=2)
    shared, _ = submitted(io, [10] * 4, processors=1)
    assert alone == io["submit_ns"].tolist()
    assert shared[2] > alone[2] and shared[3] > alone[3]


def test_a_wake_up_is_no_read_ahead_of_the_thread_that_wakes():
    """Of a trace without uses of pages, whose windows of read-ahead are followed."""
    io = program([100, 100, 100], [1, 1, 1], [10, 10, 10]) | {
        "flags": np.full(4, FLAGS["own"] | FLAGS["read_ahead"] | FLAGS["deferred"]),
        "waited_on": np.full(4, -1), "queue_ns": np.zeros(4, np.int64), "offset_bytes": np.arange(4) * 4096,
        "length_bytes": np.full(4, 4096)}
    part, _, _ = Events().merged(io, np.arange(4), io["submit_ns"])
    assert (part["flags"][is_event(part)] == FLAGS["own"]).all()
    io["flags"] &= ~FLAGS["deferred"]
    without = {name: column for name, column in io.items() if name not in WAKE_COLUMNS}
    in_time = [submitted(columns, [10] * 4)[1].in_time.ios(of_workload=True) for columns in (io, without)]
    assert in_time[0] == in_time[1] > 0


def test_a_wake_up_before_the_batch_leaves_the_sleep_its_length():
    io = program([100, 100], [1, 1], [10, 10])
    reads, dependencies = submitted(io, [250, 10, 10], sizes=(1,))
    assert dependencies.counts["woken"] == 0
    assert reads == [0, 250 + 91, 250 + 91 + 100]
