"""Threads that share processors: on another drive a plan has the times of the program there."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from cases import cases
from engine_rule import issued
from fake_engine import replay
from hypothesis import given
from hypothesis import strategies as st
from small_trace import new_trace

from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.dependencies import Observed
from blkreel.replay.plan.history import THREAD_TIMES
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT, parse_idle
from blkreel.replay.plan.planner import plan_trace
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS
from blkreel.traces.transform.rows import trace_schema

THREADS = {str(tid): {"pid": 1, "comm": "a"} for tid in range(1, 9)}
US = 1000
DRIVE = "nil:1GiB,read_latency=80us,channels=64,commands=64,read_bandwidth=100TB/s,link=100TB/s,clock=virtual"


def program(threads, latency_ns, processors, others=0):
    """Columns of the reads of a program, one after the other in each thread, as a capture has them.

    threads: for each thread, its reads as (sleep_ns, cpu_ns) before each. A thread sleeps, then computes, on
    processors that all computing threads share equally, then reads and waits. others: threads that compute all the time
    and read nothing.
    """
    at, rows = Fraction(0), []
    left = [None] * len(threads)  # processor time of a thread that computes
    due = [Fraction(steps[0][0]) if steps else None for steps in threads]  # when it begins to compute
    step, waiting = [0] * len(threads), [Fraction(0)] * len(threads)
    last, blocked, slept = [-1] * len(threads), [0] * len(threads), [steps[0][0] if steps else 0 for steps in threads]
    while any(x is not None for x in (*left, *due)):
        share = min(Fraction(1), Fraction(processors, max(1, others + sum(x is not None for x in left))))
        times = [at + x / share for x in left if x is not None] + [x for x in due if x is not None]
        next_at = max(at, min(times))
        for t in range(len(threads)):
            if left[t] is not None:
                left[t] -= (next_at - at) * share
                waiting[t] += (next_at - at) * (1 - share)
        at = next_at
        for t, steps in enumerate(threads):
            if due[t] is not None and due[t] <= at:
                due[t], left[t] = None, Fraction(steps[step[t]][1])
            if left[t] is not None and left[t] <= 0:
                rows.append((at, t + 1, last[t], blocked[t], slept[t], waiting[t]))
                left[t], last[t] = None, len(rows) - 1
                step[t] += 1
                blocked[t] += latency_ns
                if step[t] < len(steps):
                    slept[t] += steps[step[t]][0]
                    due[t] = at + latency_ns + steps[step[t]][0]
    names = ("submit_ns", "tid", "waited_on", "blocked_ns", "slept_ns", "runnable_ns")
    io = {name: np.array([round(row[i]) for row in rows], np.int64) for i, name in enumerate(names)}
    done_ns = io["submit_ns"] + latency_ns
    return io | {"latency_ns": np.full(len(rows), latency_ns), "flags": np.full(len(rows), FLAGS["own"]),
                 "think_ns": np.where(io["waited_on"] >= 0, io["submit_ns"] - done_ns[io["waited_on"]], 0)}


def planned(io, processors, compute=1.0):
    plan = Observed(THREADS, compute=compute, processors=processors).columns(
        io, np.arange(len(io["submit_ns"])), io["submit_ns"])
    return plan | {"due_ns": io["submit_ns"]}


def of_threads(tid, submit_ns):
    """The submissions of each thread in their order: on another drive the threads may read in another order."""
    return [sorted(np.array(submit_ns)[tid == thread].tolist()) for thread in np.unique(tid)]


# A thread's first read has no time before it in a trace, so that all begin at once.
THREAD = st.lists(st.tuples(st.sampled_from([0, 0, 40 * US]), st.sampled_from([1 * US, 30 * US, 250 * US])),
                  min_size=1, max_size=8).map(lambda steps: [(0, 0), *steps])


@cases(40)
@given(threads=st.lists(THREAD, min_size=1, max_size=5), processors=st.integers(1, 3),
       latency_us=st.tuples(st.sampled_from([5, 80, 900]), st.sampled_from([5, 80, 900])))
def test_another_drive_gives_the_times_of_the_program_there(threads, processors, latency_us):
    captured, other = (program(threads, us * US, processors) for us in latency_us)
    count = len(captured["submit_ns"])
    submit_ns = issued(planned(captured, processors), np.full(count, latency_us[1] * US), processors)
    for replayed, actual in zip(of_threads(captured["tid"], submit_ns), of_threads(other["tid"], other["submit_ns"]),
                                strict=True):
        assert np.abs(np.array(replayed) - actual).max() <= 4 * count


def planned_run(directory, idle=ALL_IDLE, **metadata):
    """Three threads that compute most of the time, on one processor: what was captured, and its plan on that drive."""
    captured = program([[(0, 0), *[(40 * US, 250 * US)] * 20]] * 3, 80 * US, 1)
    schema = trace_schema(pa.schema([(name, pa.int64()) for name in THREAD_TIMES]))
    path = new_trace(directory / "t.parquet", {"devices": [{"name": "src"}], "threads": THREADS, **metadata},
                     schema=schema, **captured)
    return captured, plan_trace(open_trace(path), find_target(DRIVE), pace=DEPENDENT, idle=idle)


@pytest.mark.parametrize(("idle", "processors"), [(ALL_IDLE, 1), (parse_idle("cap=1s"), None)])
def test_a_run_shares_the_processors_of_the_trace(tmp_path, idle, processors):
    """From a trace to a run, on the drive of the trace: its times come back."""
    captured, plan = planned_run(tmp_path, idle, cpu_count=1)
    account = replay(plan, tmp_path / "run")
    assert account["pace"]["processors"] == processors
    assert account["own_wall_ns"] == pytest.approx(captured["submit_ns"][-1] + 80 * US, rel=0.005)


@pytest.mark.parametrize("count", [None, 0, -1, 1 << 40])
def test_a_trace_with_an_impossible_number_of_processors_shares_none(tmp_path, count):
    assert planned_run(tmp_path, cpu_count=count)[1].processors == 0


def test_what_other_programs_took_of_a_processor_stays():
    """A program outside of the trace takes half of the only processor: on the drive of the trace the times stay."""
    captured = program([[(0, 0), (0, 50 * US), (0, 50 * US)]], 10 * US, 1, others=1)
    plan = planned(captured, 1)
    assert (plan["delay_cpu_ns"].tolist(), plan["delay_ns"].tolist()) == ([0, 50 * US, 50 * US], [0, 50 * US, 50 * US])
    assert issued(plan, [10 * US] * 3, 1) == captured["submit_ns"].tolist()


def test_a_wait_is_explained_by_what_a_thread_computed_between_rows_that_are_far_apart():
    """Thread 2 serves the whole time, for 1,200 of 2,000 us, and reads at its end. Thread 1 computes 200 of 500 us, and
    waits for the only processor for the rest, in which thread 2 has it: not another program."""
    io = {name: US * np.array(values) for name, values in (
        ("submit_ns", [0, 0, 500, 2000]), ("slept_ns", [0, 0, 0, 500]), ("runnable_ns", [0, 0, 300, 300]))}
    none = np.zeros(4, np.int64)
    io |= {"latency_ns": none + 10, "blocked_ns": none, "think_ns": none, "waited_on": none - 1,
           "flags": none + FLAGS["own"], "tid": np.array([1, 2, 1, 2])}
    plan = planned(io, 1)
    assert (plan["delay_cpu_ns"][2:].tolist(), plan["delay_ns"][2:].tolist()) == ([200 * US, 1200 * US], [0, 800 * US])


def test_only_processor_time_is_divided():
    """--compute x2: sleep and waits for other programs stay, the computing takes half."""
    captured = program([[(0, 0), (40 * US, 50 * US)]], 10 * US, 1, others=1)
    plan = planned(captured, 1, compute=2)
    assert (plan["delay_cpu_ns"].tolist(), plan["delay_ns"].tolist()) == ([0, 25 * US], [0, 90 * US])


def test_sleep_during_an_io_is_not_divided():
    """It computes 40 us and sleeps 20 us while its read of 100 us is in flight, and goes on 5 us after it."""
    io = {name: US * np.array(values) for name, values in (
        ("submit_ns", [0, 105]), ("latency_ns", [100, 1]), ("blocked_ns", [0, 40]), ("slept_ns", [0, 25]),
        ("runnable_ns", [0, 0]), ("think_ns", [0, 5]))}
    io |= {"tid": np.ones(2, int), "flags": np.full(2, FLAGS["own"]), "waited_on": np.array([-1, 0])}
    plan = planned(io, 1, compute=2)
    assert {name: plan[name][1] for name in ("compute_cpu_ns", "compute_ns", "delay_cpu_ns", "delay_ns")} == {
        "compute_cpu_ns": 20 * US, "compute_ns": 20 * US, "delay_cpu_ns": 0, "delay_ns": 5 * US}


@pytest.mark.parametrize("missing", ["slept_ns", "runnable_ns"])
def test_a_thread_whose_times_are_not_known_keeps_its_delay(missing):
    captured = program([[(0, 0), (40 * US, 50 * US)]], 10 * US, 1)
    captured[missing][:] = -1
    plan = planned(captured, 1)
    assert (plan["delay_cpu_ns"].tolist(), plan["delay_ns"].tolist()) == ([0, 0], [0, 90 * US])
