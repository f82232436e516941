"""Whose I/O it is: a command's, a process's, a control group's, with all that they start; and whose it is not."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from capture_sources import assert_recorded
from waiting import wait_until

from blkreel.capture.helper import probe
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS

pytestmark = pytest.mark.kernel

OTHERS, COUNT = 20_000, 300  # where the reads of others are, in sectors


def dd(drive, count=COUNT, skip=0):
    return f"dd if={drive} of=/dev/null bs=512 count={count} skip={skip} iflag=direct status=none"


def rows(path):
    frame = open_trace(path).table().to_pandas()
    frame["sector"], frame["own"] = frame.offset_bytes // 512, frame["flags"] & FLAGS["own"] != 0
    return frame


def rows_recorded(process, path):
    """The rows of a capture that ends, and is complete."""
    _, stderr = process.communicate(timeout=300)
    assert_recorded(process.returncode, stderr)
    return rows(path)


@pytest.fixture
def waiting_shell():
    """A process that reads a drive on request, by children of its own, and ends."""
    shells = []

    def start(script, prefix=()):
        shell = subprocess.Popen([*prefix, "sh", "-c", f"read line; {script}"], stdin=subprocess.PIPE, text=True)
        shells.append(shell)
        return shell

    yield start
    for shell in shells:
        shell.kill()
        shell.communicate()


def test_what_a_command_and_its_children_cause_is_marked(started, loop_drive, waiting_shell, tmp_path):
    drive, path = loop_drive(), tmp_path / "t.parquet"
    other = waiting_shell(f"{dd(drive, skip=OTHERS)}; echo done > {tmp_path}/other")
    script = (f"{dd(drive)}; (sh -c '{dd(drive, skip=COUNT)}; true') & wait;"
              f" while ! [ -e {tmp_path}/other ]; do sleep 0.05; done")
    process = started(drive, "--", "sh", "-c", script)
    other.communicate("go\n")
    frame = rows_recorded(process, path)
    assert sorted(frame[frame.own].sector) == list(range(2 * COUNT)), "from its first I/O on"
    assert sorted(frame[~frame.own].sector) == list(range(OTHERS, OTHERS + COUNT))


def test_with_own_only_others_are_counted_and_not_recorded(started, loop_drive, waiting_shell, tmp_path):
    drive, path = loop_drive(), tmp_path / "t.parquet"
    other = waiting_shell(f"{dd(drive, skip=OTHERS)}; echo done > {tmp_path}/other")
    script = f"{dd(drive)}; while ! [ -e {tmp_path}/other ]; do sleep 0.05; done"
    process = started(drive, "--workload-only", "--files", "--json", "--", "sh", "-c", script)
    other.communicate("go\n")
    stdout, stderr = process.communicate(timeout=300)
    assert_recorded(process.returncode, stderr)
    summary = json.loads(stdout)
    assert list(rows(path).sector) == list(range(COUNT))
    assert summary["ledger"]["not_own"] == COUNT and summary["diskstats"]["difference"] == 0
    metadata = open_trace(path).metadata
    assert metadata["filters"]["own_only"] is True
    tids = set(open_trace(path).table(["tid"])["tid"].to_pylist())
    assert {int(tid) for tid in metadata["threads"]} <= tids, "other processes have no names in the trace"


def test_a_process_and_its_children_are_marked_until_it_ends(started, loop_drive, waiting_shell, tmp_path):
    drive, path = loop_drive(), tmp_path / "t.parquet"
    shell = waiting_shell(f"{dd(drive)}; exit 0")
    process = started(drive, "--pid", shell.pid, "--until-exit")
    subprocess.run(dd(drive, skip=OTHERS), shell=True, check=True)
    shell.communicate("go\n")
    frame = rows_recorded(process, path)
    assert list(frame[frame.own].sector) == list(range(COUNT))
    assert list(frame[~frame.own].sector) == list(range(OTHERS, OTHERS + COUNT))
    assert open_trace(path).metadata["filters"]["pid"] == shell.pid


# Starts six children and more until `attached` exists, more and more rarely; then each reads one sector.
STARTS_CHILDREN = """
import itertools, mmap, os, time
ready, begin = os.pipe()
for sector in itertools.count():
    if sector > 5 and os.path.exists("attached"):
        break
    if not os.fork():
        os.close(begin)
        os.read(ready, 1)
        drive = os.open("drive", os.O_RDONLY | os.O_DIRECT)
        os.preadv(drive, [mmap.mmap(-1, 512)], sector * 512)
        os._exit(0)
    time.sleep(0.03 * 1.05 ** sector)
