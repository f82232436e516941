"""The machine of an emulated drive: what it did meanwhile, and a control group of its own for the command."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blkreel.common.emulated import HostCounts
from blkreel.common.system import CGROUPS, text_in

# Free memory that a virtual machine returns to its host takes 1 to 2 ms per MB to come back.
_REPORTED = Path("/sys/module/page_reporting/parameters/reported_kib")


class HostCounter:
    """Counts from its creation on. pid: of the server, whose time without a processor is counted."""

    def __init__(self, pid: int, proc: Path = Path("/proc"), reported: Path = _REPORTED):
        self._pid, self._proc, self._reported = pid, proc, reported
        self._thread_waited_ns: dict[str, int] = {}
        self._waited_so_far_ns = 0
        self._begin = self._now()

    def counts(self) -> HostCounts:
        now = self._now()
        return {"waited_ns": _grown(now["waited_ns"], self._begin["waited_ns"]),
                "stolen_ns": _grown(now["stolen_ns"], self._begin["stolen_ns"]),
                "reported_kib": _grown(now["reported_kib"], self._begin["reported_kib"])}

    def _now(self) -> HostCounts:
        return {"waited_ns": self._waited_ns(), "stolen_ns": self._stolen_ns(), "reported_kib": self._reported_kib()}

    def _waited_ns(self) -> int | None:
        """The second field of schedstat, time on a run queue. A thread that ends takes its own with it."""
        for task in (self._proc / f"{self._pid}/task").glob("*"):
            fields = text_in(task / "schedstat").split()
            if len(fields) == 3:
                waited_ns = int(fields[1])
                self._waited_so_far_ns += max(0, waited_ns - self._thread_waited_ns.get(task.name, 0))
                self._thread_waited_ns[task.name] = waited_ns
        return self._waited_so_far_ns if self._thread_waited_ns else None

    def _stolen_ns(self) -> int | None:
        words = text_in(self._proc / "stat").partition("\n")[0].split()
        return int(words[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK") if len(words) > 8 else None

    def _reported_kib(self) -> int | None:
        text = text_in(self._reported)
        return int(text) if text.isdigit() else None


def _grown(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def memory_bytes(name: str, proc: Path = Path("/proc")) -> int:
    """MemAvailable or another count of the kernel; 0 if it has none."""
    for line in text_in(proc / "meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def own_group(name: str) -> Iterator[Path | None]:
    """The cgroup.procs of a new group with the io controller, for the command of an emulated drive; removed at the end.

    The loop driver executes a flush in the thread that submits the I/Os of all programs in the root group; flushes of
    any program go there. A program in another group has a thread of its own, so that its reads do not wait for flushes.
    None where it cannot be made: the account of the drive then has what flushes held back.
    """
    group = _parent()
    if group is None:
        yield None
        return
    group /= f"blkreel-{name}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group / "cgroup.procs"
    finally:
        with suppress(OSError):  # programs that the command left are still in it
            group.rmdir()


def _parent() -> Path | None:
    """Version 1: the tree of the blkio controller. Version 2: the root, if its children have the io controller."""
    if (CGROUPS / "blkio/cgroup.procs").exists():
        return CGROUPS / "blkio"
    return CGROUPS if "io" in text_in(CGROUPS / "cgroup.subtree_control").split() else None
