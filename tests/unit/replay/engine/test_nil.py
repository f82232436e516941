"""The engine on its null target: what it does apart from I/O."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from helpers import helpers_of, lives
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.replay.engine.engine import BLOCK_ROWS, HELPER, EngineOptions, Lane, run_engine
from blkreel.replay.engine.untimed_io import sigterm_as_interrupt
from blkreel.traces.format.schema import FLAGS, OPS

GIB = 1 << 30
SAME_IN_RECORD = ["due_ns", "offset_bytes", "length_bytes", "op", "flags", "stream", "burst", "source_row"]


def assert_all_issued(plan, totals, records):
    order = np.argsort(records["source_row"], kind="stable")
    records = {**records, "flags": records["flags"] & ~(FLAGS["queue_full"] | FLAGS["host_stalled"])}
    for name in SAME_IN_RECORD:
        assert np.array_equal(records[name][order], plan[name]), name
    assert totals["planned_ops"] == totals["issued_ops"] == totals["completed_ops"] == len(order)
    assert totals["stopped"] is None


def test_every_row_becomes_one_record(a_plan, issue):
    count = 5 * BLOCK_ROWS + 17
    random = np.random.default_rng(1)
    plan = a_plan(random.integers(0, 1000, count) * 4096, op=random.integers(0, 5, count),
                  flags=random.integers(0, 64, count), stream=random.integers(0, 9, count), burst=np.arange(count) // 7)
    totals, records = issue(plan, nil_bytes=GIB, may_write=True)
    assert_all_issued(plan, totals, records)
    assert totals["issued"] == {name: int(count) for name, code in OPS.items() if (count := (plan["op"] == code).sum())}
    assert set(records["status"]) == {0}


@cases(13)
@given(gaps=st.lists(st.integers(0, 400_000), max_size=60), at_once=st.integers(0, 5), depth=st.integers(1, 40))
def test_no_row_is_early_and_order_is_kept(a_plan, issue, gaps, at_once, depth):
    due = np.concatenate([np.full(at_once, -1), np.cumsum(np.array(gaps, dtype="i8"))])
    plan = a_plan(np.arange(len(due)) * 4096, due_ns=due)
    totals, records = issue(plan, nil_bytes=GIB, depth=depth)
    assert_all_issued(plan, totals, records)
    order = np.argsort(records["source_row"])
    timed = records["due_ns"] >= 0
    assert (records["submit_ns"][timed] >= records["due_ns"][timed]).all()
    assert (np.diff(records["submit_ns"][order]) >= 0).all()
    assert (records["complete_ns"] >= records["submit_ns"]).all()
    assert totals["min_lateness_ns"] >= 0
    if len(gaps):
        lateness = (records["submit_ns"] - records["due_ns"])[timed]
        assert totals["max_lateness_ns"] == lateness.max()
        assert totals["plan_ns"] == due[-1]
        assert totals["wall_ns"] == records["complete_ns"].max()


def test_an_empty_plan_is_a_run(a_plan, issue):
    totals, records = issue(nil_bytes=GIB)
    assert totals["planned_ops"] == 0
    assert totals["stopped"] is None
    totals, records = issue(a_plan([]), a_plan([0]), a_plan([]), nil_bytes=GIB)
    assert totals["completed_ops"] == 1


@pytest.mark.parametrize(("row", "says"), [
    ({"op": 1}, "reading only"), ({"offset_bytes": [GIB - 4096], "length_bytes": 8192}, "outside")])
def test_a_block_that_does_not_fit_is_refused_whole(a_plan, issue, row, says):
    good = a_plan(np.zeros(1000))
    bad = {name: np.concatenate([good[name], column]) for name, column in
           a_plan(**{"offset_bytes": [0], **row}).items()}
    with pytest.raises(SafetyError, match=f"row 1000 of the plan.*{says}"):
        issue(bad, nil_bytes=GIB, on_rows=lambda rows: pytest.fail("a row was issued"))


def test_time_running_backwards_is_refused(a_plan, issue):
    with pytest.raises(SafetyError, match="row 2 .*before the row ahead"):
        issue(a_plan([0, 0], due_ns=[7, 8]), a_plan([0], due_ns=[5]), nil_bytes=GIB)


def test_an_error_of_the_plan_comes_back(a_plan):
    def plan():
        yield a_plan(np.zeros(10))
        raise ValueError("the trace is torn")

    with pytest.raises(ValueError, match="the trace is torn"):
        run_engine(EngineOptions(nil_bytes=GIB), [Lane(plan())], lambda rows: None, lambda note: None)
    assert helpers_of(os.getpid()) == []


def test_an_error_of_the_consumer_ends_the_run(a_plan, issue):
    def full(rows):
        raise OSError(errno.ENOSPC, "no space left")

    # It does not go on to the end of a plan of a day.
    with pytest.raises(OSError, match="no space left"):
        issue(a_plan(np.zeros(100), due_ns=np.arange(100) * 10**12), nil_bytes=GIB, on_rows=full)
    assert helpers_of(os.getpid()) == []


def test_a_slow_consumer_loses_nothing(a_plan, issue):
    plan = a_plan(np.zeros(40 * BLOCK_ROWS))
    totals, records = issue(plan, nil_bytes=GIB, on_rows=lambda rows: time.sleep(0.05))
    assert_all_issued(plan, totals, records)
    assert totals["record_stalls"] > 0, "it was told that the engine had to wait for its reader"


def test_a_late_plan_is_counted_as_underrun(a_plan):
    is_due = threading.Event()

    def plan():
        for block in range(12):
            if block == 10:
                assert is_due.wait(300)
            yield a_plan(np.zeros(10), due_ns=np.full(10, block * 10**6))

    def watch(note):
        if note.get("elapsed_ns", 0) > 11 * 10**6:
            is_due.set()

    totals = run_engine(EngineOptions(nil_bytes=GIB), [Lane(plan())], lambda rows: None, watch)
    assert totals["underruns"] >= 1
    assert totals["completed_ops"] == 120


def test_progress_is_told_and_records_come_while_it_runs(a_plan, issue):
    notes, arrivals = [], []
    issue(a_plan(np.zeros(1600), due_ns=np.arange(1600) * 10**6), nil_bytes=GIB, on_note=notes.append,
          on_rows=lambda rows: arrivals.append(len(rows["op"])))
    assert len(notes) >= 2
    assert notes[-1]["note"] == "progress"
    submitted = [note["submitted"] for note in notes]
    assert submitted == sorted(submitted)
    assert any(0 < count < 1600 for count in submitted)
    assert len(arrivals) >= 2, "a kill would have lost all records"


def test_memory_does_not_grow_with_the_plan(a_plan):
    def peak_kib(blocks):
        peaks = []
        block = a_plan(np.zeros(BLOCK_ROWS))
        run_engine(EngineOptions(nil_bytes=GIB), [Lane(block for _ in range(blocks))],
                   lambda rows: peaks.append(peak_rss_kib(helpers_of(os.getpid()))), lambda note: None)
        return max(peaks)

    short = peak_kib(10)
    assert short > 1000
    assert peak_kib(60) < 1.2 * short, "2 M rows took more memory than 300 k"


def test_ctrl_c_ends_in_order(a_plan, issue):
    interrupted = []

    def interrupt(note):
        if note["completed"] and not interrupted:
            interrupted.append(note)
            os.kill(os.getpid(), signal.SIGINT)

    plan = a_plan(np.zeros(60_000), due_ns=np.arange(60_000) * 10**7)
    totals, records = issue(plan, nil_bytes=GIB, on_note=interrupt)
    assert totals["stopped"] == "interrupted"
    assert 0 < totals["completed_ops"] == len(records["op"]) < 60_000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_job_in_the_background_of_a_script_ends_by_a_signal_between_two_runs_of_the_engine(number):
    """A shell without job control starts it with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(number, signal.SIG_DFL)  # below nohup ignored
    try:
        with pytest.raises(KeyboardInterrupt), sigterm_as_interrupt():
            signal.getsignal(number)(number, None)  # a real signal may come within a callback that swallows exceptions
    finally:
        for restored, handler in zip((signal.SIGINT, number), before, strict=True):
            signal.signal(restored, handler)


