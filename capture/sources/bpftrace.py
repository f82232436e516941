"""bpftrace with the script blkreel.bt, for machines that allow no other source."""

import fcntl
import os
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from blkreel.capture.namespaces import has_initial_pids
from blkreel.common.command_line import AS_ROOT
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError
from blkreel.common.system import MOUNTS, mount_points
from blkreel.traces.spool.blocks import write_all
from blkreel.traces.spool.spool import Spool

from .bpftrace_events import EventLines
from .decoded import DecodedSource, children_cpu_ns, require
from .tracefs import mounted_at

SCRIPT = Path(__file__).with_name("blkreel.bt")
_START_TIMEOUT_S = 120  # it compiles
_SETTLED_S = 0.25
_DRAIN_TIMEOUT_S = 5
_END_TIMEOUT_S = 10  # some versions hang
_MIN_PAGES = 1024
_PIPE_BYTES = 1 << 20
_GATHER_S = 0.02  # larger chunks cost less
_LOST = re.compile(rb"[Ll]ost (\d+) events")


def probe(drives: list[Drive], mounts: Path = MOUNTS) -> None:
    """Raises BlkreelError if this source cannot run."""
    require("bpftrace", "bpftrace")
    if os.geteuid():
        raise BlkreelError("bpftrace needs root", AS_ROOT)
    if not mount_points("debugfs", mounts):  # which has tracefs in it
        mounted_at(mounts)


