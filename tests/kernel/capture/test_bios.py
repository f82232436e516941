"""Drives whose driver makes no requests: their bios are recorded, as zram's."""

import json
from pathlib import Path

import pytest

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

FIO = ["--name=bios", "--direct=1", "--bs=4k", "--number_ios=5000", "--rw=randrw", "--size=100%",
       "--ioengine=io_uring", "--iodepth=16", "--output-format=json"]


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_every_io_of_fio_is_a_row(blkreel, zram_drive, program, tmp_path, kind):
    trace, report = tmp_path / "t.parquet", tmp_path / "fio.json"
    result = blkreel("capture", zram_drive, "--programs", kind, "-o", trace, "--json", "--",
                     program("fio"), f"--filename={zram_drive}", *FIO, f"--output={report}")
    job, summary = json.loads(report.read_text())["jobs"][0], json.loads(result.stdout)
    rows = open_trace(trace).table().to_pandas()
    assert (rows.op == OPS["read"]).sum() == job["read"]["total_ios"]
    assert (rows.op == OPS["write"]).sum() == job["write"]["total_ios"]
    assert set(rows.length_bytes) == {4096} and rows.offset_bytes.between(0, (16 << 20) - 4096).all()
    assert (rows.latency_ns >= 0).all() and set(rows.status) == {0}
    assert (rows.queue_ns == -1).all()  # a bio has no queue to wait in
    assert summary["diskstats"]["difference"] == 0 and summary["missing"] == []
    trace = open_trace(trace)
    assert trace.metadata["capture_layer"] == "bio"
    # What would block is done by workers of io_uring; their process is fio all the same.
    assert {trace.metadata["threads"][str(tid)]["process"] for tid in set(rows.tid)} == {"fio"}


def test_discards_and_one_large_bio(blkreel, zram_drive, tmp_path):
    script = (f"dd if=/dev/zero of={zram_drive} bs=1M count=1 oflag=direct status=none; "
              f"blkdiscard -o 1048576 -l 65536 {zram_drive}")
    blkreel("capture", zram_drive, "-o", tmp_path / "t.parquet", "--", "sh", "-c", script)
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    assert rows.length_bytes[rows.op == OPS["write"]].sum() == 1 << 20
    discards = rows[rows.op == OPS["discard"]]
    assert discards.length_bytes.sum() == 65536 and discards.offset_bytes.min() == 1 << 20


def test_drives_with_and_without_requests_in_one_trace(blkreel, zram_drive, loop_drive, tmp_path):
    loop = loop_drive()
    script = f"for d in {zram_drive} {loop}; do dd if=$d of=/dev/null bs=4k count=50 iflag=direct status=none; done"
    blkreel("capture", zram_drive, loop, "-o", tmp_path / "t.parquet", "--", "sh", "-c", script)
    trace = open_trace(tmp_path / "t.parquet")
    rows = trace.table().to_pandas()
    layers = {Path(device["path"]).name: device["layer"] for device in trace.metadata["devices"]}
    assert layers == {zram_drive.name: "bio", Path(loop).name: "request"}
    assert sorted(rows.groupby("device").size()) == [50, 50]
    assert trace.metadata["capture_layer"] == "mixed"
