"""The replay helper has privileges only until its targets are open, and can do little else than its run."""

import os
from pathlib import Path

import numpy as np
import pytest
from helpers import helpers_of
from small_trace import new_trace
from waiting import wait_until

from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS

pytestmark = pytest.mark.kernel

MIB = 1 << 20
CAP_IPC_LOCK, CAP_SYS_NICE = 1 << 14, 1 << 23
ISSUING = CAP_IPC_LOCK | CAP_SYS_NICE
NOBODY = 65534


@pytest.fixture
def trace(tmp_path):
    """Of all operations, for three seconds, on a drive of 32 MiB."""
    count = 3000
    return new_trace(tmp_path / "t.parquet", drive_bytes=32 * MIB, submit_ns=np.arange(count) * 10**6, latency_ns=1000,
                     offset_bytes=np.arange(count) * 4096 % (32 * MIB),
                     op=np.resize([OPS[name] for name in ("write", "read", "discard", "write_zeroes")], count))


def statuses_of(pid):
    """Of its threads, as those of /proc/PID/status; a thread that has ended has none."""
    statuses = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue
        statuses.append(dict(line.split(":\t", 1) for line in lines if ":\t" in line))
    # Threads of the kernel, which execute system calls of the others.
    return [status for status in statuses if not status["Name"].startswith("iou-")]


def confined_statuses(pid):
    statuses = statuses_of(pid)
    return statuses if all(status["Seccomp"] == "2" for status in statuses) else []


@pytest.fixture(params=["drive", "file", "nil:32M"])
def target(request, loop_drive, tmp_path):
    if request.param == "drive":
        return loop_drive(32 * MIB)
    if request.param == "file":
        (tmp_path / "image").write_bytes(bytes(32 * MIB))
        return tmp_path / "image"
    return request.param


def test_a_helper_that_issues_can_do_nothing_else(blkreel, trace, target, tmp_path):
    run = tmp_path / "run"
    process = blkreel.start("replay", trace, "--on", target, "-o", run)
    try:
        statuses = []

        def confined():
            # The helper of a prefill may end at any moment; all are confined alike.
            statuses[:] = next(filter(None, map(confined_statuses, helpers_of(process.pid))), [])
            return statuses

        wait_until(confined, process)
        left = [int(status["CapPrm"], 16) for status in statuses]
        assert sorted(left) == [0] * (len(left) - 1) + [ISSUING], "one thread issues"
        for status in statuses:
            assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(NOBODY)}
            assert not status["Groups"].strip() and status["NoNewPrivs"] == "1"
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16)
            assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == int(status["CapBnd"], 16) == 0
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode in (0, 3), err
    recorded = open_trace(run)
    assert recorded.rows == 3000 and recorded.metadata["run"]["error_ops"] == 0
    for path in [run, *run.rglob("*")]:
        assert path.stat().st_uid == os.geteuid(), "files belong to who started the replay"
