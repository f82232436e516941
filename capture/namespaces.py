"""Namespaces whose clock or numbers differ from those of the kernel's events."""

from pathlib import Path

from blkreel.common.errors import BlkreelError
from blkreel.common.system import text_in

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of include/uapi/linux/nsfs.h
_PROC_SELF = Path("/proc/self")


def refuse_other_clock() -> None:
    """Raise BlkreelError in a time namespace: events have the clock of the kernel, not that of this process."""
    for line in text_in(_PROC_SELF / "timens_offsets").splitlines():
        clock, *offset = line.split()
        if clock == "monotonic" and any(int(number) for number in offset):
            raise BlkreelError(f"the monotonic clock of this time namespace is {offset[0]} s from that of the kernel, "
                               "so the times of all I/Os would be wrong",
                               "record outside of it: sudo nsenter --time --target 1 blkreel ...")


def has_initial_pids() -> bool:
    """Whether processes have the numbers of the initial PID namespace here, as in the kernel's events."""
    try:
        return (_PROC_SELF / "ns/pid").stat().st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return True  # a kernel without namespaces, or no /proc
