"""A capture against independent observers: fio's own counts, and the kernel's counters of the drive."""

import json
from pathlib import Path

import pytest
from documents import valid_document

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel
IOS = 5000
KINDS = {"tp_btf": [], "raw_tp": [], "tp_btf, as before block_io_start": ["--without-io-start"]}


def fio_options(drive, *options, name="reader", rw="randread", ios=IOS):
    return ["--name", name, f"--filename={drive}", "--direct=1", f"--rw={rw}", "--bs=4k", f"--number_ios={ios}",
            "--ioengine=io_uring", "--iodepth=32", "--size=100%", "--output-format=json", *options]


def fio_capture(blkreel, drive, trace, fio, *fio_arguments, capture=()):
    """Run fio under a capture; its report, the capture's own summary and the rows."""
    report = trace.with_suffix(".fio.json")
    result = blkreel("capture", *capture, "-o", trace, "--json", "--",
                     fio, *fio_options(drive, *fio_arguments), f"--output={report}")
    job = json.loads(report.read_text())["jobs"][0]
    return job, valid_document("capture", result.stdout), open_trace(trace).table().to_pandas()


def drive_counts(drive):
    """Reads, writes, discards and flushes completed, as the kernel counts them."""
    fields = Path(f"/sys/block/{Path(drive).name}/stat").read_text().split()
    return [int(fields[at]) for at in (0, 4, 11, 15)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_read_of_fio_is_a_row(blkreel, loop_drive, program, tmp_path, kind):
    drive = loop_drive(128 << 20)
    before = drive_counts(drive)
    job, summary, rows = fio_capture(blkreel, drive, tmp_path / "t.parquet", program("fio"),
                                     capture=[drive, "--programs", kind.partition(",")[0], *KINDS[kind]])
    assert job["read"]["total_ios"] == IOS
    assert len(rows) == IOS
    assert summary["lost"] == 0 and summary["missing"] == []
    assert [now - then for now, then in zip(drive_counts(drive), before, strict=True)] == [IOS, 0, 0, 0]
    assert summary["diskstats"]["difference"] == 0
    assert set(rows.op) == {0} and set(rows.length_bytes) == {4096}
    assert (rows.offset_bytes % 4096 == 0).all() and rows.offset_bytes.between(0, (128 << 20) - 4096).all()
    assert summary["source_format"] == f"bpf:{kind.partition(',')[0]}"


def test_the_reader_is_named_and_its_times_are_plausible(blkreel, loop_drive, program, tmp_path):
    drive = loop_drive(128 << 20)
    job, summary, rows = fio_capture(blkreel, drive, tmp_path / "t.parquet", program("fio"), capture=[drive])
    threads = open_trace(tmp_path / "t.parquet").metadata["threads"]
    assert {threads[str(tid)]["comm"] for tid in set(rows.tid)} == {"fio"}
    assert {threads[str(tid)]["process"] for tid in set(rows.tid)} == {"fio"}
    assert (rows.queue_ns >= 0).all()
    assert rows.submit_ns.is_monotonic_increasing
    seen = rows.latency_ns[rows.latency_ns >= 0]
    # Some kernels keep completions from BPF: such an I/O has its row, no latency, and is counted.
    assert len(rows) - len(seen) == summary["ledger"]["reused"] < len(rows) // 4
    # The drive's part of what fio waits for: not more than all of it, and in the same unit. In the guest, one thread
    # emulates all processors, and fio waits for its own longer than for the drive.
    whole_ns = job["read"]["clat_ns"]["mean"] + job["read"]["slat_ns"]["mean"]
    assert 0.005 * whole_ns < (seen.mean() + rows.queue_ns.mean()) < 1.1 * whole_ns
    # 20,000 I/Os fit into the time of the job; submissions are not bunched into one stamp per batch.
    assert (rows.submit_ns.max() - rows.submit_ns.min()) / 1e6 < job["job_runtime"] + 1000
    assert rows.submit_ns.nunique() > 0.99 * len(rows)


@pytest.mark.parametrize("scheduler", ["mq-deadline", "bfq"])
def test_a_scheduler_between_entry_and_drive_costs_no_row(blkreel, loop_drive, program, tmp_path, scheduler):
    drive = loop_drive(128 << 20)
    chosen = Path(f"/sys/block/{Path(drive).name}/queue/scheduler")
    if scheduler not in chosen.read_text():
        pytest.skip(f"needs the scheduler {scheduler}")
    chosen.write_text(scheduler)
    try:
        job, summary, rows = fio_capture(blkreel, drive, tmp_path / "t.parquet", program("fio"), "--rw=randrw",
                                         capture=[drive])
    finally:
        chosen.write_text("none")
    assert len(rows) == IOS == job["read"]["total_ios"] + job["write"]["total_ios"]
    assert (rows.op == 1).sum() == job["write"]["total_ios"]
    assert summary["missing"] == [] and (rows.queue_ns >= 0).all()


def test_two_drives_at_once_are_kept_apart(blkreel, loop_drive, program, tmp_path):
    first, second, other = loop_drive(32 << 20), loop_drive(32 << 20), loop_drive(32 << 20)
    script = " && ".join(f"{program('fio')} --name=j --filename={drive} --direct=1 --rw=read --bs={size}k --size=4m"
                         " --output=/dev/null" for drive, size in ((first, 4), (second, 8), (other, 16)))
    blkreel("capture", first, second, "-o", tmp_path / "t.parquet", "--", "sh", "-c", script)
    trace = open_trace(tmp_path / "t.parquet")
    rows = trace.table().to_pandas()
    by_device = rows.groupby("device").length_bytes.agg(["count", "sum", "max"])
    assert by_device.loc[0].tolist() == [1024, 4 << 20, 4096]
    assert by_device.loc[1].tolist() == [512, 4 << 20, 8192]
    assert len(by_device) == 2
    assert [entry["path"] for entry in trace.metadata["devices"]] == [first, second]


@pytest.mark.parametrize("kind", ["tp_btf", "raw_tp"])
def test_every_io_of_fio_is_a_row(blkreel, zram_drive, program, tmp_path, kind):
    """A driver that makes no requests: its bios are recorded."""
    job, summary, rows = fio_capture(blkreel, zram_drive, tmp_path / "t.parquet", program("fio"), "--rw=randrw",
                                     capture=[zram_drive, "--programs", kind])
    assert (rows.op == OPS["read"]).sum() == job["read"]["total_ios"]
    assert (rows.op == OPS["write"]).sum() == job["write"]["total_ios"]
    assert set(rows.length_bytes) == {4096} and rows.offset_bytes.between(0, (16 << 20) - 4096).all()
    assert (rows.latency_ns >= 0).all() and set(rows.status) == {0}
    assert (rows.queue_ns == -1).all()  # a bio has no queue to wait in
    assert summary["diskstats"]["difference"] == 0 and summary["missing"] == []
    trace = open_trace(tmp_path / "t.parquet")
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
