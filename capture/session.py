"""One capture, from the first check to the finished trace."""

import os
import platform
import queue
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blkreel import __version__
from blkreel.traces.device import Drive, block_directory, describe, drives_under
from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.reader import counts_by_op, open_trace
from blkreel.traces.schema import OPS, TRACE_SCHEMA
from blkreel.traces.spool import Spool
from blkreel.traces.spool_notes import begun_metadata

from . import ledger, sources
from .counters import Counters
from .drives import drives_to_watch, layer_of
from .helper import Helper
from .own import Own, ProcessEnd, cgroup_directory, processes_from, refuse_contradictions
from .ring import Ring, refuse_too_small, save_now
from .workload import Workload, give_to_caller, refuse_missing, user_of_command

_TICK_S = 0.25
_ATTACH_TIMEOUT_S = 60


@dataclass(frozen=True)
class CaptureOptions:
    """devices, path: what to watch; with neither and a command, the drive under the current directory.

    duration_ns: end after that time at the latest; None: when the command ends, or at Ctrl-C.
    keep_ns, max_bytes: hold only the last of what is recorded, of this time or in so many bytes of spool.
    pid, cgroup: mark the I/O of this process or control group, as that of a command is; own_only: record no other.
    until_exit: end when the process of pid ends. files: record inodes and paths.
    live_ns: how often to tell the monitor what the drives do; None: never, which costs least.
    command_streams: where the command's stdout and stderr go, by their names, as subprocess.Popen takes them; ours.
    programs: kind of BPF programs, "auto", "tp_btf" or "raw_tp". io_start: False as on a kernel that has no
    block_io_start. source: where the rows come from, "auto" or one of sources.SOURCES.
    """

    output: Path
    devices: list[str] = field(default_factory=list)
    path: str | None = None
    command: list[str] = field(default_factory=list)
    user: str | None = None
    duration_ns: int | None = None
    keep_ns: int | None = None
    max_bytes: int | None = None
    pid: int | None = None
    cgroup: str | None = None
    own_only: bool = False
    until_exit: bool = False
    files: bool = False
    cold: bool = False
    force: bool = False
    ring_bytes: int = 16 << 20
    programs: str = "auto"
    io_start: bool = True
    source: str = "auto"
    live_ns: int | None = None
    command_streams: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CaptureResult:
    """What came out. missing: which I/Os the trace lacks, incomplete: what it knows in part; both empty at best."""

    path: Path
    metadata: dict
    ios: dict[str, int]
    bytes: dict[str, int]
    duration_ns: int
    missing: list[str]
    incomplete: list[str]
    command_exit_code: int | None
    interrupted: bool


class _NoMonitor:
    """Who listens to a capture: notice(line) for facts the user should know, progress(seconds, events, lost).

    live(interval, drives, names) is told each interval of options.live_ns: a traces.live.Interval, the Drives in the
    order of their numbers, and names of threads, {tid: (pid, name, process)}. Of other sources than bpf it is what the
    kernel counts. progress() has None for what the source does not tell before its end. over() is called when nothing
    more is recorded; a monitor may lack it.
    """

    def notice(self, line: str) -> None:
        pass

    def progress(self, seconds: float, events: int | None, lost: int | None) -> None:
        pass

    def live(self, interval, drives, names) -> None:
        pass


def run_capture(options: CaptureOptions, monitor=None) -> CaptureResult:
    """Capture until the command ends, the time is over or Ctrl-C. The trace stands under its name when this returns.

    Raises BlkreelError where it cannot begin, with nothing left behind, and where the disk is full, with what
    was recorded kept for `blkreel recover`.
    """
    monitor = monitor or _NoMonitor()
    refuse_too_small(options.max_bytes)
    refuse_contradictions(options)
    if options.command:
        refuse_missing(options.command)
    user = user_of_command(options.user) if options.command else None
    drives = _drives(options, monitor)
    spool = Spool(options.output, TRACE_SCHEMA, _begun(options, drives), force=options.force)
    return _Session(options, drives, user, spool, monitor).run()


