"""The flight recorder: it goes on, holds what came last, and saves it when asked to."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from capture_sources import assert_recorded
from spooled import rows_on_disk
from waiting import wait_until

from blkreel.traces.format.check import check
from blkreel.traces.format.reader import open_trace

pytestmark = pytest.mark.kernel


def read(drive, count, skip=0):
    subprocess.run(["dd", f"if={drive}", "of=/dev/null", "bs=512", f"count={count}", f"skip={skip}", "iflag=direct",
                    "status=none"], check=True)


def noted(directory):
    return json.loads((directory / ".t.parquet.spool/metadata.json").read_text())


def sectors(trace):
    return [offset // 512 for offset in trace.table(["offset_bytes"])["offset_bytes"].to_pylist()]


def assert_last_are_held(trace, reads):
    """reads: the sectors in their order, each once. The trace has the last of them without a gap, and the others are
    counted as dropped.

    The row of a read whose completion the kernel kept from BPF comes when the next I/O takes its tag, so that it may be
    held longer than its neighbors.
    """
    rows = trace.table(["offset_bytes", "latency_ns"]).to_pandas()
    held, seen = rows.offset_bytes // 512, rows.latency_ns >= 0
    first = reads.index(held[seen].iloc[0])
    assert held[seen].tolist() == [sector for sector in reads[first:] if sector not in set(held[~seen])]
    assert trace.metadata["ring"]["dropped_rows"] == len(reads) - trace.rows


def dropped(directory):
    return noted(directory).get("ring", {}).get("dropped_rows", 0)


def test_only_the_last_rows_are_held(started, loop_drive, tmp_path):
    drive, size_bytes = loop_drive(), 256 << 10
    process = started(drive, "--max-size", "256K")
    for start in range(0, 40_000, 4000):
        read(drive, 4000, start)
        time.sleep(0.2)
    wait_until(lambda: dropped(tmp_path) > 30_000, process)
    rows = tmp_path / ".t.parquet.spool/rows.blocks"
    assert rows.stat().st_size > 4 * size_bytes
    # The ring, the last blocks, and whole pages: a look at it every half a second drops what is more.
    wait_until(lambda: rows.stat().st_blocks * 512 < size_bytes + 4000 * 120 + (256 << 10), process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=300)
    assert_recorded(process.returncode, stderr)
    trace = open_trace(tmp_path / "t.parquet")
    assert_last_are_held(trace, range(40_000))
    assert trace.metadata["ring"] == {"max_bytes": size_bytes, "keep_ns": None, "dropped_rows": 40_000 - trace.rows}
    assert trace.rows > 1000 and f"{trace.rows:,} I/Os" in stdout
    names = {int(tid): entry["comm"] for tid, entry in trace.metadata["threads"].items()}
    assert set(names) == set(trace.table(["tid"])["tid"].to_pylist()) and "dd" in names.values(), "no dropped names"
    assert check(trace).errors == [] and trace.metadata["lost"]["total"] == 0


def test_what_is_older_than_asked_for_is_dropped(started, loop_drive, tmp_path):
    drive = loop_drive()
    process = started(drive, "--keep", "1s", "--json")
    read(drive, 4000)
    wait_until(lambda: dropped(tmp_path) > 3900, process)
    read(drive, 50, 4000)  # few I/Os become old, too
    wait_until(lambda: dropped(tmp_path) > 4000, process)
    read(drive, 100, 5000)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=300)
    trace = open_trace(tmp_path / "t.parquet")
    assert_last_are_held(trace, [*range(4050), *range(5000, 5100)])
    assert json.loads(stdout)["duration_ns"] < trace.metadata["duration_ns"] - 10**9, "that of what is held"


def test_a_signal_saves_what_is_held_and_the_capture_goes_on(started, blkreel, loop_drive, tmp_path):
    drive = loop_drive()
    process = started(drive, "--keep", "10min")
    for part in range(2):
        read(drive, 100, 1000 * part)
        wait_until(lambda: len(rows_on_disk(tmp_path / "t.parquet")) == 100 * (part + 1), process)  # noqa: B023
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(list(tmp_path.glob("t-*.parquet"))) == part + 1, process)  # noqa: B023
    read(drive, 100, 2000)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert stderr.count("the capture goes on") == 2
    first, second = sorted(tmp_path.glob("t-*.parquet"), key=os.path.getmtime)
    expected = [*range(100), *range(1000, 1100), *range(2000, 2100)]
    assert sectors(open_trace(first)) == expected[:100]
    assert sectors(open_trace(second)) == expected[:200]
    assert sectors(open_trace(tmp_path / "t.parquet")) == expected
    for path in (first, second):
        blkreel("check", path)
        assert "dd" in blkreel("info", path).stdout


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGKILL])
def test_what_is_saved_before_the_end_has_the_size_of_a_drive_that_has_grown(started, blkreel, loop_drive, tmp_path,
                                                                             number):
    drive = loop_drive(8 << 20)
    process = started(drive)
    os.truncate(loop_drive.image_of(drive), 16 << 20)
    subprocess.run(["losetup", "--set-capacity", drive], check=True)
    read(drive, 10, 20_000)
    wait_until(lambda: noted(tmp_path)["devices"][0]["size_bytes"] == 16 << 20, process)
    wait_until(lambda: len(rows_on_disk(tmp_path / "t.parquet")) == 10, process)
    process.send_signal(number)
    if number == signal.SIGUSR1:
        wait_until(lambda: list(tmp_path.glob("t-*.parquet")), process)
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    trace = next(tmp_path.glob("t-*.parquet"), tmp_path / "t.parquet")
    if number == signal.SIGKILL:
        blkreel("recover", trace)
    assert check(open_trace(trace)).errors == [] and open_trace(trace).rows == 10


def test_a_killed_ring_is_recovered_from_where_it_begins(started, blkreel, loop_drive, tmp_path):
    drive = loop_drive()
    process = started(drive, "--max-size", "128K")
    count = 0

    def drops():
        """Only whole blocks are dropped, and a busy machine may put all rows so far into one."""
        nonlocal count
        read(drive, 1000, count % 20_000)
        count += 1000
        return dropped(tmp_path) > 0

    wait_until(drops, process)
    read(drive, 100, 20_000)
    (helper,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    wait_until(lambda: not Path(f"/proc/{helper}").exists())  # it comes to its end without its parent
    blkreel("recover", tmp_path / "t.parquet")
    trace = open_trace(tmp_path / "t.parquet")
    assert sectors(trace)[-100:] == list(range(20_000, 20_100))
    assert trace.rows + trace.metadata["ring"]["dropped_rows"] == count + 100
    assert trace.metadata["source_format"].startswith("bpf:")


def test_a_file_system_that_frees_no_heads_is_refused(blkreel, loop_drive, tmp_path, program):
    image_drive, mount = loop_drive(64 << 20), tmp_path / "fat"
    if subprocess.run([program("mkfs.vfat", "dosfstools"), image_drive], capture_output=True).returncode:
        pytest.skip("needs mkfs.vfat")
    mount.mkdir()
    if subprocess.run(["mount", "-t", "vfat", image_drive, mount], capture_output=True).returncode:
        pytest.skip("needs a kernel with the FAT file system")
    try:
        result = blkreel("capture", loop_drive(), "-o", mount / "t.parquet", "--keep", "1min", "--", "true",
                         check=False)
        assert result.returncode == 1 and "cannot free" in result.stderr and "ext4" in result.stderr
        assert list(mount.iterdir()) == []
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_ring_too_small_is_refused(blkreel, loop_drive, tmp_path):
    result = blkreel("capture", loop_drive(), "-o", tmp_path / "t.parquet", "--max-size", "1K", check=False)
    assert result.returncode == 2 and "--max-size 64K" in result.stderr