os.close(begin)
for _ in range(sector):
    os.wait()
"""


def test_children_that_start_while_the_programs_are_attached_are_marked(started, loop_drive, tmp_path):
    drive, path = loop_drive(), tmp_path / "t.parquet"
    (tmp_path / "drive").symlink_to(drive)
    parent = subprocess.Popen([sys.executable, "-c", STARTS_CHILDREN], cwd=tmp_path)
    try:
        process = started(drive, "--pid", parent.pid, "--workload-only", "--until-exit")
    finally:
        (tmp_path / "attached").touch()
        parent.wait(300)
    frame = rows_recorded(process, path)
    assert frame.own.all() and sorted(frame.sector) == list(range(len(frame))) and len(frame) > 5
    assert open_trace(path).metadata["ledger"]["not_own"] == 0


@pytest.fixture
def control_group(require_root):
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if root is None:
        pytest.skip("needs cgroup v2: mount -t cgroup2 none /sys/fs/cgroup")
    directory = root / f"blkreel-test-{time.monotonic_ns()}"
    directory.mkdir()
    yield directory
    wait_until(lambda: not (directory / "cgroup.procs").read_text())
    directory.rmdir()


def test_a_control_group_is_marked(started, loop_drive, waiting_shell, control_group, tmp_path):
    drive, path = loop_drive(), tmp_path / "t.parquet"
    shell = waiting_shell(f"{dd(drive)}; exit 0")
    (control_group / "cgroup.procs").write_text(str(shell.pid))
    process = started(drive, "--cgroup", control_group.name)
    shell.communicate("go\n")
    subprocess.run(dd(drive, skip=OTHERS), shell=True, check=True)
    process.send_signal(signal.SIGINT)
    frame = rows_recorded(process, path)
    assert list(frame[frame.own].sector) == list(range(COUNT))
    assert list(frame[~frame.own].sector) == list(range(OTHERS, OTHERS + COUNT))


@pytest.mark.parametrize("replaced", [True, False])
def test_a_control_group_that_is_created_again_is_another_one(started, loop_drive, control_group, tmp_path, replaced):
    """As of a service that restarts: its I/O would silently be missing from the workload."""
    directory = control_group / "service"
    directory.mkdir()
    process = started(loop_drive(), "--cgroup", directory)
    directory.rmdir()
    if replaced:
        directory.mkdir()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    if replaced:
        directory.rmdir()
    assert process.returncode == (3 if replaced else 0), stderr
    assert ("was removed and created again" in stderr) == replaced
    warnings = open_trace(tmp_path / "t.parquet").metadata.get("import_warnings")
    assert bool(warnings) == replaced


@pytest.mark.parametrize("words, text", [
    (["--workload-only"], "no workload to record"),
    (["--until-exit"], "add --pid"),
    (["--pid", "1", "--", "true"], "give one of them"),
    (["--pid", "4194303"], "no such process"),
    (["--cgroup", "/blkreel/nothing"], "control group"),
])
def test_what_cannot_be_meant_is_refused(blkreel, loop_drive, tmp_path, words, text):
    assert text in blkreel("capture", loop_drive(), "-o", tmp_path / "t.parquet", *words, code=2).stderr
    assert list(tmp_path.glob("*t.parquet*")) == []


@pytest.fixture
def limited_group(require_root):
    """limited_group(drive, ios_per_second): a control group with this limit of reads and writes, of either version."""
    groups = []

    def make(drive, ios_per_second):
        device = Path(drive).stat().st_rdev
        number, name = f"{os.major(device)}:{os.minor(device)}", f"blkreel-test-{time.monotonic_ns()}"
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, root, kind, options = line.split()[:4]
            if kind == "cgroup" and "blkio" in options.split(","):
                limits = {f"blkio.throttle.{op}_iops_device": f"{number} {ios_per_second}" for op in ("read", "write")}
            elif kind == "cgroup2" and "io" in Path(root, "cgroup.controllers").read_text().split():
                Path(root, "cgroup.subtree_control").write_text("+io")
                limits = {"io.max": f"{number} riops={ios_per_second} wiops={ios_per_second}"}
            else:
                continue
            groups.append(Path(root, name))
            groups[-1].mkdir()
            for limit, text in limits.items():
                (groups[-1] / limit).write_text(text)
            return groups[-1]
        return pytest.skip("needs the controller of block I/O")

    yield make
    for group in groups:
        wait_until(lambda group=group: not (group / "cgroup.procs").read_text())
        group.rmdir()


@contextmanager
def within(group):
    """What this process starts meanwhile is in the control group."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))


