"""A program's trace from a slow drive, replayed on another: what its I/Os wait for is known, and its own time remains.

The other drive is simulated, on a virtual clock: neither its latency nor the replay's issue times depend on the
machine. How near a replay is to the program itself on a real fast drive is a matter of time, and of
measurements/replay/dependent.py.
"""

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from empty_image import empty_image
from tree import TREE

sys.path.insert(0, str(TREE))

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS
from measurements.replay.dependent import BLKREEL, capture, own_rows, replay  # noqa: E402
from measurements.replay.dependent_programs import IMAGE_BYTES, PROGRAMS  # noqa: E402
from measurements.replay.drive_pair import MEMORY, CannotMake, slow_drive  # noqa: E402

pytestmark = pytest.mark.kernel

SLOW_NS = 20_000_000
FAST_NS = 100_000
# Without a limit of bandwidth an I/O takes FAST_NS, whatever its length.
FAST = (f"nil:{IMAGE_BYTES},clock=virtual,read_latency={FAST_NS}ns,write_latency={FAST_NS}ns,"
        "read_bandwidth=1000GB/s,write_bandwidth=1000GB/s")
# They read the drive itself, so all I/Os of the trace are theirs; each has one I/O outstanding.
ONE_AT_A_TIME = ["fio, think time", "computing"]
OTHERS = ["thread pool", "sqlite", "make, gcc"]


@pytest.fixture
def directory(require_root):
    """In memory, for an image and what is made on it."""
    if not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse: modprobe fuse")
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="blkreel-test-") as place:
        yield Path(place)


@contextmanager
def on_slow_drive(directory, latency_ns):
    """A drive with the contents of a file of the directory; skips where none can be made."""
    try:
        with slow_drive(directory / "contents", latency_ns) as drive:
            yield drive
    except CannotMake as reason:
        pytest.skip(str(reason))


# Asks for a page, computes, and needs the page then.
COMPUTE_NS = 5_000_000
READS = 10
READER = f"""
import os, sys, time
drive = os.open(sys.argv[1], os.O_RDONLY)
for offset in range(0, {READS} << 20, 1 << 20):
    os.posix_fadvise(drive, offset, 4096, os.POSIX_FADV_WILLNEED)
    end_ns = time.monotonic_ns() + {COMPUTE_NS}
    while time.monotonic_ns() < end_ns:
        pass
    os.pread(drive, 4096, offset)
"""


def test_computing_during_an_io_takes_its_time_on_a_faster_drive(blkreel, directory):
    """The thread falls asleep after its computing: the rest of the latency is blocked time, and goes."""
    empty_image(directory / "contents", 64 << 20)
    with on_slow_drive(directory, 20 * COMPUTE_NS) as drive:
        blkreel("capture", drive, "--cold", "-o", directory / "slow.parquet", "--", sys.executable, "-c", READER, drive)
    rows = open_trace(directory / "slow.parquet").table().to_pandas()
    replay(directory / "slow.parquet", FAST, "dependent", directory / "run")
    records = open_trace(directory / "run").table(["submit_ns", "source_row"]).to_pandas()
    rows = rows[own_rows(directory / "slow.parquet")].tail(READS)
    submit_ns = records.set_index("source_row").submit_ns[rows.index].to_numpy()
    assert len(rows) == READS and (rows["flags"] & FLAGS["read_ahead"] != 0).all()
    # Where other work held the thread up, the page was there before it slept, and it waited for nothing.
    waited = rows.waited_on.to_numpy()[1:] == rows.index.to_numpy()[:-1]
    computed_ns = rows.latency_ns.to_numpy()[:-1] - np.diff(rows.blocked_ns)
    assert waited.sum() >= 3 and (np.diff(rows.blocked_ns)[waited] > 0).any()
    assert (computed_ns[waited] >= COMPUTE_NS).all(), "the thread cannot fall asleep before"
    assert np.array_equal(np.diff(submit_ns)[waited], (computed_ns + rows.think_ns.to_numpy()[1:])[waited])


# Submits four reads at once, and waits for all of them.
WAVE, WAVES = 4, 16


