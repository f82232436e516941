"""Runs the helper that issues I/O: feeds it a plan, hands on what became of each row."""

import fcntl
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blkreel.traces.blocks import BlockReader, BlockStreamError, BlockWriter, End, Note, Rows
from blkreel.traces.errors import BlkreelError, SafetyError, UsageError

from . import simulated
from .payload import Payload
from .simulated_spec import SimulatedDrive

HELPER = Path(__file__).with_name("blkreel-replay")

# What every row of a plan has. due_ns -1: as soon as the depth of its lane allows.
PLAN_COLUMNS = [("due_ns", "i8"), ("offset_bytes", "i8"), ("length_bytes", "i8"), ("op", "i1"),
                ("flags", "i4"), ("stream", "i2"), ("burst", "i4"), ("source_row", "i8")]
# Groups that a plan may have besides, each wholly or not at all.
#
# The target that a row goes to, where a run has several.
TARGET_COLUMNS = [("target", "i2")]
# What a row waits for, as distances back in the plan of its lane (0: nothing): the completions of up to four rows,
# the submission of one. Its deadline is the latest of them plus delay_ns; without any its own due_ns counts.
ANCHOR_COLUMNS = [("after_1", "i4"), ("after_2", "i4"), ("after_3", "i4"), ("after_4", "i4"), ("behind", "i4"),
                  ("delay_ns", "i8")]
# When it was submitted in the source, from any origin, and how long it took (-1: unknown): so that the engine can
# count hazards, I/Os in flight together over common bytes that had not been so in the source.
CAPTURED_COLUMNS = [("captured_ns", "i8"), ("captured_latency_ns", "i8")]
RECORD_COLUMNS = [("due_ns", "i8"), ("submit_ns", "i8"), ("complete_ns", "i8"), ("offset_bytes", "i8"),
                  ("length_bytes", "i8"), ("op", "i1"), ("flags", "i4"), ("cpu", "i2"), ("status", "i2"),
                  ("stream", "i2"), ("burst", "i4"), ("source_row", "i8"), ("target", "i2")]

BLOCK_ROWS = 32768
PLAN_BLOCKS_AHEAD = 8  # that the helper reads of each lane before they are wanted
MAX_DEPTH = 16384  # of all lanes of a run together
MAX_LANES = 64
MAX_THREADS = 64
MAX_TARGETS = 16
ANCHOR_REACH = 1 << 18  # rows back that an anchor may lie
AHEAD_ROWS = 1 << 16  # of a plan with anchors, that the engine knows before they are issued

_PIPE_BYTES = 1 << 20
_END_TIMEOUT_S = 45  # the helper gives outstanding I/O 30 s before it ends
_ERRORS = {2: UsageError, 5: SafetyError}


@dataclass(frozen=True)
class EngineOptions:
    """How a plan is issued.

    target: a block device or a regular file, or several of them, which the plan's column `target` counts from 0.
    depth: of a run of one lane, rows outstanding at most. may_write: without it the
    target is opened read-only and a plan with anything but reads is refused. exclusive: claim a block
    device with O_EXCL. spin_ns: how long before a deadline the engine stops sleeping. max_errors: failed
    rows in a row that end the run, 0 for never. null_bytes: no target at all, but one of that size that
    completes at once, or null_targets of them: what is measured then is the engine. plain: none of the
    kernel's newer help. polled: look for completions at the drive, which must be able to. stop_ns: no row is issued
    later than that after the start; what is outstanding then is waited for. simulated: for each null target the drive
    that it stands for; its state is read before the run, and saved after it. One thread issues to such drives.
    """

    target: Path | Sequence[Path] | None = None
    depth: int = 1024
    may_write: bool = False
    direct: bool = True
    seed: int = 0
    payload: Payload = Payload()
    exclusive: bool = True
    cpu: int | None = None
    realtime: bool = False
    spin_ns: int = 100_000
    max_errors: int = 1000
    null_bytes: int | None = None
    null_targets: int = 1
    null_fail: tuple[int, int] | None = None  # from this source row on the null target fails with this errno
    plain: bool = False
    polled: bool = False
    stop_ns: int | None = None
    simulated: tuple[SimulatedDrive, ...] = ()

    @property
    def targets(self) -> list[Path]:
        if self.target is None:
            raise ValueError("neither a target nor null_bytes")
        return [self.target] if isinstance(self.target, str | Path) else list(self.target)

    def command(self) -> list[str]:
        words = [str(HELPER), f"--depth={self.depth}", f"--seed={self.seed}",
                 f"--compressible={self.payload.compressible_percent}",
                 f"--duplicates={self.payload.duplicates_percent}",
                 f"--spin-ns={self.spin_ns}", f"--max-errors={self.max_errors}"]
        words += [word for word, wanted in [("--may-write", self.may_write), ("--buffered", not self.direct),
                                            ("--shared", not self.exclusive), ("--realtime", self.realtime),
                                            ("--plain", self.plain), ("--polled", self.polled)] if wanted]
        if self.cpu is not None:
            words.append(f"--cpu={self.cpu}")
        if self.stop_ns is not None:
            words.append(f"--stop-ns={self.stop_ns}")
        if self.null_fail is not None:
            words.append("--nil-fail={},{}".format(*self.null_fail))
        if self.null_bytes is not None:
            words += ["--virtual-clock"] * any(drive.is_virtual for drive in self.simulated)
            return [*words, f"--nil={self.null_bytes}", f"--nil-targets={self.null_targets}"]
        return [*words, "--", *map(str, self.targets)]