class Bpftrace(DecodedSource):
    def __init__(self, drives: list[Drive], spool: Spool, ring_bytes: int, on_change: Callable[[], None],
                 notice: Callable[[str], None] = lambda line: None):
        super().__init__("bpftrace", drives, spool, on_change)
        probe(drives)
        self._errors = tempfile.TemporaryFile()
        self._began = threading.Event()
        self._reported = 0
        self._killed = False
        self._events: EventLines | None = None
        numbers = [str(drive.major << 20 | drive.minor) for drive in drives]
        pages = max(_MIN_PAGES, ring_bytes // 4096 // (os.cpu_count() or 1))
        environment = {**os.environ, "BPFTRACE_PERF_RB_PAGES": str(1 << (pages - 1).bit_length()), "LC_ALL": "C"}
        self._process = subprocess.Popen(
            [require("bpftrace", "bpftrace"), "-B", "full", SCRIPT, *numbers], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, start_new_session=True,
            env=environment, preexec_fn=_raise_priority)
        assert self._process.stdout
        fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._read_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._read, args=(self._process.stdout,), name="bpftrace", daemon=True)
        self._thread.start()
        if not self._began.wait(_START_TIMEOUT_S) or self.error:
            self._end_bpftrace()
            raise self.error or BlkreelError("bpftrace does not begin", f"see: bpftrace {SCRIPT}")
        self._attach(self._epoch_ns)

    def stop(self) -> None:
        self._stopped = True
        self._count_at_stop()
        self._wait_for_lines_until(time.monotonic_ns())
        self._end_bpftrace()
        self._stop_decoder()
        self._take_end(None if self._killed else self._reported, self._cpu_ns)

    def _wait_for_lines_until(self, time_ns: int) -> None:
        """bpftrace loses the events that it has not read at its SIGINT."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        while self._events and not self._events.has_reached(time_ns) and time.monotonic() < deadline and \
                self._process.poll() is None:
            time.sleep(0.01)

    def _read(self, output: IO[bytes]) -> None:
        """Turns its lines into events for the decoder, in order of time."""
        try:
            with output as lines:
                events = self._wait_for_begin(lines)
                if events:
                    self._feed(lines, events)
        except Exception as error:  # noqa: BLE001 - whatever stops this thread must reach the user
            self.error = self.error or error
        self._began.set()
        if self.error and self.attached:
            self._on_change()

    def _wait_for_begin(self, lines: IO[bytes]) -> EventLines | None:
        for line in iter(lines.readline, b""):
            if line.startswith(b"B "):
                events = self._events = EventLines(int(line.split()[1]), time.monotonic_ns())
                self._wait_for_probes(lines, events)
                self._epoch_ns = self._begin_counting()
                events.forget_before(self._epoch_ns)
                self._begin_decoder()
                self._began.set()
                return events
        self.error = self._refusal()
        return None

    def _wait_for_probes(self, lines: IO[bytes], events: EventLines) -> None:
        """It prints its begin before it has attached its last probes, each of which has a descriptor."""
        directory, descriptors, since = Path(f"/proc/{self._process.pid}/fd"), -1, time.monotonic()
        while time.monotonic() - since < _SETTLED_S and self._process.poll() is None:
            if select.select([lines], [], [], 0.01)[0]:
                for line in events.take(os.read(lines.fileno(), _PIPE_BYTES)):
                    if line.startswith(b"T "):
                        self._name(line)
            count = len(list(directory.iterdir()))
            if count != descriptors:
                descriptors, since = count, time.monotonic()

    def _begin_decoder(self) -> None:
        reader, writer = os.pipe()
        self._pipe = os.fdopen(writer, "wb", buffering=0)
        try:
            self._start_decoder(["--live", "--silent-losses", "--epoch", str(self._epoch_ns), f"/dev/fd/{reader}"],
                                pass_fds=(reader,))
        finally:
            os.close(reader)

    def _feed(self, lines: IO[bytes], events: EventLines) -> None:
        while chunk := os.read(lines.fileno(), _PIPE_BYTES):
            self._read_ns = time.monotonic_ns()
            self._note_others(events.take(chunk))
            self._write(events.ready())
            if len(chunk) < _PIPE_BYTES // 4:
                time.sleep(_GATHER_S)
        self._write(events.ready(all_of_it=True))
        self._pipe.close()
        if not self._stopped:
            self.error = BlkreelError("bpftrace has ended", "\n".join(self._read_errors()) or None)
            self.died = True

    def _note_others(self, lines: list[bytes]) -> None:
        for line in lines:
            if lost := _LOST.search(line):
                self._reported += int(lost[1])
                self._write(b"CPU:0 [LOST %d EVENTS]\n" % int(lost[1]))
            elif line.startswith(b"T "):
                self._name(line)

    def _name(self, line: bytes) -> None:
        _, tid, pid, comm = line.rstrip(b"\n").split(b" ", 3)
        name = comm.decode(errors="replace")
        leader = self.threads.get(int(pid))
        process = leader["comm"] if leader else _comm_of(int(pid)) or name
        self.threads[int(tid)] = {"pid": int(pid), "comm": name, "process": process, "names": [name]}

    def _write(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # the decoder has ended, as on a full disk, and says why itself
            write_all(self._pipe, data)

    def _end_bpftrace(self) -> None:
        before_ns = children_cpu_ns()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._wait_for_end()
        self._thread.join()
        self._cpu_ns = children_cpu_ns() - before_ns

    def _wait_for_end(self) -> None:
        """It may still have much output; without any for some time, it hangs."""
        asked_ns = time.monotonic_ns()
        while self._process.poll() is None:
            if time.monotonic_ns() - max(asked_ns, self._read_ns) > _END_TIMEOUT_S * 1e9:
                self._killed = True
                self._process.kill()
            time.sleep(0.01)

    def _refusal(self) -> BlkreelError:
        lines = self._read_errors()
        return BlkreelError(f"bpftrace does not begin: {lines[-1] if lines else 'no message'}",
                            "take another source: --source bpf")

    def _read_errors(self) -> list[str]:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip() and "RLIMIT_MEMLOCK" not in line]


def _raise_priority() -> None:
    """It loses the events that it does not read in time."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)


def _comm_of(pid: int) -> str | None:
    if not has_initial_pids():
        return None
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None
