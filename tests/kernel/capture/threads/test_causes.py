"""Causes that reach a thread through another: who hands on work, who ends, and the journal behind an fsync."""

import subprocess
import sys

import numpy as np
import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

pytestmark = pytest.mark.kernel

ROUNDS = 60

# Nobody is woken who does not sleep, and a busy machine may keep a thread from going to sleep. So who hands on looks
# first: what waits for a drive is in state D, what waits for another in state S.
ASLEEP = """
import mmap, os, sys
file, rounds = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), int(sys.argv[2])
block = mmap.mmap(-1, 4096)
def until_asleep(pid):
    with open(f"/proc/{pid}/stat") as stat:
        while stat.seek(0) or stat.read().rpartition(")")[2].split()[0] != "S":
            os.sched_yield()
"""

# Two processes take turns: each reads once the other has read.
TURNS = ASLEEP + """
to_child, to_parent = os.pipe(), os.pipe()
child = os.fork()
mine, others, partner = (to_parent, to_child, child) if child else (to_child, to_parent, os.getppid())
for number in range(rounds):
    if not child:
        os.read(mine[0], 1)
    os.preadv(file, [block], (2 * number + (not child)) * 4096)
    until_asleep(partner)
    os.write(others[1], b"0")
    if child:
        os.read(mine[0], 1)
if child:
    os.waitpid(child, 0)
"""

# A process reads, its child reads, and when that has ended it reads again.
GENERATIONS = ASLEEP + """
for number in range(rounds):
    os.preadv(file, [block], 2 * number * 4096)
    child = os.fork()
    if not child:
        os.preadv(file, [block], (2 * number + 1) * 4096)
        until_asleep(os.getppid())
        os._exit(0)
    os.waitpid(child, 0)
"""

# Two processes that have nothing to do with each other; each wakes by its own clock.
STRANGERS = """
import mmap, os, sys, time
file, rounds = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), int(sys.argv[2])
child = os.fork()
block = mmap.mmap(-1, 4096)
for number in range(rounds):
    os.preadv(file, [block], (2 * number + bool(child)) * 4096)
    time.sleep(0.003 if child else 0.002)
if child:
    os.waitpid(child, 0)
"""

SYNCING = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in range(int(sys.argv[2])):
    os.pwrite(file, os.urandom(4096), number * 4096)
    os.fsync(file)
"""

# Until it has slept twice in as many rounds as are asked for: for its own write, and for the journal's thread. Prints
# for each round whether it slept so, by the kernel's count of times that the thread gave way by itself.
SYNCING_ASLEEP = """
import os, resource, sys
def times_asleep():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
file, left, asleep = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), int(sys.argv[2]), ""
while left and len(asleep) < 5000:
    os.pwrite(file, os.urandom(4096), len(asleep) * 4096)
    before = times_asleep()
    os.fsync(file)
    asleep += str(int(times_asleep() >= before + 2))
    left -= int(asleep[-1])
with open(sys.argv[1] + ".asleep", "w") as file:
    file.write(asleep)