@pytest.mark.parametrize("engine", ["libaio", "io_uring"])
def test_a_wait_for_several_ios_ends_with_the_slowest_of_another_drive(blkreel, program, directory, engine):
    """The slow drive takes equally long for each read; on the simulated one it varies which read is the last."""
    fio = program("fio")
    empty_image(directory / "contents", 64 << 20)
    with on_slow_drive(directory, SLOW_NS) as drive:
        blkreel("capture", drive, "-o", directory / "slow.parquet", "--", fio, "--name=waves",
                f"--filename={drive}", f"--ioengine={engine}", "--direct=1", "--rw=randread", "--bs=4k",
                f"--iodepth={WAVE}", f"--iodepth_batch_submit={WAVE}", f"--iodepth_batch_complete_min={WAVE}",
                f"--number_ios={WAVE * WAVES}", "--size=100%", "--thread", f"--output={directory / 'fio'}")
    own = own_rows(directory / "slow.parquet")
    rows = open_trace(directory / "slow.parquet").table().to_pandas()[own].tail(WAVE * WAVES)
    replay(directory / "slow.parquet", f"{FAST},read_spread=0.5/1/10/30/60/100/300", "dependent", directory / "run")
    records = open_trace(directory / "run").table(["submit_ns", "latency_ns", "source_row"]).to_pandas()
    assert len(rows) == WAVE * WAVES and rows.tid.nunique() == 1
    records = records.set_index("source_row").loc[rows.index]
    complete_ns, replayed_ns = rows.submit_ns + rows.latency_ns, records.submit_ns + records.latency_ns
    undisturbed, reordered = 0, 0
    for first in range(WAVE, WAVE * WAVES, WAVE):
        wave, row, previous = rows.index[first - WAVE:first], rows.index[first], rows.index[first - 1]
        blocked_ns = rows.blocked_ns[row] - rows.blocked_ns[previous]
        # Where other work held the thread up, some reads were complete before it fell asleep.
        if rows.waited_on[row] not in wave or not (complete_ns[wave] > complete_ns[wave].max() - blocked_ns).all():
            continue
        undisturbed += 1
        reordered += rows.waited_on[row] != replayed_ns[wave].idxmax()
        assert complete_ns[rows.waited_on[row]] == complete_ns[wave].max()
        computed_ns = complete_ns[wave].max() - rows.submit_ns[previous] - blocked_ns
        awake_ns = max(replayed_ns[wave].max(), records.submit_ns[previous] + computed_ns)
        assert records.submit_ns[row] == awake_ns + rows.think_ns[row]
    assert undisturbed >= 3 and reordered, (undisturbed, reordered)


@pytest.fixture
def trace(directory, program, request):
    """The trace of a program on the slow drive."""
    (chosen,) = [one for one in PROGRAMS if one.name == request.param]
    for name, package in (("chrt", "util-linux"), ("mkfs.ext4", "e2fsprogs"), *chosen.needs):
        program(name, package)
    assert BLKREEL.exists()
    chosen.make_image(directory / "contents")
    for _ in range(5):
        with on_slow_drive(directory, SLOW_NS) as drive:
            capture(chosen, drive, directory / "slow.parquet")
        # The kernel runs no BPF program in some interrupts: a rare I/O has no completion.
        if not open_trace(directory / "slow.parquet").metadata["ledger"]["reused"]:
            break
    return directory / "slow.parquet"


@pytest.mark.parametrize("trace", ONE_AT_A_TIME, indirect=True)
def test_a_replay_takes_the_programs_own_time_and_the_drives(trace, directory):
    """All gaps between a completion and the next submit to the nanosecond, and the new drive's latency of each I/O.

    Where something else held the thread up, it computed after its I/O, or slept for none: that time stays, too.
    """
    own = own_rows(trace)
    rows = open_trace(trace).table(["submit_ns", "latency_ns", "waited_on", "blocked_ns"]).to_pandas()[own]
    submit_ns, latency_ns = rows.submit_ns.to_numpy(), rows.latency_ns.to_numpy()
    gaps_ns = submit_ns[1:] - (submit_ns + latency_ns)[:-1]
    # The drive sends its answers earlier by what their way took in its calibration and for the last I/Os, up to 1 ms
    # each: beside other work that is more than it takes at other times.
    faster = rows[latency_ns < SLOW_NS - 2_000_000]
    assert faster.empty, f"faster than the drive, or without a completion:\n{faster.to_string()}"
    assert (gaps_ns > 0).all(), "the program had one I/O outstanding"
    waited = rows.waited_on.to_numpy()[1:] == np.flatnonzero(own)[:-1]
    assert waited.sum() >= 3
    replay(trace, FAST, "dependent", directory / "run")
    records = open_trace(directory / "run").table(["submit_ns", "latency_ns"]).to_pandas()
    assert len(records) == len(rows)
    computed_ns = (latency_ns[:-1] - np.diff(rows.blocked_ns)).clip(0)
    ends_ns = np.where(waited, np.maximum(records.latency_ns.to_numpy()[:-1], computed_ns), latency_ns[:-1])
    assert np.array_equal(np.diff(records.submit_ns), ends_ns + gaps_ns)
    assert (records.latency_ns - FAST_NS < 1000).all()


@pytest.mark.parametrize("trace", OTHERS, indirect=True)
def test_what_it_waits_for_is_known(trace, directory):
    """Also through other threads and processes: nearly every I/O has a cause, and a replay is rid of the slow drive."""
    own = own_rows(trace)
    rows = open_trace(trace).table(["waited_on", "submit_ns", "latency_ns"]).to_pandas()[own]
    assert (rows.waited_on[1:] >= 0).mean() >= 0.95
    complete_ns = rows.submit_ns + rows.latency_ns
    slow_s = (complete_ns.max() - rows.submit_ns.min()) / 1e9
    begins_ns = np.maximum(rows.submit_ns, complete_ns.cummax().shift(fill_value=0))
    waited_s = (complete_ns - begins_ns).clip(lower=0).sum() / 1e9
    replayed_s = replay(trace, FAST, "dependent", directory / "run").sum()
    assert replayed_s <= slow_s - waited_s / 2
