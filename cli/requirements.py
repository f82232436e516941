"""Requirements of capture and replay on this machine, for `blkreel doctor`."""

import ctypes
import errno
import os
import re
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from blkreel.capture import helper as capture_helper
from blkreel.common.command_line import AS_ROOT, PRIVILEGED
from blkreel.common.device import list_drives
from blkreel.common.errors import BlkreelError
from blkreel.common.system import find_program, integer_in, mount_points, text_in
from blkreel.common.units import format_bytes
from blkreel.replay.engine import engine
from blkreel.replay.telemetry.power.rails import processor_rails
from blkreel.replay.telemetry.sensors import hwmon
from blkreel.replay.telemetry.sensors.smart import PACKAGES

_IO_URING_SETUP = 425  # the same on every architecture
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")
# Of the capture helper (docs/capture.md). CAP_SYSLOG is needed to read kernel addresses.
CAPABILITIES = {"cap_bpf": 39, "cap_perfmon": 38, "cap_syslog": 34}
# Of the other capture sources, for machines that refuse BPF.
_OLDEST_BPFTRACE = (0, 9)
_SOURCES = "other sources"
_MOUNT_TRACEFS = "mount -t tracefs nodev /sys/kernel/tracing"


@dataclass(frozen=True)
class Check:
    """A result. status: ok, missing (required for `area`), or note (works, with a limit)."""

    area: str
    name: str
    status: Literal["ok", "missing", "note"]
    detail: str
    remedy: str = ""


def all_checks() -> list[Check]:
    """All checks, in the order in which to fix them."""
    proc, sys_root = Path("/proc"), Path("/sys")
    return [root(), privilege(), helpers(), kernel_types(sys_root), lockdown(sys_root), *bpf_programs(),
            locked_memory(), io_uring(proc), processors(), clock(sys_root), tracefs(proc), blk_tracer(proc),
            debugfs(proc), blktrace(sys_root), bpftrace(), loop_devices(), *sensors(sys_root), *programs()]


def root() -> Check:
    if os.geteuid() == 0:
        return Check("replay", "root", "ok", "yes")
    return Check("replay", "root", "missing", "not root", AS_ROOT)


def privilege() -> Check:
    """Root may lack capabilities in a container; an ordinary user may have a helper with file capabilities."""
    lacking = [name for name, number in CAPABILITIES.items() if not _has_capability(number)]
    if not lacking:
        return Check("capture", "privilege", "ok", "root" if os.geteuid() == 0 else "capabilities")
    if os.geteuid() == 0:
        return Check("capture", "privilege", "missing", f"root without {', '.join(lacking)}",
                     PRIVILEGED)
    try:
        os.getxattr(capture_helper.HELPER, "security.capability")
        return Check("capture", "privilege", "ok", "the helper has file capabilities")
    except OSError:
        return Check("capture", "privilege", "missing", "not root, and the helper has no file capabilities",
                     f"run it with sudo, or: sudo setcap {','.join(CAPABILITIES)}+ep {capture_helper.HELPER}")


def kernel_types(sys_root: Path) -> Check:
    if (sys_root / "kernel/btf/vmlinux").exists():
        return Check("capture", "kernel types", "ok", "/sys/kernel/btf/vmlinux")
    return Check("capture", "kernel types", "missing", "the kernel has no BTF",
                 "boot a kernel with CONFIG_DEBUG_INFO_BTF=y: apt-get install linux-image-amd64")


def lockdown(sys_root: Path) -> Check:
    securityfs = sys_root / "kernel/security"
    if securityfs.is_dir() and not any(securityfs.iterdir()):
        return Check("capture", "lockdown", "note", "unknown: securityfs is not mounted",
                     f"mount -t securityfs nodev {securityfs}")
    level = text_in(securityfs / "lockdown").partition("[")[2].partition("]")[0]
    if level == "confidentiality":
        return Check("capture", "lockdown", "missing", "confidentiality: BPF cannot read kernel memory",
                     "boot with lockdown=integrity or none")
    return Check("capture", "lockdown", "ok", level or "none")


