"""What the kernel's own trace shows of a run: the very I/Os of the plan, in its order, each of its kind."""

from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from waiting import wait_until

from blkreel.replay.engine.engine import Lane
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20


def test_a_plan_is_issued_as_it_stands(loop_drive, a_plan, issue, issued_to):
    drive = loop_drive(64 * MIB)
    random = np.random.default_rng(4)
    count = 400
    op = random.choice([OPS["read"], OPS["write"], OPS["discard"]], count)
    length = random.choice([4096, 8192, 65536], count)
    offset = random.integers(0, 1000, count) * 65536 % (63 * MIB)
    seen = issued_to(drive)
    issue(a_plan(offset, op=op, length_bytes=length), target=drive, depth=1, may_write=True)
    letters = {OPS["read"]: "R", OPS["write"]: "W", OPS["discard"]: "D"}
    wanted = [(letters[o], at, size) for o, at, size in zip(op.tolist(), offset.tolist(), length.tolist(), strict=True)]
    assert [(kind[0], at, size) for kind, at, size in seen()] == wanted


def test_order_is_kept_when_the_drive_has_no_room(loop_drive, a_plan, issue, issued_to):
    """Far more at one moment than the drive's queue holds: what waits, waits in the plan's order."""
    drive = loop_drive(64 * MIB)
    offset = np.random.default_rng(6).permutation(16384)[:2000] * 4096
    seen = issued_to(drive)
    totals, _ = issue(a_plan(offset, due_ns=np.zeros(2000, "i8")), target=drive)
    assert [at for _, at, _ in seen()] == offset.tolist()
    queue = int((Path("/sys/class/block") / Path(drive).name / "queue/nr_requests").read_text())
    assert totals["max_outstanding"] <= queue


def test_threads_share_the_queue_of_a_drive(held_drive, a_plan, issue):
    """Two threads that counted for themselves would fill the queue twice, and wait in the kernel unnoticed."""
    offset = np.random.default_rng(7).permutation(4096)[:4000].reshape(2, -1) * 4096
    lanes = [Lane([a_plan(part, op=OPS["write"], due_ns=np.zeros(2000, "i8"))], 2000, thread)
             for thread, part in enumerate(offset)]
    queue = int((Path("/sys/class/block") / Path(held_drive.path).name / "queue/nr_requests").read_text())

    def let_go_of_full_queue():
        try:
            wait_until(lambda: held_drive.in_flight() > queue / 2)
        finally:
            held_drive.let_go()

    held_drive.hold()
    releasing = Thread(target=let_go_of_full_queue)
    releasing.start()
    totals, rows = issue(*lanes, target=held_drive.path, may_write=True)
    releasing.join()
    times = np.concatenate([rows["submit_ns"], rows["complete_ns"]])
    # At one time a completion counts before the submission that it made room for.
    steps = np.repeat([1, -1], len(rows["submit_ns"]))[np.lexsort((np.repeat([1, 0], len(rows["submit_ns"])), times))]
    assert len(rows["op"]) == 4000 and not totals.get("stopped")
    assert queue / 2 < np.cumsum(steps).max() <= queue
