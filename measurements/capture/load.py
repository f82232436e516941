"""fio as the load, and its rate from two readings of the drive's I/O counter, without a log."""

import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measurements.capture.accounting import kernel_threads, thread_times

WARM_UP_S = 0.5


def fio_command(drive, depth, seconds, rate=0):
    command = ["fio", "--name=bench", f"--filename={drive}", "--direct=1", "--rw=randread", "--bs=4k",
               f"--iodepth={depth}", "--ioengine=io_uring", "--time_based", f"--runtime={seconds}", "--norandommap",
               "--output-format=json"]
    return [*command, f"--rate_iops={rate}"] if rate else command


def fio(drive, depth, seconds):
    """IOPS and number of I/Os of a fio run."""
    result = subprocess.run(fio_command(drive, depth, seconds), capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"fio failed: {result.stderr.strip()}")
    read = json.loads(result.stdout)["jobs"][0]["read"]
    return read["iops"], read["total_ios"]


@contextmanager
def long_fio(drive, depth, rate=0):
    """fio in the background until the block ends; yields its process id. Exits if fio ends early."""
    process = subprocess.Popen(fio_command(drive, depth, 3600, rate), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP_S)
        yield process.pid
        if process.poll() is not None:
            raise SystemExit("fio failed: it ended early")
    finally:
        process.terminate()
        process.wait()


@dataclass
class Window:
    """I/Os of a drive in a time slot, and the processor time of the processes involved."""

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
    """Measure a slot that starts now. pids: processes whose processor time counts, in addition to the kernel threads.

    Other programs are excluded, so that other load lowers throughput but does not raise the cost. Interrupts on an
    idle processor are charged to no thread, and are missing with and without a capture.
    """
    stat = Path("/sys/block", Path(drive).name, "stat")
    before = int(stat.read_text().split()[0]), time.monotonic()
    cpu_before = thread_times([*pids, *kernel_threads()])
    time.sleep(seconds)
    cpu_after = thread_times([*pids, *kernel_threads()])
    after = int(stat.read_text().split()[0]), time.monotonic()
    cpu_ns = sum(time_ns - cpu_before.get(thread, 0) for thread, time_ns in cpu_after.items())
    return Window(after[0] - before[0], after[1] - before[1], cpu_ns)
