"""Requirements of the other capture sources, for machines that refuse BPF."""

import re
import subprocess
from pathlib import Path

from blkreel.common.system import find_program, mount_points, text_in

from . import Check

_OLDEST_BPFTRACE = (0, 9)
_AREA = "other sources"
_MOUNT_TRACEFS = "mount -t tracefs nodev /sys/kernel/tracing"


def all_sources(proc: Path, sys_root: Path) -> list[Check]:
    return [tracefs(proc), blk_tracer(proc), debugfs(proc), blktrace(sys_root), bpftrace()]


def tracefs(proc: Path) -> Check:
    return _mount_check(proc, "tracefs", "ftrace", _MOUNT_TRACEFS)


def blk_tracer(proc: Path) -> Check:
    mount_point = next(iter(mount_points("tracefs", proc / "self/mounts")), None)
    if not mount_point:
        return Check(_AREA, "blk tracer", "note", "unknown: tracefs is not mounted", _MOUNT_TRACEFS)
    try:
        tracers = (mount_point / "available_tracers").read_text().split()
    except OSError as error:
        return Check(_AREA, "blk tracer", "note", f"cannot read {mount_point}: {error.strerror}", "sudo blkreel doctor")
    if "blk" in tracers:
        return Check(_AREA, "blk tracer", "ok", "yes")
    return Check(_AREA, "blk tracer", "note", "not in this kernel; required by the sources ftrace and blktrace",
                 "boot a kernel with CONFIG_BLK_DEV_IO_TRACE=y: apt-get install linux-image-amd64")


def debugfs(proc: Path) -> Check:
    return _mount_check(proc, "debugfs", "blktrace", "mount -t debugfs nodev /sys/kernel/debug")


def blktrace(sys_root: Path) -> Check:
    path = find_program("blktrace")
    if not path:
        return Check(_AREA, "blktrace", "note", "not installed", "apt-get install blktrace")
    lockdown = text_in(sys_root / "kernel/security/lockdown")
    if lockdown and "[none]" not in lockdown:
        return Check(_AREA, "blktrace", "note", f"{path}; refused by kernel lockdown",
                     "use --source ftrace, which records the same events")
    return Check(_AREA, "blktrace", "ok", path)


def bpftrace() -> Check:
    path = find_program("bpftrace")
    if not path:
        return Check(_AREA, "bpftrace", "note", "not installed", "apt-get install bpftrace")
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(_AREA, "bpftrace", "note", f"{path} does not run: {error}", "apt-get install --reinstall bpftrace")
    version = re.search(r"v(\d+)\.(\d+)", output)
    if version and (int(version[1]), int(version[2])) < _OLDEST_BPFTRACE:
        oldest = ".".join(map(str, _OLDEST_BPFTRACE))
        return Check(_AREA, "bpftrace", "note", f"{output} is too old: version {oldest} or later is required",
                     "install a newer release from github.com/bpftrace/bpftrace")
    return Check(_AREA, "bpftrace", "ok", output or path)


def _mount_check(proc: Path, kind: str, source: str, remedy: str) -> Check:
    for mount_point in mount_points(kind, proc / "self/mounts"):
        return Check(_AREA, kind, "ok", str(mount_point))
    return Check(_AREA, kind, "note", f"not mounted; required by the source {source}", remedy)
