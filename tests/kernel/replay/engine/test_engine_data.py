"""What stands on a drive is what was written there, also where writes take long while others go on."""

import subprocess
import sys
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from empty_image import empty_image

from blkreel.replay.engine.engine import EngineOptions, Lane, run_engine
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
BLOCK = 4096
POOL = 32 * MIB


def made_data(seed):
    """The data that is kept ready, in blocks, but for the stamps: fill_random() of native/target/payload.c."""
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, POOL // 8 + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return (x ^ (x >> np.uint64(31))).reshape(-1, BLOCK // 8)


def assert_holds_what_was_written(image, written, seed=None):
    """Every block: its own stamp, and data that was made for this run. written: which blocks; all else is zero."""
    words = np.fromfile(image, "<u8").reshape(-1, BLOCK // 8)
    blocks = np.flatnonzero(written)
    wrong = blocks[words[blocks, 1] != blocks * BLOCK]
    assert not len(wrong), f"{len(wrong)} of {len(blocks)} blocks hold what belongs elsewhere, the first at {wrong[0]}"
    assert len(np.unique(words[blocks, 0])) == len(blocks), "two blocks have one stamp"
    assert not words[~written].any(), "a block that was not to be written has been"
    if seed is None:
        return
    data = made_data(seed)
    order = np.argsort(data[:, 2])
    place = order[np.searchsorted(data[order, 2], words[blocks, 2]).clip(max=len(order) - 1)]
    assert np.array_equal(words[blocks, 2:], data[place, 2:])


def blocks_of(size, *extents):
    """Which blocks of a drive lie in extents of (offset, length)."""
    written = np.zeros(size // BLOCK, bool)
    for at, length in extents:
        written[at // BLOCK:(at + length) // BLOCK] = True
    return written


def test_a_write_that_takes_long_keeps_its_data(held_drive, loop_drive, a_plan):
    """Three rounds of the write pool go to another drive meanwhile; the held write does not delay them."""
    size = 96 * MIB
    other = loop_drive(size)
    held_offsets, held_lengths = [0, 65536, 4 * MIB], [BLOCK, MIB, 9 * MIB]
    slow = a_plan(held_offsets, length_bytes=held_lengths, op=OPS["write"])
    quick = a_plan(np.arange(0, size, 65536), length_bytes=65536, op=OPS["write"])
    slow["target"], quick["target"] = np.zeros(3, "i2"), np.ones(size // 65536, "i2")
    done = [0, 0]

    def let_go_at_last(rows):
        for target in (0, 1):
            done[target] += int((rows["target"] == target).sum())
        if done == [0, len(quick["op"])]:
            held_drive.let_go()

    held_drive.hold()
    totals = run_engine(EngineOptions(target=(held_drive.path, other), may_write=True, seed=9),
                        [Lane([slow], 3), Lane([quick], 16)], let_go_at_last, lambda note: None)
    assert done == [3, len(quick["op"])]
    assert totals["error_ops"] == totals["buffers_full_ops"] == 0
    extents = zip(held_offsets, held_lengths, strict=True)
    assert_holds_what_was_written(held_drive.mount / "image", blocks_of(16 * MIB, *extents), seed=9)
    assert_holds_what_was_written(loop_drive.image_of(other), blocks_of(size, (0, size)), seed=9)


@pytest.fixture
def held_writes(held_drive, a_plan):
    """held_writes(count, outstanding, ...): totals and flags of writes of 8 MiB that are held until so many are out."""
    def run(count, outstanding, due_ns=-1, **options):
        flags = {}

        def let_go_when_out(note):
            if note["outstanding"] >= outstanding:
                held_drive.let_go()

        def keep(rows):
            flags.update(zip(rows["source_row"].tolist(), rows["flags"].tolist(), strict=True))

        held_drive.hold()
        plan = a_plan(np.arange(count) % 2 * 8 * MIB, length_bytes=8 * MIB, op=OPS["write"], due_ns=due_ns)
        totals = run_engine(EngineOptions(target=held_drive.path, may_write=True, **options), [plan], keep,
                            let_go_when_out)
        assert totals["error_ops"] == 0
        return totals, [flags[row] for row in range(count)]

    return run


@pytest.mark.parametrize(("depth", "outstanding"), [(3, 3), (16, 16), (40, 32)])
def test_a_depth_is_kept_up_to_256_mib(held_writes, depth, outstanding):
    totals, _ = held_writes(depth, outstanding, depth=depth)
    assert totals["max_outstanding"] == outstanding
    # When several complete at once, only the first that waited was next in turn.
    assert (depth > outstanding) <= totals["buffers_full_ops"] <= depth - outstanding


def test_a_write_that_waits_for_data_is_late_because_of_the_drive(held_writes):
    """Four times 8 MiB are all that is kept ready where writes have times."""
    totals, flags = held_writes(6, 4, due_ns=0)
    assert totals["max_outstanding"] == 4
    assert 1 <= totals["buffers_full_ops"] <= 2
    marked = [flag & FLAGS["queue_full"] > 0 for flag in flags]
    # Rows that this machine made late are its own.
    held_up = sum(cause["late_ops"] for cause in totals["stall_monitor"]["causes"].values())
    assert not any(marked[:4])
    assert totals["queue_full_ops"] == sum(marked) >= 2 - held_up


@contextmanager
def busy_loops(count):
    with ExitStack() as stack:
        for _ in range(count):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


def test_a_preparation_beside_busy_loops(blkreel, tmp_path):
    """The kernel's workers that write to a file get a processor late, and each at another time."""
    size = 96 * MIB
    image = empty_image(tmp_path / "image", size)
    with busy_loops(6):
        blkreel("precondition", image, "--state", "data", "--span", f"{size - MIB}")
    assert_holds_what_was_written(image, blocks_of(size, (0, size - MIB)))