@dataclass(frozen=True)
class Lane:
    """One of several plans of a run, on the same clock: its rows wait for its own depth and for each other only.

    batches: as run_engine takes them, all with the same optional columns. thread: which of the issuing threads,
    numbered from 0 without a gap, issues it. background: it ends when all lanes that are not in the background have
    been issued and completed, and shares its thread with one of them; its plan may be without end.
    """

    batches: Iterable[dict[str, np.ndarray]]
    depth: int
    thread: int = 0
    background: bool = False


def run_engine(options: EngineOptions, plan: Iterable[dict[str, np.ndarray]] | Sequence[Lane],
               on_rows: Callable[[dict[str, np.ndarray]], None], on_note: Callable[[dict], None]) -> dict:
    """Issue `plan`, which is read in a thread of its own as the helper takes it, and return the totals.

    plan: batches of PLAN_COLUMNS, and of the optional groups above where the first batch has them; or a list of lanes.
    on_rows gets the rows as they complete (RECORD_COLUMNS), not in the order of the plan; on_note the progress
    about twice a second. Both run in the caller's thread. Ctrl-C ends the run in order: what was outstanding is
    waited for and handed on, and totals["stopped"] says why. A second Ctrl-C raises KeyboardInterrupt. One that comes
    when all is issued stops nothing here: totals["asked_to_stop"] tells whoever has more to do.
    totals["time_limit"] says whether stop_ns left rows unissued, totals["lane_issued"] how many of each lane were, in
    the order of the lanes: of a plan without anchors always its first ones. Neither is an error, and a plan may be
    without end where one of them ends it. Of simulated drives totals["simulated"] has the samples of the first:
    [[time_ns, temperature_c, power_w, throttled], ...] at 1 Hz of its clock and at its end, and fewer beyond 100,000.

    Raises SafetyError where the target is in use or the plan does not fit it, BlkreelError where the helper
    failed, and whatever `plan` or on_rows raised. The helper has ended whenever this returns or raises.
    """
    with simulated.Running(options.simulated) as drives:
        return _run(options, plan, on_rows, on_note, drives)


def _run(options, plan, on_rows, on_note, drives) -> dict:
    with tempfile.TemporaryFile() as complaint:
        helper, feeders = _start(options, plan, complaint, drives)
        try:
            with _interrupt_ends(helper) as asked:
                for feeder in feeders:
                    feeder.start()
                totals = _collect(helper, on_rows, on_note)
                code = helper.wait(_END_TIMEOUT_S)
        except BlockStreamError:
            code, totals = _code_after_death(helper), None
        finally:
            _end(helper, feeders)
        complaint.seek(0)
        said = complaint.read().decode(errors="replace").strip()
    if totals is not None:
        drives.take(totals.get("simulated"))
    for feeder in feeders:
        if feeder.error is not None:
            raise feeder.error
    if code or totals is None:
        raise _error(code, said)
    return {**totals, "asked_to_stop": bool(asked)}


