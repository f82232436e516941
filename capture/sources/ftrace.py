"""The blk tracer of ftrace: blktrace's events from tracefs, where a locked-down kernel refuses debugfs."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from blkreel.common.command_line import AS_ROOT
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError
from blkreel.traces.spool.rows_child import Totals
from blkreel.traces.spool.spool import Spool

from .decoded import DecodedSource
from .tracefs import OTHER_SOURCE, Settings, chosen, enable_of, mounted_at, refuse_where_in_use, trace_to_any_end, write

# An I/O takes six events of 72 bytes here, and one record of 80 in the ring of the BPF programs.
_RING_SHARE = 8
_COMMAND_LINES = "32768"
_OPTIONS = {"bin": "1", "context-info": "0", "overwrite": "1", "markers": "0", "record-cmd": "1", "record-tgid": "1",
            "blk_classic": "0", "blk_cgroup": "0", "hex": "0", "raw": "0"}


def probe(drives: list[Drive]) -> None:
    """Raises BlkreelError if this source cannot run."""
    root = mounted_at()
    if not os.access(root / "current_tracer", os.W_OK):
        raise BlkreelError(f"no permission to use {root}", AS_ROOT)
    if "blk" not in (root / "available_tracers").read_text().split():
        raise BlkreelError("this kernel has no blk tracer (CONFIG_BLK_DEV_IO_TRACE)", OTHER_SOURCE)
    if "mono" not in (root / "trace_clock").read_text().replace("[", " ").replace("]", " ").split():
        raise BlkreelError("ftrace of this kernel cannot stamp with the monotonic clock", OTHER_SOURCE)
    for drive in drives:
        if not enable_of(drive).exists():
            raise BlkreelError(f"the kernel cannot trace {drive.path}", OTHER_SOURCE)


class Ftrace(DecodedSource):
    """Rows of the drives' requests, with the threads that entered the block layer."""

    def __init__(self, drives: list[Drive], spool: Spool, ring_bytes: int, on_change: Callable[[], None],
                 notice: Callable[[str], None] = lambda line: None):
        super().__init__("ftrace:blk", drives, spool, on_change)
        probe(drives)
        self._root = mounted_at()
        self._settings = Settings()
        try:
            if self._settings.had_leftovers:
                notice("restored the settings of ftrace that a killed capture had left")
            refuse_where_in_use(self._root, drives)
            self._cpus = sorted((self._root / "per_cpu").glob("cpu*"), key=lambda path: int(path.name[3:]))
            self._begin(ring_bytes)
        except BaseException:
            self._end_tracing()
            if self.decoder:
                self.decoder.stop()
            raise

    def stop(self) -> None:
        self._stopped = True
        lost = None
        try:
            self._count_at_stop()
            for drive in self.drives:
                if enable_of(drive).exists():
                    write(enable_of(drive), "0")
            lost = self._lost_ever() - self._lost_before
            self._name_threads(self._stop_decoder())
        finally:
            self._end_tracing()
        self._take_end(lost)

    def _begin(self, ring_bytes: int) -> None:
        self._set("tracing_on", "0")
        self._set("trace_clock", "mono")
        self._set("current_tracer", "blk")
        for name, value in _OPTIONS.items():
            if (self._root / "options" / name).exists():
                self._set(f"options/{name}", value)
        # Sizes that differ between CPUs were set by an administrator.
        if chosen(self._root / "buffer_size_kb").isdigit():
            self._set("buffer_size_kb", str(max(1408, _RING_SHARE * ring_bytes // len(self._cpus) >> 10)))
        if int(chosen(self._root / "saved_cmdlines_size")) < int(_COMMAND_LINES):
            self._set("saved_cmdlines_size", _COMMAND_LINES)
        (self._root / "trace").write_text("")
        self._lost_before = self._lost_ever()
        epoch_ns = time.monotonic_ns()
        self._start_decoder(["--live", "--epoch", str(epoch_ns), *(str(cpu / "trace_pipe") for cpu in self._cpus)])
        for drive in self.drives:
            self._settings.set(enable_of(drive), "1")
            trace_to_any_end(drive)
        self._begin_counting(lambda: self._set("tracing_on", "1"))
        self._attach(epoch_ns)

    def _set(self, name: str, value: str) -> None:
        self._settings.set(self._root / name, value)

    def _lost_ever(self) -> int:
        """Events lost for lack of room since the buffers were created."""
        total = 0
        for cpu in self._cpus:
            for line in (cpu / "stats").read_text().splitlines():
                name, _, value = line.partition(": ")
                if name in ("overrun", "commit overrun", "dropped events"):
                    total += int(value)
        return total

    def _name_threads(self, end: Totals | None) -> None:
        """The threads that had ended before the decoder could read their names."""
        unnamed = set(end["stream"]["unnamed"]) if end and "stream" in end else set()
        if not unnamed:
            return
        names = _numbered(self._root / "saved_cmdlines")
        groups = _numbered(self._root / "saved_tgids")
        for tid in unnamed & names.keys():
            pid = int(groups.get(tid, -1))
            process = names.get(pid, names[tid])
            self.threads[tid] = {"pid": pid, "comm": names[tid], "process": process, "names": [names[tid]]}

    def _end_tracing(self) -> None:
        self._settings.restore()
        self._settings.close()


def _numbered(path: Path) -> dict[int, str]:
    """Lines of a number and a text, as a dictionary."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(" ", 1) for line in lines)
    return {int(pair[0]): pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].isdigit()}
