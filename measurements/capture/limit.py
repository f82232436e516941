#!/usr/bin/env python3
"""Cost of a capture whose workload is in a control group with a limit of block I/O, which never delays it.

    sudo .venv/bin/python -m measurements.capture.limit /dev/loop0

Where the kernel allows it, a program runs at each call of the limiter (`limiter` of `blkreel-capture --probe`);
elsewhere the group of each I/O is looked up. The figures are those of cost.py: fio's rate in slots with
the programs attached over that in the slots around them, in one run; once within the group, and once outside.
"""

import argparse
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

from measurements.capture import cost, peers
from measurements.lab import machine

LIMIT = 1_000_000_000  # I/Os per second
DEPTH = 32
# Under emulation everything takes longer.
peers.START_TIMEOUT_S, peers.PAUSE_TIMEOUT_S = 300, 30


@contextmanager
def limited_group(drive):
    """A control group of either version with a limit for this drive; yields its directory."""
    device = Path(drive).stat().st_rdev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, root, kind, options = line.split()[:4]
        if kind == "cgroup" and "blkio" in options.split(","):
            limit, text = "blkio.throttle.read_iops_device", f"{number} {LIMIT}"
        elif kind == "cgroup2" and "io" in Path(root, "cgroup.controllers").read_text().split():
            Path(root, "cgroup.subtree_control").write_text("+io")
            limit, text = "io.max", f"{number} riops={LIMIT}"
        else:
            continue
        group = Path(root, "blkreel-bench")
        group.mkdir()
        try:
            (group / limit).write_text(text)
            yield group
        finally:
            (Path(root) / "cgroup.procs").write_text(str(os.getpid()))
            group.rmdir()
        return
    raise SystemExit("no control group has the controller of block I/O: boot without cgroup_disable=io")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drive", help="it is only read")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of slots")
    parser.add_argument("--slot", type=float, default=0.15, help="seconds of a slot")
    options = parser.parse_args(namespace=argparse.Namespace(method="slots"))
    print(f"{machine()}; {options.pairs} pairs of slots of {options.slot} s\n")
    with limited_group(options.drive) as group, tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for name, procs in (("outside", group.parent / "cgroup.procs"), ("in the group", group / "cgroup.procs")) * 2:
            procs.write_text(str(os.getpid()))
            peer = peers.Blkreel("blkreel", "--pid", "1")
            pairs = cost.slots(peer, options.drive, directory, options, DEPTH)
            print(f"{name}: fio's IOPS {cost.spread(cost.throughput_ratios(pairs), '.3f')}, "
                  f"processor time per I/O {cost.spread(cost.cpu_ratios(pairs), '.3f')}", flush=True)


if __name__ == "__main__":
    main()
