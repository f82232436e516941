"""What changes under a running capture: I/O cut by its ends, drives and processors that go, a clock that steps."""

import fcntl
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_trace import new_trace
from waiting import wait_until

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from tests.vm.guest.drives import nvme_controllers, nvme_path

CPU = Path("/sys/devices/system/cpu/cpu1/online")


@pytest.fixture
def returning_nvme():
    """An NVMe drive that a test may take away; it is back afterwards."""
    path = nvme_path("GUEST003")
    pci = (nvme_controllers()["GUEST003"] / "device").resolve()
    yield path, pci
    Path("/sys/bus/pci/rescan").write_text("1")
    nvme_path("GUEST003")


def reads(drive, count):
    return f"dd if={drive} of=/dev/null bs=4k count={count} iflag=direct status=none"


def test_a_drive_that_is_pulled_leaves_a_whole_trace_that_says_so(blkreel, returning_nvme, tmp_path):
    drive, pci = returning_nvme
    script = f"{reads(drive, 500)}; echo 1 > {pci}/remove; until [ ! -e {drive} ]; do sleep 0.1; done"
    result = blkreel("capture", drive, "-o", tmp_path / "t.parquet", "--", "sh", "-ec", script, check=False)
    trace = open_trace(tmp_path / "t.parquet")
    assert trace.rows == 500
    assert result.returncode == 3, result.stdout + result.stderr
    assert Path(drive).name in result.stderr and "gone" in result.stderr
    assert "Traceback" not in result.stderr
    assert blkreel("check", tmp_path / "t.parquet", check=False).returncode == 3


@pytest.mark.parametrize("tracer", ["bpf", "ftrace"])
def test_a_null_drive_that_is_removed_under_load(blkreel, null_blk, tmp_path, tracer):
    drive = null_blk(irqmode=2, completion_nsec=1_000_000)
    directory = null_blk.directory_of[drive]
    script = (f"reads() {{ set -- $(cat /sys/block/{Path(drive).name}/stat); echo $1; }}; before=$(reads);"
              f"{reads(drive, 100000)} & until [ $(reads) -gt $((before + 20)) ]; do sleep 0.1; done;"
              f"rmdir {directory};"
              f"until [ ! -e {drive} ]; do sleep 0.1; done; wait")
    result = blkreel("capture", drive, "--source", tracer, "-o", tmp_path / "t.parquet", "--", "sh", "-c", script,
                     code=3)
    assert "gone" in result.stderr and "Traceback" not in result.stderr
    assert open_trace(tmp_path / "t.parquet").rows > 0


def make_trace(path, **columns):
    return new_trace(path, drive_bytes=1 << 26, **columns)


def test_a_replay_whose_drive_is_pulled_ends_with_a_clear_error(blkreel, returning_nvme, tmp_path):
    drive, pci = returning_nvme
    count = 3000
    trace = make_trace(tmp_path / "t.parquet", submit_ns=np.arange(count) * 10**7,
                       latency_ns=np.full(count, 1000), length_bytes=np.full(count, 4096),
                       offset_bytes=np.arange(count) % 1000 * 4096, op=np.full(count, OPS["write"]))
    stat = Path("/sys/block", Path(drive).name, "stat")
    before = int(stat.read_text().split()[4])
    process = blkreel.start("replay", trace, "--on", drive, "-o", tmp_path / "run", "--destroy", "GUEST003")
    wait_until(lambda: int(stat.read_text().split()[4]) >= before + 20 or process.poll() is not None)
    assert process.poll() is None, process.output()
    (pci / "remove").write_text("1")
    code = process.wait()
    out, err = process.output()
    assert code == 1, out + err
    assert "Traceback" not in err
    assert f"{drive} is gone" in err and "marked as partial" in err
    run = open_trace(tmp_path / "run").metadata["run"]
    assert run["verdict"]["level"] == "invalid"
    assert 20 <= run["completed_ops"] < count


@pytest.fixture
def captures(blkreel, nvme, tmp_path):
    """By source, a capture that has begun: (process, trace). They end when the lock on the file `end` is released."""
    running = {}
    end = (tmp_path / "end").open("w")
    fcntl.flock(end, fcntl.LOCK_EX)
    for source in ("bpf", "ftrace"):
        trace, begun = tmp_path / f"{source}.parquet", tmp_path / f"{source}.begun"
        process = blkreel.start("capture", nvme, "--source", source, "-o", trace, "--", "sh", "-c",
                                f"touch {begun}; exec flock --shared {end.name} true")
        running[source] = process, trace
        wait_until(lambda begun=begun, process=process: begun.exists() or process.poll() is not None)
        assert process.poll() is None, process.output()
    # Not by close(): the forks have the file open, too.
    yield running, lambda: fcntl.flock(end, fcntl.LOCK_UN)
    fcntl.flock(end, fcntl.LOCK_UN)
    for process, _ in running.values():
        process.wait()


@pytest.mark.skipif(not CPU.exists(), reason="needs a second processor that can be taken away")
def test_a_processor_goes_and_the_wall_clock_steps(captures, nvme, program, tmp_path):
    """No row is missing, and no time steps."""
    one_hour_s, ios_each, processors = 3600, 600, os.sched_getaffinity(0)
    running, end = captures

    def read(*on):
        # Each process stays where it is put, so that which processor issued a read is no choice of the scheduler's.
        os.sched_setaffinity(0, on or processors)
        try:
            return subprocess.Popen([program("fio"), "--name=h", f"--filename={nvme}", "--direct=1", "--rw=randread",
                                     "--bs=4k", "--ioengine=libaio", "--iodepth=8", f"--number_ios={ios_each}",
                                     "--size=100%", f"--output={tmp_path}/fio"])
        finally:
            os.sched_setaffinity(0, processors)

    try:
        assert read(1).wait() == 0
        for step in ("+1 hour", "+0 hour"):
            reader = read()
            CPU.write_text("0")
            subprocess.run(["date", "-s", step], check=True, capture_output=True)
            assert reader.wait() == 0
            reader = read()
            CPU.write_text("1")
            assert reader.wait() == 0
        assert read(1).wait() == 0
        end()
        codes = {source: process.wait() for source, (process, _) in running.items()}
    finally:
        CPU.write_text("1")
        subprocess.run(["date", "-s", "-1 hour"], check=True, capture_output=True)
    for source, (process, trace) in running.items():
        assert codes[source] == 0, (source, process.output())
        rows, metadata = open_trace(trace).table().to_pandas(), open_trace(trace).metadata
        assert len(rows) == 6 * ios_each, source
        assert rows.submit_ns.is_monotonic_increasing and metadata["duration_ns"] < 600e9, source
        assert rows.submit_ns.between(0, metadata["duration_ns"]).all() and rows.latency_ns.between(0, 60e9).all()
        assert metadata["lost"]["total"] == 0 and metadata["diskstats"]["difference"] == 0, source
        first, last = (pair["realtime_ns"] - pair["monotonic_ns"] for pair in metadata["clock_pairs"])
        assert (last - first) / 1e9 == pytest.approx(one_hour_s, abs=60), "the pairs at both ends show the step"
        if source == "bpf":
            of_processor_1 = rows.cpu == 1
            assert of_processor_1[:ios_each].any() and of_processor_1[-ios_each:].any(), "before it went, and back"
