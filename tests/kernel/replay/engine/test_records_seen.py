"""The records compared with the kernel's own trace: the same I/Os, and times around those of the kernel.

A time taken outside of the kernel is earlier at the submission and later at the completion, at any speed.
"""

import os
import re
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from waiting import wait_until

from blkreel.replay.engine.engine import Lane
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel
MIB = 1 << 20
# A scheduler may put reads before writes between the first two, which is the kernel's and the drive's affair.
EVENTS = ("block_bio_queue", "block_rq_issue", "block_rq_complete")
# The text of a trace has microseconds, cut off.
CUT_NS = 1000


@pytest.fixture
def watched(tracing_instance):
    """watched(drive) begins to watch; what it returns gives {event: [(time_ns, kind, offset_bytes, length_bytes)]}."""
    instance = tracing_instance

    def watch(drive):
        device = Path(drive).stat().st_rdev
        (instance / "trace_clock").write_text("mono")
        for event in EVENTS:
            (instance / "events/block" / event / "filter").write_text(
                f"dev == {os.major(device) << 20 | os.minor(device)}")
            (instance / "events/block" / event / "enable").write_text("1")

        def seen():
            for event in EVENTS:
                (instance / "events/block" / event / "enable").write_text("0")
            text = (instance / "trace").read_text()
            assert "LOST" not in text
            found = {event: [] for event in EVENTS}
            for line in text.splitlines():
                match = re.search(r" (\d+)\.(\d{6}): (block_\w+): \S+ (\w+) .*?(\d+) \+ (\d+) ", line)
                if match:
                    seconds, micros, event, kind, sector, sectors = match.groups()
                    found[event].append((int(seconds) * 10**9 + int(micros) * 1000, kind, int(sector) * 512,
                                         int(sectors) * 512))
            return found

        return seen

    return watch


@pytest.fixture
def pairs(watched, loop_drive, a_plan, issue):
    """pairs(plan columns, options of the engine) is (records in submission order, issue times, completion times)."""
    # Within what the drive's queue holds: what finds it full is handed to the kernel's workers, in any order.
    def make(depth=64, **columns):
        drive = loop_drive(64 * MIB)
        seen = watched(drive)
        totals, records = issue(a_plan(**columns), target=drive, may_write=True, depth=depth)
        found = seen()
        order = np.argsort(records["source_row"])
        records = {name: column[order] for name, column in records.items()}
        queued = [(kind[0], at, size) for _, kind, at, size in found["block_bio_queue"]]
        letters = {OPS["read"]: "R", OPS["write"]: "W"}
        planned = [(letters[op], at, size) for op, at, size in zip(
            records["op"].tolist(), records["offset_bytes"].tolist(), records["length_bytes"].tolist(), strict=True)]
        assert queued == planned, "the same I/Os, at the same places, in the same order"
        # Every place occurs once in these plans, so that it names its I/O.
        assert len(set(planned)) == len(planned)
        times = [records]
        for event in ("block_rq_issue", "block_rq_complete"):
            at_ns = {(kind[0], at, size): time_ns for time_ns, kind, at, size in found[event]}
            assert len(found[event]) == len(planned) and set(at_ns) == set(planned)
            times.append(np.array([at_ns[one] for one in planned]) - totals["start_monotonic_ns"])
        return times

    return make


def assert_around(records, issue_ns, complete_ns):
    assert (records["submit_ns"] <= issue_ns + CUT_NS).all(), "stamped before the kernel issued it"
    assert (complete_ns <= records["complete_ns"]).all(), "stamped after the kernel had completed it"
    assert (issue_ns <= complete_ns).all()
    assert (records["submit_ns"] < records["complete_ns"]).all()


def test_a_timed_run_is_what_the_kernel_saw(pairs):
    random = np.random.default_rng(7)
    count = 3000
    records, issue_ns, complete_ns = pairs(
        offset_bytes=random.permutation(16384)[:count] * 4096, op=random.choice([OPS["read"], OPS["write"]], count),
        due_ns=np.cumsum(random.exponential(60_000, count)).astype("i8"))
    assert_around(records, issue_ns, complete_ns)
    assert (issue_ns + CUT_NS >= records["due_ns"]).all(), "nothing was early"


def test_a_run_at_a_fixed_depth_is_what_the_kernel_saw(pairs):
    """One outstanding: then each I/O is also over before the next is submitted."""
    random = np.random.default_rng(8)
    records, issue_ns, complete_ns = pairs(depth=1, offset_bytes=random.permutation(16384)[:2000] * 4096)
    assert_around(records, issue_ns, complete_ns)
    assert (complete_ns[:-1] <= records["submit_ns"][1:]).all()


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
