"""The capture helper as a child process."""

import fcntl
import json
import os
import queue
import subprocess
from pathlib import Path

from blkreel.traces.live import Interval, interval_of
from blkreel.traces.rows_child import RowsChild, error_of
from blkreel.traces.spool import Spool

HELPER = Path(__file__).with_name("blkreel-capture")
_NAME = "the capture helper"
_PIPE_BYTES = 1 << 20  # an interval of many busy drives takes 200 KB, and is not told where there is no room for it

_NAMES = 65536  # of threads that are remembered: whoever watches for weeks sees many


class Helper(RowsChild):
    """A running helper; the source named bpf, as capture/sources/__init__.py wants one.

    live_ns: how often it shall tell what the drives do, from 1 ms on; None: never. on_live is called after each such
    interval, as on_change is. names: of threads, as far as intervals told of them: {tid: (pid, name, process)}.
    """

    def __init__(self, arguments: list[str], spool: Spool, on_change, live_ns: int | None = None,
                 on_live=lambda: None):
        self.threads: dict[int, dict] = {}  # in the spool, beside the rows
        self.names: dict[int, tuple[int, str, str]] = {}
        self._live: queue.SimpleQueue[Interval] = queue.SimpleQueue()
        self._on_live = on_live
        if live_ns:
            arguments = [*arguments, "--live", str(max(1, live_ns // 1_000_000))]
        super().__init__(_NAME, HELPER, arguments, spool, on_change, cwd="/")
        try:
            fcntl.fcntl(self.process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # the user's share of pipe memory is used up

    def intervals(self) -> list[Interval]:
        """What was told since this was called last. After stop() the last of it is here."""
        found = []
        while not self._live.empty():
            found.append(self._live.get())
        return found

    def _take(self, fields):
        if fields["note"] == "live":
            self._live.put(interval_of(fields))
            self._on_live()
        elif fields["note"] == "threads":
            self.names.update({tid: (pid, comm, process) for tid, pid, comm, process, _ in fields["threads"]})
            for tid in list(self.names)[:max(0, len(self.names) - _NAMES)]:
                del self.names[tid]
        else:
            super()._take(fields)


class Nowhere:
    """In place of a spool where rows are only to be counted."""

    def __init__(self):
        self.rows_file = self.reserve_file = open(os.devnull, "wb", buffering=0)

    def close(self) -> None:
        self.rows_file.close()


def probe(kind: str = "auto") -> dict:
    """Load the BPF programs and let them go: {"programs": kind, "io_start": bool}.

    Raises BlkreelError with the reason where the kernel refuses them.
    """
    result = subprocess.run([HELPER, "--probe", "--programs", kind], capture_output=True, text=True)
    if result.returncode:
        raise error_of(_NAME, result.stderr, result.returncode)
    return json.loads(result.stdout)
