"""One capture, from the first check to the finished trace."""

import os
import platform
import pwd
import queue
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeGuard

from blkreel import __version__
from blkreel.common.command_line import AS_ROOT
from blkreel.common.device import Drive, block_directory, describe, drives_under
from blkreel.common.emulated import EmulatedUses, reasons
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.printable import printable
from blkreel.common.system import handled_signals, io_max
from blkreel.traces.format.metadata_types import storage_layer
from blkreel.traces.format.reader import counts_by_op, open_trace
from blkreel.traces.format.schema import OPS, TRACE_SCHEMA
from blkreel.traces.live import Interval
from blkreel.traces.spool.notes import begun_metadata
from blkreel.traces.spool.rows_child import ChildKilled
from blkreel.traces.spool.space import shortage
from blkreel.traces.spool.spool import Spool

from . import ledger, sources
from .command import Workload, refuse_missing, user_of_command
from .counters import Counters
from .drives import (
    drives_added,
    drives_to_watch,
    fua_of,
    helper_arguments,
    ios_per_s_since_boot,
    layer_of,
    named_blocks,
    paths_of,
    size_bytes_now,
)
from .flight_recorder import Ring, refuse_too_small, save_now
from .helper import Helper
from .namespaces import refuse_other_clock
from .options import CaptureOptions
from .sources.source import Source
from .volumes import loops_on, volumes_from
from .workload_io import ProcessEnd, WorkloadSelection, cgroup_directory, processes_from, refuse_contradictions

_TICK_S = 0.25
_ATTACH_TIMEOUT_S = 300  # the kernel verifies them: over a minute in a busy virtual machine


@dataclass(frozen=True)
class CaptureResult:
    """missing: messages about I/Os that the trace lacks. incomplete: about those without a latency.

    trustworthy: as ledger.is_trustworthy(). duration_ns: of a flight recorder without the time that it dropped.
    """

    path: Path
    metadata: dict[str, Any]
    ios: dict[str, int]
    bytes: dict[str, int]
    duration_ns: int
    missing: list[str]
    incomplete: list[str]
    trustworthy: bool
    command_exit_code: int | None
    interrupted: bool


class CaptureMonitor:
    """Callbacks of a capture. These do nothing."""

    def notice(self, line: str) -> None:
        """A line for the user."""

    def progress(self, seconds: float, events: int | None, lost: int | None) -> None:
        """Called a few times a second. events, lost: None if the source reports them at its end only."""

    def live(self, interval: Interval, drives: list[Drive], names: dict[int, tuple[int, str, str]]) -> None:
        """Called for each interval of options.live_ns. drives: in the order of their numbers.

        names: of threads, {tid: (pid, name, process)}; empty for other sources than bpf.
        """

    def begun(self) -> None:
        """The recording has begun: each I/O from now on becomes a row."""

    def over(self) -> None:
        """The recording has ended. The trace is written next, after the end of the command."""


def run_capture(options: CaptureOptions, monitor: CaptureMonitor | None = None) -> CaptureResult:
    """Capture until the command ends, the duration has passed or Ctrl-C. The trace is complete when this returns.

    Raises BlkreelError if it cannot begin, with nothing left behind, and if the disk is full, with the
    recorded rows kept for `blkreel recover`.
    """
    monitor = monitor or CaptureMonitor()
    refuse_too_small(options.max_bytes)
    refuse_contradictions(options)
    refuse_other_clock()
    if options.command:
        refuse_missing(options.command)
    user = user_of_command(options.user) if options.command else None
    drives = _drives(options, monitor)
    if warning := space_warning(options, drives):
        monitor.notice(f"warning: {warning}")
    spool = Spool(options.output, TRACE_SCHEMA, _begun(options, drives), force=options.force, owner=caller_of_sudo(),
                  public=options.public)
    return _Session(options, drives, user, spool, monitor).run()