SCRIPT = """
import numpy as np
from blkreel.replay.engine.engine import EngineOptions, Lane, run_engine

zeros = np.zeros(60_000, "i8")
plan = dict(due_ns=np.arange(60_000) * 10**7, offset_bytes=zeros, length_bytes=zeros + 4096, op=zeros, flags=zeros,
            stream=zeros, burst=zeros, source_row=np.arange(60_000))
run_engine(EngineOptions(nil_bytes=1 << 30), [Lane([plan])], lambda rows: None,
           lambda note: print("running", flush=True))
"""


def test_the_helper_dies_with_its_parent():
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"running\n"
            helper, = helpers_of(process.pid)
        finally:
            process.kill()
        process.wait()
        wait_until(lambda: not lives(helper))


@pytest.mark.parametrize(("plan", "code", "said"), [
    (b"", 0, b'"stopped": "the plan broke off"'), (b"PAR1" * 100, 5, b"another layout")], ids=["cut off", "foreign"])
def test_a_plan_that_is_none_ends_the_run(plan, code, said):
    helper = subprocess.run([HELPER, "--nil=1073741824", "--lane=0,1,0"], input=plan, capture_output=True, timeout=300)
    assert helper.returncode == code
    assert said in (helper.stderr if code else helper.stdout)
    assert not code or helper.stderr.count(b"\n") == 1


