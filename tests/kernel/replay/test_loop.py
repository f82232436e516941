"""Replays on loop devices, from the command to the bytes on the image."""

import json

import numpy as np
import pytest
from host_reasons import HOST_REASONS
from small_trace import new_trace

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
DRIVE_BYTES = 32 * MIB
READ, WRITE, FLUSH, DISCARD = (OPS[name] for name in ("read", "write", "flush", "discard"))
TRUSTED_OR_LATE = (0, 3)  # other work on this machine may make I/Os late, which the verdict then says


@pytest.fixture
def make_trace(tmp_path):
    def make(name="t.parquet", **columns):
        return new_trace(tmp_path / name, drive_bytes=int(columns["offset_bytes"].max()) + MIB, **columns)

    return make


@pytest.fixture
def random_trace(make_trace):
    def make(count=2000, gap_ns=50_000, writes=0.4, size_bytes=DRIVE_BYTES, **more):
        random = np.random.default_rng(11)
        return make_trace(submit_ns=np.cumsum(random.integers(0, 2 * gap_ns, count)),
                          offset_bytes=random.integers(0, size_bytes // 4096, count) * 4096,
                          op=(random.random(count) < writes).astype(np.int8), **more)

    return make


def rows(path):
    return open_trace(path).table().to_pandas()


def test_every_io_of_the_trace_and_no_other_reaches_the_drive(blkreel, loop_drive, make_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    trace = make_trace(submit_ns=np.arange(6) * 10**6, op=np.array([WRITE, READ, FLUSH, WRITE, DISCARD, READ]),
                       offset_bytes=np.array([0, 8192, 0, 65536, 131072, 0]),
                       length_bytes=np.array([4096, 4096, 0, 16384, 65536, 512]),
                       flags=np.array([0, 0, 0, FLAGS["fua"], 0, 0]))
    image = loop_drive.image_of(drive)
    image.write_bytes(b"\xff" * DRIVE_BYTES)
    blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", code=TRUSTED_OR_LATE)
    records = rows(tmp_path / "run").sort_values("source_row")
    source = rows(trace)
    for column in ("offset_bytes", "length_bytes", "op"):
        assert records[column].tolist() == source[column].tolist()
    assert records["source_row"].tolist() == list(range(6))
    assert (records["status"] == 0).all()
    assert (np.diff(records["due_ns"]) == 10**6).all()

    data = np.frombuffer(image.read_bytes(), np.uint8).reshape(-1, 512)
    changed = {int(sector) * 512 for sector in np.flatnonzero((data != 0xFF).any(axis=1))}
    written = {*range(0, 4096, 512), *range(65536, 65536 + 16384, 512)}
    prefilled = set(range(8192, 12288, 512))
    discarded = set(range(131072, 131072 + 65536, 512))
    assert changed == written | prefilled | discarded
    assert not data[256:384].any(), "a discarded block of a loop device reads as zeros"
    assert data[16:24].any(), "what the trace reads first was written before"


def test_the_account_adds_up_with_the_records(blkreel, loop_drive, random_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    result = blkreel("replay", random_trace(), "--on", drive, "-o", tmp_path / "run", "--json", code=TRUSTED_OR_LATE)
    run, records = json.loads(result.stdout)["run"], rows(tmp_path / "run")
    assert run == open_trace(tmp_path / "run").metadata["run"]
    assert run["completed_ops"] == run["planned_ops"] == len(records) == 2000
    assert run["foreign_ios"] == 0
    assert run["as_planned"]
    assert run["engine"]["direct"] is True
    assert run["altered"] == run["dropped"] == {}
    late_ns = np.sort((records["submit_ns"] - records["due_ns"]).to_numpy().clip(0))
    assert run["lateness"]["max_ns"] == late_ns[-1]
    exact_p50 = late_ns[len(late_ns) // 2 - 1]
    assert exact_p50 * 1023 / 1024 <= run["lateness"]["p50_ns"] <= exact_p50
    assert run["wall_ns"] == (records["submit_ns"] + records["latency_ns"]).max() - records["submit_ns"].min()
    assert (result.returncode == 3) == (run["verdict"]["level"] == "invalid")
    assert blkreel("check", tmp_path / "run").returncode == 0
    reasons = run["verdict"]["reasons"]
    assert {reason["code"] for reason in reasons if reason["level"] == "invalid"} <= HOST_REASONS, reasons


def test_a_loop_device_through_the_page_cache_is_no_drive(blkreel, loop_drive, random_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES, where="disk", direct_io=False)
    result = blkreel("replay", random_trace(count=100), "--on", drive, "-o", tmp_path / "run", "--why", code=3)
    assert "losetup --direct-io=on" in result.stdout
