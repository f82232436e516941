"""Namespaces in which a capture would be wrong."""

from pathlib import Path

from blkreel.common.errors import BlkreelError
from blkreel.common.system import text_in

from .options import CaptureOptions

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of include/uapi/linux/nsfs.h
_PROC_SELF = Path("/proc/self")


def refuse_other_clock(proc_self: Path = _PROC_SELF) -> None:
    """Raise BlkreelError in a time namespace: events have the clock of the kernel, not that of this process."""
    for line in text_in(proc_self / "timens_offsets").splitlines():
        clock, *offset = line.split()
        if clock == "monotonic" and any(int(number) for number in offset):
            raise BlkreelError(f"the monotonic clock of this time namespace is {offset[0]} s from that of the kernel, "
                               "so the times of all I/Os would be wrong",
                               "record outside of it: sudo nsenter --time --target 1 blkreel ...")


def refuse_other_pids(options: CaptureOptions, proc_self: Path = _PROC_SELF) -> None:
    """Raise BlkreelError if the workload is marked by its processes, in a PID namespace: the kernel's events have
    the numbers of the initial one."""
    if options.pid is None and not options.command:
        return
    try:
        is_initial = (proc_self / "ns/pid").stat().st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return  # a kernel without namespaces, or no /proc
    if not is_initial:
        raise BlkreelError("in this PID namespace the processes of the workload cannot be recognized",
                           "run the container with --pid=host, or record outside of it; or record the whole drive "
                           "without a command: blkreel capture DRIVE --for 60s -o FILE")
