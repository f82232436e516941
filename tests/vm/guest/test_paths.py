"""Between a program's I/O and the drive's: merges, splits, requeues, partial completions, stacked devices."""

import os
import subprocess
from pathlib import Path

from blkreel.traces.format.schema import OPS
from tests.vm.guest.drives import counters

MIB = 1 << 20


def attribute(drive, name, value):
    Path("/sys/block", Path(drive).name, "queue", name).write_text(str(value))


def iolog(path, drive, *ios):
    """A list of I/Os for fio to issue as they stand."""
    path.write_text("fio version 2 iolog\n" + f"{drive} add\n{drive} open\n" +
                    "".join(f"{drive} {kind} {offset} {length}\n" for kind, offset, length in ios) +
                    f"{drive} close\n")
    return path


def test_requests_that_merge_in_the_scheduler_are_one_row(rows_of, null_blk, program, tmp_path):
    """One request is in the slow drive and one next in line for it; of those behind, a third fills the gap of two."""
    drive = null_blk(irqmode=2, completion_nsec=1_000_000_000, hw_queue_depth=1, submit_queues=1)
    attribute(drive, "scheduler", "mq-deadline")
    attribute(drive, "nr_requests", 64)  # and room for many before the scheduler
    ios = [("read", offset, 4096) for offset in (32 * MIB, 48 * MIB, 0, 8192, 4096)]
    log = iolog(tmp_path / "log", drive, *ios)
    rows = rows_of(drive, f"{program('fio')} --name=m --read_iolog={log} --direct=1 --ioengine=libaio --iodepth=8"
                          f" --iodepth_batch_submit=1 --replay_no_stall=1 --output={tmp_path}/fio")
    place = rows[["offset_bytes", "length_bytes"]].to_numpy().tolist()
    assert sorted(place) == [[0, 12288], [32 * MIB, 4096], [48 * MIB, 4096]]
    assert rows.attrs["summary"]["ledger"]["merged"] == 1
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0
    assert (rows.latency_ns > 0).all() and (rows.queue_ns[rows.offset_bytes == 0] > 0).all()