class _Session:
    def __init__(self, options, drives, user, spool, monitor):
        self.options, self.drives, self.user, self.spool, self.monitor = options, drives, user, spool, monitor
        # Its put() may be called from a signal handler, which an Event's set() may not.
        self.changes = queue.SimpleQueue()
        self.interrupted = False
        self.signal = None
        self.saves_wanted = 0
        self.helper = self.workload = self.ring = self.process_end = self.counters = None
        self.spool_metadata: dict = {}

    def run(self):
        with _signals(self._on_signal, self._on_save):
            try:
                self._begin()
            except BaseException:
                self._abandon()
                raise
            self._watch()
            self.helper.stop()
            self._tell_live(last=True)
            getattr(self.monitor, "over", lambda: None)()
            if self.workload and self.workload.exit_code is None:
                self._wait_for_command()
            return self._finish()

    def _begin(self):
        """Everything that may fail before there is anything to keep."""
        if self.options.keep_ns is not None or self.options.max_bytes is not None:
            self.ring = Ring(self.spool, self.options.max_bytes, self.options.keep_ns)
            self.monitor.notice(f"to save what is held and go on: kill -USR1 {os.getpid()}")
        if self.options.cold:
            _drop_caches()
            self.monitor.notice("dropped the page cache of the whole machine: other programs are slower for a while")
        own = self._own()
        self.helper = self._start_source(own)
        deadline = time.monotonic() + _ATTACH_TIMEOUT_S
        while not (self.helper.attached or self.helper.error or self.interrupted):
            if time.monotonic() > deadline:
                raise BlkreelError("the capture helper does not attach its programs", "see: blkreel doctor")
            self._wait_for_change(_TICK_S)
        if self.helper.error:
            raise self.helper.error
        self.spool.note(self._attached())
        if self.workload and not self.interrupted:
            self.workload.release(lambda: self.changes.put("command"))
        elif self.workload:
            self.workload.abandon()
            self.workload = None

    def _own(self) -> Own:
        """Whose I/O to mark, told to the helper before any of it can come."""
        if self.options.until_exit:
            self.process_end = ProcessEnd(self.options.pid)
        if self.options.cgroup is not None:
            return Own(cgroup=cgroup_directory(self.options.cgroup))
        if self.options.pid is not None:
            return Own(pids=processes_from(self.options.pid))
        if self.options.command:
            self.workload = Workload(self.options.command, self.user, self.options.command_streams)
            return Own(pids=(self.workload.pid,))
        return Own()

    def _watch(self):
        began = time.monotonic()
        end = began + self.options.duration_ns / 1e9 if self.options.duration_ns else float("inf")
        while not (self.interrupted or self._helper_ended() or self._command_ended() or self._process_ended()):
            now = time.monotonic()
            if now >= end:
                return
            late = getattr(self.helper, "tells_late", False)
            self.monitor.progress(now - began, *((None, None) if late else (self.helper.events, self.helper.lost)))
            self._tell_live()
            self._look_at_ring()
            if self.saves_wanted:
                self._save()
            self._wait_for_change(min(_TICK_S, end - now))

    def _tell_live(self, last=False):
        if self.counters:
            lost = None if self.helper.tells_late and not self.helper.end else self.helper.lost
            for interval in self.counters.intervals(lost, last=last):
                self.monitor.live(interval, self.drives, {})
        elif self.options.live_ns:
            for interval in self.helper.intervals():
                self.monitor.live(interval, self.drives, self.helper.names)

    def _look_at_ring(self):
        try:
            if self.ring:
                self.ring.look()
        except BlkreelError as error:
            # The helper meets the same full disk, and ends the capture well.
            self.monitor.notice(f"nothing was dropped: {error}")

    def _save(self):
        self.saves_wanted = 0
        more = {"ring": self.ring.metadata()} if self.ring else {}
        try:
            path = save_now(self.spool, more)
        except BlkreelError as error:
            self.monitor.notice(f"nothing was saved: {error}")
            return
        give_to_caller(path)
        self.monitor.notice(f"saved {path}; the capture goes on")

    def _wait_for_command(self):
        """The capture has ended before its command: by time, by Ctrl-C or because the disk is full."""
        early = self.helper.error or (self.helper.end and ledger.ended_early(self.helper.end))
        if early:
            self.monitor.notice(f"{early}; the command goes on")
        while not (self.interrupted or self._command_ended()):
            self._wait_for_change(None)
        if self.interrupted:
            self.workload.end(self.signal)

    def _finish(self):
        if self.helper.error and not self.helper.died:
            raise self.helper.error
        metadata = {**self.spool_metadata, **self._ended()}
        try:
            path = self.spool.finish(metadata)
        except BlkreelError as error:
            error.remedy = f"{error.remedy or 'mend that'}; then: blkreel recover {self.options.output}"
            raise
        give_to_caller(path)
        ios, moved = self._counts(path)
        return CaptureResult(
            path=path, metadata=metadata, interrupted=self.interrupted, ios=ios, bytes=moved,
            duration_ns=metadata["duration_ns"], missing=self._missing(metadata),
            incomplete=ledger.incomplete(metadata) if self.helper.end else [],
            command_exit_code=self.workload.exit_code if self.workload else None)

    def _counts(self, path):
        """I/Os and bytes by op: as the helper counted them, or of the trace where it could not."""
        end = self.helper.end
        if end and not self.ring:
            return dict(zip(OPS, end["ios"], strict=True)), dict(zip(OPS, end["bytes"], strict=True))
        return counts_by_op(open_trace(path))

    def _missing(self, metadata):
        return ledger.missing(metadata) if self.helper.end else metadata["import_warnings"]

    def _abandon(self):
        if self.workload:
            self.workload.abandon()
        if self.helper:
            self.helper.stop()
        self.spool.discard()

    def _attached(self):
        self.spool_metadata = {**_begun(self.options, self.drives), **begun_metadata(self.helper.attached)}
        return self.spool_metadata

    def _ended(self):
        """What is known only at the end. A helper that died leaves its rows and no ledger, and the trace says so."""
        threads = {str(tid): entry for tid, entry in self.helper.threads.items()}
        if self.helper.end:
            found = {**ledger.ended(self.helper.end, self.spool_metadata), "threads": threads}
            if self.ring:
                found |= {"ring": self.ring.metadata(), "lost": self.ring.lost_since_begin(found["lost"])}
            return found
        return {"threads": threads, "duration_ns": time.monotonic_ns() - self.helper.attached["epoch_ns"],
                "import_warnings": [f"the capture broke off: {self.helper.error}"]}

    def _helper_ended(self):
        return self.helper.error is not None or self.helper.end is not None

    def _command_ended(self):
        return self.workload is not None and self.workload.exit_code is not None

    def _process_ended(self):
        return self.process_end is not None and self.process_end.has_come()

    def _wait_for_change(self, timeout_s):
        try:
            self.changes.get(timeout=timeout_s)
        except queue.Empty:
            pass

    def _on_save(self, number, frame):
        self.saves_wanted += 1
        self.changes.put("save")

    def _on_signal(self, number, frame):
        self.interrupted = True
        self.signal = number
        self.changes.put("signal")

    def _start_source(self, own):
        name, why = sources.choose(self.options.source, self.drives, self.options)
        if name == "bpf":
            return Helper(self._helper_arguments(own), self.spool, lambda: self.changes.put("helper"),
                          self.options.live_ns)
        self.monitor.notice(f"the source is {name}: {why}")
        source = sources.start(name, self.drives, self.options, self.spool, lambda: self.changes.put("helper"),
                               self.monitor.notice)
        if self.options.live_ns:
            self.counters = Counters([block_directory(drive) / "stat" for drive in self.drives], self.options.live_ns,
                                     f"by the kernel's counters: {name} tells no percentiles and no processes "
                                     "while it records")
        return source

    def _helper_arguments(self, own):
        arguments = ["--programs", self.options.programs, "--ring-bytes", str(self.options.ring_bytes),
                     *own.helper_arguments(self.options.own_only)]
        if self.options.files:
            arguments.append("--files")
        if not self.options.io_start:
            arguments.append("--without-io-start")
        for drive in self.drives:
            arguments += ["--device", f"{drive.major}:{drive.minor}"]
        return arguments


