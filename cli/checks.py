"""What capture and replay need of a machine. Here and not in either, because both halves are asked."""

import ctypes
import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

from blkreel.capture import helper as capture_helper
from blkreel.cli.check_result import Check
from blkreel.cli.checks_sensors import sensors
from blkreel.cli.checks_sources import all_sources
from blkreel.replay import engine
from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

_IO_URING_SETUP = 425  # the same on every architecture
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")
# What the capture's helper needs, and CAP_SYSLOG for the kernel's addresses: docs/capture.md.
CAPABILITIES = {"cap_bpf": 39, "cap_perfmon": 38, "cap_syslog": 34}


def all_checks(proc: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> list[Check]:
    """Every check, in the order a user should mend them."""
    return [root(), privilege(), helpers(), kernel_types(sys_root), lockdown(sys_root), *bpf_programs(),
            locked_memory(), io_uring(proc), processors(), clock(sys_root), *all_sources(proc, sys_root),
            loop_devices(), *sensors(sys_root), *programs()]


def root() -> Check:
    if os.geteuid() == 0:
        return Check("replay", "root", "ok", "yes")
    return Check("replay", "root", "missing", "you are not root", "run it with sudo, as in: sudo blkreel doctor")


def privilege() -> Check:
    """Of the capture. Root's may be taken away, as in a container; a user's helper may have what it needs."""
    lacking = [name for name, number in CAPABILITIES.items() if not _has_capability(number)]
    if not lacking:
        return Check("capture", "privilege", "ok", "root" if os.geteuid() == 0 else "capabilities")
    given = f"setcap {','.join(CAPABILITIES)}+ep {capture_helper.HELPER}"
    if os.geteuid() == 0:
        return Check("capture", "privilege", "missing", f"root without {', '.join(lacking)}",
                     "run it outside of the container, or give it these: docker run --privileged")
    try:
        os.getxattr(capture_helper.HELPER, "security.capability")
        return Check("capture", "privilege", "ok", "the helper has file capabilities")
    except OSError:
        return Check("capture", "privilege", "missing", "you are not root, and the helper has no file capabilities",
                     f"run it with sudo, or once: sudo {given}")


def kernel_types(sys_root) -> Check:
    if (sys_root / "kernel/btf/vmlinux").exists():
        return Check("capture", "kernel types", "ok", "/sys/kernel/btf/vmlinux")
    return Check("capture", "kernel types", "missing", "the kernel has no BTF",
                 "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as in: apt-get install linux-image-amd64")


def lockdown(sys_root) -> Check:
    try:
        text = (sys_root / "kernel/security/lockdown").read_text()
    except OSError:
        return Check("capture", "lockdown", "ok", "none")
    chosen = text.partition("[")[2].partition("]")[0]
    if chosen == "confidentiality":
        return Check("capture", "lockdown", "missing", "confidentiality: BPF must not read the kernel's memory",
                     "boot with lockdown=integrity or none")
    return Check("capture", "lockdown", "ok", chosen or "none")


def bpf_programs() -> list[Check]:
    """tp_btf is the cheaper kind; raw_tp loads where it is refused."""
    try:
        found = capture_helper.probe()
    except BlkreelError as error:
        return [Check("capture", "BPF programs", "missing", error.message, error.remedy or "")]
    except OSError:
        return []  # the check of the helpers says it
    programs = Check("capture", "BPF programs", "ok", found["programs"])
    if found["programs"] != "tp_btf":
        programs = Check("capture", "BPF programs", "note",
                         f"{found['programs']} only: a capture costs more than with tp_btf")
    times = Check("capture", "queue times", "ok", "from block_io_start")
    if not found["io_start"]:
        times = Check("capture", "queue times", "note", "from the request itself, and the thread may be the one "
                      "that dispatched it: block_io_start is in kernels since 6.5")
    return [programs, times]


def locked_memory() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    text = "unlimited" if soft == resource.RLIM_INFINITY else format_bytes(soft)
    return Check("capture", "locked memory", "ok", f"{text}; kernels since 5.11 do not count BPF memory against it")


def io_uring(proc) -> Check:
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(_IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)
        return Check("replay", "io_uring", "ok", "yes")
    code = ctypes.get_errno()
    try:
        disabled = (proc / "sys/kernel/io_uring_disabled").read_text().strip()
    except OSError:
        disabled = "0"
    if code == errno.EPERM and disabled != "0":
        return Check("replay", "io_uring", "missing", "switched off", "sysctl -w kernel.io_uring_disabled=0")
    if code == errno.ENOSYS:
        return Check("replay", "io_uring", "missing", "the kernel has none", "boot a kernel with CONFIG_IO_URING=y")
    return Check("replay", "io_uring", "missing", os.strerror(code),
                 "a container's seccomp profile may refuse it: run outside of it")


def loop_devices() -> Check:
    """For the demo and the tests; a replay on a real drive needs none."""
    found = shutil.which("losetup", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not found:
        return Check("demo, tests", "loop devices", "missing", "no losetup", "apt-get install mount")
    result = subprocess.run([found, "--find"], capture_output=True, text=True)
    if result.returncode == 0:
        return Check("demo, tests", "loop devices", "ok", f"{result.stdout.strip()} is free")
    return Check("demo, tests", "loop devices", "missing", "none is free",
                 "modprobe loop, or detach one that losetup --list shows" if os.geteuid() == 0
                 else "sudo blkreel doctor")


def processors() -> Check:
    count = len(os.sched_getaffinity(0))
    if count > 1:
        return Check("replay", "processors", "ok", str(count))
    return Check("replay", "processors", "note", "one: a replay shares it with everything else, and issues late")


def clock(sys_root) -> Check:
    try:
        source = (sys_root / "devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    except OSError:
        source = "unknown"
    if source in _SLOW_CLOCKS:
        return Check("replay", "clock", "note", f"{source}: reading it takes microseconds",
                     "boot with clocksource=tsc where the processor's is stable")
    return Check("replay", "clock", "ok", source)


def programs() -> list[Check]:
    """Other programs, and what for; none is needed by the command itself."""
    wanted = [("fio", "tests, bench", "fio"), ("aria2c", "demo", "aria2"),
              ("mktorrent", "demo", "mktorrent"), ("mkfs.ext4", "demo", "e2fsprogs")]
    found = []
    for name, area, package in wanted:
        path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if path:
            found.append(Check(area, name, "ok", path))
        else:
            found.append(Check(area, name, "note", "not installed", f"apt-get install {package}"))
    return found


def helpers() -> Check:
    for area, path in (("capture", capture_helper.HELPER), ("replay", engine.HELPER)):
        if not os.access(path, os.X_OK):
            return Check(area, "helper", "missing", f"{path} does not run", "make install")
    return Check("capture, replay", "helpers", "ok", str(capture_helper.HELPER.parent.parent))


def _has_capability(number):
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> number & 1)
    except OSError:
        pass
    return os.geteuid() == 0
