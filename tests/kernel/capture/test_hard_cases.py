"""Between what a program asks and what the drive gets: merges, splits, flushes around a write, I/O from before.

More of them, on drives that a loop device is not, run in a guest: tests/vm/guest.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from capture_sources import assert_recorded, skip_unless_it_runs
from loop_device import ext4
from waiting import wait_until

from blkreel.capture.helper import Nowhere
from blkreel.capture.sources import SOURCES
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
MEASURED_HELPER = Path(__file__).parents[3] / "build/capture/blkreel-capture-measured"


@pytest.fixture
def captured(blkreel, tmp_path):
    """Capture a shell script on a drive: (rows, summary)."""
    def run(drive, script, *options, source="bpf"):
        trace = tmp_path / "t.parquet"
        result = blkreel("capture", drive, "-o", trace, "--force", "--json", "--source", source, *options, "--",
                         "sh", "-ec", script, check=False)
        assert_recorded(result.returncode, result.stderr, source)
        return open_trace(trace).table().to_pandas(), json.loads(result.stdout)

    return run


@pytest.fixture
def captured_with_latencies(captured):
    """Repeats a capture from which the kernel kept completions, which the ledger counts."""
    def run(*words):
        for _ in range(10):
            rows, summary = captured(*words)
            if not summary["ledger"]["reused"]:
                return rows, summary
        return pytest.skip("the kernel kept completions from BPF in each of ten captures")

    return run


@pytest.fixture
def queue(loop_drive):
    """Settings of a drive's queue, for as long as the test runs: queue(drive, name, value)."""
    kept = []

    def change(drive, name, value):
        file = Path("/sys/block", Path(drive).name, "queue", name)
        text = file.read_text().strip()
        file.write_text(str(value))
        # The scheduler's file lists all of them, with the chosen one in brackets.
        kept.append((file, text.partition("[")[2].partition("]")[0] or text))

    yield change
    for file, text in reversed(kept):
        file.write_text(text)


def stat(drive, field):
    return int(Path("/sys/block", Path(drive).name, "stat").read_text().split()[field])


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
def test_neighbors_that_are_merged_are_one_row(captured, loop_drive, queue, program, tmp_path, scheduler):
    drive = loop_drive()
    try:
        queue(drive, "scheduler", scheduler)
    except OSError:
        pytest.skip(f"needs the scheduler {scheduler}: modprobe {scheduler}")
    reads, merged = stat(drive, 0), stat(drive, 1)
    rows, summary = captured(drive, f"{program('fio')} --name=s --filename={drive} --direct=1 --rw=read --bs=4k"
                                    " --size=8m --ioengine=io_uring --iodepth=16 --iodepth_batch_submit=16"
                                    f" --iodepth_batch_complete_min=16 --output={tmp_path}/fio")
    merged = stat(drive, 1) - merged
    assert merged > 0, "nothing was merged, so nothing was tested"
    assert len(rows) == 2048 - merged == stat(drive, 0) - reads
    ends = rows.offset_bytes + rows.length_bytes
    assert sorted(rows.offset_bytes)[1:] == sorted(ends)[:-1], "the rows tile what was read"
    assert rows.length_bytes.sum() == 8 * MIB and rows.length_bytes.max() > 4096
    assert summary["missing"] == [] and summary["diskstats"]["difference"] == 0


@pytest.mark.parametrize("options", [[], ["--without-io-start"]])
def test_an_io_beyond_the_drives_limit_is_a_row_for_each_part(captured_with_latencies, loop_drive, queue, options):
    drive = loop_drive()
    queue(drive, "max_sectors_kb", 16)
    rows, summary = captured_with_latencies(
        drive, f"dd if={drive} of=/dev/null bs=256k count=4 skip=1 iflag=direct status=none", *options)
    assert sorted(rows.offset_bytes) == list(range(256 << 10, (256 << 10) + MIB, 16384))
    assert set(rows.length_bytes) == {16384} and (rows.latency_ns > 0).all()
    assert rows.tid.nunique() == 1
    assert summary["missing"] == [] and summary["diskstats"]["difference"] == 0


def test_a_commit_stands_between_its_flushes(captured_with_latencies, loop_drive, tmp_path):
    """A drive without FUA is flushed before a journal's commit block and again after it; each has its row."""
    drive = loop_drive()
    with ext4(drive, tmp_path / "fs") as mount:
        rows, summary = captured_with_latencies(
            drive, f"for i in 1 2 3; do echo x > {mount}/f$i; sync {mount}/f$i; done")
    both = FLAGS["preflush"] | FLAGS["fua"]
    commits = rows[(rows.op == OPS["write"]) & (rows["flags"] & both == both)]
    flushes = rows[rows.op == OPS["flush"]]
    flush_ends = flushes.submit_ns + flushes.latency_ns
    assert len(commits) >= 3 and (rows["flags"] & FLAGS["metadata"] != 0).any()
    earlier_ns = 0
    for commit in commits.itertuples():
        end_ns = commit.submit_ns + commit.latency_ns
        assert ((flushes.submit_ns >= earlier_ns) & (flush_ends <= commit.submit_ns)).any(), "none before"
        assert (flushes.submit_ns >= end_ns).any(), "none after"
        earlier_ns = end_ns
    assert summary["missing"] == [] and abs(summary["diskstats"]["difference"]) <= 1


