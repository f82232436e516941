"""Names of threads and cgroups are resolved beside the recording, and never at its cost."""

import ctypes
import os
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait_until

from blkreel.capture.helper import Helper
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.spool.spool import Spool

pytestmark = pytest.mark.kernel

OTHER_CGROUPS, NEW_CGROUPS = 5_000, 300
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000
# More rows than the 32 blocks between the drain and the writer hold: 32 * 16,384 rows of 69 bytes.
BLOCKS_BYTES = 32 * 16_384 * 69


@pytest.fixture
def cgroups():
    """An empty control group (v2), which is removed with all below it."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroup v2 hierarchy is mounted")
    top = root / f"blkreel-test-{os.getpid()}"
    try:
        top.mkdir()
    except OSError as error:
        pytest.skip(f"{root} is not writable: {error.strerror}")
    yield top
    for directory, _, _ in os.walk(top, topdown=False):
        wait_until(lambda path=directory: removed(path))


def removed(directory):
    """A control group is busy until its last process has been reaped."""
    try:
        Path(directory).rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def start(loop_drive, tmp_path):
    """Start a capture with synthetic records: the drive, its spool and its helper, attached."""
    def run(per_second):
        drive, attached = loop_drive(), threading.Event()
        number = Path(f"/sys/block/{Path(drive).name}/dev").read_text().strip()
        spool = Spool(tmp_path / "t.parquet", TRACE_SCHEMA, {})
        # The ring holds 8 seconds of records, so that a busy machine loses none.
        helper = Helper(["--device", number, "--ring-bytes", str(64 << 20), "--synthetic", str(per_second),
                         "--synthetic-count", str(1 << 40)], spool, attached.set)
        assert attached.wait(300) and helper.attached, helper.error
        return drive, spool, helper

    return run


def read_once(drive, cgroup):
    """One read of 4 KiB by a process of this cgroup. Returns its pid."""
    process = subprocess.Popen(["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec dd if="$1" of=/dev/null bs=4k count=1 '
                                'iflag=direct status=none', cgroup, drive])
    assert process.wait() == 0
    return process.pid


def cgroups_of(spool):
    """{tid: path of its cgroup} of a finished capture."""
    threads = open_trace(spool.finish({})).metadata["threads"]
    return {int(tid): entry.get("cgroup") for tid, entry in threads.items()}


def test_hundreds_of_new_cgroups_among_thousands_lose_no_event(cgroups, start):
    for number in range(OTHER_CGROUPS):
        (cgroups / f"other-{number}").mkdir()
    drive, spool, helper = start(100_000)
    path_of = {}
    for number in range(NEW_CGROUPS):
        (cgroups / f"new-{number}").mkdir()
        path_of[read_once(drive, cgroups / f"new-{number}")] = f"/{cgroups.name}/new-{number}"
    helper.stop()
    assert helper.end, helper.error
    assert helper.end["lost"]["total"] == 0
    assert helper.end["events"] >= helper.end["emitted"] + NEW_CGROUPS
    found = cgroups_of(spool)
    assert {tid: found.get(tid) for tid in path_of} == path_of


@contextmanager
def stopped(tid):
    """Stop one thread of a process, as a debugger does."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(PTRACE_SEIZE, tid, None, None):
        pytest.skip(f"cannot stop a thread: {os.strerror(ctypes.get_errno())}")
    assert not ptrace(PTRACE_INTERRUPT, tid, None, None)
    os.waitpid(tid, WALL)
    yield
    assert not ptrace(PTRACE_DETACH, tid, None, None)


def test_rows_are_written_while_names_wait(cgroups, start):
    """With the thread that resolves names stopped, more rows are written than the helper can buffer."""
    drive, spool, helper = start(200_000)
    tasks = Path(f"/proc/{helper.process.pid}/task")
    resolver = next(int(task.name) for task in tasks.iterdir() if (task / "comm").read_text() == "names\n")
    (cgroups / "waiting").mkdir()
    with stopped(resolver):
        tid = read_once(drive, cgroups / "waiting")
        begin = spool.written_bytes()
        wait_until(lambda: helper.end or helper.error or spool.written_bytes() - begin > BLOCKS_BYTES)
        assert not helper.end and not helper.error
    helper.stop()
    assert helper.end and helper.end["lost"]["total"] == 0
    assert cgroups_of(spool)[tid] == f"/{cgroups.name}/waiting"
