"""Whose I/O a capture was made for: a command's, a process's or a control group's, with all that they start."""

import os
import select
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.errors import BlkreelError, UsageError


@dataclass(frozen=True)
class Own:
    """pids: processes that are marked, with all that descend from them. cgroup: a directory, marked instead."""

    pids: tuple[int, ...] = ()
    cgroup: Path | None = None

    def helper_arguments(self, only: bool) -> list[str]:
        if self.cgroup is not None:
            found = ["--own-cgroup", str(self.cgroup)]
        else:
            found = [word for pid in self.pids for word in ("--own-pid", str(pid))]
        return [*found, "--own-only"] if only else found


def refuse_contradictions(options) -> None:
    """Raise UsageError where it is not clear whose I/O is meant."""
    named = [bool(options.command), options.pid is not None, options.cgroup is not None]
    if sum(named) > 1:
        raise UsageError("a command, --pid and --cgroup each say whose I/O to mark", "give one of them")
    if options.own_only and not any(named):
        raise UsageError("--own-only needs somebody whose I/O to record", "add --pid, --cgroup or a command behind --")
    if options.until_exit and options.pid is None:
        raise UsageError("--until-exit needs a process to wait for", "add --pid")


def processes_from(pid: int) -> tuple[int, ...]:
    """This process and all that descend from it by now. Raises UsageError where there is none."""
    if not Path(f"/proc/{pid}").is_dir():
        raise UsageError(f"no such process: {pid}", "see: ps -e")
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for task in _listed(Path(f"/proc/{one}/task")):
            waiting += [int(child) for child in _text(task / "children").split()]
    return tuple(found)


def cgroup_directory(name: str) -> Path:
    """The directory of a control group, given as such or as its path below the mount (as in /proc/PID/cgroup).

    Raises BlkreelError where there is no cgroup v2 hierarchy, UsageError where it has no such group.
    """
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if root is None:
        raise BlkreelError("no cgroup v2 hierarchy is mounted", "mount -t cgroup2 none /sys/fs/cgroup")
    for candidate in (Path(name), root / name.lstrip("/")):
        if (candidate / "cgroup.procs").exists() and candidate.resolve().is_relative_to(root.resolve()):
            return candidate.resolve()
    raise UsageError(f"no such control group: {name}", f"name one below {root}, as in /proc/PID/cgroup")


class ProcessEnd:
    """Tells when a process that is not our child has ended."""

    def __init__(self, pid: int):
        try:
            self._fd = os.pidfd_open(pid)
        except OSError as error:
            raise UsageError(f"cannot wait for process {pid}: {error.strerror}", "see: ps -e") from None

    def has_come(self) -> bool:
        return bool(select.select([self._fd], [], [], 0)[0])


def _listed(directory):
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _text(path):
    try:
        return path.read_text()
    except OSError:
        return ""