def test_what_cannot_start_says_why(issue):
    with pytest.raises(UsageError, match="--lane"):
        issue(nil_bytes=GIB, depth=0)


def test_a_killed_helper_is_an_error(a_plan, issue):
    def kill(note):
        for helper in helpers_of(os.getpid()):
            os.kill(helper, signal.SIGKILL)

    with pytest.raises(BlkreelError, match="killed by signal 9"):
        issue(a_plan(np.zeros(100), due_ns=np.arange(100) * 10**8), nil_bytes=GIB, on_note=kill)


def test_the_flag_of_a_full_queue_is_ours_to_set(a_plan, issue):
    totals, records = issue(a_plan([0, 0], flags=FLAGS["queue_full"] | FLAGS["sync"]), nil_bytes=GIB)
    assert set(records["flags"] & ~FLAGS["host_stalled"]) == {FLAGS["sync"]}


def peak_rss_kib(helpers):
    try:
        status = Path(f"/proc/{helpers[0]}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0])
    except (IndexError, OSError):
        return 0


def test_a_thread_that_never_rests_gives_its_real_time_priority_up(a_plan, issue):
    """The kernel would stop it for 50 ms in one piece, every second."""
    count = 35_000
    due = np.arange(count, dtype="i8") * 20_000
    plan = a_plan(np.zeros(count, "i8"), due_ns=due)
    totals, _ = issue(plan, nil_bytes=GIB, realtime=True)
    if not totals["realtime"]:
        pytest.skip("needs real-time priority: run it as root, or with `ulimit -r 1`")
    assert totals["realtime_given_up"] >= 1
    rests, _ = issue(a_plan(np.zeros(100, "i8"), due_ns=np.arange(100, dtype="i8") * 10_000_000), nil_bytes=GIB,
                     realtime=True)
    assert rests["realtime_given_up"] == 0


def test_rows_that_a_stop_delayed_are_flagged(a_plan, issue):
    """Those that were due meanwhile, and no others for that reason: what the monitor lists, row by row."""
    # A busy machine may let the test notice the run when it is over: then the next one is longer.
    for count in (3000, 12_000, 48_000, 192_000):
        continued_ns = []

        def stop(note, continued_ns=continued_ns):
            if not continued_ns and note.get("elapsed_ns", 0) > 0 and (pids := helpers_of(os.getpid())):
                os.kill(pids[0], signal.SIGSTOP)
                time.sleep(0.1)
                os.kill(pids[0], signal.SIGCONT)
                continued_ns.append(time.monotonic_ns())

        totals, rows = issue(a_plan(np.arange(count) * 4096, due_ns=np.arange(count) * 1_000_000), nil_bytes=GIB,
                             on_note=stop)
        if continued_ns and continued_ns[0] < totals["start_monotonic_ns"] + (count - 1) * 1_000_000:
            break
    flagged = (rows["flags"] & FLAGS["host_stalled"]) != 0
    late_ns = rows["submit_ns"] - rows["due_ns"]
    assert ((late_ns > 50_000) <= flagged).all()
    assert (flagged <= ((late_ns > 50_000) | (rows["stall_ns"] > 0))).all()
    assert (late_ns > 10_000_000).sum() >= 80
    assert (rows["host_delay_ns"] == late_ns).all()
