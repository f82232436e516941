"""A drive that is in use while it is captured."""

import subprocess
from pathlib import Path

import pytest
from waiting import wait_until


@pytest.fixture(autouse=True, scope="session")
def mounted(tracefs):
    """For ftrace and bpftrace, whatever ran before."""


@pytest.fixture
def busy(loop_drive, program):
    """A drive that fio reads from until the test ends. It sleeps in between: with a rate it would spin."""
    drive = loop_drive(64 << 20)
    reader = subprocess.Popen([program("fio"), "--name=busy", f"--filename={drive}", "--direct=1", "--rw=randread",
                               "--bs=4k", "--ioengine=psync", "--thinktime=1ms", "--time_based", "--runtime=600",
                               "--thread"], stdout=subprocess.DEVNULL)
    stat = Path("/sys/block", Path(drive).name, "stat")
    wait_until(lambda: int(stat.read_text().split()[0]) > 100)
    yield drive
    reader.kill()
    reader.wait()
