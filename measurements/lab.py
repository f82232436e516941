"""Common parts of the benchmarks: scratch drives, machine description, tables of medians and spread."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from blkreel.traces.format.schema import OPS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "samples"))


@contextmanager
def loop_drive(size_bytes, directory="/dev/shm"):
    """A loop drive with direct I/O on an image full of data, in memory. It is always detached and removed."""
    if os.geteuid() != 0:
        raise SystemExit("cannot create a loop drive: not root; run it with sudo")
    image = tempfile.NamedTemporaryFile(dir=directory, prefix="blkreel-bench-", suffix=".img")  # noqa: SIM115
    drive = None
    try:
        # Filled with data: reads of holes are cheaper for the file system of the image.
        chunk = os.urandom(1 << 20)
        for _ in range(size_bytes // len(chunk)):
            image.write(chunk)
        image.flush()
        drive = run("losetup", "--find", "--show", "--direct-io=on", image.name).strip()
        yield drive
    finally:
        if drive:
            run("losetup", "--detach", drive)
        image.close()


@contextmanager
def zram_drive(size_bytes):
    """A zram drive full of data: bio-based, and each I/O completes within its submission."""
    control = Path("/sys/class/zram-control")
    try:
        number = (control / "hot_add").read_text().strip()
    except OSError as error:
        raise SystemExit(f"cannot create a zram drive: {error.strerror}; sudo modprobe zram, run with sudo") from None
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size_bytes))
        drive = f"/dev/zram{number}"
        chunk = os.urandom(1 << 20)
        with open(drive, "wb", buffering=0) as file:
            for _ in range(size_bytes // len(chunk)):
                file.write(chunk)
            os.fsync(file.fileno())
        yield drive
    finally:
        for _ in range(100):
            try:
                (control / "hot_remove").write_text(number)
                break
            except OSError:
                time.sleep(0.1)  # its last user is still being released


# Words before the command of an emulated drive, whose answers then come before all other work. Its command inherits the
# priority until it calls as_a_program().
SERVER_FIRST = ("chrt", "--rr", "3")


@contextmanager
def as_a_program():
    """The block runs behind the drive and the kernel's workers of its loop device.

    At an ordinary priority: the kernel throttles real-time threads that take all processors, those of the drive among
    them. Of the answers to a data scan 49 % were late with a real-time priority, 24 % without (single runs).
    """
    from recording.scratch import kernel_workers_before_others

    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with kernel_workers_before_others():
        yield


def warm_memory():
    """A block in which programs get memory that a virtual machine has not returned to its host: an emulated drive waits
    for such memory when it copies data there (docs/emulate.md)."""
    from recording.warm_memory import warm_memory

    return warm_memory()


def busy_s():
    """Processor time of the machine since boot, in seconds."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    # user nice system idle iowait irq softirq: idle, I/O wait and steal time are excluded.
    return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def run(*words, **options):
    """The output of a program. Exits with its error output on failure."""
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if result.returncode:
        raise SystemExit(f"{words[0]} failed: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def need(*programs):
    for reason in lacking(*programs):
        raise SystemExit(reason)


def lacking(*programs):
    """A line for each program that is not installed. programs: (program, package)."""
    return [f"{program} not found; apt-get install {package}" for program, package in programs
            if not any(Path(place, program).exists() for place in os.get_exec_path() + ["/usr/sbin", "/sbin"])]


def print_table(title, columns, rows):
    """rows: name to a list of tuples, one per repetition. Prints median [smallest .. largest] of each column."""
    print(f"\n{title}")
    width = max(map(len, rows))
    print(" " * width, *(f"{name:>30}" for name, _ in columns))
    for name, values in rows.items():
        cells = []
        for (_, form), column in zip(columns, zip(*values, strict=True), strict=True):
            cells.append(f"{form(statistics.median(column))} [{form(min(column))} .. {form(max(column))}]")
        print(f"{name:<{width}}", *(f"{cell:>30}" for cell in cells))


def machine():
    """One line about the machine."""
    return f"{os.cpu_count()} processors, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}"


def read_figures(op, submit_ns, latency_ns):
    """Of the completed reads: p50_us and p99_us of their latency, mean_depth while any is in flight, and the most that
    are. None without any."""
    done = (op == OPS["read"]) & (latency_ns >= 0)
    if not done.any():
        return None
    submit_ns, latency_ns = submit_ns[done], latency_ns[done]
    at_ns = np.concatenate([submit_ns + latency_ns, submit_ns])
    order = np.argsort(at_ns, kind="stable")
    depth = np.repeat([-1, 1], len(submit_ns))[order].cumsum()[:-1]
    lasts_ns = np.diff(at_ns[order])
    p50_ns, p99_ns = np.quantile(latency_ns, (0.5, 0.99))
    return {"p50_us": float(p50_ns / 1e3), "p99_us": float(p99_ns / 1e3), "most": int(depth.max()),
            "mean_depth": float((depth * lasts_ns).sum() / lasts_ns[depth > 0].sum())}
