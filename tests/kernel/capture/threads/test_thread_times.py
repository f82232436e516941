"""What a thread did between two I/Os, held against its own clocks and the scheduler's count."""

import json
import sys
from collections import namedtuple

import numpy as np
import pytest

from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel

READS = 40

# Reads blocks of the drive, each between two readings of the clocks of the thread.
READER = f"""
import json, mmap, os, sys, threading, time
drive, output = sys.argv[2:]
file, page = os.open(drive, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
scheduler = open("/proc/thread-self/schedstat")
def clocks():
    scheduler.seek(0)
    return time.monotonic_ns(), time.thread_time_ns(), int(scheduler.read().split()[1])
def read_blocks(rest):
    log = []
    for block in range({READS}):
        before = clocks()
        os.preadv(file, [page], block * 4096)
        after = clocks()
        rest()
        log.append([threading.get_native_id(), *before, *after, *clocks()])
    return log
"""

# Sleeps between its reads.
SLEEPER = READER + """
def pipe_to_child():
    to_child, child_to = os.pipe(), os.pipe()
    if not os.fork():
        os.close(to_child[1])
        while os.read(to_child[0], 1):
            time.sleep(0.01)
            os.write(child_to[1], b".")
        os._exit(0)
    return lambda: os.write(to_child[1], b".") and os.read(child_to[0], 1)
lock = threading.Lock()
lock.acquire()
rest = {"timer": lambda: time.sleep(0.01), "futex": lambda: lock.acquire(timeout=0.01),
        "pipe": pipe_to_child() if sys.argv[1] == "pipe" else None, "none": lambda: None}[sys.argv[1]]
json.dump(read_blocks(rest), open(output, "w"))
"""

# Computes between its reads, beside another thread on the same processor that does so, too.
COMPUTER = READER + """
def compute():
    end_ns = time.thread_time_ns() + 5_000_000
    while time.thread_time_ns() < end_ns:
        pass
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
receive, send = os.pipe()
if not os.fork():
    scheduler = open("/proc/thread-self/schedstat")
    os.write(send, json.dumps(read_blocks(compute)).encode())
    os._exit(0)
log = read_blocks(compute)
os.close(send)
json.dump(log + json.load(open(receive)), open(output, "w"))
"""

Clocks = namedtuple("Clocks", "wall_ns cpu_ns runnable_ns")


def captured(blkreel, drive, tmp_path, program, kind, *options):
    """(rows, clocks before, after the read, after the rest) of each thread, in the order of its reads."""
    trace, log = tmp_path / "t.parquet", tmp_path / "log.json"
    blkreel("capture", drive, "-o", trace, *options, "--", sys.executable, "-c", program, kind, drive, log)
    assert not check(open_trace(trace)).errors
    rows = open_trace(trace).table().to_pandas()
    logged = np.array(json.loads(log.read_text()))
    for tid in np.unique(logged[:, 0]):
        own = rows[(rows.tid == tid) & (rows.op == 0)]
        assert len(own) == READS
        yield own, *(Clocks(*logged[logged[:, 0] == tid, first:first + 3].T) for first in (1, 4, 7))


def assert_waited_for_the_processor(rows, before, after):
    """As long as the scheduler had counted, to the ns: it counts a wait when the wait has ended."""
    assert (rows.runnable_ns >= before.runnable_ns).all() and (rows.runnable_ns <= after.runnable_ns).all()


def assert_no_time_counts_twice(rows, before, after):
    """The sleep, the waits and the processor time fill at most the time between two reads."""
    parts_ns = rows[["blocked_ns", "slept_ns", "runnable_ns"]].diff().sum(axis=1).to_numpy()[1:]
    computed_ns = before.cpu_ns[1:] - after.cpu_ns[:-1]
    # A direct read that is complete before its thread sleeps has blocked it all the same. The clock of the processor
    # time is not adjusted, that of the trace is.
    most_ns = 1.001 * np.diff(rows.submit_ns) + rows.latency_ns.to_numpy()[:-1].clip(min=0)
    assert (parts_ns + computed_ns <= most_ns).all()


@pytest.mark.parametrize(("kind", "programs"), [("timer", "tp_btf"), ("timer", "raw_tp"), ("futex", "tp_btf"),
                                              ("pipe", "tp_btf")])
def test_sleep_for_anything_but_io_is_slept(blkreel, loop_drive, tmp_path, kind, programs):
    (rows, before, after, rested), = captured(blkreel, loop_drive(), tmp_path, SLEEPER, kind, "--programs", programs)
    assert rows.slept_ns.iloc[0] == 0 and (rows.slept_ns.diff()[1:] >= 0).all()
    assert_waited_for_the_processor(rows, before, after)
    assert_no_time_counts_twice(rows, before, after)
    asleep_ns = (rested.wall_ns - after.wall_ns) - (rested.cpu_ns - after.cpu_ns) - (
        rested.runnable_ns - after.runnable_ns)
    # An interrupt or a hypervisor may take the processor from a thread that runs.
    assert np.median(np.diff(rows.slept_ns) / asleep_ns[:-1]) >= 0.9


def test_sleep_for_io_is_blocked_and_not_slept(blkreel, loop_drive, tmp_path):
    """All but the time from the completion to the wake-up."""
    (rows, before, after, _), = captured(blkreel, loop_drive(), tmp_path, SLEEPER, "none")
    assert_waited_for_the_processor(rows, before, after)
    assert_no_time_counts_twice(rows, before, after)
    assert np.median(np.diff(rows.slept_ns)) < np.median(np.diff(rows.blocked_ns))


def test_threads_that_share_a_processor_wait_for_it(blkreel, loop_drive, tmp_path):
    waited_ns = 0
    threads = list(captured(blkreel, loop_drive(), tmp_path, COMPUTER, ""))
    assert len(threads) == 2
    for rows, before, after, _ in threads:
        assert_waited_for_the_processor(rows, before, after)
        assert_no_time_counts_twice(rows, before, after)
        waited_ns += rows.runnable_ns.iloc[-1] - rows.runnable_ns.iloc[0]
    assert waited_ns > 0


def test_the_ledger_has_what_threads_without_io_computed(blkreel, loop_drive, tmp_path):
    """Held against the clocks of two threads, of a process that ends before its parent."""
    program = """
import os, sys, threading, time
def compute(seconds):
    while time.thread_time() < seconds:
        pass
if not os.fork():
    threads = [threading.Thread(target=compute, args=(seconds,)) for seconds in (0.1, 0.3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    os._exit(0)
os.wait()
"""
    trace = tmp_path / "t.parquet"
    blkreel("capture", loop_drive(), "-o", trace, "--", sys.executable, "-c", program)
    metadata = open_trace(trace).metadata
    ledger = metadata["ledger"]
    assert 0.29e9 <= ledger["longest_computed_ns"] < metadata["duration_ns"]
    assert ledger["longest_computed_ns"] + 0.09e9 <= ledger["computed_ns"] < (
        metadata["duration_ns"] * metadata["cpu_count"])
