"""A run that ends before its plans do: at a time, or, in the background, with all others. On the null target."""

import itertools
import os
import threading

import numpy as np
import pytest
from cases import cases
from helpers import helpers_of
from hypothesis import given
from hypothesis import strategies as st
from quiet import progress
from waiting import wait_until

from blkreel.common.errors import UsageError
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import BLOCK_ROWS, DEPENDENCY_COLUMNS, Lane, Payload
from blkreel.replay.engine.untimed_io import INTERRUPTED, Interrupted, issue_untimed
from blkreel.replay.simulated.spec import ZERO_LATENCY, parse

GIB = 1 << 30
MS = 1_000_000
# On its virtual clock, the results do not depend on when the threads of the engine get a processor.
DRIVE = parse("nil:1GiB,clock=virtual")


@pytest.fixture
def run_lanes(issue):
    return lambda lanes, **options: issue(*lanes, nil_bytes=GIB, **options)


def endless(a_plan, stream=0, every_ns=None):
    for number in itertools.count():
        first = number * BLOCK_ROWS
        rows = a_plan(np.zeros(BLOCK_ROWS, "i8"), stream=stream)
        rows["source_row"] = np.arange(first, first + BLOCK_ROWS)
        if every_ns is not None:
            rows["due_ns"] = rows["source_row"] * every_ns
        yield rows


def of_lane(records, stream):
    return {name: column[records["stream"] == stream] for name, column in records.items()}


def assert_is_prefix(records, count):
    """The first `count` rows of the plan, each once."""
    assert np.array_equal(np.sort(records["source_row"]), np.arange(count))


