"""Blocks of a drive's next owner that writes of an ended command destroy: none may be lost.

A loop device is limited to 50 kB/s of writes. `precondition` or `replay` on it is ended by Ctrl-C, SIGTERM, SIGKILL of
its helper, or the loss of its terminal. From then on another program tries to open the drive exclusively; the limit is
lifted after two seconds. When it has the drive, it writes every block, and counts those that differ one second later.
Needs root and the controller of block I/O (v1 or v2).

    sudo .venv/bin/python -m measurements.replay.late_writes --times 20
"""

import argparse
import fcntl
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

TREE = Path(__file__).parents[2]
sys.path[:0] = [str(TREE / "tests/support"), str(TREE / "tests/support/services")]

from loop_device import attach_loop, detach_loop  # noqa: E402

BLKREEL = Path(sys.executable).with_name("blkreel")
SIZE, BLOCK = 16 << 20, 4096
LIMIT_BYTES_S, LIMITED_S, LEFT_S = 50_000, 2.0, 60.0
FEW_WRITES = 2  # done before the end: then others wait for the limit
ENDS = ("Ctrl-C", "SIGTERM", "SIGKILL of the helper", "lost terminal")


def limited_group(stack, drive):
    """(directory of a control group, function that sets its limit in bytes/s, 0 for none)."""
    device = Path(drive).stat().st_rdev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, root, kind, options = line.split()[:4]
        if kind == "cgroup" and "blkio" in options.split(","):
            name, text = "blkio.throttle.write_bps_device", "{number} {limit}"
        elif kind == "cgroup2" and "io" in Path(root, "cgroup.controllers").read_text().split():
            Path(root, "cgroup.subtree_control").write_text("+io")
            name, text = "io.max", "{number} wbps={limit}"
        else:
            continue
        group = Path(root, f"blkreel-bench-{os.getpid()}")
        group.mkdir()
        stack.callback(group.rmdir)
        return group, partial(set_limit, group / name, text, number, 0 if kind == "cgroup" else "max")
    raise SystemExit("needs the controller of block I/O: mount -t cgroup -o blkio none /sys/fs/cgroup/blkio")


def set_limit(file, text, number, none, limit):
    file.write_text(text.format(number=number, limit=limit or none))


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def writes_done(drive):
    return int(Path("/sys/block", Path(drive).name, "stat").read_text().split()[4])


def helper_of(process):
    """The process id of the helper that issues I/O, which is named blkreel-replay."""
    deadline = time.monotonic() + LEFT_S
    while time.monotonic() < deadline and process.poll() is None:
        for child in children_of(process.pid):
            if Path(f"/proc/{child}/comm").read_text().startswith("blkreel-replay"):
                return child
        time.sleep(0.02)
    raise SystemExit("the command issued no I/O")


class Command:
    """A command in the limited group, on a terminal of its own."""

    def __init__(self, words, drive, group, log, environment):
        self.master, slave = pty.openpty()

        def enter():
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            (group / "cgroup.procs").write_text("0")

        before = writes_done(drive)
        with open(log, "wb") as file:
            self.process = subprocess.Popen([BLKREEL, *words], stdin=slave, stdout=file, stderr=file,
                                            env=environment, preexec_fn=enter)
        os.close(slave)
        self.helper = helper_of(self.process)
        while writes_done(drive) < before + FEW_WRITES and self.process.poll() is None:
            time.sleep(0.02)

    def end(self, how):
        if how == "lost terminal":
            os.close(self.master)
            self.master = None
        elif how == "SIGKILL of the helper":
            os.kill(self.helper, signal.SIGKILL)
        else:
            self.process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)

    def close(self):
        self.process.wait(timeout=LEFT_S)
        if self.master is not None:
            os.close(self.master)


def exclusive(drive):
    """A descriptor of the drive for its next owner; None while it is claimed."""
    try:
        return os.open(drive, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError:
        return None


def end_once(words, how, drive, image, group, limit, scratch, environment):
    """(whether the drive could be opened while writes were limited, blocks lost)."""
    limit(LIMIT_BYTES_S)
    command = Command(words, drive, group, scratch / "log", environment)
    command.end(how)
    begun, early, descriptor = time.monotonic(), False, None
    while descriptor is None:
        if time.monotonic() - begun > LIMITED_S:
            limit(0)
        if time.monotonic() - begun > LEFT_S:
            raise SystemExit(f"the drive is still claimed {LEFT_S:.0f} s after {how}: {(scratch / 'log').read_text()}")
        descriptor = exclusive(drive)
        early = early or descriptor is not None and time.monotonic() - begun < LIMITED_S
        time.sleep(0.01)
    pattern = b"owner's!" * (BLOCK // 8)
    with open(descriptor, "wb", buffering=0) as file:
        for _ in range(SIZE // (1 << 20)):
            file.write(pattern * ((1 << 20) // BLOCK))
        os.fsync(file.fileno())
        limit(0)
        time.sleep(1.0)
    command.close()
    content = image.read_bytes()
    return early, sum(content[at:at + BLOCK] != pattern for at in range(0, SIZE, BLOCK))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--end", choices=ENDS, action="append", help="Only this end. Repeatable.")
    options = parser.parse_args()
    times = options.times
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        image = scratch / "image"
        image.write_bytes(bytes(SIZE))
        drive = attach_loop(image, "--direct-io=off")
        stack.callback(detach_loop, drive)
        group, limit = limited_group(stack, drive)
        environment = {**os.environ, "BLKREEL_STATE_DIR": str(scratch / "state")}
        trace = scratch / "t.parquet"
        subprocess.run([sys.executable, "-c", TRACE, trace], check=True)
        verbs = {"precondition": ["precondition", drive, "--state", "full", "--erase", "none"],
                 "replay": ["replay", trace, "--on", drive, "--no-prefill", "--force", "-o", scratch / "run"]}
        print(f"{'end':<22} {'command':<13} times  opened before the limit was lifted  blocks lost")
        for how in options.end or ENDS:
            for verb, words in verbs.items():
                count = (times + 1) // 2 if verb == "precondition" else times // 2
                results = [end_once(words, how, drive, image, group, limit, scratch, environment) for _ in range(count)]
                print(f"{how:<22} {verb:<13} {count:>5}  {sum(early for early, _ in results):>34}"
                      f"  {sum(lost for _, lost in results):>11}", flush=True)


# Writes of 4 KiB, 1000 a second, for two minutes.
TRACE = """
import sys
import numpy as np
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.writer import TraceWriter
count = 120_000
with TraceWriter(sys.argv[1]) as out:
    out.write({"submit_ns": np.arange(count) * 10**6, "latency_ns": np.full(count, 100),
               "offset_bytes": np.arange(count) * 4096 % (16 << 20), "length_bytes": np.full(count, 4096),
               "op": np.full(count, OPS["write"])})
    out.close({"devices": [{"name": "src", "size_bytes": 16 << 20}]})
"""

if __name__ == "__main__":
    main()
