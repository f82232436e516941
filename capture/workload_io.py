"""The processes or the control group whose I/O a capture marks, with all that they start."""

import os
import select
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.errors import BlkreelError, UsageError, os_errors
from blkreel.common.system import mount_points

from .options import CaptureOptions


@dataclass(frozen=True)
class WorkloadSelection:
    """pids: processes to mark, with all their descendants. cgroup: a directory, to mark instead."""

    pids: tuple[int, ...] = ()
    cgroup: Path | None = None

    def helper_arguments(self, only: bool) -> list[str]:
        if self.cgroup is not None:
            arguments = ["--own-cgroup", str(self.cgroup)]
        else:
            arguments = [word for pid in self.pids for word in ("--own-pid", str(pid))]
        return [*arguments, "--own-only"] if only else arguments


def refuse_contradictions(options: CaptureOptions) -> None:
    """Raise UsageError for options that contradict each other."""
    named = [bool(options.command), options.pid is not None, options.cgroup is not None]
    if sum(named) > 1:
        raise UsageError("a command, --pid and --cgroup exclude each other", "give one of them")
    if options.own_only and not any(named):
        raise UsageError("--workload-only: no workload to record", "add --pid, --cgroup or a command after --")
    if options.private and options.files:
        raise UsageError("--private records no names, and --files records those of files", "leave out one of them")
    if options.until_exit and options.pid is None:
        raise UsageError("--until-exit needs a process", "add --pid")


def processes_from(pid: int) -> tuple[int, ...]:
    """This process and its present descendants. Raises UsageError if it does not exist."""
    if not Path(f"/proc/{pid}").is_dir():
        raise UsageError(f"no such process: {pid}", "see: ps -e")
    family, unread = [], [pid]
    while unread:
        member = unread.pop()
        family.append(member)
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                unread += [int(child) for child in children.read_text().split()]
    return tuple(family)


def cgroup_directory(name: str) -> Path:
    """The directory of a control group. name: the directory, or the path below the mount (as in /proc/PID/cgroup).

    Raises BlkreelError if there is no cgroup v2 hierarchy, UsageError if it has no such group.
    """
    root = next(iter(mount_points("cgroup2")), None)
    if root is None:
        raise BlkreelError("no cgroup v2 hierarchy is mounted", "mount -t cgroup2 none /sys/fs/cgroup")
    for candidate in (Path(name), root / name.lstrip("/")):
        if (candidate / "cgroup.procs").exists() and candidate.resolve().is_relative_to(root.resolve()):
            return candidate.resolve()
    raise UsageError(f"no such control group: {name}", f"name one below {root}, as in /proc/PID/cgroup")


class ProcessEnd:
    """The end of a process that is not a child of this one."""

    def __init__(self, pid: int):
        with os_errors(UsageError, f"cannot wait for process {pid}", "see: ps -e"):
            self._fd = os.pidfd_open(pid)

    def has_come(self) -> bool:
        return bool(select.select([self._fd], [], [], 0)[0])
