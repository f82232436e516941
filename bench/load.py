"""fio as the load, and the drive's own counter of what it did: read it twice, and the rate between needs no log."""

import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accounting import kernel_threads, thread_times

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
    """fio in the background until the block ends; its process id. It must live till then."""
    process = subprocess.Popen(fio_command(drive, depth, 3600, rate), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP_S)
        yield process.pid
        if process.poll() is not None:
            raise SystemExit("fio ended early")
    finally:
        process.terminate()
        process.wait()


@dataclass
class Window:
    """What happened on a drive in a slot of time, and the processor time of those who had to do with it."""

    ios: int
    seconds: float
    cpu_ns: int

    @property
    def iops(self):
        return self.ios / self.seconds

    @property
    def cpu_ns_per_io(self):
        return self.cpu_ns / max(self.ios, 1)


def watch(drive, seconds, pids=()):
    """A slot from now on. pids: whose processor time counts, beside that of the kernel's own threads.

    Other programs are left out, so that a machine that is not quiet shows as lower throughput and not as cost. What
    interrupts do on an idle processor is nobody's time, and is missing with and without a capture.
    """
    stat = Path("/sys/block", Path(drive).name, "stat")
    before = int(stat.read_text().split()[0]), time.monotonic()
    cpu_before = thread_times([*pids, *kernel_threads()])
    time.sleep(seconds)
    cpu_after = thread_times([*pids, *kernel_threads()])
    after = int(stat.read_text().split()[0]), time.monotonic()
    cpu_ns = sum(time_ns - cpu_before.get(thread, 0) for thread, time_ns in cpu_after.items())
    return Window(after[0] - before[0], after[1] - before[1], cpu_ns)
