"""Writes of more data than is kept ready, and what stands on a drive that was prepared on a busy machine."""

import subprocess
import sys
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from empty_image import empty_image

from blkreel.replay.drive.claim import held
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import EngineOptions, Lane, run_engine
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
BLOCK = 4096


@pytest.fixture
def held_writes(held_drive, a_plan):
    """held_writes(count, outstanding, ...): totals and flags of writes of 8 MiB that are held until so many are out."""
    def run(count, outstanding, due_ns=-1, depth=1024, **options):
        flags = {}

        def let_go_when_out(note):
            if note["outstanding"] >= outstanding:
                held_drive.let_go()

        def keep(rows):
            flags.update(zip(rows["source_row"].tolist(), rows["flags"].tolist(), strict=True))

        held_drive.hold()
        plan = a_plan(np.arange(count) % 2 * 8 * MIB, length_bytes=8 * MIB, op=OPS["write"], due_ns=due_ns)
        with held(find_target(held_drive.path)) as claim:
            totals = run_engine(EngineOptions(claims=[claim], may_write=True, **options), [Lane([plan], depth)], keep,
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
    written, rest = np.split(np.fromfile(image, "<u8").reshape(-1, BLOCK // 8), [(size - MIB) // BLOCK])
    wrong = np.flatnonzero(written[:, 1] != np.arange(len(written)) * BLOCK)
    assert not len(wrong), f"{len(wrong)} blocks hold what belongs elsewhere, the first at {wrong[0]}"
    assert len(np.unique(written[:, 0])) == len(written), "two blocks have one stamp"
    assert not rest.any(), "a block that was not to be written has been"