def test_a_timed_plan_is_cut_at_the_time(a_plan, run_lanes):
    """On the virtual clock: on the real one a thread may lose its processor between the check and the issue."""
    plan = a_plan(np.zeros(200, "i8"), due_ns=np.arange(200) * MS)
    totals, records = run_lanes([Lane([plan], 8)], stop_ns=50 * MS + MS // 2, simulated=(ZERO_LATENCY,))
    assert totals["time_limit"] is True
    assert totals["stopped"] is None
    assert totals["lane_issued"] == [len(records["op"])]
    assert_is_prefix(records, totals["lane_issued"][0])
    assert records["due_ns"].max() == records["submit_ns"].max() == 50 * MS


def test_a_plan_that_ends_in_time_is_not_cut(a_plan, run_lanes):
    plan = a_plan(np.zeros(20, "i8"), due_ns=np.arange(20) * MS)
    totals, records = run_lanes([Lane([plan], 8)], stop_ns=3600 * 1000 * MS)
    assert totals["time_limit"] is False
    assert len(records["op"]) == 20
    assert run_lanes([Lane([plan], 8)])[0]["time_limit"] is False


def test_what_is_due_later_is_not_waited_for(a_plan, run_lanes):
    """The next row lies an hour behind the limit, and the limit an hour ahead: nothing is left to do."""
    plan = a_plan([0, 0], due_ns=[MS, 7200 * 1000 * MS])
    totals, records = run_lanes([Lane([plan], 8)], stop_ns=3600 * 1000 * MS)
    assert totals["time_limit"] is True
    assert totals["lane_issued"] == [1]


@pytest.mark.parametrize("every_ns", [None, 10_000])
def test_an_endless_plan_ends_at_the_time(a_plan, run_lanes, every_ns):
    before = threading.active_count()
    totals, records = run_lanes([Lane(endless(a_plan, every_ns=every_ns), 16)], stop_ns=100 * MS)
    assert totals["time_limit"] is True
    assert totals["stopped"] is None
    assert totals["error_ops"] == totals["abandoned_ops"] == 0
    # At most the depth, if the thread lost its processor after the check.
    assert (records["submit_ns"] > 100 * MS).sum() <= 16
    assert_is_prefix(records, totals["lane_issued"][0])
    assert totals["planned_ops"] <= totals["issued_ops"] + 10 * BLOCK_ROWS, "it read on and on"
    assert threading.active_count() == before, "its feeder lives on"
    assert helpers_of(os.getpid()) == []


def test_io_uring_is_ended_like_that_too(a_plan, issue, tmp_path):
    """On a file: what was with the kernel at the time is waited for, and nothing is lost or doubled."""
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    lanes = [Lane(endless(a_plan, 0), 8), Lane(endless(a_plan, 1), 4, background=True)]
    totals, records = issue(*lanes, target=image, stop_ns=100 * MS)
    assert totals["time_limit"] is True and totals["stopped"] is None
    assert totals["error_ops"] == totals["abandoned_ops"] == 0
    # What the kernel had no room for at once goes out a moment later.
    assert (records["submit_ns"] > 100 * MS).sum() <= 8 + 4
    for lane in (0, 1):
        assert_is_prefix(of_lane(records, lane), totals["lane_issued"][lane])


def test_a_plan_that_is_missing_does_not_hold_the_end_up(a_plan, run_lanes):
    """Its feeder thinks about the next block for long; the helper does not wait for it."""
    def plan():
        for _ in range(12):
            yield a_plan(np.zeros(1000, "i8"))
        wait_until(lambda: not helpers_of(os.getpid()))
        yield a_plan(np.zeros(10, "i8"))

    totals, records = run_lanes([Lane(plan(), 4)], stop_ns=10 * MS)
    assert totals["planned_ops"] <= 12_000
    assert totals["time_limit"] is True, "nobody knows whether more would have come"
    assert totals["stopped"] is None


def test_an_endless_lane_in_the_background_ends_with_the_others(a_plan, run_lanes):
    due_ns = np.arange(100) * MS
    lanes = [Lane(endless(a_plan, stream=1), 4, background=True),
             Lane([a_plan(np.zeros(100, "i8"), due_ns=due_ns, stream=2)], 8)]
    totals, records = run_lanes(lanes, simulated=(DRIVE,))
    assert totals["stopped"] is None
    assert totals["time_limit"] is False, "it ended because the others had"
    behind, ahead = of_lane(records, 1), of_lane(records, 2)
    assert totals["lane_issued"] == [len(behind["op"]), 100]
    assert_is_prefix(behind, totals["lane_issued"][0])
    assert_is_prefix(ahead, 100)
    assert behind["submit_ns"].max() > ahead["submit_ns"][np.argsort(ahead["source_row"])[90]], "it ended too soon"


def test_a_short_lane_in_the_background_does_not_end_the_run(a_plan, run_lanes):
    lanes = [Lane([a_plan(np.zeros(10, "i8"), stream=1)], 4, background=True),
             Lane([a_plan(np.zeros(50, "i8"), due_ns=np.arange(50) * 10 * MS, stream=2)], 8)]
    totals, records = run_lanes(lanes)
    assert totals["lane_issued"] == [10, 50]
    assert totals["time_limit"] is False


def test_the_background_waits_for_the_lanes_of_other_threads(a_plan, run_lanes):
    for _ in range(10):  # where the machine keeps a thread from running, the background has no time left
        lanes = [Lane([a_plan(np.zeros(3, "i8"), stream=0)], 4, 0),
                 Lane([a_plan(np.zeros(80, "i8"), due_ns=np.arange(80) * 10 * MS, stream=1)], 4, 1),
                 Lane(endless(a_plan, 2, every_ns=MS), 4, 0, background=True)]
        totals, records = run_lanes(lanes)
        last_ns = records["submit_ns"][records["stream"] == 2].max(initial=0)
        if last_ns > 400 * MS:
            break
    assert totals["lane_issued"][:2] == [3, 80]
    assert last_ns > 400 * MS, "it ended with the lane of its own thread"
    assert totals["lane_issued"][2] == (records["stream"] == 2).sum()


def test_rows_behind_others_are_cut_too(a_plan, run_lanes):
    count = 100
    plan = a_plan(np.zeros(count, "i8")) | {name: np.zeros(count, code) for name, code in DEPENDENCY_COLUMNS}
    plan |= {"after_1": np.minimum(np.arange(count), 1), "delay_ns": np.full(count, MS)}
    totals, records = run_lanes([Lane([plan], 4)], stop_ns=20 * MS + MS // 2, simulated=(ZERO_LATENCY,))
    assert totals["time_limit"] is True
    assert_is_prefix(records, 21)
    assert np.array_equal(records["submit_ns"], np.arange(21) * MS)


def test_a_thread_with_lanes_in_the_background_only_is_refused(a_plan, run_lanes):
    with pytest.raises(UsageError, match="thread 1 has only background lanes"):
        run_lanes([Lane([a_plan([0])], 1, 0), Lane([a_plan([0])], 1, 1, background=True)])


@cases(10)
@given(data=st.data())
def test_what_was_issued_is_the_beginning_of_each_plan(a_plan, run_lanes, data):
    lanes, plans = [], []
    for number in range(data.draw(st.integers(1, 3))):
        count = data.draw(st.integers(0, 300))
        timed = data.draw(st.booleans())
        gaps = data.draw(st.sampled_from([0, 1000, 100_000]))
        plans.append(a_plan(np.zeros(count, "i8"), due_ns=np.arange(count) * gaps if timed else -1, stream=number))
        lanes.append(Lane([plans[-1]], data.draw(st.integers(1, 8)),
                          background=bool(number) and data.draw(st.booleans())))
    stop_ns = data.draw(st.integers(0, 20 * MS))
    totals, records = run_lanes(lanes, stop_ns=stop_ns)
    assert totals["stopped"] is None
    assert (records["submit_ns"] <= stop_ns).all()
    for number, plan in enumerate(plans):
        issued = totals["lane_issued"][number]
        assert_is_prefix(of_lane(records, number), issued)
        if issued < len(plan["op"]) and not lanes[number].background:
            assert totals["time_limit"] is True


def test_an_interruption_names_the_drive_and_what_was_done_to_it():
    with pytest.raises(Interrupted, match="^nil:64MiB: writing blocks to be read was interrupted after 0 B; "):
        issue_untimed(find_target("nil:64MiB"), [], step="writing blocks to be read", total_bytes=4096, depth=1, seed=1,
                      payload=Payload(), progress=progress, engine=lambda *_: {"stopped": INTERRUPTED})