def _drives(options, monitor) -> list[Drive]:
    path = options.path
    if not options.devices and path is None:
        if not options.command:
            raise UsageError("nothing to capture is named", "name a device, --path DIR or a command behind --")
        path = "."
    drives = drives_to_watch(options.devices, path, monitor.notice)
    try:
        own = {drive.name for drive in drives_under(options.output.resolve().parent)}
    except UsageError:
        own = set()
    for drive in drives:
        if drive.name in own:
            monitor.notice(f"{options.output} is on {drive.path}: writing it becomes part of the trace; "
                           "a directory on another drive avoids that")
    return drives


def _begun(options, drives) -> dict:
    host = platform.uname()
    return {
        "writer": f"blkreel {__version__}", "clock": "monotonic",
        "filters": {"devices": [f"{d.major}:{d.minor}" for d in drives], "pid": options.pid, "cgroup": options.cgroup,
                    "own_only": options.own_only},
        "command": options.command, "cold": options.cold, "host": host.node, "kernel": host.release,
        "cpu_count": os.cpu_count(), "devices": [{**describe(drive), "layer": layer_of(drive)} for drive in drives],
    }


def _drop_caches():
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except PermissionError:
        raise BlkreelError("no permission to drop the page cache",
                           "run it as root, as in: sudo blkreel capture ...") from None


@contextmanager
def _signals(on_end, on_save):
    """Ctrl-C and its kin end the capture instead of the process, until the trace is whole."""
    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), on_end) | {signal.SIGUSR1: on_save}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del handlers[signal.SIGHUP]  # nohup: it shall outlive its terminal
    kept = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, old in kept.items():
            signal.signal(number, old)
