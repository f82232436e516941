"""The capture helper as a child process."""

import fcntl
import getpass
import grp
import json
import os
import queue
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict, cast

from blkreel.common.errors import BlkreelError
from blkreel.traces.live import Interval, interval_of
from blkreel.traces.spool.notes import text
from blkreel.traces.spool.rows_child import RowsChild, RowsOutput, error_of

from .sources.source import ThreadNames

HELPER = Path(__file__).with_name("blkreel-capture")
_NAME = "the capture helper"
_PIPE_BYTES = 1 << 20  # an interval of many busy drives takes 200 KB, and is skipped where the pipe has no room
_MAX_NAMES = 65536  # of threads, since a live view may run for weeks


class Programs(TypedDict):
    """programs: the kind that loads, "tp_btf" or "raw_tp". io_start: whether the kernel has block_io_start.

    limiter: whether the issuer of an I/O that waits for a limit of its cgroup is known.
    """

    programs: str
    io_start: bool
    limiter: bool


class Helper(RowsChild):
    """A running helper: the source named bpf.

    live_ns: interval of the live view, at least 1 ms; None: none. on_live is called after each interval, as on_change
    is. names: of the threads in the intervals, {tid: (pid, name, process)}.
    """

    reports_late = False

    def __init__(self, arguments: list[str], spool: RowsOutput, on_change: Callable[[], None],
                 live_ns: int | None = None, on_live: Callable[[], None] = lambda: None):
        self.threads: dict[int, ThreadNames] = {}  # the helper writes them beside the rows
        self.names: dict[int, tuple[int, str, str]] = {}
        self._live: queue.SimpleQueue[Interval] = queue.SimpleQueue()
        self._on_live = on_live
        if live_ns:
            arguments = [*arguments, "--live", str(max(1, live_ns // 1_000_000))]
        try:
            super().__init__(_NAME, HELPER, arguments, spool, on_change, cwd="/")
        except PermissionError as error:
            raise _refused_to_run() from error
        with suppress(OSError):  # the user's share of pipe memory is used up
            fcntl.fcntl(self.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def intervals(self) -> list[Interval]:
        """The intervals since the last call. After stop() it returns the last one."""
        intervals = []
        while not self._live.empty():
            intervals.append(self._live.get())
        return intervals

    def _take(self, fields: Any) -> None:
        if fields["note"] == "live":
            self._live.put(interval_of(fields))
            self._on_live()
        elif fields["note"] == "threads":
            self.names.update({tid: (pid, text(comm), text(process))
                               for tid, pid, comm, process, _ in fields["threads"]})
            for tid in list(self.names)[:max(0, len(self.names) - _MAX_NAMES)]:
                del self.names[tid]
        else:
            super()._take(fields)


class Nowhere:
    """In place of a spool where rows are only counted."""

    def __init__(self) -> None:
        self.rows_file = self.reserve_file = open(os.devnull, "wb", buffering=0)

    def close(self) -> None:
        self.rows_file.close()


def permission_remedy(path: Path) -> str:
    """The command that lets this user run a helper: the Debian package allows it to the members of a group."""
    number = path.stat().st_gid
    try:
        group = grp.getgrgid(number).gr_name if number else ""
    except KeyError:
        group = ""
    return f"sudo adduser {getpass.getuser()} {group}, and log in again" if group else "use sudo"


def _refused_to_run() -> BlkreelError:
    return BlkreelError(f"{_NAME} cannot run: {HELPER}: permission denied", permission_remedy(HELPER))


def probe() -> Programs:
    """Load the BPF programs and unload them. Raises BlkreelError with the reason where the kernel refuses them."""
    try:
        result = subprocess.run([HELPER, "--probe"], capture_output=True, text=True)
    except PermissionError as error:
        raise _refused_to_run() from error
    if result.returncode:
        raise error_of(_NAME, result.stderr, result.returncode)
    return cast(Programs, json.loads(result.stdout))