def bpf_programs() -> list[Check]:
    """tp_btf has less overhead; raw_tp also loads on kernels that refuse it."""
    try:
        supported = capture_helper.probe()
    except BlkreelError as error:
        return [Check("capture", "BPF programs", "missing", error.message, error.remedy or "")]
    except OSError:
        return []  # helpers() reports a helper that does not run
    programs = Check("capture", "BPF programs", "ok", supported["programs"])
    if supported["programs"] != "tp_btf":
        programs = Check("capture", "BPF programs", "note",
                         f"{supported['programs']} only: more overhead than tp_btf")
    times = Check("capture", "queue times", "ok", "from block_io_start")
    if not supported["io_start"]:
        times = Check("capture", "queue times", "note", "from the request, and the thread may be the one that "
                      "dispatched it", "boot kernel 6.5 or later, for block_io_start")
    return [programs, times]


def locked_memory() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    text = "unlimited" if soft == resource.RLIM_INFINITY else format_bytes(soft)
    return Check("capture", "locked memory", "ok", f"{text}; does not limit BPF memory since kernel 5.11")


def io_uring(proc: Path) -> Check:
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)
        return Check("replay", "io_uring", "ok", "yes")
    code = ctypes.get_errno()
    if code == errno.EPERM and integer_in(proc / "sys/kernel/io_uring_disabled"):
        return Check("replay", "io_uring", "missing", "disabled", "sysctl -w kernel.io_uring_disabled=0")
    if code == errno.ENOSYS:
        return Check("replay", "io_uring", "missing", "not in this kernel", "boot a kernel with CONFIG_IO_URING=y")
    return Check("replay", "io_uring", "missing", os.strerror(code),
                 "run it outside the container: a seccomp profile may refuse io_uring")


def loop_devices() -> Check:
    """For the demo and the tests; a replay on a real drive needs none."""
    losetup = find_program("losetup")
    if not losetup:
        return Check("demo, tests", "loop devices", "missing", "no losetup", "apt-get install mount")
    result = subprocess.run([losetup, "--find"], capture_output=True, text=True)
    if result.returncode == 0:
        return Check("demo, tests", "loop devices", "ok", f"{result.stdout.strip()} is free")
    return Check("demo, tests", "loop devices", "missing", "none is free",
                 "modprobe loop, or: losetup --detach DEVICE" if os.geteuid() == 0
                 else "sudo blkreel doctor")


def processors() -> Check:
    count = len(os.sched_getaffinity(0))
    if count > 1:
        return Check("replay", "processors", "ok", str(count))
    return Check("replay", "processors", "note", "1: the replay shares it with other work and issues late", "add a CPU")