def space_warning(options: CaptureOptions, drives: list[Drive]) -> str | None:
    """For a capture of a given time at the drives' average rate; see shortage()."""
    if not options.duration_ns or options.keep_ns or options.max_bytes:
        return None
    rate = ios_per_s_since_boot(drives)
    warning = shortage(options.output, [options.duration_ns / 1e9 * rate], TRACE_SCHEMA)
    return warning and f"at {rate:,.0f} I/Os per second, the average since boot, {warning}"


class _Session:
    def __init__(self, options: CaptureOptions, drives: list[Drive], user: pwd.struct_passwd | None, spool: Spool,
                 monitor: CaptureMonitor):
        self.options, self.drives, self.user, self.spool, self.monitor = options, drives, user, spool, monitor
        # A signal handler may call its put(), but not an Event's set().
        self.changes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.interrupted = False
        self.signal = signal.SIGTERM
        self.save_requested = False
        self.source: Source | None = None
        self.workload: Workload | None = None
        self.ring: Ring | None = None
        self.process_end: ProcessEnd | None = None
        self.control_group: Path | None = None
        self.control_group_id = 0
        self.live_intervals: Callable[[bool], list[Interval]] = lambda last: []
        self.thread_names: dict[int, tuple[int, str, str]] = {}
        self.spool_metadata: dict[str, Any] = {}
        self.suspended_at_start_ns = 0
        self.blocks: tuple[list[Path], list[Path]] = ([], [])
        self.added: set[str] = set()
        self.not_dropped = ""

    def run(self) -> CaptureResult:
        self.emulated = EmulatedUses(drive.backing_file for drive in self.drives)
        if self.options.layer == "device":
            self.blocks = named_blocks(self.options.devices, None), named_blocks([], _path(self.options))
        # Until the trace is complete, Ctrl-C and other signals end the recording instead of the process.
        with handled_signals({**dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._on_signal),
                              signal.SIGUSR1: self._on_save}):
            try:
                source = self._begin()
            except BaseException:
                self._abandon()
                raise
            self.monitor.begun()
            self._watch(source)
            ended_by_itself = source.end is not None
            source.stop()
            # A service that is stopped signals both processes: this one has noticed it by now.
            if ended_by_itself and source.end and not self.interrupted:
                source.end["ended_by_signal"] = True
            self._show_live(last=True)
            self.monitor.over()
            if self.workload and self.workload.exit_code is None:
                self._wait_for_command(self.workload, source)
            return self._finish(source)

    def _begin(self) -> Source:
        """Everything that may fail before there is anything to keep."""
        if self.options.keep_ns is not None or self.options.max_bytes is not None:
            self.ring = Ring(self.spool, self.options.max_bytes, self.options.keep_ns)
            self.monitor.notice(f"to save what is held and go on: kill -USR1 {os.getpid()}")
        if self.options.cold:
            _drop_caches()
            self.monitor.notice("dropped the page cache of the whole machine: other programs are slower for a while")
        source = self._start_source(self._select_workload())
        assert source.attached
        self.suspended_at_start_ns = ledger.suspended_since_boot_ns()
        self.spool_metadata = {**_begun(self.options, self.drives), **begun_metadata(source.attached)}
        self.spool.note(self.spool_metadata)
        if self.workload and not self.interrupted:
            self.workload.release(self._wake)
        elif self.workload:
            self.workload.abandon()
            self.workload = None
        return source

    def _select_workload(self) -> WorkloadSelection:
        """The processes whose I/O the source marks from the first one on."""
        if self.options.until_exit and self.options.pid is not None:
            self.process_end = ProcessEnd(self.options.pid)
        if self.options.cgroup is not None:
            group = self.control_group = cgroup_directory(self.options.cgroup)
            self.control_group_id = group.stat().st_ino
            return WorkloadSelection(cgroup=group)
        if self.options.pid is not None:
            return WorkloadSelection(pids=processes_from(self.options.pid))
        if self.options.command:
            self.workload = Workload(self.options.command, self.user, self.options.command_streams)
            return WorkloadSelection(pids=(self.workload.pid,))
        return WorkloadSelection()

    def _watch(self, source: Source) -> None:
        began = time.monotonic()
        end = began + self.options.duration_ns / 1e9 if self.options.duration_ns else float("inf")
        while not (self.interrupted or source.error or source.end or self._command_ended()
                   or self.process_end and self.process_end.has_come()):
            now = time.monotonic()
            if now >= end:
                return
            self.monitor.progress(now - began, *((None, None) if source.reports_late else (source.events, source.lost)))
            self._show_live()
            self._note_sizes()
            self._note_added()
            self._drop_old()
            if self.save_requested:
                self._save()
            self._wait_for_change(min(_TICK_S, end - now))

    def _show_live(self, last: bool = False) -> None:
        for interval in self.live_intervals(last):
            self.monitor.live(interval, self.drives, self.thread_names)

    def _note_sizes(self) -> None:
        """A drive may grow: a volume that is extended, a loop device that is attached anew."""
        devices = [{**device, "size_bytes": max(device["size_bytes"], size_bytes_now(device["name"]))}
                   for device in self.spool_metadata["devices"]]
        if devices != self.spool_metadata["devices"]:
            self.spool_metadata["devices"] = devices
            with suppress(BlkreelError):  # on a full disk the trace still has them, if the capture comes to its end
                self.spool.note({"devices": devices})

    def _note_added(self) -> None:
        with suppress(OSError):  # taken down at this moment
            self.added |= drives_added(*self.blocks, self.spool_metadata.get("volumes", ()), self.drives)

    def _drop_old(self) -> None:
        try:
            if self.ring:
                self.ring.drop_old()
        except BlkreelError as error:
            # The helper meets the same full disk, and ends the capture. A spool that was moved may come back.
            if str(error) != self.not_dropped:
                self.monitor.notice(f"nothing was dropped: {error}")
            self.not_dropped = str(error)

    def _save(self) -> None:
        self.save_requested = False
        more = {"ring": self.ring.metadata()} if self.ring else {}
        try:
            path = save_now(self.spool, more)
        except BlkreelError as error:
            self.monitor.notice(f"nothing was saved: {error}")
            return
        self.monitor.notice(f"saved {path}; the capture goes on")

    def _wait_for_command(self, workload: Workload, source: Source) -> None:
        """The recording has ended before the command: by its duration, Ctrl-C or a full disk."""
        early = source.error or (source.end and ledger.ended_early(source.end))
        if early:
            self.monitor.notice(f"{early}; the command goes on")
        while not (self.interrupted or self._command_ended()):
            self._wait_for_change(None)
        if self.interrupted:
            workload.end(self.signal)

    def _finish(self, source: Source) -> CaptureResult:
        if source.error and not source.died:
            raise source.error
        ended = self._end_metadata(source)
        self._note_sizes()
        metadata = {**self.spool_metadata, **ended,
                    "threads": {str(tid): entry for tid, entry in source.threads.items()}}
        if uses := self.emulated.end():
            metadata["emulated"] = uses
            for limit in reasons(uses):
                self.monitor.notice(limit["text"])
        if self.ring and source.end:
            metadata["ring"] = self.ring.metadata()
        try:
            path = self.spool.finish(metadata)
        except BlkreelError as error:
            error.remedy = f"{error.remedy or 'mend that'}; then: blkreel recover {self.options.output}"
            raise
        # The helper's counts include what a ring dropped.
        if source.end and not self.ring:
            ios, moved = (dict(zip(OPS, source.end[key], strict=True)) for key in ("ios", "bytes"))
        else:
            ios, moved = counts_by_op(open_trace(path))
        missing, incomplete, trustworthy = metadata["import_warnings"], [], not metadata["import_warnings"]
        if _has_ledger(ended):
            missing = ledger.missing(ended)
            incomplete = ledger.incomplete(ended, metadata["source_format"])
            trustworthy = ledger.is_trustworthy(ended)
        return CaptureResult(
            path=path, metadata=metadata, interrupted=self.interrupted, ios=ios, bytes=moved,
            duration_ns=metadata["duration_ns"] - ((self.ring and self.ring.dropped_until_ns) or 0),
            missing=missing, incomplete=incomplete,
            trustworthy=trustworthy,
            command_exit_code=self.workload.exit_code if self.workload else None)

    def _abandon(self) -> None:
        if self.workload:
            self.workload.abandon()
        if self.source:
            self.source.stop()
        self.spool.discard()

    def _end_metadata(self, source: Source) -> ledger.EndMetadata | dict[str, Any]:
        """A helper that died leaves its rows without a ledger, and the trace has a warning."""
        if source.end:
            with suppress(OSError):  # removed for good: nothing of it is missing
                if self.control_group and self.control_group.stat().st_ino != self.control_group_id:
                    source.end["ledger"]["cgroup_replaced"] = 1
            self._note_added()
            metadata = ledger.ended(source.end, self.spool_metadata,
                                    ledger.suspended_since_boot_ns() - self.suspended_at_start_ns, self.added)
            if self.ring:
                metadata["lost"] = self.ring.lost_since_begin(metadata["lost"])
            return metadata
        assert source.attached
        why = [f"the capture broke off: {source.error}"]
        return {"duration_ns": time.monotonic_ns() - source.attached["epoch_ns"],
                "ledger": {"missing": why}, "import_warnings": why}

    def _command_ended(self) -> bool:
        return self.workload is not None and self.workload.exit_code is not None

    def _wake(self) -> None:
        self.changes.put(None)

    def _wait_for_change(self, timeout_s: float | None) -> None:
        with suppress(queue.Empty):
            self.changes.get(timeout=timeout_s)

    def _on_save(self, number: int, frame: FrameType | None) -> None:
        self.save_requested = True
        self._wake()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self.signal = signal.Signals(number)
        self._wake()

    def _start_source(self, selection: WorkloadSelection) -> Source:
        """The first source that can run, when it records."""
        refused: dict[str, BlkreelError] = {}
        for name in sources.candidates(self.options):
            try:
                source = self.source = self._start(name, selection)
            except BlkreelError as error:
                refused[name] = error
                continue
            self._wait_until_attached(source)
            failure = source.error
            if failure is None:
                if name != "bpf":
                    reasons = "; ".join(f"{candidate} cannot run: {why.message}" for candidate, why in refused.items())
                    self.monitor.notice(f"the source is {name}: {reasons or 'as asked for'}")
                return source
            # A killed helper may be able to run, and a helper that wrote into the spool is.
            if (not isinstance(failure, BlkreelError) or isinstance(failure, ChildKilled)
                    or self.spool.written_bytes()):
                raise failure
            source.stop()
            refused[name], self.source = failure, None
        raise sources.none_can_run(refused)

    def _wait_until_attached(self, source: Source) -> None:
        deadline = time.monotonic() + _ATTACH_TIMEOUT_S
        while not (source.attached or source.error or self.interrupted):
            if time.monotonic() > deadline:
                raise BlkreelError(f"the capture helper did not attach its programs within {_ATTACH_TIMEOUT_S} s",
                                   "see: blkreel doctor")
            self._wait_for_change(_TICK_S)
        if not (source.attached or source.error):
            raise BlkreelError("the capture was interrupted before it began")

    def _start(self, name: str, selection: WorkloadSelection) -> Source:
        options = self.options
        if name == "bpf":
            helper = Helper(self._helper_arguments(selection), self.spool, self._wake, options.live_ns)
            self.live_intervals, self.thread_names = lambda last: helper.intervals(), helper.names
            return helper
        source = sources.start(name, self.drives, options, self.spool, self._wake, self.monitor.notice)
        if options.live_ns:
            counters = Counters([block_directory(drive) / "stat" for drive in self.drives], options.live_ns,
                                f"by the kernel's counters: {name} reports no percentiles and no processes "
                                "while it records")
            self.live_intervals = lambda last: counters.intervals(
                None if source.reports_late and not source.end else source.lost, last=last)
            self.thread_names = {}
        return source

    def _helper_arguments(self, selection: WorkloadSelection) -> list[str]:
        arguments = ["--programs", self.options.programs, "--ring-bytes", str(self.options.ring_bytes),
                     *selection.helper_arguments(self.options.own_only)]
        if self.options.files:
            arguments.append("--files")
        if self.options.private:
            arguments.append("--without-names")
        if not self.options.io_start:
            arguments.append("--without-io-start")
        return [*arguments, *helper_arguments(self.drives)]