def test_a_discard_beyond_the_drives_limit_is_a_row_for_each_part(rows_of, nvme):
    limit = Path("/sys/block", Path(nvme).name, "queue/discard_max_bytes")
    kept = limit.read_text()
    limit.write_text(str(MIB))
    try:
        rows = rows_of(nvme, f"blkdiscard -f --offset 8MiB --length 8MiB {nvme}")
    finally:
        limit.write_text(str(int(kept) // MIB * MIB))  # no odd number is taken, though it may be the first
    discards = rows[rows.op == OPS["discard"]]
    assert sorted(discards.offset_bytes) == list(range(8 * MIB, 16 * MIB, MIB))
    assert set(discards.length_bytes) == {MIB}


def test_requeued_requests_are_one_row_each(rows_of, scsi_debug):
    """A SCSI drive that answers each fifth command with: busy, try again."""
    scsi_debug(opts="0x8000", every_nth=5)
    rows = rows_of(scsi_debug.path, f"dd if={scsi_debug.path} of=/dev/null bs=4k count=200 iflag=direct status=none")
    ledger = rows.attrs["summary"]["ledger"]
    assert ledger["requeued"] >= 20, "nothing was requeued, so nothing was tested"
    assert sorted(rows.offset_bytes) == list(range(0, 200 * 4096, 4096))
    assert (rows.latency_ns > 0).all() and set(rows.status) == {0}
    assert rows.attrs["summary"]["missing"] == [] and rows.attrs["summary"]["diskstats"]["difference"] == 0


def test_a_request_that_fails_in_its_middle_is_one_row(rows_of, scsi_debug):
    """The sectors before the unreadable one complete first, the rest with the error: one request all the same."""
    scsi_debug(opts="2")  # sectors 0x1234 to 0x123d cannot be read
    bad = 0x1234 * 512
    first = bad // 65536 * 65536
    drive = scsi_debug.path
    rows = rows_of(drive, f"dd if={drive} of=/dev/null bs=64k skip={first // 65536} count=1 iflag=direct status=none"
                          f" || true; dd if={drive} of=/dev/null bs=64k count=1 iflag=direct status=none")
    scsi_debug(opts="0")
    whole = rows[rows.offset_bytes == first]
    assert len(whole) >= 1 and set(whole.length_bytes) == {65536}
    assert set(whole.status) <= {-61, -5} and (whole.latency_ns > 0).all()
    assert rows.status[rows.offset_bytes == 0].tolist() == [0]
    assert rows.attrs["summary"]["missing"] == []


def test_a_mapped_device_is_recorded_on_the_drives_below(rows_of, dm, nvme_drives):
    first, second = nvme_drives[:2]
    device = dm("blkreel-linear", f"0 65536 linear {first} 2048\n65536 65536 linear {second} 0\n")
    before = [counters(drive) for drive in (first, second)]
    rows = rows_of(device, f"dd if=/dev/zero of={device} bs=64k count=30 oflag=direct status=none;"
                           f"dd if={device} of=/dev/null bs=64k count=12 skip=512 iflag=direct status=none")
    assert sorted(rows.attrs["summary"]["devices"]) == sorted([first, second])
    assert "the whole drive is recorded" in rows.attrs["stderr"]
    mapping, = rows.attrs["metadata"]["volumes"]
    assert rows.attrs["metadata"]["storage_layer"] == "device" and mapping["kind"] == "dm-linear"
    name = [entry["path"] for entry in rows.attrs["metadata"]["devices"]]
    below = {path: rows[rows.device == index] for index, path in enumerate(name)}
    assert below[first].offset_bytes.tolist() == [MIB + at * 65536 for at in range(30)]
    assert below[second].offset_bytes.tolist() == [at * 65536 for at in range(12)]
    for drive, then in zip((first, second), before, strict=True):
        now = counters(drive)
        assert now["reads"] + now["writes"] - then["reads"] - then["writes"] == len(below[drive])
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


def test_a_mirror_is_recorded_on_both_of_its_drives(rows_of, nvme_drives, program):
    drives = nvme_drives[1:]
    mdadm, environment = program("mdadm"), {**os.environ, "MDADM_NO_UDEV": "1"}
    for drive in drives:
        subprocess.run(["blkdiscard", "-f", drive], check=True)
    subprocess.run([mdadm, "--create", "/dev/md9", "--run", "--level=1", "--raid-devices=2", "--assume-clean",
                    "--metadata=1.0", "--bitmap=none", *drives], check=True, capture_output=True, env=environment)
    try:
        rows = rows_of("/dev/md9", "dd if=/dev/zero of=/dev/md9 bs=16k count=50 oflag=direct status=none;"
                                   "dd if=/dev/md9 of=/dev/null bs=16k count=40 iflag=direct status=none")
    finally:
        subprocess.run([mdadm, "--stop", "/dev/md9"], check=True, capture_output=True, env=environment)
    assert sorted(rows.attrs["summary"]["devices"]) == sorted(drives)
    data = rows[rows.length_bytes == 16384]  # the rest is the array's own bookkeeping
    writes, reads = data[data.op == OPS["write"]], data[data.op == OPS["read"]]
    assert writes.groupby("device").offset_bytes.agg(list).tolist() == [[at * 16384 for at in range(50)]] * 2
    assert sorted(reads.offset_bytes) == [at * 16384 for at in range(40)], "each read goes to one of the two"
    assert rows.attrs["summary"]["diskstats"]["difference"] == 0


def test_a_delay_below_is_latency_above(rows_of, dm, loop_over, nvme):
    slow = loop_over(dm("blkreel-slow", f"0 65536 delay {nvme} 0 300\n"))
    rows = rows_of([slow, nvme], f"dd if={slow} of=/dev/null bs=4k count=3 iflag=direct status=none")
    above, below = rows[rows.device == 0], rows[rows.device == 1]
    assert above.offset_bytes.tolist() == below.offset_bytes.tolist() == [0, 4096, 8192]
    # dm-delay counts whole jiffies of at most 10 ms, the first of which has begun already.
    assert (above.latency_ns >= 290e6).all()
    # Each begins below when it has waited above.
    assert (below.submit_ns.to_numpy() - above.submit_ns.to_numpy() >= 290e6).all()
