"""What a row says about its I/O: operation, flags, place and thread."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from loop_device import attach_loop, detach_loop

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel


@pytest.fixture
def rows_of(blkreel, tmp_path):
    """Capture a shell command on a drive; the rows as a data frame, with the metadata as its attribute."""
    def run(drive, script, *options, **keywords):
        trace = tmp_path / "t.parquet"
        blkreel("capture", drive, "-o", trace, "--force", *options, "--", "sh", "-ec", script, **keywords)
        opened = open_trace(trace)
        rows = opened.table().to_pandas()
        rows.attrs["metadata"] = opened.metadata
        return rows

    return run


def flagged(rows, name):
    return rows[(rows["flags"] & FLAGS[name]) != 0]


def test_writes_and_the_flushes_of_fsync(rows_of, loop_drive, program, tmp_path):
    drive, report = loop_drive(), tmp_path / "fio.json"
    rows = rows_of(drive, f"{program('fio')} --name=w --filename={drive} --direct=1 --rw=write --bs=8k --size=800k"
                          f" --fsync=10 --ioengine=psync --output-format=json --output={report}")
    job = json.loads(report.read_text())["jobs"][0]
    assert (rows.op == OPS["write"]).sum() == job["write"]["total_ios"] == 100
    flushes = rows[rows.op == OPS["flush"]]
    assert len(flushes) == job["sync"]["total_ios"] >= 9
    assert set(flushes.length_bytes) == {0}
    threads = rows.attrs["metadata"]["threads"]
    assert {threads[str(tid)]["comm"] for tid in flushes.tid} == {"fio"}, "a flush belongs to who asked for it"


@pytest.mark.parametrize("options", [[], ["--without-io-start"], ["--programs", "raw_tp", "--without-io-start"]])
def test_fua_is_kept_where_the_drive_does_it_by_flushes(rows_of, loop_drive, options):
    drive = loop_drive()
    rows = rows_of(drive, f"dd if=/dev/zero of={drive} bs=4k count=25 oflag=direct,dsync status=none", *options)
    writes = rows[rows.op == OPS["write"]]
    assert len(writes) == 25
    assert len(flagged(writes, "fua")) == 25
    assert (rows.op == OPS["flush"]).sum() >= 25, "this drive has no FUA of its own: each write is followed by a flush"


def test_a_loop_device_and_the_drive_below_it_are_two_layers(rows_of, blkreel, loop_drive, tmp_path):
    """A report summed both: each I/O twice, and the read wait of both as one."""
    below = loop_drive(16 << 20)
    above = attach_loop(below, "--direct-io=on")
    top = attach_loop(above, "--direct-io=on")
    script = f"dd if={top} of=/dev/null bs=64k count=20 iflag=direct status=none"
    try:
        alone, both, around = (rows_of(drive, script, *others)
                               for drive, *others in ((above,), (above, below), (top, below)))
    finally:
        detach_loop(top)
        detach_loop(above)
    assert len(alone) == 20 and "volumes" not in alone.attrs["metadata"], "each I/O once"
    for rows in (both, around):
        assert len(rows) == 40 and rows.attrs["metadata"]["storage_layer"] == "both"
    refused = blkreel("report", tmp_path / "t.parquet", check=False)
    assert refused.returncode == 1 and "each I/O twice" in refused.stderr and "--device 1" in refused.stderr


def test_discards_and_zeroes(rows_of, loop_drive):
    drive = loop_drive(64 << 20, where="disk")
    rows = rows_of(drive, f"blkdiscard --offset 8MiB --length 16MiB {drive};"
                          f" blkdiscard --zeroout --offset 32MiB --length 4MiB {drive}")
    discards, zeroes = rows[rows.op == OPS["discard"]], rows[rows.op == OPS["write_zeroes"]]
    assert discards.offset_bytes.min() == 8 << 20
    assert discards.length_bytes.sum() == 16 << 20
    if not len(zeroes):
        # A drive without the command has zeroes written.
        zeroes = rows[rows.op == OPS["write"]]
    assert zeroes.offset_bytes.min() == 32 << 20
    assert zeroes.length_bytes.sum() == 4 << 20


def test_zeroes_tell_whether_they_may_unmap(rows_of, loop_drive):
    drive = loop_drive(64 << 20, where="disk")
    # The kernel makes a range of zeros with one command that keeps the blocks, and a hole with one that need not. A
    # drive without the commands refuses the hole, and has no rows: the skip below says so.
    rows = rows_of(drive, f"fallocate --zero-range --keep-size --offset 8MiB --length 1MiB {drive};"
                          f" fallocate --punch-hole --offset 16MiB --length 1MiB {drive} || true")
    zeroes = rows[rows.op == OPS["write_zeroes"]]
    if not len(zeroes):
        pytest.skip("needs a drive with write zeroes: a loop device over a file system that can zero a range")
    assert flagged(zeroes, "may_unmap").offset_bytes.tolist() == [16 << 20]


def test_read_ahead_is_told_from_what_was_asked_for(rows_of, loop_drive):
    drive = loop_drive(64 << 20)
    rows = rows_of(drive, f"dd if={drive} of=/dev/null bs=4k count=2048 status=none", "--cold")
    assert len(flagged(rows, "read_ahead")) >= 1
    rows = rows_of(drive, f"dd if={drive} of=/dev/null bs=4k count=64 iflag=direct status=none")
    assert len(rows) == 64 and len(flagged(rows, "read_ahead")) == 0


def test_offsets_are_those_of_the_whole_drive(rows_of, loop_drive):
    drive = loop_drive(64 << 20, partscan=True)
    subprocess.run(["sfdisk", "-q", drive], input="start=2048,size=4096\nstart=20480\n", text=True, check=True)
    second = Path(f"{drive}p2")
    if not second.exists():
        subprocess.run(["partx", "--add", drive], check=True)
    # The partition is named, the drive is recorded.
    rows = rows_of(second, f"dd if=/dev/zero of={second} bs=4k count=3 seek=5 oflag=direct status=none;"
                           f" dd if={drive}p2 of=/dev/null bs=512 count=1 iflag=direct status=none")
    writes = rows[rows.op == OPS["write"]]
    assert sorted(writes.offset_bytes) == [(20480 * 512) + block * 4096 for block in (5, 6, 7)]
    assert rows[rows.op == OPS["read"]].offset_bytes.tolist() == [20480 * 512]
    assert rows.attrs["metadata"]["devices"][0]["path"] == drive


def test_each_io_has_the_name_of_its_thread(rows_of, loop_drive, tmp_path):
    drive = loop_drive()
    for name in ("first-reader", "quote\"d näme"):
        shutil.copy(shutil.which("dd"), tmp_path / name)
    rows = rows_of(drive, f"'{tmp_path}/first-reader' if={drive} of=/dev/null bs=4k count=10 iflag=direct status=none;"
                          f"'{tmp_path}/quote\"d näme' if={drive} of=/dev/null bs=8k count=7 iflag=direct status=none")
    threads = rows.attrs["metadata"]["threads"]
    by_name = rows.groupby([threads[str(tid)]["comm"] for tid in rows.tid]).length_bytes.agg(["count", "max"])
    assert by_name.loc["first-reader"].tolist() == [10, 4096]
    assert by_name.loc["quote\"d näme"].tolist() == [7, 8192]


def test_the_priority_class_is_recorded(rows_of, loop_drive):
    drive = loop_drive()
    rows = rows_of(drive, f"ionice -c 3 dd if={drive} of=/dev/null bs=4k count=10 iflag=direct status=none;"
                          f"ionice -c 1 dd if={drive} of=/dev/null bs=8k count=5 iflag=direct status=none")
    assert set(flagged(rows, "priority_idle").length_bytes) == {4096}
    assert set(flagged(rows, "priority_realtime").length_bytes) == {8192}


def test_a_failed_io_carries_its_errno(rows_of, loop_drive):
    drive = loop_drive(16 << 20)
    # The image shrinks below the drive: reads behind its end fail.
    with open(loop_drive.image_of(drive), "r+b") as image:
        image.truncate(8 << 20)
    rows = rows_of(drive, f"dd if={drive} of=/dev/null bs=4k skip=3072 count=1 iflag=direct status=none || true;"
                          f"dd if={drive} of=/dev/null bs=4k count=1 iflag=direct status=none")
    by_offset = rows.set_index("offset_bytes")["status"]
    assert by_offset[0] == 0
    assert by_offset[3072 * 4096] == -5
