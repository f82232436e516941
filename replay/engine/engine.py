"""Run the replay helper: write a plan to it, and pass on the records of completed I/Os."""

import errno
import fcntl
import io
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypedDict, cast

import numpy as np

from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.common.limits import limit_reached
from blkreel.common.units import format_bytes
from blkreel.replay.drive import late_writes
from blkreel.replay.drive.claim import Claim, wait_released
from blkreel.replay.drive.late_writes import WritesInFlight
from blkreel.replay.drive.write_support import WriteSupport
from blkreel.replay.simulated import state as simulated
from blkreel.replay.simulated.spec import SimulatedDrive
from blkreel.traces.spool.blocks import BlockReader, BlockStreamError, BlockWriter, End, Note, Rows

HELPER = Path(__file__).with_name("blkreel-replay")

Batch = dict[str, np.ndarray]  # columns of rows, all of one length
ColumnTypes = list[tuple[str, str]]

# Columns of every plan. due_ns -1: as soon as the depth of the lane allows.
PLAN_COLUMNS = [("due_ns", "i8"), ("offset_bytes", "i8"), ("length_bytes", "i8"), ("op", "i1"),
                ("flags", "i4"), ("stream", "i2"), ("burst", "i4"), ("source_row", "i8")]
# Optional groups of columns. A plan has all columns of a group or none.
#
# The target of a row, in a run with several targets.
TARGET_COLUMNS = [("target", "i2")]
# Distances in rows back in the plan of the lane (0: none) to up to four rows whose completion, and to one whose
# submission, the row waits for. Its deadline is the latest of these completions and that submission plus compute_ns,
# plus delay_ns; without any, due_ns. Before compute_ns and after delay_ns the row needs *_cpu_ns of a processor;
# while more rows compute than the lane has processors, they share these equally.
DEPENDENCY_COLUMNS = [("after_1", "i4"), ("after_2", "i4"), ("after_3", "i4"), ("after_4", "i4"), ("behind", "i4"),
                      ("compute_ns", "i8"), ("delay_ns", "i8"), ("compute_cpu_ns", "i8"), ("delay_cpu_ns", "i8")]
# Submission on the source, from any origin, latency (-1: unknown), idle time of the source before the row that the plan
# leaves out, and thread (-1: unknown). With submission and latency the engine counts hazards: I/Os in flight together
# over common bytes that were not in flight together on the source.
CAPTURED_COLUMNS = [("captured_ns", "i8"), ("captured_latency_ns", "i8"), ("idle_removed_ns", "i8"),
                    ("tid", "i4")]
RECORD_COLUMNS = [("due_ns", "i8"), ("submit_ns", "i8"), ("complete_ns", "i8"), ("offset_bytes", "i8"),
                  ("length_bytes", "i8"), ("op", "i1"), ("flags", "i4"), ("cpu", "i2"), ("status", "i2"),
                  ("stream", "i2"), ("burst", "i4"), ("source_row", "i8"), ("target", "i2"), ("tid", "i4"),
                  ("idle_removed_ns", "i8"), ("host_delay_ns", "i8"), ("stall_ns", "i8")]

# Rows of the lane that may be outstanding once the row is issued, with itself; 0: as many as the lane's depth. Only in
# a plan without dependencies and with CAPTURED_COLUMNS.
IN_FLIGHT_COLUMNS = [("in_flight", "i4")]

# A flag of rows in a plan with dependencies that are not issued: they complete the moment they are due.
OMITTED = 1 << 30

BLOCK_ROWS = 32768
PLAN_BLOCKS_AHEAD = 8  # blocks of each lane that the helper reads ahead
# The first blocks on a virtual clock, which waits for the plan: a background without end, of which a short load needs
# few rows, took most of the time of a simulation. Each later block has at most a part of the rows before it.
_FIRST_ROWS, _PART_OF_BEFORE = 1024, 8
MAX_DEPTH = 16384  # sum over all lanes of a run
MAX_LANES = 64
DEPENDENCY_REACH = 1 << 18  # largest distance of a dependency, in rows