"""


def captured(blkreel, drive, trace, script, place, *options):
    blkreel("capture", drive, "-o", trace, *options, "--", sys.executable, "-c", script, place, ROUNDS)
    return open_trace(trace).table().to_pandas()


def seen_before(rows):
    """Of each row but the first, whether the completion of the one before it was seen: else its waiter is unknown."""
    return rows.latency_ns.to_numpy()[:-1] >= 0


def is_inherited(rows):
    return (rows["flags"].to_numpy() & FLAGS["inherited"]) != 0


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
@pytest.mark.parametrize("script", [TURNS, GENERATIONS], ids=["turns", "generations"])
def test_who_is_told_by_another_waited_for_its_read(blkreel, loop_drive, tmp_path, script, kind):
    """Each read follows from the one before it, of the other thread or process."""
    drive = loop_drive()
    rows = captured(blkreel, drive, tmp_path / "t.parquet", script, drive, "--programs", kind)
    assert rows.offset_bytes.tolist() == list(range(0, 2 * ROUNDS * 4096, 4096))
    assert (rows.tid.to_numpy()[1:] != rows.tid.to_numpy()[:-1]).all()
    right = rows.waited_on.to_numpy()[1:] == rows.index.to_numpy()[:-1]
    assert seen_before(rows).mean() > 0.5
    assert right[seen_before(rows)].mean() >= 0.95
    assert is_inherited(rows)[1:][right].all()
    assert rows.waited_on[0] == -1 and not is_inherited(rows)[0]


def test_a_timer_passes_nothing_on(blkreel, loop_drive, tmp_path):
    drive = loop_drive()
    rows = captured(blkreel, drive, tmp_path / "t.parquet", STRANGERS, drive)
    for own in [own for _, own in rows.groupby("tid")]:
        assert len(own) == ROUNDS
        right = own.waited_on.to_numpy()[1:] == own.index.to_numpy()[:-1]
        assert seen_before(own).mean() > 0.5
        assert right[seen_before(own)].mean() >= 0.97
        assert not is_inherited(own).any()


@pytest.fixture
def mounted(loop_drive, program, tmp_path):
    """A drive with ext4, and the directory where it is mounted."""
    drive = loop_drive(128 << 20)
    # With room for 5000 transactions: who finds the journal full writes for it.
    subprocess.run([program("mkfs.ext4", "e2fsprogs"), "-q", "-b", "1024", "-J", "size=24", drive], check=True)
    directory = tmp_path / "mounted"
    directory.mkdir()
    subprocess.run(["mount", "-o", "noatime", drive, directory], check=True)
    yield drive, directory
    subprocess.run(["umount", directory], check=True)


def test_after_an_fsync_the_cause_is_what_the_journal_wrote_last(blkreel, mounted, tmp_path):
    """The thread slept until the journal's thread had written, which no completion woke it from."""
    drive, directory = mounted
    rows = captured(blkreel, drive, tmp_path / "t.parquet", SYNCING_ASLEEP, directory / "file")
    asleep = np.array([mark == "1" for mark in (directory / "file.asleep").read_text()])
    assert asleep.sum() == ROUNDS, f"{asleep.sum()} of {len(asleep)} rounds"
    completed_ns = (rows.submit_ns + rows.latency_ns).to_numpy()
    # Of 4 KiB is the file's data; blocks of its metadata have 1 KiB.
    writer = rows[(rows["flags"] & FLAGS["own"] != 0) & (rows.op == 1) & (rows.length_bytes == 4096)]
    assert len(writer) == len(asleep)
    # A write begins after the round before it; what woke the thread before the first round is another matter.
    writer = writer[1:][asleep[:-1]]
    right = 0
    for row in writer.itertuples():
        done = np.flatnonzero(completed_ns <= row.submit_ns)
        right += row.waited_on == done[np.argmax(completed_ns[done])]
    assert right >= 0.9 * len(writer), writer.to_string()
    assert is_inherited(writer).mean() >= 0.9
    assert (rows.tid.reindex(writer.waited_on[is_inherited(writer)]).to_numpy() != writer.tid.iloc[0]).mean() >= 0.9


def test_the_steps_of_a_flush_wait_for_each_other(blkreel, mounted, tmp_path):
    drive, directory = mounted
    rows = captured(blkreel, drive, tmp_path / "t.parquet", SYNCING, directory / "file")
    data = rows[(rows["flags"] & FLAGS["preflush"] != 0) & (rows.op == 1)]
    assert len(data) >= ROUNDS // 2
    before = rows.loc[data.waited_on[data.waited_on >= 0]]
    assert len(before) >= 0.95 * len(data) and (before.op == 2).mean() >= 0.95
    # A loop drive has no FUA: the write ends with a flush.
    behind = set(rows.waited_on[rows.op == 2])
    assert np.mean([number in behind for number in data.index]) >= 0.95
