"""Replays on loop devices, from the command to the bytes on the image."""

import hashlib
import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from helpers import helpers_of
from host_reasons import HOST_REASONS

from blkreel.common.files.output_lock import spool_of
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool.spool import recover

pytestmark = pytest.mark.kernel

MIB = 1 << 20
DRIVE_BYTES = 32 * MIB
READ, WRITE, FLUSH, DISCARD = (OPS[name] for name in ("read", "write", "flush", "discard"))
TRUSTED_OR_LATE = (0, 3)  # other work on this machine may make I/Os late, which the verdict then says


@pytest.fixture
def make_trace(tmp_path):
    def make(name="t.parquet", **columns):
        count = len(columns["submit_ns"])
        columns = {"latency_ns": np.full(count, 1000), "length_bytes": np.full(count, 4096)} | columns
        with TraceWriter(tmp_path / name, force=True) as out:
            out.write(columns)
            out.close({"devices": [{"name": "src", "size_bytes": int(columns["offset_bytes"].max()) + MIB}]})
        return tmp_path / name

    return make


@pytest.fixture
def random_trace(make_trace):
    def make(count=2000, gap_ns=50_000, writes=0.4, size_bytes=DRIVE_BYTES, **more):
        random = np.random.default_rng(11)
        return make_trace(submit_ns=np.cumsum(random.integers(0, 2 * gap_ns, count)),
                          offset_bytes=random.integers(0, size_bytes // 4096, count) * 4096,
                          op=(random.random(count) < writes).astype(np.int8), **more)

    return make


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rows(path):
    return open_trace(path).table().to_pandas()


def account(path):
    return open_trace(path).metadata["run"]


def run_replay(blkreel, *arguments, **options):
    result = blkreel("replay", *arguments, check=False, **options)
    assert result.returncode in TRUSTED_OR_LATE, result.stderr
    return result


def test_every_io_of_the_trace_and_no_other_reaches_the_drive(blkreel, loop_drive, make_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    trace = make_trace(submit_ns=np.arange(6) * 10**6, op=np.array([WRITE, READ, FLUSH, WRITE, DISCARD, READ]),
                       offset_bytes=np.array([0, 8192, 0, 65536, 131072, 0]),
                       length_bytes=np.array([4096, 4096, 0, 16384, 65536, 512]),
                       flags=np.array([0, 0, 0, FLAGS["fua"], 0, 0]))
    image = loop_drive.image_of(drive)
    image.write_bytes(b"\xff" * DRIVE_BYTES)
    run_replay(blkreel, trace, "--on", drive, "-o", tmp_path / "run")
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
    trace = random_trace()
    result = run_replay(blkreel, trace, "--on", drive, "-o", tmp_path / "run", "--json")
    run, records = json.loads(result.stdout)["run"], rows(tmp_path / "run")
    assert run == account(tmp_path / "run")
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


def test_idle_time_is_taken_out(blkreel, loop_drive, make_trace, tmp_path):
    trace = make_trace(submit_ns=np.array([0, 10**6, 3 * 10**9]), offset_bytes=np.zeros(3, np.int64),
                       op=np.full(3, WRITE))
    started = time.monotonic()
    run_replay(blkreel, trace, "--on", loop_drive(DRIVE_BYTES), "-o", tmp_path / "run", "--idle", "cap=25ms")
    run = account(tmp_path / "run")
    assert run["plan_ns"] == 26_001_000
    assert run["idle"] == {"name": "cap", "cap_ns": 25_000_000, "removed_ns": 3 * 10**9 - 26_001_000}
    assert run["wall_ns"] < 2 * 10**9
    assert time.monotonic() - started < 60
    assert "of idle time above 25.0 ms removed" in str(run["verdict"])


def test_littles_law_at_a_fixed_depth(blkreel, loop_drive, random_trace, tmp_path):
    """In a saturated closed loop the latencies add up to depth times the time it took.

    To the percent on a drive whose clock waits for the engine. On any other, what was reaped and is not yet issued
    again counts as nothing outstanding, and how much that is depends on how fast both are.
    """
    depth = 16
    trace = random_trace(count=60_000, writes=0)
    simulated = f"nil:{DRIVE_BYTES},read_latency=100us,channels=64,read_bandwidth=100GB/s,clock=virtual"
    for target, least in ((simulated, 0.99), (loop_drive(DRIVE_BYTES), 0.5)):
        run_replay(blkreel, trace, "--on", target, "-o", tmp_path / "run", "--pace", f"depth={depth}", "--force")
        records = rows(tmp_path / "run")
        mean_depth = records["latency_ns"].sum() / account(tmp_path / "run")["wall_ns"]
        assert least * depth < mean_depth <= depth
        complete_ns = (records["submit_ns"] + records["latency_ns"]).to_numpy()
        events = np.concatenate([records["submit_ns"].to_numpy(), complete_ns])
        steps = np.concatenate([np.ones(len(records)), -np.ones(len(records))])
        outstanding = np.cumsum(steps[np.lexsort((steps, events))])
        assert outstanding.max() == depth
        assert (records["due_ns"] == -1).all()
        assert account(tmp_path / "run")["lateness"] is None


def test_a_run_is_replayed_like_its_trace(blkreel, loop_drive, random_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    trace = random_trace(count=300)
    run_replay(blkreel, trace, "--on", drive, "-o", tmp_path / "run")
    run_replay(blkreel, tmp_path / "run", "--on", drive, "-o", tmp_path / "again")
    first, again = rows(tmp_path / "run"), rows(tmp_path / "again").sort_values("source_row")
    assert again["offset_bytes"].tolist() == first["offset_bytes"].tolist()
    assert again["op"].tolist() == first["op"].tolist()


def test_a_larger_trace_is_packed_or_refused(blkreel, loop_drive, make_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    trace = make_trace(submit_ns=np.arange(3), offset_bytes=np.array([0, 1 << 40, (1 << 40) + 4096]),
                       op=np.array([WRITE, WRITE, READ]))
    before = sha256(loop_drive.image_of(drive))
    refused = blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", "--map", "identity", check=False)
    assert refused.returncode == 1
    assert "--map compact" in refused.stderr
    assert sha256(loop_drive.image_of(drive)) == before
    assert not (tmp_path / "run").exists()
    run_replay(blkreel, trace, "--on", drive, "-o", tmp_path / "run")
    assert account(tmp_path / "run")["map"] == {"name": "compact"}
    assert rows(tmp_path / "run").sort_values("source_row")["offset_bytes"].tolist() == [0, 4096, 8192]


def test_a_dry_run_touches_nothing(blkreel, loop_drive, random_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    before = sha256(loop_drive.image_of(drive))
    trace = random_trace()
    text = blkreel("replay", trace, "--on", drive, "-o", tmp_path / "run", "--dry-run").stdout
    assert "nothing written" in text
    document = json.loads(blkreel("replay", trace, "--on", drive, "--dry-run", "--json").stdout)
    assert document["ops"]["read"] + document["ops"]["write"] == 2000
    assert document["prefill"]["bytes"] > 0
    assert sha256(loop_drive.image_of(drive)) == before
    assert not (tmp_path / "run").exists()


def test_a_regular_file_stands_in_for_a_drive(blkreel, require_root, random_trace, tmp_path):
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, DRIVE_BYTES)
    run_replay(blkreel, random_trace(count=300), "--on", image, "-o", tmp_path / "run")
    run = account(tmp_path / "run")
    assert run["completed_ops"] == 300
    assert run["foreign_ios"] is None
    assert "external I/O not counted" in str(run["verdict"])


def test_skipping_the_writes_beforehand_makes_it_invalid(blkreel, loop_drive, random_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    before = sha256(loop_drive.image_of(drive))
    result = blkreel("replay", random_trace(writes=0, count=200), "--on", drive, "-o", tmp_path / "run",
                     "--no-prefill", "--why", check=False)
    assert result.returncode == 3
    assert "read that were never written" in result.stdout
    assert sha256(loop_drive.image_of(drive)) == before


def test_io_of_others_is_noticed(blkreel, loop_drive, make_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    trace = make_trace(submit_ns=np.arange(300) * 10**7, offset_bytes=np.zeros(300, np.int64), op=np.full(300, WRITE))
    process = subprocess.Popen([blkreel.command, "replay", trace, "--on", drive, "-o", tmp_path / "run",
                                "--why"],
                               env=blkreel.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rows(tmp_path / "run", size_bytes=1000)
    # However long it takes others to come, the run must still be going on.
    helper, = helpers_of(process.pid)
    os.kill(helper, signal.SIGSTOP)
    subprocess.run(["dd", f"if={drive}", "of=/dev/null", "bs=4096", "count=5", "iflag=direct"], check=True,
                   capture_output=True)
    os.kill(helper, signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert account(tmp_path / "run")["foreign_ios"] == 5
    assert "5 external I/Os on the drive" in out


def test_a_loop_device_through_the_page_cache_is_no_drive(blkreel, loop_drive, random_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES, where="disk", direct_io=False)
    result = blkreel("replay", random_trace(count=100), "--on", drive, "-o", tmp_path / "run", "--why", check=False)
    assert result.returncode == 3
    assert "losetup --direct-io=on" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_leaves_a_readable_partial_run(blkreel, loop_drive, make_trace, tmp_path, number):
    drive = loop_drive(DRIVE_BYTES)
    count = 2000
    trace = make_trace(submit_ns=np.arange(count) * 10**7, offset_bytes=np.zeros(count, np.int64),
                       op=np.full(count, WRITE))  # 20 s
    process = subprocess.Popen([blkreel.command, "replay", trace, "--on", drive, "-o", tmp_path / "run"],
                               env=blkreel.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rows(tmp_path / "run")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    run = account(tmp_path / "run")
    assert run["partial"] == "interrupted"
    assert 0 < run["completed_ops"] < count
    assert open_trace(tmp_path / "run").rows == run["completed_ops"]
    assert "partial run: interrupted" in out


def test_a_killed_replay_can_be_recovered(blkreel, loop_drive, make_trace, tmp_path):
    drive = loop_drive(DRIVE_BYTES)
    count = 2000
    trace = make_trace(submit_ns=np.arange(count) * 10**7, offset_bytes=np.zeros(count, np.int64),
                       op=np.full(count, WRITE))
    process = subprocess.Popen([blkreel.command, "replay", trace, "--on", drive, "-o", tmp_path / "run"],
                               env=blkreel.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for_rows(tmp_path / "run")
    process.kill()
    process.communicate(timeout=60)
    recover(tmp_path / "run/records.parquet")
    run = open_trace(tmp_path / "run")
    assert 0 < run.rows < count
    assert run.metadata["run"]["partial"] == "the replay was killed before its end"
    assert run.metadata["run"]["verdict"]["level"] == "invalid"


def wait_for_rows(run, size_bytes=10_000):
    """Until rows of the replay have reached its spool."""
    spool = spool_of(run / "records.parquet") / "rows.blocks"
    deadline = time.monotonic() + 60
    while not spool.exists() or spool.stat().st_size < size_bytes:
        assert time.monotonic() < deadline, "no rows came"
        time.sleep(0.05)