def test_a_capture_in_a_control_group_with_a_limit(blkreel, loop_drive, limited_group, tmp_path):
    """The trace names the limit; the wait for it is not in the latency of the drive."""
    drive, path = loop_drive(), tmp_path / "t.parquet"
    with within(limited_group(drive, 20)):
        # stdin: no fork of the session's server, which is in no group.
        blkreel("capture", drive, "--workload-only", "-o", path, "--", "dd", "if=/dev/zero", f"of={drive}", "bs=4k",
                "count=20", "oflag=direct", "status=none", stdin=subprocess.DEVNULL)
    assert open_trace(path).metadata["devices"][0]["io_max"] == {"riops": 20, "wiops": 20}
    frame = rows(path)
    assert len(frame) == 20 and frame.own.all()
    assert np.median(frame.latency_ns) < 10_000_000
    if probe()["limiter"]:  # else the kernel attaches no program to a function
        assert (frame.queue_ns > 20_000_000).sum() >= 5


@pytest.mark.parametrize("reader", ["buffered", "direct", "asynchronous", "split"])
def test_throttled_io_is_of_its_issuer(blkreel, loop_drive, limited_group, program, tmp_path, reader):
    """A kernel worker gives it to the drive."""
    drive = loop_drive()
    # The limit is the longest wait of the two that read one at a time, however slow the machine is.
    group = limited_group(drive, 20 if reader in ("buffered", "direct") else 400)
    words = {"buffered": f"dd if={drive} of=/dev/null bs=4k count=4000 status=none",
             "direct": f"dd if={drive} of=/dev/null bs=4k count=40 iflag=direct status=none",
             # Each part that is split off passes the limiter again.
             "split": f"dd if={drive} of=/dev/null bs=8M count=4 iflag=direct status=none",
             "asynchronous": f"{program('fio')} --name=r --filename={drive} --rw=randread --bs=4k --direct=1 "
                             "--ioengine=libaio --iodepth=16 --number_ios=300 --output=/dev/null"}[reader]
    blkreel("capture", drive, "--workload-only", "-o", tmp_path / "t.parquet", "--",
            "sh", "-c", f"echo $$ > {group}/cgroup.procs; {words}")
    trace = open_trace(tmp_path / "t.parquet")
    frame = rows(tmp_path / "t.parquet")
    assert trace.metadata["ledger"]["not_own"] == 0
    assert frame.own.all() and len(frame) >= 15
    if not probe()["limiter"]:
        return  # the kernel attaches no program to a function: the thread is the worker
    names = {entry["comm"] for tid, entry in trace.metadata["threads"].items() if int(tid) in set(frame.tid)}
    assert names <= {"dd", "fio", "sh"}
    # The wait for the limit is part of the time in the block layer.
    assert (frame.queue_ns > 1_000_000).sum() > 0


def test_throttled_io_of_others_is_not_of_the_workload(started, loop_drive, limited_group, waiting_shell, tmp_path):
    drive, path = loop_drive(), tmp_path / "t.parquet"
    group = limited_group(drive, 400)
    other = waiting_shell(f"echo $$ > {group}/cgroup.procs; {dd(drive, skip=OTHERS)}; echo done > {tmp_path}/other")
    process = started(drive, "--", "sh", "-c", f"{dd(drive)}; while ! [ -e {tmp_path}/other ]; do sleep 0.05; done")
    other.communicate("go\n")
    frame = rows_recorded(process, path)
    assert sorted(frame[frame.own].sector) == list(range(COUNT))
    assert len(frame) == 2 * COUNT
