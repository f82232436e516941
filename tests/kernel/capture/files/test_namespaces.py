"""A capture in namespaces: right, or refused before the command starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from capture_sources import assert_recorded, skip_unless_it_runs
from waiting import wait_until

from blkreel.capture.sources import SOURCES
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

pytestmark = pytest.mark.kernel

PID = ["unshare", "--pid", "--fork", "--mount-proc"]
TIME = ["unshare", "--time", "--monotonic", "86400"]
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
# The process of each read is known by its offset: those of others begin here.
OTHERS = 20_000
READER = """
import mmap, os, sys, time
drive, page = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
while True:
    os.preadv(drive, [page], 4096 * {block})
    time.sleep(0.01)
"""


@pytest.fixture
def inside(blkreel, require_root):
    """inside(unshare, "capture", ...) runs the command in new namespaces, or skips. before: shell commands."""
    def run(unshare, *words, before=":", check=False):
        if subprocess.run([*unshare, "true"], capture_output=True).returncode:
            pytest.skip("needs the namespace in the kernel, and util-linux 2.36")
        result = subprocess.run([*unshare, "sh", "-c", f'{before}\nexec "$@"', "sh", blkreel.command, *map(str, words)],
                                env=blkreel.environment, capture_output=True, text=True, timeout=300)
        if check:
            assert_recorded(result.returncode, result.stderr)
        return result

    return run


@pytest.fixture
def outer_reader(require_root):
    """outer_reader(drive) reads a block of the drive again and again, outside of the namespaces: its process."""
    readers = []

    def start(drive, block=OTHERS // 8):
        readers.append(subprocess.Popen([sys.executable, "-c", READER.format(block=block), drive]))
        stat = Path("/sys/block", Path(drive).name, "stat")
        before = int(stat.read_text().split()[0])
        wait_until(lambda: int(stat.read_text().split()[0]) > before + 5, readers[-1])
        return readers[-1]

    yield start
    for reader in readers:
        reader.kill()
        reader.wait()


def dd(drive, count, skip=0):
    return f"dd if={drive} of=/dev/null bs=512 count={count} skip={skip} iflag=direct status=none"


@pytest.mark.parametrize("unshare", [PID, [*PID, *PID]], ids=["one", "nested"])
def test_the_workload_of_a_command_in_a_pid_namespace(inside, loop_drive, outer_reader, tmp_path, unshare):
    drive = loop_drive()
    outer_reader(drive)
    inside(unshare, "capture", drive, "-o", tmp_path / "t.parquet", "--", "sh", "-c",
           f"{dd(drive, 300)}; sh -c '{dd(drive, 100, skip=300)}; sleep 0.2'", check=True)
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    rows["own"] = rows["flags"] & FLAGS["own"] != 0
    assert sorted(rows[rows.own].offset_bytes // 512) == list(range(400))
    assert set(rows[~rows.own].offset_bytes // 512) == {OTHERS}


def test_the_workload_of_a_process_in_a_pid_namespace(inside, loop_drive, outer_reader, tmp_path):
    drive = loop_drive()
    outer_reader(drive)
    recording = f"while ! grep -qs epoch_ns {tmp_path}/.t.parquet.spool/metadata.json; do sleep 0.1; done"
    # A child that begins before the capture reads in it, and then its parent.
    script = f"({recording}; {dd(drive, 100)}) & wait; {dd(drive, 100, skip=100)}"
    result = inside(PID, "capture", drive, "--workload-only", "--until-exit", "--pid", "2", "--json", "-o",
                    tmp_path / "t.parquet", before=f"sh -c '{script}; true' &", check=True)
    rows = open_trace(tmp_path / "t.parquet").table().to_pandas()
    assert sorted(rows.offset_bytes // 512) == list(range(200))
    assert json.loads(result.stdout)["ledger"]["not_own"] > 0


def test_a_process_that_is_not_in_the_pid_namespace(inside, loop_drive, tmp_path):
    """/proc still shows the processes outside."""
    result = inside(["unshare", "--pid", "--fork"], "capture", loop_drive(), "--workload-only", "--pid", os.getpid(),
                    "-o", tmp_path / "t.parquet", "--for", "1s")
    assert result.returncode == 1 and f"no process {os.getpid()} in this PID namespace" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SOURCES)
def test_threads_have_their_own_names_in_a_pid_namespace(inside, loop_drive, outer_reader, tracer, tmp_path, name):
    """A process of the namespace has the number there that the reader has outside."""
    drive = loop_drive()
    skip_unless_it_runs(name, drive)
    reader = outer_reader(drive)
    if not LAST_PID.exists():
        pytest.skip("needs a kernel with CONFIG_CHECKPOINT_RESTORE")
    count_reads = f"set -- $(cat /sys/block/{Path(drive).name}/stat)"
    result = inside(PID, "capture", drive, "--source", name, "-o", tmp_path / "t.parquet", "--", "sh", "-c",
                    f"{count_reads}; n=$1; until [ $1 -gt $((n + 20)) ]; do sleep 0.1; {count_reads}; done",
                    before=f"echo {reader.pid - 1} >{LAST_PID}; sleep 600 & test $! = {reader.pid} || exit 99")
    assert result.returncode in (0, 3), result.stderr
    trace = open_trace(tmp_path / "t.parquet")
    assert set(trace.table(["tid"])["tid"].to_pylist()) == {reader.pid}
    assert trace.metadata["threads"][str(reader.pid)]["comm"] == Path(sys.executable).name


@pytest.mark.parametrize("name", SOURCES)
def test_a_command_is_not_started_with_another_clock(inside, loop_drive, tmp_path, name):
    result = inside(TIME, "capture", loop_drive(), "--source", name, "-o", tmp_path / "t.parquet", "--",
                    "touch", tmp_path / "ran")
    assert result.returncode == 1 and "86400 s from that of the kernel" in result.stderr, result.stderr
    assert "nsenter --time" in result.stderr
    assert list(tmp_path.glob("*t.parquet*")) == [] and not (tmp_path / "ran").exists()


def test_the_live_view_needs_the_clock_of_the_kernel(inside, loop_drive):
    result = inside(TIME, "top", loop_drive(), "--once")
    assert result.returncode == 1 and "86400 s" in result.stderr
