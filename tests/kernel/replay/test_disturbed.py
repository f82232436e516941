"""A run that is disturbed on purpose is not to be trusted, and says why; one that is left alone may be."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import helpers_of
from host_reasons import HOST_REASONS
from quiet import progress
from small_trace import new_trace

from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import run_engine
from blkreel.replay.plan.pace import ALL_IDLE, ORIGINAL, Pace
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.run import Replay, ReplayOptions
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

MIB = 1 << 20
BY_THE_MACHINE = {"preempted", "machine", "kernel", "wakeup", "paging", "blocked"}
TRIES = 10
# Its priority comes before its processor: on that one a thread of real time may leave it no time to go on.
BUSY_LOOP = """
import os, sys, time
cpu, priority, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
if priority:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
os.sched_setaffinity(0, {cpu})
print("ready", flush=True)
sys.stdin.read()
until = time.monotonic() + seconds
while time.monotonic() < until:
    pass
"""


@pytest.fixture
def replayed(loop_drive, tmp_path):
    """replayed(count, gap_ns, ...) replays that many writes on a loop drive; it is the account of the run.
    replayed.span_ns is when its first and its last I/O were submitted.

    meanwhile() prepares what shall disturb it, and gives what then does, in a thread, once I/Os are being issued: it is
    called with the pid of the helper. Where it was not over before the last I/O, as on a machine that lets us notice
    the run too late, all is done again with twice as many. Options replace those of the engine.
    """
    runs = []

    def replay(count, gap_ns, *, meanwhile=None, **options):
        for attempt in range(4 if meanwhile else 1):
            disturber = Disturber(meanwhile()) if meanwhile else None
            account, replay.span_ns = replay_once(count << attempt, gap_ns, disturber, **options)
            if disturber is None or disturber.acted_within(replay.span_ns):
                return account
        pytest.skip("needs a machine on which a run of some seconds is noticed before it is over")

    def replay_once(count, gap_ns, disturber, *, pace=ORIGINAL, **options):
        trace = tmp_path / f"{len(runs)}.parquet"
        new_trace(trace, drive_bytes=8 * MIB, submit_ns=np.arange(count) * gap_ns, latency_ns=1000,
                  offset_bytes=np.arange(count) % 1000 * 4096, op=1)
        target = find_target(loop_drive(8 * MIB))
        plan = plan_trace(open_trace(trace), target, pace=pace, idle=ALL_IDLE)

        def engine(given, batches, on_rows, on_note):
            def note(fields):
                on_note(fields)
                if disturber:
                    disturber.act_on(helpers_of(os.getpid()))

            return run_engine(dataclasses.replace(given, **options), batches, on_rows, note)

        output = RunDirectory(tmp_path / f"run{len(runs)}", False)
        runs.append(output)
        try:
            account = Replay(plan, output, ReplayOptions("label", 1, engine=engine), progress).run()
        finally:
            if disturber:
                disturber.join()
        return account, span_of(open_trace(tmp_path / f"run{len(runs) - 1}" / "records.parquet"))

    return replay


def span_of(records):
    """From the first submit to the last of a run, by the clock of time.monotonic_ns()."""
    submit_ns = np.concatenate([batch["submit_ns"] for batch in records.batches(["submit_ns"])])
    return records.metadata["epoch_ns"] + int(submit_ns.min()), records.metadata["epoch_ns"] + int(submit_ns.max())


class Disturber:
    """Lets act(pid) do its work once, beside a run."""

    def __init__(self, act):
        self._act, self._thread, self._span_ns = act, None, None

    def act_on(self, pids):
        if pids and not self._thread:
            self._thread = threading.Thread(target=self._do, args=(pids[0],))
            self._thread.start()

    def _do(self, pid):
        begun_ns = time.monotonic_ns()
        self._act(pid)
        self._span_ns = begun_ns, time.monotonic_ns()

    def join(self):
        if self._thread:
            self._thread.join()

    def acted_within(self, span_ns):
        return self._span_ns is not None and span_ns[0] <= self._span_ns[0] and self._span_ns[1] <= span_ns[1]


@pytest.fixture
def busy_loops():
    """busy_loops(priority, seconds) is what prepares to loop on every processor, at the same time, for so long.

    They are started at once, before there is a run: where there are many processors, or little is left of them, a run
    would be over before the last has started. One that loops while another still starts up leaves the engine a
    processor to go to, and takes from the other, or from us, the time to start it in: one after the other they would
    disturb nobody. So one act of ours wakes them all.
    """
    started = []

    def loops_of(priority, seconds):
        def prepare():
            loops, goes = start_loops(priority, seconds)
            started.extend(loops)

            def disturb(pid):
                os.close(goes)
                for loop in loops:
                    loop.wait()

            return disturb

        return prepare

    yield loops_of
    for loop in started:
        loop.kill()
        loop.communicate()


def start_loops(priority, seconds):
    """The loops, ready, and the end of a pipe whose closing lets them all go."""
    waits, goes = os.pipe()
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(cpu), str(priority), str(seconds)],
                              stdin=waits, stdout=subprocess.PIPE, text=True)
             for cpu in os.sched_getaffinity(0)]
    os.close(waits)
    for loop in loops:
        assert loop.stdout.readline() == "ready\n"
    return loops, goes


def host_reasons(account):
    """What the verdict holds against this machine."""
    return [reason["text"] for reason in account["verdict"]["reasons"]
            if reason["code"] in HOST_REASONS]


def causes(account):
    return account["certificate"]["host"]["causes"]


def assert_withheld(account, cause):
    """Others may disturb it besides, and delay more."""
    assert account["verdict"]["withheld"], account["host_effect"]
    assert host_reasons(account)
    assert causes(account)[cause]["late_ops"] > 0 or account["lateness"] is None


def disturbed_by(cause, replay):
    """The account of the first of some runs in which I/Os were late by this cause, and not all by what others did."""
    for _ in range(TRIES):
        account = replay()
        if causes(account).get(cause, {}).get("late_ops"):
            return account
    pytest.skip(f"needs a machine on which others delay an engine less than {cause!r} here")


def test_a_stopped_helper(replayed):
    """For a fifth of the run, which its throughput shows however long other work makes the I/Os."""
    def stop(pid):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.4)
        os.kill(pid, signal.SIGCONT)

    account = disturbed_by("stopped", lambda: replayed(15_000, 100_000, meanwhile=lambda: stop))
    assert_withheld(account, "stopped")
    host = account["certificate"]["host"]
    assert host["stops"] == 1
    longest = max(host["stalls"], key=lambda one: one["duration_ns"] if one["cause"] == "stopped" else 0)
    assert longest["duration_ns"] > 200_000_000
    assert longest["late_ops"] > 1000
    assert longest["max_late_ns"] <= account["lateness"]["host_max_ns"]


def test_busy_loops_beside_a_thread_without_priority(replayed, busy_loops):
    account = replayed(30_000, 50_000, meanwhile=busy_loops(0, 0.8), realtime=False)
    assert_withheld(account, "preempted")
    assert account["certificate"]["host"]["waited_ns"] >= causes(account)["preempted"]["total_ns"] * 0.9


def test_busy_loops_beside_a_run_without_deadlines(replayed, busy_loops):
    """No I/O is late there, but completions are seen late. The loops take half as long as a run that is left alone:
    the share of their effect does not depend on the speed of the machine."""
    replayed(60_000, 1000, pace=Pace("depth", 1))
    begin_ns, end_ns = replayed.span_ns
    lengths_s = ((end_ns - begin_ns) / 2e9 * 2**attempt for attempt in itertools.count())
    account = replayed(60_000, 1000, meanwhile=lambda: busy_loops(50, next(lengths_s))(), pace=Pace("depth", 1))
    assert account["lateness"] is None
    assert causes(account)["preempted"]["longest_ns"] > 10_000_000, account["certificate"]["host"]
    assert_withheld(account, "preempted")
    assert "throughput" in account["verdict"]["withheld"]
    assert account["verdict"]["level"] == "invalid", "all of its headline metrics are withheld"


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs a kernel with CONFIG_SCHED_AUTOGROUP")
@pytest.mark.parametrize("realtime, nice", [(True, -10), (False, 0)])
def test_an_ordinary_priority_counts_beside_other_sessions(replayed, realtime, nice):
    """The kernel shares processors among sessions first, and the helper's is its own."""
    groups = []

    def look():
        return lambda pid: groups.append(Path(f"/proc/{pid}/autogroup").read_text())

    replayed(10_000, 100_000, meanwhile=look, realtime=realtime)
    assert groups[-1].endswith(f"nice {nice}\n")


def test_a_run_that_is_left_alone(replayed):
    """On a machine that others use, too, one of some tries meets nobody; what the others met is the machine's."""
    met = []
    for _ in range(TRIES):
        account = replayed(1000, 1_000_000)
        if not host_reasons(account):
            assert account["verdict"]["level"] in ("valid", "qualified")
            # Of a thousand I/Os, one late I/O is the whole tail beyond p99.
            assert not set(account["verdict"]["withheld"]) & set(account["host_effect"]["headline"])
            assert account["as_planned"]
            return
        assert set(causes(account)) <= BY_THE_MACHINE
        met += host_reasons(account)
    pytest.skip(f"needs a machine with a quiet second: {met[-1]}")
