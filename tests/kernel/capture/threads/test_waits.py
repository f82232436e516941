"""Which completion let a thread go on, where the workload itself says which it must have been."""

import sys

import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

pytestmark = pytest.mark.kernel

READS = 4000
POLLED = 100
THREADS = 3

# What a thread reads next, it reads when its last read is done: its cause is the row before it of the same thread.
ONE_AT_A_TIME = {
    "direct": ["--ioengine=psync", "--direct=1"],
    "buffered": ["--ioengine=psync", "--direct=0", "--invalidate=1", "--fadvise_hint=random"],
    "mmap": ["--ioengine=mmap", "--direct=0", "--invalidate=1", "--fadvise_hint=random"],
}


def captured(blkreel, fio, drive, trace, options, *capture):
    blkreel("capture", drive, *capture, "-o", trace, "--", fio, "--name=reader", f"--filename={drive}",
            "--rw=randread", "--norandommap=0", "--bs=4k", f"--number_ios={READS // THREADS}", "--size=100%",
            "--thread", f"--numjobs={THREADS}", "--group_reporting", *options,
            f"--output={trace.with_suffix('.fio')}")
    rows = open_trace(trace).table().to_pandas()
    return rows[rows.op == 0]


def reading_threads(rows):
    """Rows of each thread that read: fio's main thread looks at the drive before it starts them."""
    return [own for _, own in rows.groupby("tid") if len(own) > READS // THREADS // 2]


def test_a_read_waited_for_the_one_before_it(blkreel, loop_drive, program, tmp_path):
    """Of all synchronous reads 99 %. A page that is there before its reader has gone to sleep wakes nobody, which is so
    more often where the processors are busy: then the reader was not blocked.
    """
    explained, total = {}, {}
    for engine, options in ONE_AT_A_TIME.items():
        rows = captured(blkreel, program("fio"), loop_drive(256 << 20), tmp_path / f"{engine}.parquet",
                        [*options, "--numjobs=1", f"--number_ios={READS}"])
        (own,) = reading_threads(rows)
        right = own.waited_on.to_numpy()[1:] == own.index.to_numpy()[:-1]
        explained[engine] = (right | (own.blocked_ns.diff().to_numpy()[1:] == 0)).sum()
        total[engine] = len(own) - 1
        assert right.sum() >= 0.8 * total[engine], engine
    assert sum(total.values()) >= 3 * (READS - 1)
    assert sum(explained.values()) >= 0.99 * sum(total.values()), (explained, total)


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_the_cause_is_never_another_threads_read(blkreel, loop_drive, program, tmp_path, kind):
    """Direct reads of several threads: nobody waits for what another has asked for."""
    rows = captured(blkreel, program("fio"), loop_drive(256 << 20), tmp_path / "t.parquet", ONE_AT_A_TIME["direct"],
                    "--programs", kind)
    for own in reading_threads(rows):
        known = own[own.waited_on >= 0]
        assert len(known) >= 0.99 * len(own)
        assert set(rows.tid.reindex(known.waited_on).to_numpy()) == set(own.tid)


def test_think_time_is_from_that_completion(blkreel, loop_drive, program, tmp_path):
    rows = captured(blkreel, program("fio"), loop_drive(256 << 20), tmp_path / "t.parquet", ONE_AT_A_TIME["direct"])
    known = rows[rows.waited_on >= 0]
    parents = rows.loc[known.waited_on.to_numpy()]
    completed_ns = parents.submit_ns.to_numpy() + parents.latency_ns.to_numpy()
    assert (known.think_ns.to_numpy() == known.submit_ns.to_numpy() - completed_ns).all()
    assert (known.think_ns >= 0).all() and (rows.think_ns[rows.waited_on < 0] == 0).all()


@pytest.mark.parametrize("engine", ["io_uring", "libaio"])
@pytest.mark.parametrize("depth", [1, 8])
def test_in_a_queue_each_waited_for_one_that_was_done(blkreel, loop_drive, program, tmp_path, engine, depth):
    """A thread may find completions in a queue before it falls asleep, and then nothing wakes it. The recorded
    dependency is true all the same: an I/O of the thread, which was complete.
    """
    rows = captured(blkreel, program("fio"), loop_drive(256 << 20), tmp_path / "t.parquet",
                    [f"--ioengine={engine}", "--direct=1", f"--iodepth={depth}"])
    known = rows[rows.waited_on >= 0]
    assert len(known)
    parents = rows.loc[known.waited_on.to_numpy()]
    assert (parents.submit_ns.to_numpy() + parents.latency_ns.to_numpy() <= known.submit_ns.to_numpy()).all()
    assert (parents.tid.to_numpy() == known.tid.to_numpy()).mean() >= 0.99


# Reads with io_submit, and asks for the completion again and again without waiting for it.
POLLING = f"""
import ctypes, mmap, os, platform, struct, sys
setup, submit, get = {{"x86_64": (206, 209, 208)}}.get(platform.machine(), (0, 2, 4))
call = ctypes.CDLL(None, use_errno=True).syscall
call.restype = ctypes.c_long
drive, page = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
context, event, at_once = ctypes.c_ulong(), ctypes.create_string_buffer(32), (ctypes.c_long * 2)()
assert call(setup, ctypes.c_long(1), ctypes.byref(context)) == 0, ctypes.get_errno()
for number in range({POLLED}):
    fields = struct.pack("<QIIHhIQQqQII", 0, 0, 0, 0, 0, drive, address, 4096, number << 16, 0, 0, 0)
    read = ctypes.create_string_buffer(fields, 64)
    reads = (ctypes.c_void_p * 1)(ctypes.addressof(read))
    assert call(submit, context, ctypes.c_long(1), reads) == 1, ctypes.get_errno()
    while (done := call(get, context, ctypes.c_long(0), ctypes.c_long(1), event, at_once)) == 0:
        pass
    assert done == 1 and struct.unpack_from("<q", event, 16)[0] == 4096
"""


def test_who_polls_for_completions_waits_for_none(blkreel, loop_drive, tmp_path):
    """Each read is complete before the next one, but no completion woke the thread: it was never blocked."""
    drive = loop_drive()
    blkreel("capture", drive, "-o", tmp_path / "t.parquet", "--", sys.executable, "-c", POLLING, drive)
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    rows = rows[(rows["flags"] & FLAGS["own"]) != 0]
    assert len(rows) == POLLED
    seen = rows.latency_ns >= 0
    assert (rows.submit_ns + rows.latency_ns)[seen].lt(rows.submit_ns.shift(-1, fill_value=1 << 62)[seen]).all()
    # The thread may sleep for memory, or for code of the program.
    assert (~rows.waited_on.isin(rows.index)).mean() >= 0.9
    assert (rows.blocked_ns.diff()[1:] == 0).mean() >= 0.9


def test_who_polls_an_io_uring_waits_for_none(blkreel, loop_drive, program, tmp_path):
    """fio looks at the completion queue in shared memory, without a wait in the kernel, with four reads in flight."""
    rows = captured(blkreel, program("fio"), loop_drive(), tmp_path / "t.parquet",
                    ["--ioengine=io_uring", "--direct=1", "--iodepth=4", "--iodepth_batch_complete_min=0",
                     "--numjobs=1", f"--number_ios={POLLED}"])
    rows = rows[rows.tid == rows.tid.mode()[0]]
    assert len(rows) == POLLED
    # The thread may sleep for memory, or for code of the program.
    assert (~rows.waited_on.isin(rows.index)).mean() >= 0.9
    assert (rows.blocked_ns.diff()[1:] == 0).mean() >= 0.9