_PIPE_BYTES = 1 << 20
_END_TIMEOUT_S = 45  # the helper waits up to 30 s for outstanding reads
_REPORT_EVERY_S = 0.5
_KILL_TIMEOUT_S = 5
_ERRORS = {2: UsageError, 5: SafetyError}


COPY_KINDS = 256  # of native/target/payload.c
_BLOCK_BYTES = 4096
_ENOUGH_COPIES = 0.9


@dataclass(frozen=True)
class Payload:
    """Written data: percent that a compressor removes, and percent of the 4 KiB blocks that are copies of others."""

    compressible_percent: int = 0
    duplicates_percent: int = 0

    def account(self) -> dict[str, int]:
        return {"compressible_percent": self.compressible_percent, "duplicates_percent": self.duplicates_percent}

    def few_copies(self, written_bytes: int) -> str | None:
        """A warning if so little is written that fewer blocks are copies than wanted; None otherwise.

        Copies repeat COPY_KINDS blocks, so far apart that no stream compressor finds them, and these are unique.
        """
        blocks = written_bytes // _BLOCK_BYTES
        copies = max(0, blocks * self.duplicates_percent // 100 - COPY_KINDS)
        if not blocks or copies >= _ENOUGH_COPIES * blocks * self.duplicates_percent / 100:
            return None
        share, written = 100 * copies // blocks, format_bytes(written_bytes)
        return (f"--duplicates {self.duplicates_percent}: {share} % of the {written} written are copies, because they "
                f"repeat {COPY_KINDS} blocks of 4 KiB; write more, or omit --duplicates")


class EngineTotals(TypedDict, total=False):
    """Totals of a run, as the helper writes them into its end block.

    stopped: why the run ended before its plan, None if it did not. asked_to_stop: whether Ctrl-C was pressed, even too
    late to stop anything. time_limit: whether stop_ns left rows unissued. lane_issued: rows issued of each lane; of a
    plan without dependencies always its first ones. simulated: `samples` of the first simulated drive, [[time_ns,
    temperature_c, power_w, throttled], ...] at 1 Hz of its clock and at its end, thinned out beyond 100,000.
    """

    stopped: str | None
    asked_to_stop: bool
    time_limit: bool
    lane_issued: list[int]
    simulated: dict[str, Any]
    stall_monitor: dict[str, Any]
    start_monotonic_ns: int
    start_realtime_ns: int
    altered: dict[str, int]
    dropped: dict[str, int]
    hazard_ops: int
    compares_unequal: int
    underruns: int
    record_stalls: int
    buffers_full_ops: int


class EngineNote(TypedDict, total=False):
    """Progress of the helper, about twice a second.

    draining: nothing more is issued. changing_ops: outstanding writes and discards of each target. waiting: present
    while the run waits for the last of them, as text for the user.
    """

    start_monotonic_ns: int
    elapsed_ns: int
    outstanding: int
    draining: bool
    changing_ops: list[int]
    waiting: str


@dataclass(frozen=True)
class EngineOptions:
    """How to issue a plan.

    claims: of the targets, block devices or regular files; the plan's column `target` is an index into them.
    may_write: of all targets, or of each; without it a target is opened read-only, and a plan with other operations
    than reads and flushes is refused. nil_bytes, nil_targets: no drive, but so many targets of that size that complete
    each I/O at once, to measure the engine itself. plain: do without recent kernel features. polled: poll the drive for
    completions. passthrough: send NVMe commands through the character device of each target.
    write_support: of each target, in the same order; a write hint or an atomic write without it is a plain write, and a
    verify or a compare is dropped.
    turnaround_ns: what the issuing thread needs from the end of an I/O to the next one. In plans with dependencies each
    completion counts as earlier by it, as far as no row is late for that.
    stop_ns: issue no row later than this after the start; outstanding rows are waited for. simulated: the simulated
    drive of each nil target; its state is loaded before the run and saved after it. One thread issues to simulated
    drives.
    """

    claims: Sequence[Claim] = ()
    write_support: Sequence[WriteSupport] = ()
    may_write: bool | Sequence[bool] = False
    seed: int = 0
    payload: Payload = Payload()
    realtime: bool = False
    nil_bytes: int | None = None
    nil_targets: int = 1
    plain: bool = False
    polled: bool = False
    passthrough: bool = False
    turnaround_ns: int = 0
    stop_ns: int | None = None
    simulated: tuple[SimulatedDrive, ...] = ()

    @property
    def targets(self) -> list[Path]:
        return [claim.target.path for claim in self.claims]

    @property
    def written(self) -> list[bool]:
        """Whether each target may be written to."""
        count = self.nil_targets if self.nil_bytes is not None else len(self.claims)
        return [self.may_write] * count if isinstance(self.may_write, bool) else list(self.may_write)

    @property
    def is_virtual(self) -> bool:
        return any(drive.is_virtual for drive in self.simulated)

    def command(self) -> list[str]:
        words = [str(HELPER), f"--seed={self.seed}",
                 f"--compressible={self.payload.compressible_percent}",
                 f"--duplicates={self.payload.duplicates_percent}"]
        words += [word for word, is_set in [("--realtime", self.realtime), ("--plain", self.plain),
                                            ("--polled", self.polled),
                                            ("--passthrough", self.passthrough)] if is_set]
        words += [f"--may-write={index}" for index, is_written in enumerate(self.written) if is_written]
        if self.turnaround_ns:
            words.append(f"--turnaround-ns={self.turnaround_ns}")
        if self.stop_ns is not None:
            words.append(f"--stop-ns={self.stop_ns}")
        if self.nil_bytes is not None:
            words += ["--virtual-clock"] * self.is_virtual
            return [*words, f"--nil={self.nil_bytes}", f"--nil-targets={self.nil_targets}"]
        for claim in self.claims:
            identity = claim.target.identity
            words.append(f"--claimed={claim.descriptor},{claim.exclusive},{identity.device},{identity.inode},{identity.node},"
                         f"{identity.diskseq}")
        for index, support in enumerate(self.write_support):
            if support != WriteSupport():
                numbers = (index, *support.atomic_bytes, support.verify_bytes, *support.hints)
                words.append(f"--write-support={','.join(map(str, numbers))}")
            if support.compare_data is not None:
                words.append(f"--compare-data={index},{support.compare_data}")
        return [*words, "--", *map(str, self.targets)]


@dataclass(frozen=True)
class Lane:
    """A plan of a run, on the clock of all its plans. Its rows depend only on its own depth and its own rows.

    batches: of PLAN_COLUMNS, and of the optional groups that the first one has; endless only if stop_ns or another lane
    ends the run. depth: maximum outstanding rows. thread: index of the issuing thread; the indexes of a run have no
    gaps. background: the lane ends when all other lanes are issued and completed, and shares its thread
    with one of them; its plan may be endless. start_ns: of a foreground lane, the time of its earliest issue.
    processors: that its rows share; 0: as many as they need.
    """

    batches: Iterable[Batch]
    depth: int = 1024
    thread: int = 0
    background: bool = False
    start_ns: int = 0
    processors: int = 0


Engine = Callable[[EngineOptions, Sequence[Lane], Callable[[Batch], None], Callable[[EngineNote], None]], EngineTotals]


def run_engine(options: EngineOptions, lanes: Sequence[Lane], on_rows: Callable[[Batch], None],
               on_note: Callable[[EngineNote], None]) -> EngineTotals:
    """Issue the plans, each of which a thread of its own iterates, and return the totals.

    on_rows gets completed rows (RECORD_COLUMNS) in no particular order, on_note the progress about twice a second. Both
    run in the caller's thread. Ctrl-C ends the run: outstanding rows are waited for and passed on, and
    totals["stopped"] gives the reason. A second Ctrl-C raises KeyboardInterrupt, or WritesInFlight.

    Raises SafetyError if the target is in use or the plan does not fit it, BlkreelError if the helper failed, and any
    error of a plan or on_rows. Unless it raises WritesInFlight, the helper has ended and no write is in flight when
    this returns or raises.
    """
    with simulated.Running(options.simulated) as drives, tempfile.TemporaryFile() as stderr, _writing(options):
        try:
            helper, feeders = _start(options, lanes, stderr, drives)
        except OSError as error:
            if error.errno == errno.ENOSPC and not error.filename:
                raise BlkreelError(f"no space left for temporary files in {tempfile.gettempdir()}",
                                   "free some space, or choose another directory: export TMPDIR=DIR") from error
            raise limit_reached(error) or BlkreelError(
                f"cannot start the replay helper: {error.filename or HELPER}: {error.strerror}",
                "see what is missing: blkreel doctor") from error
        ending = _Ending(helper, feeders, options, sum(lane.depth for lane in lanes), on_note)
        totals = exit_code = None
        with _interrupt_ends(helper) as interrupts:
            try:
                try:
                    for feeder in feeders:
                        feeder.start()
                    totals = ending.collect(on_rows)
                    exit_code = ending.exit_code()
                except BlockStreamError:
                    exit_code, totals = ending.exit_code(), None
                except KeyboardInterrupt:
                    raise
                except BaseException:
                    ending.wait(all_done=False)
                    raise
                ending.wait(all_done=totals is not None and exit_code == 0)
            except KeyboardInterrupt:
                ending.leave()
                raise
        stderr.seek(0)
        errors = stderr.read().decode(errors="replace").strip()
        if totals is not None:
            drives.take(totals.get("simulated"))
        for feeder in feeders:
            if feeder.error is not None:
                raise feeder.error
        if exit_code != 0 or totals is None:
            raise _error(exit_code, errors)
        totals["asked_to_stop"] = bool(interrupts)
        return totals


class _Feeder(threading.Thread):
    """Writes a plan to the helper. After an error of the plan the pipe ends without its end block."""

    def __init__(self, pipe: io.BufferedWriter, plan: Iterable[Batch], *, is_virtual: bool):
        super().__init__(name="plan", daemon=True)
        self._pipe = pipe
        self._plan = plan
        self._is_virtual = is_virtual
        self._written_rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            batches = iter(self._plan)
            first = next(batches, None)
            columns = plan_columns(first or {})
            writer = BlockWriter(self._pipe, "plan", columns, checksums=False)
            for batch in [first] if first is not None else []:
                self._write(writer, batch, columns)
            for batch in batches:
                self._write(writer, batch, columns)
            writer.end()
        except BrokenPipeError:
            pass  # the helper ended and printed why
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        finally:
            with suppress(OSError):
                self._pipe.close()

    def _write(self, writer: BlockWriter, batch: Batch, columns: ColumnTypes) -> None:
        first = 0
        while first < len(batch["due_ns"]):
            rows = BLOCK_ROWS
            if self._is_virtual:
                rows = min(rows, max(_FIRST_ROWS, self._written_rows // _PART_OF_BEFORE))
            writer.rows({name: batch[name][first:first + rows] for name, _ in columns})
            first += rows
            self._written_rows += rows


def plan_columns(batch: Batch) -> ColumnTypes:
    """The columns of a plan with batches like this one."""
    groups = (TARGET_COLUMNS, DEPENDENCY_COLUMNS, CAPTURED_COLUMNS, IN_FLIGHT_COLUMNS)
    return PLAN_COLUMNS + [column for group in groups if group[0][0] in batch for column in group]


def _start(options: EngineOptions, lanes: Sequence[Lane], stderr: IO[bytes],
           drives: simulated.Running) -> tuple[subprocess.Popen[bytes], list[_Feeder]]:
    with ExitStack() as own_ends, ExitStack() as passed:
        pipes = []
        for _ in lanes:
            read, write = os.pipe()
            passed.callback(os.close, read)
            pipes.append((read, own_ends.enter_context(os.fdopen(write, "wb"))))
        states = [passed.enter_context(file) for file in drives.files()]
        words = options.command()
        words[1:1] = [f"--lane={read},{lane.depth},{lane.thread}" + ",background" * lane.background
                      + f",start={lane.start_ns}" * bool(lane.start_ns)
                      + f",processors={lane.processors}" * bool(lane.processors)
                      for lane, (read, _) in zip(lanes, pipes, strict=True)]
        words[1:1] = [f"--simulate={file.fileno()}" for file in states]
        # In a new session: if Ctrl-C on the terminal reached the helper directly, records would be lost.
        helper = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                                  pass_fds=[*(read for read, _ in pipes), *(file.fileno() for file in states),
                                            *(fd for claim in options.claims for fd in claim.descriptors),
                                            *(fd for support in options.write_support for fd in support.descriptors)],
                                  start_new_session=True)
        own_ends.pop_all()
    feeders = [_Feeder(pipe, lane.batches, is_virtual=options.is_virtual)
               for lane, (_, pipe) in zip(lanes, pipes, strict=True)]
    for end in (_output(helper), *(pipe for _, pipe in pipes)):
        with suppress(OSError):  # beyond the user's limit of pipe memory; smaller pipes work too
            fcntl.fcntl(end.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return helper, feeders


def _output(helper: subprocess.Popen[bytes]) -> IO[bytes]:
    assert helper.stdout is not None
    return helper.stdout


@contextmanager
def _interrupt_ends(helper: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Forward the first Ctrl-C to the helper as SIGTERM, while its records are still read to the end.

    Gives the list of signals received. The second Ctrl-C goes to the previous handler.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.getsignal(signal.SIGINT)
    previous = before if before is not None else signal.default_int_handler

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, previous)
        helper.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGINT, forward)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _writing(options: EngineOptions) -> Iterator[None]:
    """Note on each target that this command writes to it, until no write is in flight."""
    targets = [claim.target for claim, is_written in zip(options.claims, options.written, strict=False) if is_written]
    for target in targets:
        late_writes.begin(target)
    in_flight = False
    try:
        yield
    except WritesInFlight:
        in_flight = True
        raise
    finally:
        for target in targets if not in_flight else ():
            late_writes.end(target)


class _Ending:
    """Reads what the helper sends, and waits until it has ended and no write of it is in flight."""

    def __init__(self, helper: subprocess.Popen[bytes], feeders: list[_Feeder], options: EngineOptions, depth: int,
                 on_note: Callable[[EngineNote], None]):
        self._helper, self._feeders, self._options, self._on_note = helper, feeders, options, on_note
        self._depth = depth  # of all lanes
        self._blocks = iter(BlockReader(cast(Any, _output(helper)), "records", RECORD_COLUMNS))
        self._note: EngineNote = {}
        self._all_done = False

    def collect(self, on_rows: Callable[[Batch], None]) -> EngineTotals:
        """The totals. Raises BlockStreamError if the helper ended without them."""
        for block in self._blocks:
            if isinstance(block, Rows):
                on_rows(block.columns)
            elif isinstance(block, Note):
                self._take(cast(EngineNote, block.fields))
                self._on_note(self._note)
            elif isinstance(block, End):
                return cast(EngineTotals, block.fields)
        raise AssertionError("BlockReader ends with End or raises")

    def exit_code(self) -> int | None:
        """Of a helper whose output has ended; None if it does not end."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._may_write_late or time.monotonic() < deadline:
            try:
                return self._helper.wait(_REPORT_EVERY_S)
            except subprocess.TimeoutExpired:
                if self._may_write_late:
                    self._report([])
        return None

    def wait(self, *, all_done: bool) -> None:
        """End the helper and the threads that feed it, and wait for the writes in flight.

        all_done: the helper said that there are none.
        """
        self._all_done = all_done
        if self._helper.poll() is None:
            self._helper.terminate()
            self._read_notes()
        _output(self._helper).close()
        self._kill_unless_ended()
        self._join_feeders(timeout_s=5)
        wait_released(self._options.claims, self._report if self._may_write_late else None)

    def leave(self) -> None:
        """After a second Ctrl-C: raise WritesInFlight if there are any. The helper then ends after the last of them."""
        if self._helper.poll() is None and not self._may_write_late:
            self._helper.terminate()
            _output(self._helper).close()
            self._kill_unless_ended()
        self._join_feeders(timeout_s=0)
        waiting = [claim for claim in self._options.claims if not claim.is_released]
        if self._may_write_late and (waiting or self._helper.poll() is None):
            raise WritesInFlight(self._in_flight(waiting), " and ".join(self._names(waiting))) from None

    def _kill_unless_ended(self) -> None:
        if self.exit_code() is None:
            self._helper.kill()
            with suppress(subprocess.TimeoutExpired):  # the kernel may keep it until its last I/O is complete
                self._helper.wait(_KILL_TIMEOUT_S)

    @property
    def _may_write_late(self) -> bool:
        """Whether writes may be in flight after the helper has ended, or if it does not end."""
        is_known = self._note.get("draining") and self._helper.returncode is None
        return any(self._options.written) and not self._all_done and not (is_known and not self._changing_ops)

    @property
    def _changing_ops(self) -> int:
        return sum(self._note.get("changing_ops", ()))

    def _take(self, note: EngineNote) -> None:
        self._note = note
        if note.get("draining") and self._changing_ops:
            note["waiting"] = self._waiting([])

    def _read_notes(self) -> None:
        """Until the helper has ended. Its other output is of no use after an error."""
        with suppress(BlockStreamError):
            for block in self._blocks:
                if isinstance(block, Note):
                    self._take(cast(EngineNote, block.fields))
                    if self._changing_ops:
                        self._report([])
                elif isinstance(block, End):
                    self._all_done = True

    def _report(self, claims: Sequence[Claim]) -> None:
        # The error that ended the run is of more use than one that follows from it.
        with suppress(Exception):
            self._on_note({**self._note, "waiting": self._waiting(claims)})

    def _waiting(self, claims: Sequence[Claim]) -> str:
        drives = "drive" if len(self._names(claims)) == 1 else "drives"
        return f"{self._in_flight(claims)}; the {drives} must not be used until they are done"

    def _in_flight(self, claims: Sequence[Claim]) -> str:
        """`18 writes in flight on /dev/loop7`. claims: those that are not released; empty: any may be.

        The counts are known while the helper runs and issues nothing; else the depth limits them.
        """
        counts = dict(zip(map(str, self._options.targets), self._note.get("changing_ops", ()), strict=False))
        if self._note.get("draining") and self._helper.returncode is None:
            parts = [f"{count} {'write' if count == 1 else 'writes'} in flight on {name}"
                     for name, count in counts.items() if count]
            return " and ".join(parts)
        return f"up to {self._depth} writes in flight on {' and '.join(self._names(claims))}"

    def _names(self, claims: Sequence[Claim]) -> list[str]:
        return [str(claim.target.path) for claim in claims] or [str(path) for path in self._options.targets]

    def _join_feeders(self, timeout_s: float) -> None:
        """A feeder that is iterating the plan ends at its next write."""
        for feeder in self._feeders:
            if feeder.ident is not None:
                feeder.join(timeout_s)


def _error(exit_code: int | None, errors: str) -> BlkreelError:
    message, _, remedy = errors.rpartition("\n")[2].partition("; ")
    if exit_code is not None and exit_code < 0:
        message, remedy = f"the replay helper was killed by signal {-exit_code}", ""
        if -exit_code in (signal.SIGABRT, signal.SIGSEGV):
            message = f"the replay helper crashed: {errors or signal.Signals(-exit_code).name}"
    elif exit_code is None:
        message = f"the replay helper did not end within {_END_TIMEOUT_S} s"
        remedy = "read the kernel log: dmesg | tail"
    error = _ERRORS.get(exit_code, BlkreelError) if exit_code is not None else BlkreelError
    return error(message or "the replay helper exited without an error message", remedy or None)
