"""fio as the load, and the drive's own counter of what it did: read it twice, and the rate between needs no log."""

import json
import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WARM_UP_S = 0.5


def fio_command(drive, depth, seconds, rate=0):
    command = ["fio", "--name=bench", f"--filename={drive}", "--direct=1", "--rw=randread", "--bs=4k",
               f"--iodepth={depth}", "--ioengine=io_uring", "--time_based", f"--runtime={seconds}", "--norandommap",
               "--output-format=json"]
    return [*command, f"--rate_iops={rate}"] if rate else command


def fio(drive, depth, seconds):
    """fio's I/Os per second and their number."""
    result = subprocess.run(fio_command(drive, depth, seconds), capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"fio failed: {result.stderr.strip()}")
    read = json.loads(result.stdout)["jobs"][0]["read"]
    return read["iops"], read["total_ios"]


@contextmanager
def long_fio(drive, depth, rate=0):
    """fio in the background until the block ends: it must live till then."""
    process = subprocess.Popen(fio_command(drive, depth, 3600, rate), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP_S)
        if process.poll() is not None:
            raise SystemExit("fio ended at once")
        yield
        if process.poll() is not None:
            raise SystemExit("fio ended early")
    finally:
        process.terminate()
        process.wait()


@dataclass
class Window:
    """What happened on a drive and on all processors in a slot of time."""

    ios: int
    seconds: float
    busy_ns: float

    @property
    def iops(self):
        return self.ios / self.seconds

    @property
    def cpu_ns_per_io(self):
        return self.busy_ns / max(self.ios, 1)


def watch(drive, seconds):
    stat = Path("/sys/block", Path(drive).name, "stat")
    before = _now(stat)
    time.sleep(seconds)
    after = _now(stat)
    ios, elapsed, idle_ns = (b - a for a, b in zip(before, after, strict=True))
    return Window(ios, elapsed, elapsed * 1e9 * os.cpu_count() - idle_ns)


def _now(stat):
    idle, waiting = Path("/proc/stat").read_text().split(maxsplit=6)[4:6]
    idle_ns = (int(idle) + int(waiting)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return int(stat.read_text().split()[0]), time.monotonic(), idle_ns