def _has_ledger(metadata: ledger.EndMetadata | dict[str, Any]) -> TypeGuard[ledger.EndMetadata]:
    return "diskstats" in metadata


def _path(options: CaptureOptions) -> str | None:
    """The directory whose drives are recorded: without any other choice, that where the command starts."""
    return "." if options.path is None and not options.devices and options.command else options.path


def _drives(options: CaptureOptions, monitor: CaptureMonitor) -> list[Drive]:
    path = _path(options)
    if not options.devices and path is None:
        raise UsageError("no drive to capture", "name a device, --path DIR or a command behind --")
    drives = drives_to_watch(options.devices, path, monitor.notice, options.layer)
    try:
        own = {drive.name for drive in drives_under(options.output.resolve().parent)}
    except UsageError:
        own = set()
    for drive in drives:
        if drive.name in own:
            monitor.notice(f"{options.output} is on {drive.path}: writing it becomes part of the trace; "
                           "a directory on another drive avoids that")
    return drives


def _begun(options: CaptureOptions, drives: list[Drive]) -> dict[str, Any]:
    host = platform.uname()
    private = options.private
    devices = [{**describe(drive), "fua": fua_of(drive), "layer": layer_of(drive),
                **({"paths": paths} if (paths := paths_of(drive)) else {}),
                **({"io_max": limits} if (limits := _io_max(options, drive)) else {})} for drive in drives]
    volumes = volumes_from([*named_blocks(options.devices, _path(options)), *map(block_directory, drives)])
    volumes += loops_on(drives, volumes)
    return {
        "writer": f"blkreel {__version__}", "clock": "monotonic",
        "storage_layer": storage_layer(devices, volumes),
        **({"volumes": [{**volume, "label": ""} for volume in volumes] if private else volumes} if volumes else {}),
        "filters": {"devices": [f"{d.major}:{d.minor}" for d in drives], "pid": options.pid,
                    "cgroup": None if private else options.cgroup, "own_only": options.own_only,
                    "command": bool(options.command)},
        **{name: text for name in ("title", "description")
           if (text := printable(getattr(options, name) or "").strip())},
        "command": [] if private else options.command, "cold": options.cold,
        "host": "" if private else host.node, "kernel": host.release, "cpu_count": os.cpu_count(),
        "devices": [{**device, "backing_file": "", "model": "" if device["kind"] == "dm" else device["model"]}
                    for device in devices] if private else devices,
        **({"source_lacks": ["names"]} if private else {}),
    }


def _io_max(options: CaptureOptions, drive: Drive) -> dict[str, int]:
    """The limits of the workload's control group when the capture starts; a command is in that of this process."""
    group = cgroup_directory(options.cgroup) if options.cgroup is not None else None
    own = Path("/proc", "self" if options.pid is None else str(options.pid), "cgroup")
    return io_max(f"{drive.major}:{drive.minor}", group, own=own)


def _drop_caches() -> None:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except PermissionError:
        raise BlkreelError("no permission to drop the page cache", AS_ROOT) from None