class _Feeder(threading.Thread):
    """Writes a plan to the helper. An error of the plan's own is kept; the pipe then ends without its end block."""

    def __init__(self, pipe, plan):
        super().__init__(name="plan", daemon=True)
        self._pipe = pipe
        self._plan = plan
        self.error = None

    def run(self):
        try:
            batches = iter(self._plan)
            first = next(batches, None)
            columns = plan_columns(first or {})
            writer = BlockWriter(self._pipe, "plan", columns)
            for batch in [first] if first is not None else []:
                self._write(writer, batch, columns)
            for batch in batches:
                self._write(writer, batch, columns)
            writer.end()
        except BrokenPipeError:
            pass  # the helper has ended, and says itself why
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = error
        finally:
            try:
                self._pipe.close()
            except OSError:
                pass

    @staticmethod
    def _write(writer, batch, columns):
        count = len(batch["due_ns"])
        for first in range(0, count, BLOCK_ROWS):
            writer.rows({name: batch[name][first:first + BLOCK_ROWS] for name, _ in columns})


def plan_columns(batch: dict) -> list[tuple[str, str]]:
    """The layout of a plan whose batches have the columns of this one."""
    groups = (TARGET_COLUMNS, ANCHOR_COLUMNS, CAPTURED_COLUMNS)
    return PLAN_COLUMNS + [column for group in groups if group[0][0] in batch for column in group]


def _start(options, plan, complaint, drives) -> tuple[subprocess.Popen, list[_Feeder]]:
    several = isinstance(plan, list) and bool(plan) and all(isinstance(lane, Lane) for lane in plan)
    lanes = plan if several else [Lane(plan, options.depth)]
    pipes = [os.pipe() for _ in lanes]
    words = options.command()
    if several:
        words[1:1] = [f"--lane={read},{lane.depth},{lane.thread}" + ",background" * lane.background
                      for lane, (read, _) in zip(lanes, pipes, strict=True)]
    states = drives.files()
    words[1:1] = [f"--simulate={file.fileno()}" for file in states]
    try:
        # A session of its own: Ctrl-C on the terminal must reach it through us only, or records would be lost.
        helper = subprocess.Popen(words, stdin=pipes[0][0], stdout=subprocess.PIPE, stderr=complaint,
                                  pass_fds=[*(read for read, _ in pipes), *(file.fileno() for file in states)],
                                  start_new_session=True)
    except BaseException:
        for _, write in pipes:
            os.close(write)
        raise
    finally:
        for read, _ in pipes:
            os.close(read)
        for file in states:
            file.close()
    feeders = [_Feeder(os.fdopen(write, "wb"), lane.batches) for lane, (_, write) in zip(lanes, pipes, strict=True)]
    for end in (helper.stdout.fileno(), *(write for _, write in pipes)):
        try:
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # the user's share of pipe memory is used up; smaller pipes work too
    return helper, feeders


def _collect(helper, on_rows, on_note) -> dict:
    for block in BlockReader(helper.stdout, "records", RECORD_COLUMNS):
        if isinstance(block, Rows):
            on_rows(block.columns)
        elif isinstance(block, Note):
            on_note(block.fields)
        elif isinstance(block, End):
            return block.fields
    raise AssertionError("BlockReader ends with End or raises")


@contextmanager
def _interrupt_ends(helper):
    """The first Ctrl-C asks the helper to end; reading its records goes on undisturbed until they are all here.

    Gives a list that is not empty once it has come.
    """
    asked = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number, frame):
        asked.append(number)
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)
        helper.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)


def _code_after_death(helper):
    try:
        return helper.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


def _end(helper, feeders):
    """Whatever happened: no helper is left, and no thread that feeds it."""
    if helper.poll() is None:
        helper.terminate()
    helper.stdout.close()  # a helper that still writes sees that nobody reads
    try:
        helper.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        helper.kill()
    # A feeder may be inside the plan's own reading; it ends at its next write.
    for feeder in feeders:
        if feeder.ident is not None:
            feeder.join(timeout=5)


def _error(code, said) -> BlkreelError:
    message, _, remedy = said.rpartition("\n")[2].partition("; ")
    if code is not None and code < 0:
        message, remedy = f"the replay helper was killed by signal {-code}", ""
        if -code in (signal.SIGABRT, signal.SIGSEGV):
            message, remedy = f"the replay helper broke: {said or signal.Signals(-code).name}", ""
    return _ERRORS.get(code, BlkreelError)(message or "the replay helper ended without a word", remedy or None)

