"""Which thread woke the thread of an I/O, held against the clocks of both."""

import json
import statistics
import sys

import pytest

from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import WAKE_COLUMNS

pytestmark = pytest.mark.kernel

BLOCKS = 30

# A thread reads one block each time that another one, which does no I/O, tells it to: by a pipe, or by a lock.
PROGRAM = f"""
import json, mmap, os, sys, threading, time
kind, drive, output = sys.argv[1:]
file, page = os.open(drive, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
asks, answers = os.pipe(), os.pipe()
asked, answered = threading.Semaphore(0), threading.Semaphore(0)
log = {{"asked": []}}
def read_blocks():
    log["reader"] = threading.get_native_id()
    for block in range({BLOCKS}):
        asked.acquire() if kind == "lock" else os.read(asks[0], 1)
        if kind == "timer":
            time.sleep(0.002)
        os.preadv(file, [page], block * 4096)
        answered.release() if kind == "lock" else os.write(answers[1], b".")
reader = threading.Thread(target=read_blocks)
reader.start()
log["asker"] = threading.get_native_id()
for block in range({BLOCKS}):
    end_ns = time.thread_time_ns() + 3_000_000
    while time.thread_time_ns() < end_ns:
        pass
    before_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
    asked.release() if kind == "lock" else os.write(asks[1], b".")
    log["asked"].append([before_ns, time.monotonic_ns(), cpu_ns])
    answered.acquire() if kind == "lock" else os.read(answers[0], 1)
reader.join()
json.dump(log, open(output, "w"))
"""


def captured(blkreel, drive, tmp_path, kind, *options):
    trace, output = tmp_path / "t.parquet", tmp_path / "log.json"
    blkreel("capture", drive, "-o", trace, *options, "--", sys.executable, "-c", PROGRAM, kind, drive, output)
    opened = open_trace(trace)
    assert not check(opened).errors
    log = json.loads(output.read_text())
    rows = opened.table().to_pandas()
    rows = rows[(rows.tid == log["reader"]) & (rows.op == 0)]
    assert len(rows) == BLOCKS
    return opened, rows, log


@pytest.mark.parametrize("options", [(), ("--workload-only",), ("--programs", "raw_tp")])
def test_a_read_has_the_thread_that_asked_for_it(blkreel, loop_drive, tmp_path, options):
    trace, rows, log = captured(blkreel, loop_drive(), tmp_path, "pipe", *options)
    epoch_ns = trace.metadata["epoch_ns"]
    last, errors_ns = None, []
    for row, (before_ns, after_ns, cpu_ns) in zip(rows.itertuples(), log["asked"], strict=True):
        if row.woken_by == -1:
            continue  # its thread had not fallen asleep yet
        assert row.woken_by == log["asker"]
        assert before_ns <= epoch_ns + row.submit_ns - row.woken_ns <= after_ns
        times = row.woken_blocked_ns + row.woken_slept_ns + row.woken_runnable_ns
        if last:
            elapsed_ns = row.submit_ns - row.woken_ns - last[0] - (times - last[1])
            errors_ns.append(abs(elapsed_ns - (cpu_ns - last[2])))
        last = row.submit_ns - row.woken_ns, times, cpu_ns
    # A hypervisor may take the processor, and a wake-up may come while the thread falls asleep.
    assert statistics.median(errors_ns) < 1e6, "what the thread computed between two wake-ups"
    assert (rows.woken_by != -1).sum() > BLOCKS / 2
    assert str(log["asker"]) in trace.metadata["threads"]


@pytest.mark.parametrize("kind", ["timer", "lock"])
def test_of_a_thread_that_slept_for_a_timer_or_maybe_a_lock_none_is_known(blkreel, loop_drive, tmp_path, kind):
    _, rows, _ = captured(blkreel, loop_drive(), tmp_path, kind)
    assert (rows[WAKE_COLUMNS].iloc[1:] == -1).all(axis=None)


# A thread reads a block and tells a process, which tells another one to read the next block. It computes before.
RELAY = f"""
import json, mmap, os, sys, time
drive, output = sys.argv[1:]
file, page = os.open(drive, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
to_relay, to_reader, to_first = os.pipe(), os.pipe(), os.pipe()
def read_block(number):
    os.preadv(file, [page], number * 4096)
if not (relay := os.fork()):
    for _ in range({BLOCKS}):
        os.read(to_relay[0], 1)
        end_ns = time.thread_time_ns() + 3_000_000
        while time.thread_time_ns() < end_ns:
            pass
        os.write(to_reader[1], b".")
    os._exit(0)
if not (reader := os.fork()):
    for block in range({BLOCKS}):
        os.read(to_reader[0], 1)
        read_block(2 * block + 1)
        os.write(to_first[1], b".")
    os._exit(0)
told = []
for block in range({BLOCKS}):
    time.sleep(0.002)
    read_block(2 * block)
    before_ns = time.monotonic_ns()
    os.write(to_relay[1], b".")
    told.append([before_ns, time.monotonic_ns()])
    os.read(to_first[0], 1)
json.dump({{"first": os.getpid(), "reader": reader, "told": told}}, open(output, "w"))
"""


def test_a_process_that_only_passes_on_a_wake_up_is_left_out(blkreel, loop_drive, tmp_path):
    """As a shell that waits for a program and then stops a server: the server's I/O waits for the program's."""
    trace, output = tmp_path / "t.parquet", tmp_path / "log.json"
    drive = loop_drive()
    blkreel("capture", drive, "-o", trace, "--", sys.executable, "-c", RELAY, drive, output)
    opened, log = open_trace(trace), json.loads(output.read_text())
    assert not check(opened).errors
    rows = opened.table().to_pandas()
    rows = rows[(rows.tid == log["reader"]) & (rows.op == 0)]
    assert len(rows) == BLOCKS
    known = 0
    for row, (before_ns, after_ns) in zip(rows.itertuples(), log["told"], strict=True):
        if row.woken_by == log["first"]:
            known += 1
            assert before_ns <= opened.metadata["epoch_ns"] + row.submit_ns - row.woken_ns <= after_ns
    assert known > BLOCKS / 2
