"""What the other sources of a capture need: those for machines on which our own programs may not run."""

import os
import re
import shutil
import subprocess

from blkreel.cli.check_result import Check

_OLDEST_BPFTRACE = (0, 9)
_AREA = "other sources"


def all_sources(proc, sys_root) -> list[Check]:
    return [tracefs(proc), blk_tracer(proc), debugfs(proc), blktrace(sys_root), bpftrace()]


def tracefs(proc) -> Check:
    place = _mounted(proc, "tracefs")
    if place:
        return Check(_AREA, "tracefs", "ok", place)
    return Check(_AREA, "tracefs", "note", "not mounted; the source ftrace needs it",
                 "mount -t tracefs nodev /sys/kernel/tracing")


def blk_tracer(proc) -> Check:
    place = _mounted(proc, "tracefs")
    if not place:
        return Check(_AREA, "blk tracer", "note", "unknown: tracefs is not mounted",
                     "mount -t tracefs nodev /sys/kernel/tracing")
    try:
        with open(f"{place}/available_tracers") as file:
            found = file.read().split()
    except OSError as error:
        return Check(_AREA, "blk tracer", "note", f"{place} cannot be read: {error.strerror}", "sudo blkreel doctor")
    if "blk" in found:
        return Check(_AREA, "blk tracer", "ok", "yes")
    return Check(_AREA, "blk tracer", "note", "this kernel has none; the sources ftrace and blktrace need it",
                 "boot a kernel with CONFIG_BLK_DEV_IO_TRACE=y, as in: apt-get install linux-image-amd64")


def debugfs(proc) -> Check:
    place = _mounted(proc, "debugfs")
    if place:
        return Check(_AREA, "debugfs", "ok", place)
    return Check(_AREA, "debugfs", "note", "not mounted; the source blktrace needs it",
                 "mount -t debugfs nodev /sys/kernel/debug")


def blktrace(sys_root) -> Check:
    path = _find("blktrace")
    if not path:
        return Check(_AREA, "blktrace", "note", "not installed", "apt-get install blktrace")
    try:
        locked = "[none]" not in (sys_root / "kernel/security/lockdown").read_text()
    except OSError:
        locked = False
    if locked:
        return Check(_AREA, "blktrace", "note", f"{path}; a locked-down kernel refuses its files",
                     "use --source ftrace, which gives the same events")
    return Check(_AREA, "blktrace", "ok", path)


def bpftrace() -> Check:
    path = _find("bpftrace")
    if not path:
        return Check(_AREA, "bpftrace", "note", "not installed", "apt-get install bpftrace")
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(_AREA, "bpftrace", "note", f"{path} does not run: {error}", "apt-get install --reinstall bpftrace")
    version = re.search(r"v(\d+)\.(\d+)", said)
    if version and (int(version[1]), int(version[2])) < _OLDEST_BPFTRACE:
        oldest = ".".join(map(str, _OLDEST_BPFTRACE))
        return Check(_AREA, "bpftrace", "note", f"{said} is too old: the script needs {oldest}",
                     "apt-get install bpftrace of a later release, or a build from github.com/bpftrace/bpftrace")
    return Check(_AREA, "bpftrace", "ok", said or path)


def _find(name):
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _mounted(proc, kind):
    """Where a file system of this kind is mounted, None where it is not."""
    for line in (proc / "self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == kind:
            return fields[1]
    return None