def links_of(pid):
    """The programs that a helper has attached."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(file.readlink()))
        except FileNotFoundError:
            pass  # closed since
    return [file for file in found if "bpf_link" in file]


def test_what_completed_unseen_is_told_from_what_is_in_flight(held_drive):
    """Some kernels run no BPF program in some threads. Here none is attached for as long as the write completes."""
    if not MEASURED_HELPER.exists():
        pytest.skip("needs the helper of measurements: make build")
    nowhere = Nowhere()
    rows, number = nowhere.rows_file.fileno(), Path(f"/sys/block/{Path(held_drive.path).name}/dev").read_text().strip()
    helper = subprocess.Popen([MEASURED_HELPER, "--device", number, "--rows-fd", str(rows)], pass_fds=[rows],
                              bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert json.loads(helper.stdout.readline())["note"] == "attached"
    assert links_of(helper.pid)
    held_drive.hold()
    writer = held_drive.write()
    helper.stdin.write(b"detach\n")
    wait_until(lambda: not links_of(helper.pid))
    held_drive.let_go()
    writer.wait(timeout=300)
    wait_until(lambda: held_drive.in_flight() == 0)
    helper.stdin.close()
    end = json.loads(helper.stdout.read().splitlines()[-1])
    assert helper.wait(300) == 0
    nowhere.close()
    assert end["note"] == "end" and end["ios"][OPS["write"]] == 1
    assert end["ledger"]["reused"] == 1 and end["in_flight_at_end"] == 0
    assert end["drives"][0]["diskstats"]["write"] == 1, "the kernel's counters have it"


def test_a_suspend_during_the_capture_is_reported(blkreel, loop_drive, tmp_path):
    """Its length is that by which the clocks with and without it move apart."""
    drive, trace = loop_drive(), tmp_path / "t.parquet"
    # Each end takes three readings.
    code = ("import sys, time; from blkreel.cli.main import main; read, count = time.clock_gettime_ns, iter(range(9));"
            "time.clock_gettime_ns = lambda clock: read(clock) + (next(count) > 2) * 90 * 10**9;"
            f"sys.argv[1:] = ['capture', {drive!r}, '-o', {str(trace)!r}, '--for', '200ms']; main()")
    result = subprocess.run([blkreel.command.with_name("python"), "-c", code], capture_output=True, text=True,
                            env=blkreel.environment)
    assert_recorded(result.returncode, result.stderr)
    assert "suspended for 90.0 s" in result.stderr
    assert open_trace(trace).metadata["ledger"]["suspended_ns"] == pytest.approx(90e9, abs=1e9)
    assert "suspended for 90.0 s" in blkreel("check", trace, check=False).stderr


@pytest.mark.parametrize("source", SOURCES)
def test_a_drive_that_grows_during_the_capture(captured, blkreel, loop_drive, tracer, tmp_path, source):
    drive = loop_drive(8 * MIB)
    skip_unless_it_runs(source, drive)
    script = (f"truncate -s {16 * MIB} {loop_drive.image_of(drive)}; losetup --set-capacity {drive}; "
              f"dd if={drive} of=/dev/null bs=4k skip=3000 count=50 iflag=direct status=none")
    rows, _ = captured(drive, script, source=source)
    assert (rows.offset_bytes + rows.length_bytes).max() > 8 * MIB
    blkreel("check", tmp_path / "t.parquet")
    assert open_trace(tmp_path / "t.parquet").metadata["devices"][0]["size_bytes"] == 16 * MIB


@pytest.mark.parametrize("source", SOURCES)
def test_a_larger_drive_that_takes_the_place_of_another(blkreel, loop_drive, tracer, tmp_path, source):
    """Rows beyond the end of the first one are valid. Only bpf notices that it is another, and ends then."""
    for attempt in range(10):
        drive = loop_drive(8 * MIB, replaceable=True)
        image, trace = tmp_path / f"image-{attempt}", tmp_path / f"{attempt}.parquet"
        skip_unless_it_runs(source, drive)
        image.touch()
        os.truncate(image, 16 * MIB)
        result = blkreel("capture", drive, "-o", trace, "--source", source, "--", "sh", "-ec",
                         f"losetup --detach {drive}; losetup {drive} {image}; "
                         f"dd if={drive} of=/dev/null bs=4k skip=3000 count=50 iflag=direct status=none", check=False)
        if source == "bpf":
            assert result.returncode == 3 and "taken away" in result.stderr
        else:
            assert_recorded(result.returncode, result.stderr, source)
        assert "valid" in blkreel("check", trace, check=False).stdout
        pages = open_trace(trace).table().to_pandas().offset_bytes // 4096
        beyond = pages[pages >= 8 * MIB // 4096].tolist()
        assert beyond == list(range(3000, 3000 + len(beyond)))
        if len(beyond) == 50:
            break
        assert source == "bpf"
    assert len(beyond) == 50 and open_trace(trace).metadata["devices"][0]["size_bytes"] == 16 * MIB