def clock(sys_root: Path) -> Check:
    source = text_in(sys_root / "devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    if source in _SLOW_CLOCKS:
        return Check("replay", "clock", "note", f"{source}: reading it takes microseconds",
                     "boot with clocksource=tsc if the TSC is stable")
    return Check("replay", "clock", "ok", source)


def programs() -> list[Check]:
    """Programs of the demo, the tests and the benchmarks."""
    checks = []
    for name, area, package in (("fio", "tests, bench", "fio"), ("mkfs.ext4", "demo", "e2fsprogs")):
        path = find_program(name)
        checks.append(Check(area, name, "ok", path) if path
                      else Check(area, name, "note", "not installed", f"apt-get install {package}"))
    return checks


def helpers() -> Check:
    for area, path in (("capture", capture_helper.HELPER), ("replay", engine.HELPER)):
        if not path.exists():
            return Check(area, "helper", "missing", f"no file {path}", "install blkreel again: docs/install.md")
        if not os.access(path, os.X_OK):
            return Check(area, "helper", "missing", f"{path}: permission denied",
                         capture_helper.permission_remedy(path))
    return Check("capture, replay", "helpers", "ok", str(capture_helper.HELPER.parent.parent))


def _has_capability(number: int) -> bool:
    for line in text_in(Path("/proc/self/status")).splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return os.geteuid() == 0


def sensors(sys_root: Path = Path("/sys")) -> list[Check]:
    """One check for temperatures of the drives, one for power. No sensor is required."""
    return [_temperatures(sys_root), _power(sys_root)]


def _temperatures(sys_root: Path) -> Check:
    with_sensor: list[str] = []
    without_sensor: list[str] = []
    remedies = []
    for drive in list_drives(sys_root):
        if not drive.name.startswith(("nvme", "sd")):
            continue
        temperatures = hwmon.temperatures((sys_root / "class/block" / drive.name).resolve(), sys_root)
        (with_sensor if temperatures.sources else without_sensor).append(drive.name)
        program = "nvme" if drive.name.startswith("nvme") else "smartctl"
        if not find_program(program):
            remedies.append(f"apt-get install {PACKAGES[program]}")
    if any(name.startswith("sd") for name in without_sensor):
        remedies.append("modprobe drivetemp")
    detail = f"of {', '.join(with_sensor)}" if with_sensor else "of no drive"
    if without_sensor:
        detail += f"; not of {', '.join(without_sensor)}"
    if remedies:
        detail += "" if without_sensor else "; without SMART"
    is_complete = with_sensor and not remedies and not without_sensor
    return Check("replay", "temperature", "ok" if is_complete else "note", detail, "; ".join(dict.fromkeys(remedies)))


def _power(sys_root: Path) -> Check:
    chips, processor = hwmon.power_rails(sys_root), processor_rails(sys_root)
    rails = [*chips, *(source.sensors[0].name.removeprefix("power_w.") for source in processor.sources)]
    if not rails:
        return Check("replay", "power", "note", "no sensor", "use --power-command or --power-log")
    return Check("replay", "power", "note", f"{', '.join(rails)}; may not measure a drive",
                 "use --power-sensor for the rail of the drive, or --power-command or --power-log")


def tracefs(proc: Path) -> Check:
    return _mount_check(proc, "tracefs", "ftrace", _MOUNT_TRACEFS)


def blk_tracer(proc: Path) -> Check:
    mount_point = next(iter(mount_points("tracefs", proc / "self/mounts")), None)
    if not mount_point:
        return Check(_SOURCES, "blk tracer", "note", "unknown: tracefs is not mounted", _MOUNT_TRACEFS)
    try:
        tracers = (mount_point / "available_tracers").read_text().split()
    except OSError as error:
        return Check(_SOURCES, "blk tracer", "note", f"cannot read {mount_point}: {error.strerror}",
                     "sudo blkreel doctor")
    if "blk" in tracers:
        return Check(_SOURCES, "blk tracer", "ok", "yes")
    return Check(_SOURCES, "blk tracer", "note", "not in this kernel; required by the sources ftrace and blktrace",
                 "boot a kernel with CONFIG_BLK_DEV_IO_TRACE=y: apt-get install linux-image-amd64")


def debugfs(proc: Path) -> Check:
    return _mount_check(proc, "debugfs", "blktrace", "mount -t debugfs nodev /sys/kernel/debug")


def blktrace(sys_root: Path) -> Check:
    path = find_program("blktrace")
    if not path:
        return Check(_SOURCES, "blktrace", "note", "not installed", "apt-get install blktrace")
    lockdown = text_in(sys_root / "kernel/security/lockdown")
    if lockdown and "[none]" not in lockdown:
        return Check(_SOURCES, "blktrace", "note", f"{path}; refused by kernel lockdown",
                     "use --source ftrace, which records the same events")
    return Check(_SOURCES, "blktrace", "ok", path)


def bpftrace() -> Check:
    path = find_program("bpftrace")
    if not path:
        return Check(_SOURCES, "bpftrace", "note", "not installed", "apt-get install bpftrace")
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(_SOURCES, "bpftrace", "note", f"{path} does not run: {error}",
                     "apt-get install --reinstall bpftrace")
    version = re.search(r"v(\d+)\.(\d+)", output)
    if version and (int(version[1]), int(version[2])) < _OLDEST_BPFTRACE:
        oldest = ".".join(map(str, _OLDEST_BPFTRACE))
        return Check(_SOURCES, "bpftrace", "note", f"{output} is too old: version {oldest} or later is required",
                     "install a newer release from github.com/bpftrace/bpftrace")
    return Check(_SOURCES, "bpftrace", "ok", output or path)


def _mount_check(proc: Path, kind: str, source: str, remedy: str) -> Check:
    for mount_point in mount_points(kind, proc / "self/mounts"):
        return Check(_SOURCES, kind, "ok", str(mount_point))
    return Check(_SOURCES, kind, "note", f"not mounted; required by the source {source}", remedy)
