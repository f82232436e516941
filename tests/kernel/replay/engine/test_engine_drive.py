"""The engine on a loop drive, seen by the kernel's own counters and by what then stands on the drive."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from empty_image import digest

from blkreel.common.errors import SafetyError
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SIZE = 64 * MIB
STAT_FIELDS = ["reads", "reads_merged", "read_sectors", "read_ms", "writes", "writes_merged", "write_sectors",
               "write_ms", "in_flight", "io_ms", "queue_ms", "discards", "discards_merged", "discard_sectors",
               "discard_ms", "flushes", "flush_ms"]


class Counters:
    """What the block layer counted for a drive since this was made."""

    def __init__(self, drive):
        self._file = Path("/sys/block", Path(drive).name, "stat")
        self._before = self._read()

    def _read(self):
        return dict(zip(STAT_FIELDS, map(int, self._file.read_text().split()), strict=False))

    def __getitem__(self, name):
        return self._read()[name] - self._before[name]


def random_blocks(count, seed=1, size=SIZE):
    return np.random.default_rng(seed).permutation(size // 4096)[:count] * 4096


@pytest.mark.parametrize("op", ["read", "write", "discard"])
def test_neighbors_are_not_merged(loop_drive, a_plan, issue, op):
    drive = loop_drive(SIZE)
    seen = Counters(drive)
    totals, _ = issue(a_plan(np.arange(0, SIZE, 8192), length_bytes=8192, op=OPS[op]), target=drive, depth=32,
                      may_write=op != "read")
    assert totals["merged_ops"] == 0
    assert seen[op + "s"] == SIZE // 8192, "the drive saw other I/Os than those of the plan"


def test_priorities_are_passed_on(loop_drive, a_plan, issue):
    drive = loop_drive(SIZE)
    flags = [FLAGS["priority_realtime"], FLAGS["priority_best_effort"], FLAGS["priority_idle"], 0] * 25
    totals, records = issue(a_plan(random_blocks(100), flags=np.array(flags)), target=drive)
    assert set(records["status"]) == {0}
    assert totals["altered"] == {}


def test_a_plan_of_reads_never_writes(loop_drive, a_plan, issue):
    drive = loop_drive(SIZE)
    image = loop_drive.image_of(drive)
    image.write_bytes(os.urandom(SIZE))
    before, seen = digest(image), Counters(drive)
    for op in ("write", "discard", "write_zeroes"):
        plan = a_plan(np.zeros(50), op=np.array([0] * 49 + [OPS[op]]))
        with pytest.raises(SafetyError, match=f"row 49 of the plan is a {op}"):
            issue(plan, target=drive, on_rows=lambda rows: pytest.fail("a row of a refused block was issued"))
    issue(a_plan(random_blocks(1000)), target=drive)
    assert digest(image) == before
    assert seen["writes"] == seen["discards"] == seen["flushes"] == 0
    assert seen["reads"] + seen["reads_merged"] == 1000


def test_rows_held_back_by_a_full_queue_are_marked(loop_drive, a_plan, issue):
    drive = loop_drive(SIZE)
    # All due at once with room for two: all but the first must wait for the drive, and say so.
    totals, records = issue(a_plan(random_blocks(500), due_ns=0), target=drive, depth=2)
    marked = (records["flags"] & FLAGS["queue_full"]) != 0
    # Rows that this machine made late are its own, even where the queue was full by then.
    held_up = sum(cause["late_ops"] for cause in totals["stall_monitor"]["causes"].values())
    assert totals["queue_full_ops"] == marked.sum() >= 490 - held_up
    assert totals["max_outstanding"] == 2
    assert totals["max_host_lateness_ns"] <= totals["max_lateness_ns"]
    # And where the queue never fills, nothing is.
    totals, records = issue(a_plan(random_blocks(50), due_ns=np.arange(50) * 10**6), target=drive)
    assert totals["queue_full_ops"] == 0


def test_a_drive_that_shrinks_gives_errors_and_no_hang(loop_drive, a_plan, issue):
    drive = loop_drive(SIZE)
    os.truncate(loop_drive.image_of(drive), SIZE // 2)
    totals, records = issue(a_plan(np.arange(0, SIZE, 65536)), target=drive)
    lost = records["offset_bytes"] >= SIZE // 2
    assert (records["status"][lost] < 0).all()
    assert (records["status"][~lost] == 0).all()
    assert totals["error_ops"] == lost.sum() == 512
    assert totals["stopped"] is None
    totals, _ = issue(a_plan(np.arange(SIZE // 2, SIZE, 8192)), target=drive)
    assert "1000 I/Os in a row failed" in totals["stopped"]


def test_a_drive_detached_in_mid_run_does_not_hang(loop_drive, a_plan, issue):
    drive = loop_drive(SIZE, replaceable=True)
    attached = [drive]

    def detach(note):
        if attached and note["submitted"]:
            subprocess.run(["losetup", "--detach", attached.pop()], check=True)

    try:
        totals, records = issue(a_plan(random_blocks(3000), due_ns=np.arange(3000) * 10**6), target=drive,
                                on_note=detach)
    finally:
        # The fixture detaches the device again: attach the image for it.
        subprocess.run(["losetup", drive, loop_drive.image_of(drive)], check=True)
    assert totals["completed_ops"] == len(records["op"])
    assert totals["stopped"] is None or totals["error_ops"]


def test_a_regular_file_tells_what_it_alters(a_plan, issue, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(os.urandom(4 * MIB))
    totals, records = issue(a_plan(np.array([0, MIB, 2 * MIB, 0, 3 * MIB]), op=np.array([1, 3, 4, 2, 0]),
                                   flags=np.array([FLAGS["fua"], 0, 0, 0, 0])), target=image, may_write=True)
    assert set(records["status"]) == {0}
    assert totals["altered"] == {"fua": 1, "flush": 1, "discard": 1, "write_zeroes": 1}
    content = image.read_bytes()
    assert len(content) == 4 * MIB
    assert not any(content[MIB:MIB + 4096])
    assert not any(content[2 * MIB:2 * MIB + 4096])
    assert any(content[MIB + 4096:MIB + 8192])


def test_little_lockable_memory_does_not_stop_a_run(loop_drive, program):
    drive = loop_drive(SIZE)
    # Registered buffers and mlock are both refused then; the run is the same.
    code = ("import numpy as np, sys; from blkreel.replay.engine.engine import EngineOptions, Lane, run_engine\n"
            "from blkreel.replay.drive.claim import held; from blkreel.replay.drive.target import find_target\n"
            "z = np.zeros(1000, 'i8')\n"
            "plan = dict(due_ns=z - 1, offset_bytes=z, length_bytes=z + 4096, op=z, flags=z, stream=z, burst=z,"
            " source_row=z)\n"
            "with held(find_target(sys.argv[1])) as claim:\n"
            "    totals = run_engine(EngineOptions(claims=[claim]), [Lane([plan])], lambda rows: None,"
            " lambda note: None)\n"
            "print(totals['completed_ops'], totals['memory_locked'], totals['features']['fixed_buffers'])")
    result = subprocess.run([program("prlimit", "util-linux"), "--memlock=1048576:1048576",
                             program("setpriv", "util-linux"), "--bounding-set=-ipc_lock,-sys_resource",
                             sys.executable, "-c", code, drive], capture_output=True, text=True)
    assert result.stdout.split() == ["1000", "False", "False"], result.stderr
